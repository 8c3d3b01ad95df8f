"""Reading the store: every question the rest of the project asks. Nothing here writes.

The numbers of one answer always come from the same moment. What is asked only to show how things stand is in `status`.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

import sqlalchemy as sa

from bandsync_dagster.store.engine import reading
from bandsync_dagster.store.schema import (
    STAGE_TABLES,
    UNFINISHED_SYNC,
    UNFINISHED_VERIFICATION,
    checkpoints,
    job_totals,
    jobs,
    repositories,
    syncs,
    verifications,
)
from bandsync_dagster.store.syncs import Sync, as_sync
from bandsync_dagster.store.types import UtcDateTime

Detail = Literal["basic", "full"]


@dataclass(frozen=True, slots=True)
class StoredRepository:
    """A row of `repositories`."""

    id: int
    node_id: str
    full_name: str
    private: bool
    visibility: str | None
    archived: bool
    disabled: bool
    fork: bool
    has_pull_requests: bool | None
    default_branch: str | None
    created_at: datetime | None
    pushed_at: datetime | None
    state: str
    state_reason: str | None
    first_seen_at: datetime
    last_seen_at: datetime


class PendingVerification(NamedTuple):
    """A verification whose jobs are to be collected.

    `retries` counts how often its jobs were asked for again because they had not finished; 0 for a first time or a new
    attempt.
    """

    id: int
    run_attempt: int
    status: str | None
    conclusion: str | None
    check_suite_node_id: str | None
    created_at: datetime
    run_started_at: datetime | None
    retries: int


class UnfinishedVerification(NamedTuple):
    """A verification that was not completed when it was last seen."""

    id: int
    run_attempt: int
    status: str | None
    created_at: datetime
    updated_at: datetime
    run_started_at: datetime | None


@dataclass(frozen=True, slots=True)
class CounterFacts:
    """What the checks of a stage of a repository compare.

    Attributes:
        latest: The latest sync of the stage; None when there is none.
        created_by_all: What all syncs of the stage say they created.
        rows: The rows of the repository in the stage's table.
        rows_of_latest: The rows that the latest sync created.
    """

    latest: Sync | None
    created_by_all: int = 0
    rows: int = 0
    rows_of_latest: int = 0


class JobShortfall(NamedTuple):
    """A verification with fewer jobs stored than GitHub says it has."""

    verification_id: int
    stored: int
    total: int


def find_repository(engine: sa.Engine, full_name: str) -> StoredRepository | None:
    """Return the repository of that name, without regard to case; of several that had it, the one seen last."""
    statement = (
        sa.select(repositories)
        .where(sa.func.lower(repositories.c.full_name) == full_name.lower())
        .order_by(repositories.c.last_seen_at.desc(), repositories.c.id.desc())
        .limit(1)
    )
    with reading(engine) as connection:
        row = connection.execute(statement).mappings().one_or_none()
    return None if row is None else StoredRepository(**row)


def list_repositories(engine: sa.Engine) -> list[StoredRepository]:
    """Return all repositories by name."""
    statement = sa.select(repositories).order_by(repositories.c.full_name, repositories.c.id)
    with reading(engine) as connection:
        return [StoredRepository(**row) for row in connection.execute(statement).mappings()]


def checkpoint(engine: sa.Engine, repository_id: int, stage: str) -> dict[str, Any] | None:
    """Return how far a stage of a repository is known to be complete; None before its first batch."""
    statement = sa.select(checkpoints.c.position).where(
        checkpoints.c.repository_id == repository_id, checkpoints.c.stage == stage
    )
    with reading(engine) as connection:
        return connection.execute(statement).scalar_one_or_none()


def pending_verifications(
    engine: sa.Engine,
    repository_id: int,
    *,
    now: datetime,
    limit: int,
    detail: Detail,
    since: datetime | None = None,
    before: tuple[datetime, int] | None = None,
) -> list[PendingVerification]:
    """Return the verifications whose jobs are to be collected, newest first.

    That is: never collected at the current attempt, collected without the detail wanted, or due to be asked again.

    Args:
        engine: The store.
        repository_id: Whose.
        now: When what is due is due.
        limit: How many at most.
        detail: `full` also returns those collected as `basic`.
        since: When the sync began, if it is going on: what it has asked for is not due again before the next one.
        before: Creation time and id of the last one of an earlier answer: goes on behind it.
    """
    fresh = sa.or_(job_totals.c.verification_id.is_(None), job_totals.c.run_attempt < verifications.c.run_attempt)
    asked = job_totals.c.collected_at > since if since else sa.false()
    due = [fresh, sa.and_(job_totals.c.retry_at <= now, ~asked)]
    if detail == "full":
        due.append(job_totals.c.detail != "full")
    statement = (
        sa.select(
            *(verifications.c[name] for name in PendingVerification._fields[:-1]),
            sa.case((fresh, 0), else_=job_totals.c.retries),
        )
        .outerjoin_from(verifications, job_totals, job_totals.c.verification_id == verifications.c.id)
        .where(verifications.c.repository_id == repository_id, sa.or_(*due))
        .order_by(verifications.c.created_at.desc(), verifications.c.id.desc())
        .limit(limit)
    )
    if before is not None:
        statement = statement.where(_behind(*before))
    with reading(engine) as connection:
        return [PendingVerification(*row) for row in connection.execute(statement)]


def _behind(created_at: datetime, verification_id: int) -> sa.ColumnElement[bool]:
    """Older than, or as old and with a smaller id: a row comparison, which both planners look up in the index."""
    place = sa.tuple_(verifications.c.created_at, verifications.c.id)
    return place < sa.tuple_(sa.literal(created_at, UtcDateTime), sa.literal(verification_id))


def unfinished_verifications(engine: sa.Engine, repository_id: int) -> list[UnfinishedVerification]:
    """Return the verifications that may have gone on since they were stored, oldest first."""
    statement = (
        sa.select(*(verifications.c[name] for name in UnfinishedVerification._fields))
        .where(verifications.c.repository_id == repository_id, UNFINISHED_VERIFICATION)
        .order_by(verifications.c.created_at, verifications.c.id)
    )
    with reading(engine) as connection:
        return [UnfinishedVerification(*row) for row in connection.execute(statement)]


def gone_repositories(engine: sa.Engine) -> list[str]:
    """Return the names of the repositories that are gone, but not a name that another repository has now."""
    others = repositories.alias("others")
    taken = sa.exists().where(
        sa.func.lower(others.c.full_name) == sa.func.lower(repositories.c.full_name), others.c.state != "gone"
    )
    statement = sa.select(repositories.c.full_name).where(repositories.c.state == "gone", ~taken)
    with reading(engine) as connection:
        return list(connection.execute(statement.order_by(repositories.c.full_name)).scalars())


def former_names(engine: sa.Engine) -> dict[str, str]:
    """Return names under which repositories were collected that have another one now, and that one; in lower case."""
    former, present = sa.func.lower(syncs.c.full_name), sa.func.lower(repositories.c.full_name)
    taken = sa.select(sa.func.lower(repositories.c.full_name))
    statement = (
        sa.select(former, present)
        .join_from(syncs, repositories, repositories.c.id == syncs.c.repository_id)
        .where(former.not_in(taken))
        .distinct()
    )
    with reading(engine) as connection:
        return dict(connection.execute(statement).tuples().all())


def unfinished_syncs(engine: sa.Engine) -> list[Sync]:
    """Return the syncs that are running or deferred, oldest first."""
    statement = sa.select(syncs).where(UNFINISHED_SYNC).order_by(syncs.c.id)
    with reading(engine) as connection:
        return [as_sync(row) for row in connection.execute(statement).mappings()]


def find_sync(engine: sa.Engine, sync_id: int) -> Sync | None:
    """Return a sync by its id."""
    with reading(engine) as connection:
        row = connection.execute(sa.select(syncs).where(syncs.c.id == sync_id)).mappings().one_or_none()
    return None if row is None else as_sync(row)


def syncs_of_run(engine: sa.Engine, run_id: str) -> list[Sync]:
    """Return the syncs that a run works on, or worked on last."""
    statement = sa.select(syncs).where(syncs.c.run_id == run_id).order_by(syncs.c.id)
    with reading(engine) as connection:
        return [as_sync(row) for row in connection.execute(statement).mappings()]


def latest_sync(engine: sa.Engine, full_name: str, stage: str) -> Sync | None:
    """Return the latest sync of a stage under that name, without regard to case."""
    with reading(engine) as connection:
        return _latest(connection, full_name, stage)


def _latest(connection: sa.Connection, full_name: str, stage: str) -> Sync | None:
    statement = (
        sa.select(syncs)
        .where(sa.func.lower(syncs.c.full_name) == full_name.lower(), syncs.c.stage == stage)
        .order_by(syncs.c.id.desc())
        .limit(1)
    )
    row = connection.execute(statement).mappings().one_or_none()
    return None if row is None else as_sync(row)


def counter_facts(engine: sa.Engine, full_name: str, stage: str) -> CounterFacts:
    """Return what the checks of a stage compare, for the repository that the latest sync under that name found."""
    table = STAGE_TABLES[stage]
    with reading(engine) as connection:
        latest = _latest(connection, full_name, stage)
        if latest is None or latest.repository_id is None:
            return CounterFacts(latest)
        created = sa.select(sa.func.sum(syncs.c.records_created)).where(
            syncs.c.repository_id == latest.repository_id, syncs.c.stage == stage
        )
        return CounterFacts(
            latest,
            int(connection.execute(created).scalar_one()),
            _count(connection, table, table.c.repository_id == latest.repository_id),
            _count(connection, table, table.c.first_sync_id == latest.id),
        )


def row_count(engine: sa.Engine, repository_id: int, stage: str) -> int:
    """Return how many rows of a repository a stage's table has."""
    table = STAGE_TABLES[stage]
    with reading(engine) as connection:
        return _count(connection, table, table.c.repository_id == repository_id)


def _count(connection: sa.Connection, table: sa.Table, *conditions: sa.ColumnElement[bool]) -> int:
    return connection.execute(sa.select(sa.func.count()).select_from(table).where(*conditions)).scalar_one()


def job_shortfalls(engine: sa.Engine, repository_id: int) -> list[JobShortfall]:
    """Return the verifications with fewer jobs stored than GitHub said there are, newest first."""
    stored = sa.func.count(jobs.c.id)
    statement = (
        sa.select(job_totals.c.verification_id, stored, job_totals.c.total)
        .outerjoin_from(job_totals, jobs, jobs.c.verification_id == job_totals.c.verification_id)
        .where(job_totals.c.repository_id == repository_id, job_totals.c.total > 0)
        .group_by(job_totals.c.verification_id, job_totals.c.total)
        .having(stored < job_totals.c.total)
        .order_by(job_totals.c.verification_id.desc())
    )
    with reading(engine) as connection:
        return [JobShortfall(*row) for row in connection.execute(statement)]
