"""What only the ledger in the database can do: be shared, last, be looked at. `test_ledgers` tests its rules."""

from datetime import datetime, timedelta

import pytest
import sqlalchemy as sa

from bandsync_dagster.github.quota import Grant, QuotaReading
from bandsync_dagster.store.engine import create_store_engine
from bandsync_dagster.store.quotas import SqlQuotaLedger
from bandsync_dagster.store.schema import quota_reservations
from bandsync_dagster.store.status import quota_states
from bandsync_dagster_tests.store.builders import HOUR, NOW, stored
from bandsync_dagster_tests.store.processes import in_processes

SECOND = timedelta(seconds=1)
RESET = NOW + HOUR


@pytest.fixture
def ledger(engine: sa.Engine) -> SqlQuotaLedger:
    """The ledger in the database."""
    return SqlQuotaLedger(engine)


def learn(ledger: SqlQuotaLedger, remaining: int, bucket: str = "core", limit: int = 100) -> None:
    """Settle a response that said this."""
    ledger.settle(Grant("one"), bucket, QuotaReading(bucket, limit, remaining, RESET), now=NOW)


def _ask_often(url: str, times: int) -> int:
    engine = create_store_engine(url)
    ledger = SqlQuotaLedger(engine)
    answers = [ledger.reserve(["one"], "core", 1, share=0.0, now=NOW) for _ in range(times)]
    engine.dispose()
    return sum(not isinstance(answer, datetime) for answer in answers)


@pytest.mark.parametrize(("remaining", "expected"), [(2, 1), (30, 29)])
def test_several_processes_never_reserve_what_is_not_left(
    engine: sa.Engine, database_url: str, remaining: int, expected: int
) -> None:
    """Five processes that each see two left do not send five; nor do they leave anything unused."""
    learn(SqlQuotaLedger(engine), remaining)
    assert sum(in_processes(_ask_often, [(database_url, 10)] * 5)) == expected


def _first_ask(url: str) -> bool:
    return _ask_often(url, 1) == 1


def test_several_processes_may_meet_a_token_for_the_first_time(engine: sa.Engine, database_url: str) -> None:
    """Its row is made once, and each gets its grant."""
    assert all(in_processes(_first_ask, [(database_url,)] * 4))
    assert len(quota_states(engine)) == 1
    assert len(stored(engine, quota_reservations)) == 4


def test_reservations_that_nobody_settled_are_swept_away(ledger: SqlQuotaLedger, engine: sa.Engine) -> None:
    """By whoever settles next on that bucket, once they have expired."""
    for _ in range(3):
        ledger.reserve(["one"], "core", 1, share=0.0, now=NOW)
    learn(ledger, 50)
    assert len(stored(engine, quota_reservations)) == 3
    ledger.settle(Grant("one"), "core", None, now=NOW + HOUR)
    assert stored(engine, quota_reservations) == []


def test_a_late_settlement_does_not_take_somebody_elses_reservation(ledger: SqlQuotaLedger, engine: sa.Engine) -> None:
    """The number of a reservation that expired is never given again."""
    late = ledger.reserve(["one"], "core", 1, share=0.0, now=NOW)
    assert not isinstance(late, datetime)
    ledger.settle(Grant("one"), "core", None, now=NOW + HOUR)
    learn(ledger, 50)
    fresh = ledger.reserve(["one"], "core", 7, share=0.0, now=NOW + HOUR)
    assert not isinstance(fresh, datetime)
    ledger.release(late, "core", now=NOW + HOUR)
    assert [row["cost"] for row in stored(engine, quota_reservations)] == [7]


def test_an_unlimited_host_costs_no_reservations(ledger: SqlQuotaLedger, engine: sa.Engine) -> None:
    """Where nothing is limited nothing is written down."""
    ledger.settle(Grant("one"), "core", None, now=NOW)
    assert ledger.reserve(["one"], "core", 1, share=0.0, now=NOW) is not None
    assert stored(engine, quota_reservations) == []


def opens_at(ledger: SqlQuotaLedger, *names: str, share: float = 0.0, at: datetime = NOW) -> datetime | None:
    """Ask when a request can be tried."""
    return ledger.opens_at(names or ("one",), "core", share=share, now=at)


def test_looking_reserves_nothing(ledger: SqlQuotaLedger, engine: sa.Engine) -> None:
    """An open bucket, an unknown token: nothing is in the way, and nothing is written."""
    assert opens_at(ledger) is None
    assert quota_states(engine) == []
    learn(ledger, 2)
    assert [opens_at(ledger), opens_at(ledger)] == [None, None]
    assert stored(engine, quota_reservations) == []


def test_looking_follows_the_rules_of_reserving(ledger: SqlQuotaLedger) -> None:
    """Exhausted, kept back, closed: the time a reservation would be told; one open token is enough."""
    learn(ledger, 1)
    assert opens_at(ledger) == RESET + SECOND
    assert opens_at(ledger, at=RESET + SECOND) is None
    assert opens_at(ledger, "one", "two") is None
    learn(ledger, 1, "graphql")
    ledger.close("one", "core", RESET + HOUR, now=NOW, kind="primary")
    assert opens_at(ledger) == RESET + HOUR


def test_what_is_known_can_be_looked_at(ledger: SqlQuotaLedger, engine: sa.Engine) -> None:
    """By fingerprint and bucket; there is no column that could hold a token."""
    learn(ledger, 42, "graphql")
    ledger.close("one", "graphql", RESET, now=NOW, kind="secondary")
    (state,) = quota_states(engine)
    assert (state.fingerprint, state.bucket, state.unlimited) == ("one", "graphql", False)
    assert (state.limit, state.remaining, state.reset_at, state.closed_until) == (100, 42, RESET, RESET)
    assert state.observed_at == NOW


def test_the_ledger_outlives_its_process(ledger: SqlQuotaLedger, engine: sa.Engine) -> None:
    """A new ledger on the same database knows what the old one knew."""
    learn(ledger, 0)
    assert SqlQuotaLedger(engine).reserve(["one"], "core", 1, share=0.0, now=NOW) == RESET + SECOND
