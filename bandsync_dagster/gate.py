"""The gate: while GitHub's quota is used up, the pool's limit is 0 and queued runs stay queued.

Two databases have to agree: the store keeps the gate's row, Dagster keeps the pool's limit. Every change is therefore
made in two steps, each under the row's lock: first the row says what is meant, then the limit is set and the row says
that it is. Whoever finds a row without its limit finishes the step, so a process may die anywhere.

    open ── close_gate ──► closed ── tend_gate, when the quota is back ──► opening ── limit restored ──► open

A limit that somebody sets meanwhile is what the pool goes back to.
"""

import random
from collections.abc import Iterable
from datetime import datetime, timedelta

import dagster as dg
import sqlalchemy as sa

from bandsync_dagster.store.gate import Gate, locked_gate, read_gate
from bandsync_dagster.tags import POOL, POOL_LIMIT, STAGE_BUCKETS

# GitHub does not say when within its second a window ends; and several deployments on one token need not all start
# again in the same instant.
MARGIN = timedelta(seconds=1)
JITTER = 1.0


def pool_limit(instance: dg.DagsterInstance) -> int | None:
    """Return the pool's limit, or None when nobody has set one."""
    for limit in instance.event_log_storage.get_pool_limits():
        if limit.name == POOL and not limit.from_default:
            return limit.limit
    return None


def ensure_pool_limit(instance: dg.DagsterInstance) -> int:
    """Set the pool's limit unless somebody has; return it.

    It must be set explicitly: with `default_limit` the first pass of Dagster's queue ignores it.
    """
    limit = pool_limit(instance)
    if limit is None:
        instance.event_log_storage.set_concurrency_slots(POOL, POOL_LIMIT)
        return POOL_LIMIT
    return limit


def close_gate(
    instance: dg.DagsterInstance, engine: sa.Engine, *, bucket: str | None, until: datetime, now: datetime
) -> None:
    """Close the gate, or keep a closed one closed for longer. `bucket` is None when it is closed by hand."""
    with locked_gate(engine, POOL) as handle:
        gate, limit = handle.gate, ensure_pool_limit(instance)
        reopens = until + MARGIN + timedelta(seconds=random.uniform(0, JITTER))  # noqa: S311  (no secret)
        if gate and gate.state == "closed" and gate.closed_until and gate.closed_until >= reopens:
            bucket, reopens = gate.bucket, gate.closed_until
        handle.write(state="closed", limit=_limit_to_restore(gate, limit), bucket=bucket, closed_until=reopens, now=now)
    _finish(instance, engine, now)


def open_gate(instance: dg.DagsterInstance, engine: sa.Engine, *, now: datetime) -> None:
    """Open the gate whatever the quota says; the first defence of each request still holds."""
    with locked_gate(engine, POOL) as handle:
        gate = handle.gate
        if gate is None or gate.state == "open":
            return
        limit = _limit_to_restore(gate, ensure_pool_limit(instance))
        handle.write(state="opening", limit=limit, bucket=None, closed_until=None, now=now)
    _finish(instance, engine, now)


def tend_gate(
    instance: dg.DagsterInstance,
    engine: sa.Engine,
    *,
    needed: frozenset[str],
    opens_at: datetime | None,
    now: datetime,
) -> Gate | None:
    """Do what is due: set a limit nobody has set, finish a step somebody began, open the gate when its time has come.

    Args:
        instance: Dagster's instance, which keeps the pool's limit.
        engine: The store, which keeps the gate.
        needed: The rate limit resources that queued work will ask for.
        opens_at: When the last closed one of these is open again, None when none is closed.
        now: The present moment.

    Returns:
        The gate afterwards; None when it was never closed.
    """
    ensure_pool_limit(instance)
    gate = read_gate(engine, POOL)
    if gate is None:
        return None
    if gate.state == "closed" and opens_at is not None:
        close_gate(instance, engine, bucket=gate.bucket, until=opens_at, now=now)
    elif gate.state == "closed" and _is_due(gate, needed, now):
        open_gate(instance, engine, now=now)
    else:
        _finish(instance, engine, now)
    return read_gate(engine, POOL)


def _is_due(gate: Gate, needed: frozenset[str], now: datetime) -> bool:
    """Tell whether a gate may open whose needed buckets are open: its time has come, or nobody waits for its bucket."""
    nobody_waits = bool(needed) and gate.bucket is not None and gate.bucket not in needed
    return nobody_waits or gate.closed_until is None or gate.closed_until <= now


def buckets_needed(runs: Iterable[dg.DagsterRun]) -> frozenset[str]:
    """Return the rate limit resources that the given runs of the pool will ask for."""
    needed: set[str] = set()
    for run in runs:
        names = {key.to_user_string() for key in run.asset_selection} if run.asset_selection else set(STAGE_BUCKETS)
        for name in names & STAGE_BUCKETS.keys():
            needed |= STAGE_BUCKETS[name]
    return frozenset(needed)


def _limit_to_restore(gate: Gate | None, limit: int) -> int:
    """Choose the limit of the open pool.

    A pool found at 0 while the gate is not open got its 0 from the gate; any other limit was set by somebody.
    """
    if gate is not None and gate.state != "open" and limit == 0:
        return gate.limit
    return limit


def _finish(instance: dg.DagsterInstance, engine: sa.Engine, now: datetime) -> None:
    """Make the pool's limit what the row says it should be."""
    with locked_gate(engine, POOL) as handle:
        gate = handle.gate
        if gate is None or gate.state == "open":
            return
        limit = ensure_pool_limit(instance)
        if gate.state == "closed":
            if limit != 0:
                handle.write(state="closed", limit=limit, bucket=gate.bucket, closed_until=gate.closed_until, now=now)
                instance.event_log_storage.set_concurrency_slots(POOL, 0)
            return
        if limit == 0:
            instance.event_log_storage.set_concurrency_slots(POOL, gate.limit)
        handle.write(state="open", limit=_limit_to_restore(gate, limit), bucket=None, closed_until=None, now=now)
