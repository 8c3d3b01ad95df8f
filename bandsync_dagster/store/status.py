"""How things stand, for people: what was reached, what is missing, what is left of the quota. Nothing here writes."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa

from bandsync_dagster.store.engine import reading
from bandsync_dagster.store.schema import STAGE_TABLES, STAGES, quotas, repositories, stage_status, syncs
from bandsync_dagster.store.syncs import Sync, as_sync

# What a repository is when its stages differ: the first of these that any of them is.
COVERAGE: tuple[str, ...] = ("failed", "deferred", "running", "missing", "reached")

_COVERED = {"completed": "reached", "cancelled": "failed"}
_NAMES_PER_STATEMENT = 5_000


class Gap(NamedTuple):
    """A stage of a repository that is not completely collected. `state` is the latest sync's, or `missing`."""

    full_name: str
    stage: str
    state: str
    reason: str | None
    resume_at: datetime | None


class StageStatus(NamedTuple):
    """A row of the view `stage_status`: how the latest sync of a stage of a repository stands."""

    repository_id: int | None
    full_name: str
    stage: str
    repository_state: str | None
    repository_state_reason: str | None
    sync_id: int | None
    state: str | None
    outcome: str | None
    error: str | None
    bucket: str | None
    resume_at: datetime | None
    records_collected: int | None
    records_created: int | None
    records_updated: int | None
    records_unchanged: int | None
    requests: int | None
    points: int | None
    deferrals: int | None
    run_id: str | None
    started_at: datetime | None
    finished_at: datetime | None
    checkpoint_at: datetime | None


class QuotaState(NamedTuple):
    """What is known of one bucket of one token."""

    fingerprint: str
    bucket: str
    unlimited: bool
    limit: int | None
    remaining: int | None
    reset_at: datetime | None
    closed_until: datetime | None
    observed_at: datetime

    def left(self, now: datetime) -> int:
        """Return what is left of a limited one; one whose window has ended counts as full."""
        window_is_over = self.reset_at is not None and self.reset_at <= now
        return (self.limit or 0) if window_is_over or self.remaining is None else self.remaining


def stage_statuses(engine: sa.Engine) -> list[StageStatus]:
    """Return the view `stage_status` by name and stage."""
    columns = [stage_status.c[name] for name in StageStatus._fields]
    statement = sa.select(*columns).order_by(stage_status.c.full_name, stage_status.c.stage)
    with reading(engine) as connection:
        return [StageStatus(*row) for row in connection.execute(statement)]


def latest_syncs(engine: sa.Engine, names: Iterable[str]) -> dict[tuple[str, str], Sync]:
    """Return the latest sync under each name and stage; the names in the answer are lower-case."""
    wanted = sorted({name.lower() for name in names})
    name = sa.func.lower(syncs.c.full_name)
    found: dict[tuple[str, str], Sync] = {}
    with reading(engine) as connection:
        for start in range(0, len(wanted), _NAMES_PER_STATEMENT):
            some = name.in_(wanted[start : start + _NAMES_PER_STATEMENT])
            latest = sa.select(sa.func.max(syncs.c.id)).where(some).group_by(name, syncs.c.stage)
            rows = connection.execute(sa.select(syncs).where(syncs.c.id.in_(latest))).mappings()
            for sync in map(as_sync, rows):
                found[sync.full_name.lower(), sync.stage] = sync
    return found


def uncovered(engine: sa.Engine, names: Sequence[str]) -> list[Gap]:
    """Return the stages of these repositories that are not completely collected, in the order of the names."""
    latest = latest_syncs(engine, names)
    gaps = (_gap(name, stage, latest.get((name.lower(), stage))) for name in names for stage in STAGES)
    return [gap for gap in gaps if gap is not None]


def _gap(name: str, stage: str, sync: Sync | None) -> Gap | None:
    if sync is None:
        return Gap(name, stage, "missing", "never collected", None)
    if sync.state == "completed":
        return None
    return Gap(name, stage, sync.state, sync.error or sync.outcome, sync.resume_at)


def coverage(engine: sa.Engine, names: Sequence[str]) -> dict[str, int]:
    """Return how many of these repositories are reached, running, deferred, failed (or cancelled) or missing.

    A repository is reached when all its stages are; otherwise it is the worst that one of its stages is.
    """
    latest = latest_syncs(engine, names)
    counts = dict.fromkeys(COVERAGE, 0)
    for name in names:
        counts[_standing([latest.get((name.lower(), stage)) for stage in STAGES])] += 1
    return counts


def _standing(stages: Sequence[Sync | None]) -> str:
    standings = {"missing" if sync is None else _COVERED.get(sync.state, sync.state) for sync in stages}
    return next(standing for standing in COVERAGE if standing in standings)


def quota_states(engine: sa.Engine) -> list[QuotaState]:
    """Return what is known of every bucket of every token."""
    columns = [quotas.c["limit_" if name == "limit" else name] for name in QuotaState._fields]
    statement = sa.select(*columns).order_by(quotas.c.fingerprint, quotas.c.bucket)
    with reading(engine) as connection:
        return [QuotaState(*row) for row in connection.execute(statement)]


def row_counts(engine: sa.Engine) -> Mapping[str, int]:
    """Return how many rows each table of collected data has."""
    tables = {"repositories": repositories, **STAGE_TABLES}
    counts = [sa.select(sa.func.count()).select_from(table).scalar_subquery() for table in tables.values()]
    with reading(engine) as connection:
        return dict(zip(tables, connection.execute(sa.select(*counts)).one(), strict=True))
