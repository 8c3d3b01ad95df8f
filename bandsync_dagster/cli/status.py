"""`status`: what is in the database and what is missing, as tables or as JSON. `read_status` reads, the rest shows."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bandsync_dagster.cli.facts import BucketQuota, bucket_quotas
from bandsync_dagster.cli.progress import gate_text, quota_text
from bandsync_dagster.store.gate import Gate, read_gate
from bandsync_dagster.store.queries import list_repositories
from bandsync_dagster.store.schema import STAGES, SYNC_STATES
from bandsync_dagster.store.status import Gap, StageStatus, coverage, row_counts, stage_statuses, uncovered
from bandsync_dagster.tags import POOL
from bandsync_dagster.wording import moment

_GAPS_SHOWN = 20
# Repositories that GitHub no longer shows: what was collected of them stays, and nothing is missing.
_OUT_OF_REACH = frozenset({"gone", "blocked"})


@dataclass(frozen=True)
class Status:
    """How things stand at one moment."""

    now: datetime
    rows: Mapping[str, int]
    repositories: Mapping[str, int]
    coverage: Mapping[str, int]
    stages: Sequence[StageStatus]
    gaps: Sequence[Gap]
    quotas: Sequence[BucketQuota]
    gate: Gate | None


def read_status(engine: sa.Engine, now: datetime) -> Status:
    """Read how things stand."""
    known = list_repositories(engine)
    names = [repository.full_name for repository in known if repository.state not in _OUT_OF_REACH]
    return Status(
        now=now,
        rows=row_counts(engine),
        repositories=Counter(repository.state for repository in known),
        coverage=coverage(engine, names),
        stages=stage_statuses(engine),
        gaps=uncovered(engine, names),
        quotas=bucket_quotas(engine, now),
        gate=read_gate(engine, POOL),
    )


def print_json(status: Status) -> None:
    """Print everything for a program to read. Times are UTC, ISO 8601."""
    document = {
        "at": status.now,
        "rows": status.rows,
        "repositories": status.repositories,
        "coverage": status.coverage,
        "stages": [row._asdict() for row in status.stages],
        "missing": [gap._asdict() for gap in status.gaps],
        "quotas": [_quota_document(quota) for quota in status.quotas],
        "gate": _gate_document(status.gate),
    }
    print(json.dumps(document, indent=2, default=_plain))  # noqa: T201  (standard output is what was asked for)


def print_status(console: Console, status: Status, *, every_repository: bool) -> None:
    """Print everything for a person to read."""
    console.print(_repositories_line(status))
    console.print(_stage_table(status))
    if every_repository:
        console.print()
        console.print(_repository_table(status))
    console.print()
    _print_gaps(console, status, limit=None if every_repository else _GAPS_SHOWN)
    console.print(f"Quota: {' · '.join(map(quota_text, status.quotas)) or 'nothing is known of it yet'}")
    console.print(gate_text(status.gate, status.now) or "Gate: open")


def _repositories_line(status: Status) -> str:
    states = ", ".join(f"{count:,} {state}" for state, count in sorted(status.repositories.items()))
    reached = ", ".join(f"{count:,} {state}" for state, count in status.coverage.items() if count)
    return f"Repositories: {status.rows['repositories']:,} known ({states or 'none'}); {reached or 'none collected'}"


def _stage_table(status: Status) -> Table:
    """Show for each stage its rows and how its latest syncs stand; states that none is in are left out."""
    counts = Counter((row.stage, row.state) for row in status.stages if row.state)
    states = [state for state in SYNC_STATES if any(counts[stage, state] for stage in STAGES)]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("stage", "rows", *states, "last completed"):
        table.add_column(name, justify="left" if name == "stage" else "right", no_wrap=True)
    for stage in STAGES:
        numbers = [f"{status.rows[stage]:,}", *(f"{counts[stage, state]:,}" for state in states)]
        table.add_row(stage, *numbers, _local(_last_completed(status, stage)))
    return table


def _last_completed(status: Status, stage: str) -> datetime | None:
    completed = (row.finished_at for row in status.stages if row.stage == stage and row.state == "completed")
    return max((at for at in completed if at), default=None)


def _repository_table(status: Status) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("repository", overflow="fold")
    for name in ("stage", "state", "records", "finished"):
        table.add_column(name, justify="right" if name == "records" else "left", no_wrap=True)
    for row in status.stages:
        records = "" if row.records_collected is None else f"{row.records_collected:,}"
        table.add_row(row.full_name, row.stage, _state(row), records, _local(row.finished_at))
    return table


def _state(row: StageStatus) -> str:
    """Say how a stage stands, with the outcome where that says more."""
    state = row.state or "missing"
    return state if row.outcome in (None, "complete", state) else f"{state}: {row.outcome}"


def _print_gaps(console: Console, status: Status, *, limit: int | None) -> None:
    if not status.gaps:
        console.print("Nothing is missing." if status.repositories else "Nothing has been collected yet.")
        return
    table = Table(box=None, pad_edge=False, header_style="bold", title_justify="left")
    for name in ("not complete", "stage", "state", "why"):
        table.add_column(name, overflow="fold")
    for gap in status.gaps[:limit]:
        table.add_row(gap.full_name, gap.stage, gap.state, _why(gap, status.now))
    console.print(table)
    if limit is not None and len(status.gaps) > limit:
        console.print(f"… and {len(status.gaps) - limit:,} more; see all with --all", style="dim")
    console.print()


def _why(gap: Gap, now: datetime) -> Text:
    if gap.state == "deferred" and gap.resume_at:
        return Text(f"goes on {moment(gap.resume_at, now)}")
    return Text(gap.reason or "")


def _local(at: datetime | None) -> str:
    return f"{at.astimezone():%Y-%m-%d %H:%M}" if at else "never"


def _quota_document(quota: BucketQuota) -> dict[str, Any]:
    return {
        "bucket": quota.bucket,
        "remaining": None if quota.limit is None else quota.remaining,
        "limit": quota.limit,
        "tokens": quota.tokens,
        "closed_until": quota.closed_until,
    }


def _gate_document(gate: Gate | None) -> dict[str, Any]:
    if gate is None:
        return {"state": "open"}
    return {"state": gate.state, "bucket": gate.bucket, "closed_until": gate.closed_until}


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no form in JSON")
