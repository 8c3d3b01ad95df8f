"""Archived repositories: read-only, so one complete pass after the archiving is the last one needed."""

from collections.abc import Mapping
from typing import Any

from bandsync_dagster.collection.scan import Scan


def is_final(position: Mapping[str, Any] | None) -> bool:
    """Whether a checkpoint was left by a complete pass over a repository that was archived then."""
    return position is not None and bool(position.get("final"))


async def ends_as_final(scan: Scan) -> bool:
    """Whether nothing can have changed; the stage then ends as skipped, without a request."""
    if not is_final(scan.position):
        return False
    if scan.repository.archived:
        scan.outcome("skipped", "archived, and collected completely since")
        return True
    # It was taken out of the archive again.
    await scan.put([], position={**(scan.position or {}), "final": False})
    return False


async def mark_final(scan: Scan, position: Mapping[str, Any] | None) -> None:
    """Remember a complete pass, if the repository is archived."""
    if scan.repository.archived:
        await scan.put([], position={**(position or {}), "final": True})
