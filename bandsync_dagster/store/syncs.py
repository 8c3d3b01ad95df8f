"""The lifecycle of a sync: one table of arrows, enforced by the database in the statement that changes the state.

    start ──▶ running ──complete──▶ completed
                │  ▲
          defer │  │ continue        fail:   running or deferred ──▶ failed
                ▼  │                 cancel: running or deferred ──▶ cancelled
              deferred

`completed`, `failed` and `cancelled` are final. Counters are only ever added to, in SQL.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from bandsync_dagster.store.engine import writing
from bandsync_dagster.store.errors import IllegalTransition, UnknownSync
from bandsync_dagster.store.rows import clean_json, clean_text
from bandsync_dagster.store.schema import STAGES, syncs


class Arrow(NamedTuple):
    """An event of a sync: the states it may start from and the one it leads to."""

    sources: tuple[str, ...]
    target: str


TRANSITIONS: dict[str, Arrow] = {
    "continue": Arrow(("deferred",), "running"),
    "defer": Arrow(("running",), "deferred"),
    "complete": Arrow(("running",), "completed"),
    "fail": Arrow(("running", "deferred"), "failed"),
    "cancel": Arrow(("running", "deferred"), "cancelled"),
}


@dataclass(frozen=True, slots=True)
class Sync:
    """A row of `syncs`."""

    id: int
    repository_id: int | None
    full_name: str
    stage: str
    root_run_id: str
    run_id: str
    state: str
    records_collected: int
    records_created: int
    records_updated: int
    records_unchanged: int
    requests: int
    points: int
    deferrals: int
    last_batch: int
    resume_at: datetime | None
    bucket: str | None
    outcome: str | None
    error: str | None
    metrics: dict[str, Any] | None
    started_at: datetime
    finished_at: datetime | None
    heartbeat_at: datetime | None


def start_sync(
    engine: sa.Engine,
    *,
    repository_id: int | None,
    full_name: str,
    stage: str,
    root_run_id: str,
    run_id: str,
    now: datetime,
) -> Sync:
    """Begin a new sync. `repository_id` is None when it is not known yet which repository the name means."""
    if stage not in STAGES:
        raise ValueError(f"no stage {stage!r}: one of {', '.join(STAGES)}")
    statement = syncs.insert().values(
        repository_id=repository_id,
        full_name=clean_text(full_name),
        stage=stage,
        root_run_id=root_run_id,
        run_id=run_id,
        state="running",
        started_at=now,
        heartbeat_at=now,
    )
    with writing(engine) as connection:
        return as_sync(connection.execute(statement.returning(syncs)).mappings().one())


def as_sync(row: sa.RowMapping) -> Sync:
    """Return a row of `syncs` as an object."""
    return Sync(**row)


def continue_sync(
    engine: sa.Engine, *, full_name: str, stage: str, predecessor_run_id: str, run_id: str, now: datetime
) -> Sync | None:
    """Take over the sync that a run left behind, if that run worked on it last.

    It is looked up by name: one that was deferred before GitHub resolved the name has no repository yet.

    A deferred one runs again. A completed one stays completed and is returned, so that its result can be told again
    without a request; it now belongs to `run_id`, from where the next run may take it over.

    Returns:
        The sync, or None when there is none to continue: start a new one.
    """
    left_behind = (
        sa.select(syncs.c.id, syncs.c.state)
        .where(syncs.c.run_id == predecessor_run_id, syncs.c.stage == stage)
        .where(sa.func.lower(syncs.c.full_name) == full_name.lower())
        .order_by(syncs.c.id.desc())
        .limit(1)
        .with_for_update()
    )
    with writing(engine) as connection:
        found = connection.execute(left_behind).one_or_none()
        if found is None or found.state not in (*TRANSITIONS["continue"].sources, "completed"):
            return None
        if found.state == "completed":
            return _set(connection, found.id, {"run_id": run_id})
        values = {"run_id": run_id, "resume_at": None, "bucket": None, "heartbeat_at": now}
        return _move(connection, found.id, "continue", values)


def identify_sync(engine: sa.Engine, sync_id: int, *, repository_id: int, now: datetime) -> Sync:
    """Say which repository the name of a sync means, before its first batch."""
    with writing(engine) as connection:
        values = {"repository_id": repository_id, "heartbeat_at": now}
        identified = _set(connection, sync_id, values, syncs.c.state == "running", syncs.c.last_batch == 0)
        if identified is None:
            raise IllegalTransition(sync_id, "identify", state_of(connection, sync_id))
        return identified


def beat(engine: sa.Engine, sync_id: int, *, now: datetime) -> bool:
    """Give a sign of life. Returns whether the sync is still running: somebody may have ended it meanwhile."""
    with writing(engine) as connection:
        return _set(connection, sync_id, {"heartbeat_at": now}, syncs.c.state == "running") is not None


def defer_sync(
    engine: sa.Engine,
    sync_id: int,
    *,
    resume_at: datetime,
    bucket: str,
    requests: int = 0,
    points: int = 0,
    metrics: Mapping[str, Any] | None = None,
    now: datetime,
) -> Sync:
    """Put a running sync off until `resume_at`. `requests` and `points` are those no batch has added."""
    del now  # The sync goes on: only its end is dated.
    values = {"resume_at": resume_at, "bucket": bucket, "deferrals": syncs.c.deferrals + 1}
    values |= _spent(requests, points) | _measured(metrics)
    with writing(engine) as connection:
        return _move(connection, sync_id, "defer", values)


def complete_sync(
    engine: sa.Engine,
    sync_id: int,
    *,
    outcome: str = "complete",
    reason: str | None = None,
    requests: int = 0,
    points: int = 0,
    metrics: Mapping[str, Any] | None = None,
    now: datetime,
) -> Sync:
    """End a running sync well; `reason` says why it is another outcome than `complete`.

    `requests` and `points` are those no batch has added.
    """
    values = _spent(requests, points) | _measured(metrics) | _ended(outcome, reason, now)
    with writing(engine) as connection:
        return _move(connection, sync_id, "complete", values)


def fail_sync(
    engine: sa.Engine,
    sync_id: int,
    *,
    outcome: str,
    error: str,
    requests: int = 0,
    points: int = 0,
    metrics: Mapping[str, Any] | None = None,
    now: datetime,
) -> Sync:
    """End a sync as failed: `outcome` in one word, `error` in one line."""
    values = _spent(requests, points) | _measured(metrics) | _ended(outcome, error, now)
    with writing(engine) as connection:
        return _move(connection, sync_id, "fail", values)


def cancel_sync(
    engine: sa.Engine,
    sync_id: int,
    *,
    reason: str,
    outcome: str = "cancelled",
    requests: int = 0,
    points: int = 0,
    metrics: Mapping[str, Any] | None = None,
    now: datetime,
) -> Sync:
    """End a sync because somebody stopped it; `reason` says who or what."""
    values = _spent(requests, points) | _measured(metrics) | _ended(outcome, reason, now)
    with writing(engine) as connection:
        return _move(connection, sync_id, "cancel", values)


def _spent(requests: int, points: int) -> dict[str, Any]:
    return {"requests": syncs.c.requests + requests, "points": syncs.c.points + points}


def _measured(metrics: Mapping[str, Any] | None) -> dict[str, Any]:
    return {} if metrics is None else {"metrics": clean_json(metrics)}


def _ended(outcome: str, why: str | None, now: datetime) -> dict[str, Any]:
    error = None if why is None else clean_text(why)
    return {"outcome": outcome, "error": error, "finished_at": now, "resume_at": None, "bucket": None}


def _move(connection: sa.Connection, sync_id: int, event: str, values: Mapping[str, Any]) -> Sync:
    """Follow an arrow, in one statement that only matches a sync at the arrow's start."""
    arrow = TRANSITIONS[event]
    moved = _set(connection, sync_id, {**values, "state": arrow.target}, syncs.c.state.in_(arrow.sources))
    if moved is None:
        raise IllegalTransition(sync_id, event, state_of(connection, sync_id))
    return moved


def _set(
    connection: sa.Connection, sync_id: int, values: Mapping[str, Any], *conditions: sa.ColumnElement[bool]
) -> Sync | None:
    statement = syncs.update().where(syncs.c.id == sync_id, *conditions).values(**values).returning(syncs)
    row = connection.execute(statement).mappings().one_or_none()
    return None if row is None else as_sync(row)


def state_of(connection: sa.Connection, sync_id: int) -> str:
    """Return the state of a sync.

    Raises:
        UnknownSync: There is no such sync.
    """
    state = connection.execute(sa.select(syncs.c.state).where(syncs.c.id == sync_id)).scalar_one_or_none()
    if state is None:
        raise UnknownSync(sync_id)
    return state
