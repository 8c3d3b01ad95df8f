"""What a store that collected a world completely holds: rows in the store's column names, worked out from the world.

Nothing here knows how a client gets at the data; it says what the data is. The columns that only the store knows
(which sync wrote a row, when a repository was first seen) are not here.
"""

import re
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal

from bandsync_dagster.simulator.records import Change, Job, Repository, Run, User, change_url, job_url, run_url
from bandsync_dagster.simulator.steps import steps_of

if TYPE_CHECKING:
    from bandsync_dagster.simulator.world import World

Row = dict[str, Any]

# PostgreSQL takes neither: NUL can't be in text, a lone surrogate is no UTF-8.
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
REPOSITORY_FIELDS = (
    *("id", "node_id", "full_name", "private", "visibility", "archived", "disabled", "fork", "has_pull_requests"),
    *("default_branch", "created_at", "pushed_at"),
)
CHANGE_FIELDS = (
    *("id", "repository_id", "node_id", "number", "title", "state", "draft", "base_ref", "base_sha", "head_ref"),
    *("head_sha", "additions", "deletions", "changed_files", "commits", "comments", "first_commit_at"),
    *("created_at", "updated_at", "closed_at", "merged_at", "merge_commit_sha"),
)
RUN_FIELDS = (
    *("id", "repository_id", "node_id", "name", "display_title", "run_number", "event", "head_branch", "head_sha"),
    *("head_repository_id", "created_at"),
)
REST_ONLY = ("created_at", "labels", "runner_id", "runner_name", "runner_group_id", "runner_group_name")
EARLIEST = datetime(2000, 1, 1, tzinfo=timezone.utc)


def rows(world: "World", *, detail: Literal["basic", "full"] = "basic") -> dict[str, list[Row]]:
    """Return every row of the four tables filled from GitHub.

    Deleted repositories are left out; those without access (blocked, SAML) have a row and no content.

    Args:
        world: What is true.
        detail: With `basic`, the jobs of runs that were never re-run lack what only REST tells, and no job has steps.
    """
    listed = [repository for repository in world.repositories.values() if not repository.gone]
    readable = [repository for repository in listed if repository.readable]
    runs = [(r, run) for r in readable if r.actions == "enabled" for run in r.runs]
    found = {
        "repositories": [_repository(r) for r in listed],
        "changes": [_change(r, c) for r in readable if r.has_pull_requests for c in r.changes],
        "verifications": [_verification(repository, run) for repository, run in runs],
        "jobs": [row for repository, run in runs for row in _jobs(repository, run, detail)],
    }
    return {table: sorted(map(_storable_row, its), key=lambda row: row["id"]) for table, its in found.items()}


def _storable_row(row: Row) -> Row:
    return {name: _storable(value) if isinstance(value, (str, list)) else value for name, value in row.items()}


def _storable(value: Any) -> Any:  # noqa: ANN401  (whatever JSON can hold)
    if isinstance(value, str):
        return value if value.isascii() and "\x00" not in value else UNSTORABLE.sub("", value)
    if isinstance(value, list):
        return [_storable(item) for item in value]
    if isinstance(value, dict):
        return {_storable(key): _storable(item) for key, item in value.items()}
    return value


def _lower(word: str | None) -> str | None:
    return None if word is None else word.lower()


def _real(time: datetime | None) -> datetime | None:
    """Return None for the zero time (year 1) that stands for "never" in some answers."""
    return None if time is None or time < EARLIEST else time


def _person(prefix: str, user: User | None, *, full: bool = False) -> Row:
    row: Row = {f"{prefix}_login": user and user.login, f"{prefix}_id": user and user.id}
    if full:
        row |= {f"{prefix}_type": user and user.type, f"{prefix}_is_bot": None if user is None else user.type == "Bot"}
    return row


def _repository(repository: Repository) -> Row:
    return {name: getattr(repository, name) for name in REPOSITORY_FIELDS}


def _change(repository: Repository, change: Change) -> Row:
    row = {name: getattr(change, name) for name in CHANGE_FIELDS}
    row["reviews"] = None if change.reviews is None else len(change.reviews)
    row["first_review_at"] = change.reviews[0].submitted_at if change.reviews else None
    row["review_decision"] = _lower(change.review_decision)
    row["labels"] = [label.name for label in change.labels]
    row["html_url"] = change_url(repository, change)
    return row | _person("author", change.author, full=True) | _person("merged_by", change.merged_by)


def _verification(repository: Repository, run: Run) -> Row:
    attempt = run.attempt
    row = {name: getattr(run, name) for name in RUN_FIELDS}
    row |= {
        "path": run.workflow.path,
        "workflow_id": run.workflow.id,
        "check_suite_id": run.suite_id,
        "check_suite_node_id": run.suite_node_id,
        "run_attempt": attempt.number,
        "status": _lower(attempt.status),
        "conclusion": _lower(attempt.conclusion),
        "run_started_at": attempt.run_started_at,
        "updated_at": attempt.updated_at,
        "html_url": run_url(repository, run),
    }
    return row | _person("actor", run.actor, full=True) | _person("triggering_actor", attempt.triggering_actor)


def _jobs(repository: Repository, run: Run, detail: str) -> list[Row]:
    rest = detail == "full" or run.attempt.number > 1
    return [_job(repository, run, job, rest=rest, steps=detail == "full") for job in run.jobs]


def _job(repository: Repository, run: Run, job: Job, *, rest: bool, steps: bool) -> Row:
    fields = ("id", "run_attempt", "node_id", "name", "copy_of", *REST_ONLY)
    row: Row = {name: getattr(job, name) for name in fields}
    if not rest:
        row |= dict.fromkeys(REST_ONLY)
    return row | {
        "repository_id": repository.id,
        "verification_id": run.id,
        "status": _lower(job.status),
        "conclusion": _lower(job.conclusion),
        "started_at": _real(job.started_at),
        "completed_at": _real(job.completed_at),
        "html_url": job_url(repository, job),
        "steps": [_step(step) for step in steps_of(job)] if steps else None,
    }


def _step(step: Row) -> Row:
    """Return a step with its times in UTC, as text: steps are kept as JSON."""
    words = {name: _lower(step[name]) for name in ("status", "conclusion")}
    times = {name: _utc_text(step[name]) for name in ("started_at", "completed_at")}
    return {"number": step["number"], "name": step["name"], **words, **times}


def _utc_text(text: str | None) -> str | None:
    time = None if text is None else _real(datetime.fromisoformat(text.replace("Z", "+00:00")))
    return None if time is None else time.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")
