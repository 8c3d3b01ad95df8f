"""Which of two versions of a row is right, and what of each survives. Pure: no database.

A row never goes back to older data. `changes` and `verifications` say how old they are by `updated_at`. Jobs have no
such time; they only ever go forward: to a later attempt, and from unfinished to completed to one with a conclusion.
"""

from collections.abc import Callable, Mapping
from typing import Any

from bandsync_dagster.store.rows import Row

Older = Callable[[Mapping[str, Any], Mapping[str, Any]], bool]

# What only GitHub's REST API knows of a job: not known is no reason to forget.
_KEPT_WHEN_UNKNOWN: dict[str, tuple[str, ...]] = {
    "jobs": (
        "created_at",
        "labels",
        "runner_id",
        "runner_name",
        "runner_group_id",
        "runner_group_name",
        "steps",
    ),
}


def merge(table: str, stored: Mapping[str, Any], incoming: Mapping[str, Any]) -> Row:
    """Return the row to keep when `incoming` meets `stored`; equal to `stored` when there is nothing to write."""
    if _OLDER[table](incoming, stored):
        return dict(stored)
    kept = {name: stored[name] for name in _KEPT_WHEN_UNKNOWN.get(table, ()) if incoming[name] is None}
    # The repository whose counters have counted the row stays its repository.
    return {**incoming, **kept, "repository_id": stored["repository_id"]}


def _older_change(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one["updated_at"] < other["updated_at"]


def _older_verification(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    if one["updated_at"] != other["updated_at"]:
        return one["updated_at"] < other["updated_at"]
    # GitHub's times have whole seconds: within one, a run goes forward.
    return _progress(one) < _progress(other)


def _older_job(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return any(mine < theirs for mine, theirs in zip(_progress(one), _progress(other), strict=True))


def _progress(row: Mapping[str, Any]) -> tuple[int, int]:
    completed = row["status"] == "completed"
    return row["run_attempt"], completed + (completed and row["conclusion"] is not None)


_OLDER: dict[str, Older] = {
    "changes": _older_change,
    "verifications": _older_verification,
    "jobs": _older_job,
}
