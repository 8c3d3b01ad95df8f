"""Rows and syncs to write in tests: complete ones, of which a test names only what it is about."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import sqlalchemy as sa

from bandsync_dagster.store.syncs import Sync, start_sync
from bandsync_dagster.store.writes import Batch

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)

# Ids as GitHub gives them today, far beyond 2^31.
REPOSITORY = 9_000_000_001


def change(number: int, /, **fields: Any) -> dict[str, Any]:
    """Return a row of `changes`."""
    row: dict[str, Any] = {
        "id": 3_000_000_000 + number,
        "repository_id": REPOSITORY,
        "node_id": f"PR_{number}",
        "number": number,
        "title": f"Change {number}",
        "state": "open",
        "draft": False,
        "author_login": None,
        "author_id": None,
        "author_type": None,
        "author_is_bot": None,
        "base_ref": "main",
        "base_sha": "b" * 40,
        "head_ref": "topic",
        "head_sha": "a" * 40,
        "additions": 1,
        "deletions": 2,
        "changed_files": 3,
        "commits": 4,
        "comments": 5,
        "reviews": 6,
        "review_decision": None,
        "first_review_at": None,
        "first_commit_at": None,
        "labels": ["bug"],
        "created_at": NOW - HOUR,
        "updated_at": NOW,
        "closed_at": None,
        "merged_at": None,
        "merge_commit_sha": None,
        "merged_by_login": None,
        "merged_by_id": None,
        "html_url": f"https://github.com/acme/pool/pull/{number}",
    }
    return row | fields


def verification(number: int, /, **fields: Any) -> dict[str, Any]:
    """Return a row of `verifications`."""
    row: dict[str, Any] = {
        "id": 34_000_000_000 + number,
        "repository_id": REPOSITORY,
        "node_id": f"WFR_{number}",
        "name": "CI",
        "display_title": None,
        "path": ".github/workflows/ci.yml",
        "run_number": number,
        "run_attempt": 1,
        "event": "push",
        "status": "completed",
        "conclusion": "success",
        "workflow_id": 140_000_000,
        "check_suite_id": 90_000_000_000 + number,
        "check_suite_node_id": f"CS_{number}",
        "head_branch": "main",
        "head_sha": "a" * 40,
        "actor_login": None,
        "actor_id": None,
        "actor_type": None,
        "actor_is_bot": None,
        "triggering_actor_login": None,
        "triggering_actor_id": None,
        "head_repository_id": None,
        "created_at": NOW - HOUR + timedelta(seconds=number),
        "updated_at": NOW,
        "run_started_at": None,
        "html_url": f"https://github.com/acme/pool/actions/runs/{number}",
    }
    return row | fields


def job(number: int, /, **fields: Any) -> dict[str, Any]:
    """Return a row of `jobs`, as GraphQL gives it."""
    row: dict[str, Any] = {
        "id": 100_000_000_000 + number,
        "repository_id": REPOSITORY,
        "verification_id": 34_000_000_001,
        "run_attempt": 1,
        "node_id": f"CR_{number}",
        "name": f"build ({number})",
        "status": "completed",
        "conclusion": "success",
        "created_at": None,
        "started_at": NOW - HOUR,
        "completed_at": NOW,
        "html_url": None,
        "labels": None,
        "runner_id": None,
        "runner_name": None,
        "runner_group_id": None,
        "runner_group_name": None,
        "steps": None,
        "copy_of": None,
    }
    return row | fields


def repository(number: int = REPOSITORY, /, full_name: str = "acme/pool", **fields: Any) -> dict[str, Any]:
    """Return a row of `repositories` as a listing gives it."""
    row: dict[str, Any] = {
        "id": number,
        "node_id": f"R_{number}",
        "full_name": full_name,
        "private": False,
        "visibility": "public",
        "archived": False,
        "disabled": False,
        "fork": False,
        "default_branch": "main",
        "created_at": NOW - 1000 * HOUR,
        "pushed_at": NOW,
        "has_pull_requests": None,
    }
    return row | fields


def begin(engine: sa.Engine, stage: str = "changes", **fields: Any) -> Sync:
    """Start a sync of the repository."""
    known: dict[str, Any] = {
        "repository_id": REPOSITORY,
        "full_name": "acme/pool",
        "stage": stage,
        "root_run_id": "run-1",
        "run_id": "run-1",
        "now": NOW,
    }
    return start_sync(engine, **(known | fields))


def batch(sync: Sync, number: int, rows: Sequence[Mapping[str, Any]], **fields: Any) -> Batch:
    """Return a batch of a sync's rows; each batch has its own position."""
    known: dict[str, Any] = {"position": {"batch": number}}
    known |= {"number": number, "stage": sync.stage, "repository_id": REPOSITORY, "sync_id": sync.id, "rows": rows}
    return Batch(**(known | fields))


def stored(engine: sa.Engine, table: sa.Table) -> list[dict[str, Any]]:
    """Return all rows of a table by id."""
    with engine.connect() as connection:
        rows = connection.execute(sa.select(table).order_by(*table.primary_key.columns)).mappings()
        return [dict(row) for row in rows]
