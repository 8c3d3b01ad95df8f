"""How far every repository is collected: what deciding whom to collect next, and at what cost, needs to know.

One row per repository, from a handful of grouped queries: there may be thousands of repositories. Nothing here writes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from bandsync_dagster.store.engine import reading
from bandsync_dagster.store.queries import Detail, StoredRepository
from bandsync_dagster.store.schema import (
    UNFINISHED_VERIFICATION,
    changes,
    checkpoints,
    job_totals,
    repositories,
    syncs,
    verifications,
)


@dataclass(frozen=True, slots=True)
class Standing:
    """How far one repository is collected.

    Attributes:
        repository: The repository.
        positions: The checkpoint of each stage that has one.
        completed: When the latest sync of each stage started, of those where it is completed.
        changes: How many changes are stored.
        newest_change: When the latest of them was updated.
        verifications: How many verifications are stored.
        unfinished: How many of them were not completed when last seen.
        reruns: How many of them were run more than once.
        pending: How many of them wait for their jobs to be collected.
    """

    repository: StoredRepository
    positions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    completed: Mapping[str, datetime] = field(default_factory=dict[str, datetime])
    changes: int = 0
    newest_change: datetime | None = None
    verifications: int = 0
    unfinished: int = 0
    reruns: int = 0
    pending: int = 0


def standings(engine: sa.Engine, *, now: datetime, detail: Detail = "basic") -> list[Standing]:
    """Return how far each readable repository is collected, by name.

    Args:
        engine: The store.
        now: When what is due is due.
        detail: How much of each job is wanted: where less is stored, its verification is pending.
    """
    statement = sa.select(repositories).where(repositories.c.state == "active").order_by(repositories.c.full_name)
    with reading(engine) as connection:
        known = [StoredRepository(**row) for row in connection.execute(statement).mappings()]
        positions = _positions(connection)
        completed = _completed(connection)
        stored_changes = _grouped(connection, _change_facts())
        stored_runs = _grouped(connection, _verification_facts(now, detail))
    return [
        Standing(
            repository,
            positions.get(repository.id, {}),
            completed.get(repository.id, {}),
            **stored_changes.get(repository.id, {}),
            **stored_runs.get(repository.id, {}),
        )
        for repository in known
    ]


def _positions(connection: sa.Connection) -> dict[int, dict[str, Mapping[str, Any]]]:
    statement = sa.select(checkpoints.c.repository_id, checkpoints.c.stage, checkpoints.c.position)
    found: dict[int, dict[str, Mapping[str, Any]]] = {}
    for repository_id, stage, position in connection.execute(statement):
        found.setdefault(repository_id, {})[stage] = position
    return found


def _completed(connection: sa.Connection) -> dict[int, dict[str, datetime]]:
    latest = sa.select(sa.func.max(syncs.c.id)).group_by(syncs.c.repository_id, syncs.c.stage)
    statement = sa.select(syncs.c.repository_id, syncs.c.stage, syncs.c.started_at).where(
        syncs.c.id.in_(latest), syncs.c.state == "completed", syncs.c.repository_id.is_not(None)
    )
    found: dict[int, dict[str, datetime]] = {}
    for repository_id, stage, started_at in connection.execute(statement):
        found.setdefault(repository_id, {})[stage] = started_at
    return found


def _change_facts() -> sa.Select[Any]:
    return sa.select(
        changes.c.repository_id,
        sa.func.count().label("changes"),
        sa.func.max(changes.c.updated_at).label("newest_change"),
    ).group_by(changes.c.repository_id)


def _verification_facts(now: datetime, detail: Detail) -> sa.Select[Any]:
    pending = sa.or_(
        job_totals.c.verification_id.is_(None),
        job_totals.c.run_attempt < verifications.c.run_attempt,
        job_totals.c.retry_at <= now,
        job_totals.c.detail != "full" if detail == "full" else sa.false(),
    )
    return (
        sa.select(
            verifications.c.repository_id,
            sa.func.count().label("verifications"),
            _count_where(UNFINISHED_VERIFICATION).label("unfinished"),
            _count_where(verifications.c.run_attempt > 1).label("reruns"),
            _count_where(pending).label("pending"),
        )
        .outerjoin_from(verifications, job_totals, job_totals.c.verification_id == verifications.c.id)
        .group_by(verifications.c.repository_id)
    )


def _count_where(condition: sa.ColumnElement[bool] | sa.TextClause) -> sa.ColumnElement[int]:
    return sa.func.count(sa.case((condition, 1)))


def _grouped(connection: sa.Connection, statement: sa.Select[Any]) -> dict[int, dict[str, Any]]:
    rows: Sequence[sa.RowMapping] = connection.execute(statement).mappings().all()
    return {row["repository_id"]: {name: row[name] for name in row if name != "repository_id"} for row in rows}
