"""What the commands show of the database: the syncs of a collection, the quota, the gate. Only reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import sqlalchemy as sa

from bandsync_dagster.store.engine import reading
from bandsync_dagster.store.gate import Gate, read_gate
from bandsync_dagster.store.schema import quotas, syncs
from bandsync_dagster.store.syncs import Sync, as_sync
from bandsync_dagster.tags import POOL


@dataclass(frozen=True)
class BucketQuota:
    """What is left of one of GitHub's rate limits, over all tokens. `limit` is None where there is none."""

    bucket: str
    remaining: int
    limit: int | None
    tokens: int
    closed_until: datetime | None = None


@dataclass(frozen=True)
class Facts:
    """What the database says about a collection at one moment."""

    syncs: Sequence[Sync] = ()
    quotas: Sequence[BucketQuota] = ()
    gate: Gate | None = None
    records: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        """Add up the records."""
        object.__setattr__(self, "records", sum(sync.records_collected for sync in self.syncs))


def read_facts(engine: sa.Engine, root_run_ids: Sequence[str], now: datetime) -> Facts:
    """Read everything the progress display shows."""
    return Facts(syncs=syncs_of(engine, root_run_ids), quotas=bucket_quotas(engine, now), gate=read_gate(engine, POOL))


def syncs_of(engine: sa.Engine, root_run_ids: Sequence[str]) -> list[Sync]:
    """Return the syncs that the given runs, or those that took over from them, worked on; oldest first."""
    if not root_run_ids:
        return []
    query = sa.select(syncs).where(syncs.c.root_run_id.in_(root_run_ids)).order_by(syncs.c.id)
    with reading(engine) as connection:
        return [as_sync(row) for row in connection.execute(query)]


def bucket_quotas(engine: sa.Engine, now: datetime) -> list[BucketQuota]:
    """Return what is left of each rate limit. One whose window has ended counts as full."""
    with reading(engine) as connection:
        rows = connection.execute(sa.select(quotas).order_by(quotas.c.bucket)).mappings().all()
    return [_bucket(bucket, [row for row in rows if row["bucket"] == bucket], now) for bucket in _names(rows)]


def _names(rows: Sequence[sa.RowMapping]) -> list[str]:
    return list(dict.fromkeys(row["bucket"] for row in rows))


def _bucket(bucket: str, rows: Sequence[sa.RowMapping], now: datetime) -> BucketQuota:
    limited = [row for row in rows if not row["unlimited"] and row["limit_"]]
    if not limited:
        return BucketQuota(bucket, 0, None, len(rows))
    closings = [row["closed_until"] for row in limited if row["closed_until"] and row["closed_until"] > now]
    return BucketQuota(
        bucket=bucket,
        remaining=sum(_remaining(row, now) for row in limited),
        limit=sum(row["limit_"] for row in limited),
        tokens=len(rows),
        # With another token still open nobody waits.
        closed_until=min(closings) if len(closings) == len(rows) else None,
    )


def _remaining(row: Mapping[str, object] | sa.RowMapping, now: datetime) -> int:
    window_is_over = row["reset_at"] is not None and row["reset_at"] <= now
    return row["limit_"] if window_is_over or row["remaining"] is None else row["remaining"]
