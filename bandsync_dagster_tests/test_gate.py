"""The gate: closing, opening, finishing what somebody began, respecting what somebody set."""

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone

import dagster as dg
import pytest
import sqlalchemy as sa
from dagster._core.test_utils import create_run_for_test

from bandsync_dagster.gate import (
    JITTER,
    MARGIN,
    buckets_needed,
    close_gate,
    ensure_pool_limit,
    open_gate,
    pool_limit,
    tend_gate,
)
from bandsync_dagster.store.gate import locked_gate, read_gate
from bandsync_dagster.tags import POOL, POOL_LIMIT

NOW = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
RESET = NOW + timedelta(minutes=20)
AFTER_RESET = RESET + MARGIN + timedelta(seconds=JITTER)
CORE = frozenset({"core"})


def set_limit(instance: dg.DagsterInstance, limit: int) -> None:
    """Set the pool's limit as a person does in the Dagster UI."""
    instance.event_log_storage.set_concurrency_slots(POOL, limit)


def close(instance: dg.DagsterInstance, engine: sa.Engine, until: datetime = RESET, bucket: str = "core") -> None:
    """Close the gate at noon."""
    close_gate(instance, engine, bucket=bucket, until=until, now=NOW)


def tend(
    instance: dg.DagsterInstance,
    engine: sa.Engine,
    now: datetime,
    *,
    needed: frozenset[str] = CORE,
    opens_at: datetime | None = None,
) -> str | None:
    """Let the sensor's decision run; return the gate's state."""
    gate = tend_gate(instance, engine, needed=needed, opens_at=opens_at, now=now)
    return gate and gate.state


def test_a_pool_nobody_has_set_gets_its_limit_explicitly(instance: dg.DagsterInstance, engine: sa.Engine) -> None:
    """The first look at the gate sets the pool's limit to five."""
    assert tend(instance, engine, NOW) is None
    assert pool_limit(instance) == POOL_LIMIT


def test_a_limit_somebody_set_is_left_alone(instance: dg.DagsterInstance) -> None:
    """Making sure of a limit does not change one that is there, not even 0."""
    for limit in (3, 0):
        set_limit(instance, limit)
        assert ensure_pool_limit(instance) == limit == pool_limit(instance)


def test_a_closed_gate_admits_no_run_until_its_time_has_come(instance: dg.DagsterInstance, engine: sa.Engine) -> None:
    """The pool's limit is 0 up to the reset and its margin, and then what it was."""
    set_limit(instance, 4)
    close(instance, engine)
    assert pool_limit(instance) == 0
    assert tend(instance, engine, RESET) == "closed"
    assert pool_limit(instance) == 0
    assert tend(instance, engine, AFTER_RESET) == "open"
    assert pool_limit(instance) == 4


def test_closing_again_only_ever_prolongs(instance: dg.DagsterInstance, engine: sa.Engine) -> None:
    """Of several reset times the last one counts, in whatever order they are reported."""
    close(instance, engine, RESET, "core")
    close(instance, engine, RESET - timedelta(minutes=10), "graphql")
    gate = read_gate(engine, POOL)
    assert gate is not None
    assert gate.bucket == "core"
    assert gate.closed_until is not None
    assert RESET <= gate.closed_until <= AFTER_RESET
    assert gate.limit == POOL_LIMIT


def test_a_limit_set_while_the_gate_is_closed_is_the_one_restored(
    instance: dg.DagsterInstance, engine: sa.Engine
) -> None:
    """Somebody who sets 3 meanwhile gets 3 when the gate opens, and not earlier."""
    close(instance, engine)
    set_limit(instance, 3)
    assert tend(instance, engine, NOW) == "closed"
    assert pool_limit(instance) == 0
    tend(instance, engine, AFTER_RESET)
    assert pool_limit(instance) == 3


def test_a_pool_paused_by_hand_stays_paused_after_a_deferral(instance: dg.DagsterInstance, engine: sa.Engine) -> None:
    """A limit of 0 that was set before the gate closed is restored as 0."""
    set_limit(instance, 0)
    close(instance, engine)
    tend(instance, engine, AFTER_RESET)
    assert pool_limit(instance) == 0


def test_a_bucket_found_closed_again_keeps_the_gate_closed(instance: dg.DagsterInstance, engine: sa.Engine) -> None:
    """Somebody else spent the new window too: the gate waits for the next one and says so."""
    close(instance, engine)
    later = AFTER_RESET + timedelta(hours=1)
    assert tend(instance, engine, AFTER_RESET, opens_at=later) == "closed"
    gate = read_gate(engine, POOL)
    assert gate is not None
    assert gate.closed_until is not None
    assert gate.closed_until > later
    assert tend(instance, engine, later + timedelta(seconds=3)) == "open"


def test_the_gate_opens_early_when_nothing_that_waits_needs_its_bucket(
    instance: dg.DagsterInstance, engine: sa.Engine
) -> None:
    """With only pull requests to collect, an exhausted core bucket holds nobody up."""
    close(instance, engine, bucket="core")
    assert tend(instance, engine, NOW, needed=frozenset({"graphql"})) == "open"


