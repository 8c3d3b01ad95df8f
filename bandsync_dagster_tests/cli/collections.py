"""Runs and syncs as a collection leaves them, for tests of what is made of them."""

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from bandsync_dagster.cli.webserver import Run
from bandsync_dagster.store.syncs import Sync
from bandsync_dagster.tags import COLLECTION_JOB, PARTITION, SUCCESSOR_OF

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=timezone.utc)


def run(
    number: int, key: str = "acme/pool", status: str = "SUCCESS", *, after: int | None = None, **fields: Any
) -> Run:
    """Return a run of a repository; `after` is the number of the deferred run that it took over from."""
    tags: Mapping[str, str] = {PARTITION: key, **fields.pop("tags", {})}
    if after is not None:
        tags = {**tags, SUCCESSOR_OF: f"run-{after}"}
    parent = None if after is None else f"run-{after}"
    known: dict[str, Any] = {"id": f"run-{number}", "job": COLLECTION_JOB, "status": status, "parent": parent}
    return Run(**(known | {"tags": tags} | fields))


def sync(number: int, stage: str, **fields: Any) -> Sync:
    """Return a completed sync of ten records of run 1, three of them new."""
    known: dict[str, Any] = {
        "id": number,
        "repository_id": 9_000_000_001,
        "full_name": "acme/pool",
        "stage": stage,
        "root_run_id": "run-1",
        "run_id": "run-1",
        "state": "completed",
        "records_collected": 10,
        "records_created": 3,
        "records_updated": 2,
        "records_unchanged": 5,
        "requests": 4,
        "points": 1,
        "deferrals": 0,
        "last_batch": 1,
        "resume_at": None,
        "bucket": None,
        "outcome": "complete",
        "error": None,
        "metrics": None,
        "heartbeat_at": NOW,
        "started_at": NOW,
        "finished_at": NOW + timedelta(seconds=5),
    }
    return Sync(**(known | fields))


def complete_syncs(**fields: Any) -> list[Sync]:
    """Return a completed sync of each stage."""
    return [sync(number, stage, **fields) for number, stage in enumerate(("changes", "verifications", "jobs"), 1)]
