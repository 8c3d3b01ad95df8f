"""What the commands show of the database: the syncs of a collection, the quota, the gate. Only reads."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

import sqlalchemy as sa

from bandsync_dagster.store.engine import reading
from bandsync_dagster.store.errors import StoreUnavailable
from bandsync_dagster.store.gate import Gate, read_gate
from bandsync_dagster.store.schema import syncs
from bandsync_dagster.store.status import QuotaState, quota_states
from bandsync_dagster.store.syncs import Sync, as_sync
from bandsync_dagster.tags import POOL

_FORGOTTEN_AFTER: Final = timedelta(days=1)


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
    """What the database says about a collection at one moment; `trouble` is why it can't say anything newer."""

    syncs: Sequence[Sync] = ()
    quotas: Sequence[BucketQuota] = ()
    gate: Gate | None = None
    trouble: str | None = None
    records: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        """Add up the records."""
        object.__setattr__(self, "records", sum(sync.records_collected for sync in self.syncs))


NO_FACTS: Final = Facts()


def read_facts(engine: sa.Engine, root_run_ids: Sequence[str], now: datetime) -> Facts:
    """Read everything the progress display shows."""
    return Facts(syncs=syncs_of(engine, root_run_ids), quotas=bucket_quotas(engine, now), gate=read_gate(engine, POOL))


def read_what_can_be(engine: sa.Engine, root_run_ids: Sequence[str], now: datetime, *, last: Facts) -> Facts:
    """Read everything the progress display shows; while the database is away, that is what was read last."""
    try:
        return read_facts(engine, root_run_ids, now)
    except StoreUnavailable as error:
        return replace(last, trouble=str(error))


def syncs_of(engine: sa.Engine, root_run_ids: Sequence[str]) -> list[Sync]:
    """Return the syncs that the given runs, or those that took over from them, worked on; oldest first."""
    if not root_run_ids:
        return []
    query = sa.select(syncs).where(syncs.c.root_run_id.in_(root_run_ids)).order_by(syncs.c.id)
    with reading(engine) as connection:
        return [as_sync(row) for row in connection.execute(query).mappings()]


def bucket_quotas(engine: sa.Engine, now: datetime) -> list[BucketQuota]:
    """Return what is left of each rate limit that something is known of. One whose window has ended counts as full.

    A token that was not seen for a day while another one was is taken for one that is no longer used.
    """
    states = [state for state in _in_use(quota_states(engine)) if state.unlimited or state.limit]
    buckets = sorted({state.bucket for state in states})
    return [_bucket(bucket, [state for state in states if state.bucket == bucket], now) for bucket in buckets]


def _in_use(states: Sequence[QuotaState]) -> list[QuotaState]:
    seen = {state.fingerprint: state.observed_at for state in sorted(states, key=lambda state: state.observed_at)}
    used = {token for token, at in seen.items() if max(seen.values()) - at < _FORGOTTEN_AFTER}
    return [state for state in states if state.fingerprint in used]


def _bucket(bucket: str, states: Sequence[QuotaState], now: datetime) -> BucketQuota:
    limited = [state for state in states if not state.unlimited]
    if not limited:
        return BucketQuota(bucket, 0, None, len(states))
    closings = [state.closed_until for state in limited if state.closed_until and state.closed_until > now]
    return BucketQuota(
        bucket=bucket,
        remaining=sum(state.left(now) for state in limited),
        limit=sum(state.limit or 0 for state in limited),
        tokens=len(states),
        # With another token still open nobody waits.
        closed_until=min(closings) if len(closings) == len(states) else None,
    )