def test_an_empty_queue_does_not_open_the_gate_early(instance: dg.DagsterInstance, engine: sa.Engine) -> None:
    """Whatever is queued next would find the quota closed."""
    close(instance, engine)
    assert tend(instance, engine, NOW, needed=frozenset()) == "closed"


def test_a_gate_closed_by_hand_stays_closed_for_its_time(instance: dg.DagsterInstance, engine: sa.Engine) -> None:
    """No bucket has to be exhausted for it."""
    close_gate(instance, engine, bucket=None, until=RESET, now=NOW)
    assert tend(instance, engine, NOW, needed=frozenset({"graphql"})) == "closed"


def test_opening_by_hand_restores_the_limit_at_once(instance: dg.DagsterInstance, engine: sa.Engine) -> None:
    """Whoever opens the gate does not wait for the reset; doing it twice changes nothing."""
    close(instance, engine)
    for _ in range(2):
        open_gate(instance, engine, now=NOW)
        assert pool_limit(instance) == POOL_LIMIT


@pytest.mark.parametrize("limit_was_set", [False, True], ids=["before the limit", "after the limit"])
def test_a_process_that_died_while_closing_leaves_no_open_gate(
    instance: dg.DagsterInstance, engine: sa.Engine, *, limit_was_set: bool
) -> None:
    """The row says closed; whether or not the limit was set, the next look makes it so, and reopening still works."""
    set_limit(instance, 4)
    with locked_gate(engine, POOL) as handle:
        handle.write(state="closed", limit=4, bucket="core", closed_until=RESET, now=NOW)
    if limit_was_set:
        set_limit(instance, 0)
    assert tend(instance, engine, NOW) == "closed"
    assert pool_limit(instance) == 0
    assert tend(instance, engine, AFTER_RESET) == "open"
    assert pool_limit(instance) == 4


@pytest.mark.parametrize("limit_was_set", [False, True], ids=["before the limit", "after the limit"])
def test_a_process_that_died_while_opening_leaves_no_closed_gate(
    instance: dg.DagsterInstance, engine: sa.Engine, *, limit_was_set: bool
) -> None:
    """The row says opening; the next look sets the limit."""
    set_limit(instance, 4 if limit_was_set else 0)
    with locked_gate(engine, POOL) as handle:
        handle.write(state="opening", limit=4, bucket=None, closed_until=None, now=NOW)
    assert tend(instance, engine, NOW) == "open"
    assert pool_limit(instance) == 4


def test_a_gate_closed_while_somebody_opens_it_remembers_the_limit(
    instance: dg.DagsterInstance, engine: sa.Engine
) -> None:
    """Between the two steps of opening the pool is still at 0: that 0 is not taken for what it should go back to."""
    set_limit(instance, 0)
    with locked_gate(engine, POOL) as handle:
        handle.write(state="opening", limit=4, bucket=None, closed_until=None, now=NOW)
    close(instance, engine)
    tend(instance, engine, AFTER_RESET)
    assert pool_limit(instance) == 4


def test_many_that_close_at_once_restore_the_limit_there_was(instance: dg.DagsterInstance, engine: sa.Engine) -> None:
    """Eight deferrals in the same moment, with the sensor in between, end with the limit of before."""
    set_limit(instance, 4)
    with ThreadPoolExecutor(8) as pool:
        closing = [pool.submit(close, instance, engine, RESET + timedelta(seconds=n)) for n in range(8)]
        tending = [pool.submit(tend, instance, engine, NOW) for _ in range(4)]
    for task in [*closing, *tending]:
        task.result()
    assert pool_limit(instance) == 0
    assert tend(instance, engine, AFTER_RESET + timedelta(seconds=8)) == "open"
    assert pool_limit(instance) == 4


def test_the_sensor_switched_off_for_long_opens_at_its_next_look(
    instance: dg.DagsterInstance, engine: sa.Engine
) -> None:
    """Nothing but the time decides, so a look that comes days late is good enough."""
    close(instance, engine)
    assert tend(instance, engine, RESET + timedelta(days=3)) == "open"


def test_what_queued_runs_need_follows_from_what_they_select(instance: dg.DagsterInstance) -> None:
    """Pull requests need graphql, workflow runs core, jobs both; a run without a selection counts as everything."""
    changes = create_run_for_test(instance, asset_selection=frozenset({dg.AssetKey("changes")}))
    verifications = create_run_for_test(instance, asset_selection=frozenset({dg.AssetKey("verifications")}))
    everything = create_run_for_test(instance)
    assert buckets_needed([changes]) == {"graphql"}
    assert buckets_needed([verifications]) == {"core"}
    assert buckets_needed([changes, verifications]) == buckets_needed([everything]) == {"core", "graphql"}
    assert buckets_needed([]) == frozenset()
