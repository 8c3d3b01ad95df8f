"""The rules of the quota ledger: one suite over the one in memory and the one in the database."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from bandsync_dagster.github.quota import Grant, MemoryLedger, QuotaLedger, QuotaReading
from bandsync_dagster.store.quotas import SqlQuotaLedger
from bandsync_dagster_tests.store.builders import HOUR, NOW

SECOND = timedelta(seconds=1)
RESET = NOW + HOUR


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def ledger(request: pytest.FixtureRequest) -> Any:
    """A ledger of each kind, knowing nothing."""
    return MemoryLedger() if request.param == "memory" else SqlQuotaLedger(request.getfixturevalue("engine"))


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> str:
    """The database of the ledger under test."""
    return request.node.callspec.params["ledger"]


def told(remaining: int, *, limit: int = 100, reset_at: datetime = RESET, bucket: str = "core") -> QuotaReading:
    """Return a reading."""
    return QuotaReading(bucket, limit, remaining, reset_at)


def ask(
    ledger: QuotaLedger, *names: str, bucket: str = "core", cost: int = 1, share: float = 0.0, at: datetime = NOW
) -> Any:
    """Reserve a request."""
    return ledger.reserve(names or ("one",), bucket, cost, share=share, now=at)


def learn(ledger: QuotaLedger, reading: QuotaReading | None, name: str = "one", at: datetime = NOW) -> None:
    """Settle a response that said this."""
    ledger.settle(Grant(name), "core", reading, now=at)


def granted(ledger: QuotaLedger, most: int, *names: str, share: float = 0.0, at: datetime = NOW) -> list[str]:
    """Reserve until refused; return the tokens chosen, in order."""
    chosen: list[str] = []
    while len(chosen) < most:
        grant = ask(ledger, *names, share=share, at=at)
        if isinstance(grant, datetime):
            break
        chosen.append(grant.fingerprint)
    return chosen


def test_an_unknown_bucket_is_granted(ledger: QuotaLedger) -> None:
    """Nothing is known before the first response, so the first request goes out."""
    assert ask(ledger).fingerprint == "one"


@pytest.mark.parametrize(
    ("remaining", "cost", "share", "is_granted"),
    [
        (2, 1, 0.0, True),
        (1, 1, 0.0, False),
        (0, 1, 0.0, False),
        (20, 10, 0.0, True),
        (19, 10, 0.0, False),
        (7, 1, 0.05, True),
        (6, 1, 0.05, False),
        (100, 60, 0.0, True),
        (99, 60, 0.0, False),
        (7, 1, 0.059, True),
    ],
)
def test_twice_the_cost_must_be_left(
    ledger: QuotaLedger, remaining: int, cost: int, share: float, is_granted: bool
) -> None:
    """Above what is kept back, rounded down; more than a full window has is never asked for."""
    learn(ledger, told(remaining))
    assert isinstance(ask(ledger, cost=cost, share=share), datetime) is not is_granted


def test_a_refusal_says_when_to_try_again(ledger: QuotaLedger) -> None:
    """One second after the reset: GitHub does not say when within its second it takes place."""
    learn(ledger, told(0))
    assert ask(ledger) == RESET + SECOND
    assert isinstance(ask(ledger, at=RESET), datetime)
    assert not isinstance(ask(ledger, at=RESET + SECOND), datetime)


def test_what_is_reserved_is_not_granted_again(ledger: QuotaLedger) -> None:
    """Five that each see two left do not send five."""
    learn(ledger, told(2))
    assert len(granted(ledger, 5)) == 1


def test_a_new_window_is_not_granted_beyond_its_limit(ledger: QuotaLedger) -> None:
    """After the reset nothing has been read, and many ask at once."""
    learn(ledger, told(0, limit=10))
    assert len(granted(ledger, 50, at=RESET + SECOND)) == 9


def test_requests_on_their_way_are_waited_for_a_moment(ledger: QuotaLedger) -> None:
    """In a new window they are all that stands in the way."""
    learn(ledger, told(0, limit=3))
    after = RESET + SECOND
    granted(ledger, 50, at=after)
    assert ask(ledger, at=after) == after + SECOND


def test_a_released_reservation_is_free_again(ledger: QuotaLedger) -> None:
    """A request without an answer has spent nothing, as far as anybody knows."""
    learn(ledger, told(2))
    grant = ask(ledger)
    ledger.release(grant, "core", now=NOW)
    assert not isinstance(ask(ledger), datetime)


def test_a_reservation_of_a_dead_process_expires(ledger: QuotaLedger) -> None:
    """After two minutes nobody is going to settle it."""
    learn(ledger, told(2))
    ask(ledger)
    assert isinstance(ask(ledger, at=NOW + 119 * SECOND), datetime)
    assert not isinstance(ask(ledger, at=NOW + 120 * SECOND), datetime)


def test_settling_replaces_the_reservation(ledger: QuotaLedger) -> None:
    """What the response says counts, not what was reserved."""
    learn(ledger, told(100))
    grant = ask(ledger, cost=50)
    ledger.settle(grant, "core", told(99), now=NOW)
    assert not isinstance(ask(ledger, cost=49), datetime)


def test_within_a_window_what_is_left_only_falls(ledger: QuotaLedger) -> None:
    """Responses overtake each other: the higher number is the older one, even if its reset differs by a second."""
    learn(ledger, told(1))
    for jitter in (-1, 0, 1):
        learn(ledger, told(50, reset_at=RESET + jitter * SECOND))
        assert isinstance(ask(ledger), datetime)


def test_a_new_window_starts_afresh(ledger: QuotaLedger) -> None:
    """A later reset is another window."""
    learn(ledger, told(1))
    learn(ledger, told(90, reset_at=RESET + HOUR))
    assert not isinstance(ask(ledger), datetime)


def test_an_older_window_says_nothing(ledger: QuotaLedger) -> None:
    """A response that was on its way over a reset does not close the new window."""
    learn(ledger, told(90, reset_at=RESET + HOUR))
    learn(ledger, told(0))
    assert not isinstance(ask(ledger), datetime)


def test_a_window_of_seconds_is_read_as_soon_as_the_last_is_over(ledger: QuotaLedger) -> None:
    """Two resets close to each other are two windows if the first has passed."""
    learn(ledger, told(0, reset_at=NOW + SECOND))
    later = NOW + 2 * SECOND
    learn(ledger, told(50, reset_at=NOW + 3 * SECOND), at=later)
    assert not isinstance(ask(ledger, at=later), datetime)


def test_a_host_without_limits_is_unlimited(ledger: QuotaLedger) -> None:
    """GitHub Enterprise Server with rate limits disabled reports none: nothing ever waits."""
    learn(ledger, None)
    assert len(granted(ledger, 50)) == 50


def test_a_limit_of_zero_is_none(ledger: QuotaLedger) -> None:
    """`0 of 0` must not wait for a reset that never comes."""
    learn(ledger, told(0, limit=0))
    assert len(granted(ledger, 5)) == 5


def test_a_host_that_starts_to_limit_is_believed(ledger: QuotaLedger) -> None:
    """An administrator has switched rate limits on."""
    learn(ledger, None)
    learn(ledger, told(0))
    assert ask(ledger) == RESET + SECOND


def test_a_response_without_limits_costs_what_was_reserved(ledger: QuotaLedger) -> None:
    """Where limits are known, one answer without them (a proxy's) makes nothing unlimited."""
    learn(ledger, told(5))
    ledger.settle(ask(ledger, cost=2), "core", None, now=NOW)
    assert isinstance(ask(ledger, cost=2), datetime)
    assert not isinstance(ask(ledger), datetime)


def test_buckets_do_not_know_each_other(ledger: QuotaLedger) -> None:
    """`core` exhausted leaves `graphql` as it was."""
    learn(ledger, told(0))
    assert not isinstance(ask(ledger, bucket="graphql"), datetime)


def test_a_reading_counts_for_the_bucket_it_names(ledger: QuotaLedger) -> None:
    """GitHub says in a header which bucket was charged, and it may be another than the one expected."""
    ledger.settle(ask(ledger), "core", told(0, bucket="graphql"), now=NOW)
    assert isinstance(ask(ledger, bucket="graphql"), datetime)
    assert not isinstance(ask(ledger), datetime)


def test_the_token_with_most_left_is_used(ledger: QuotaLedger) -> None:
    """Of several; when all are exhausted, the one that is back first says when."""
    learn(ledger, told(3, reset_at=RESET + 60 * SECOND), "one")
    learn(ledger, told(5), "two")
    assert granted(ledger, 50, "one", "two")[:2] == ["two", "two"]
    assert ask(ledger, "one", "two") == RESET + SECOND


def test_closing_stops_everything_until_then(ledger: QuotaLedger) -> None:
    """However much is left."""
    learn(ledger, told(100))
    ledger.close("one", "core", NOW + 60 * SECOND, now=NOW, kind="secondary")
    assert ask(ledger) == NOW + 60 * SECOND
    assert isinstance(ask(ledger, at=NOW + 59 * SECOND), datetime)
    assert not isinstance(ask(ledger, at=NOW + 60 * SECOND), datetime)


def test_closing_by_a_grant_closes_its_token(ledger: QuotaLedger) -> None:
    """The one the refused request was sent with; others go on."""
    ledger.close(ask(ledger, "one"), "core", RESET, now=NOW, kind="primary")
    assert granted(ledger, 3, "one", "two") == ["two"] * 3


def test_closing_again_never_opens_earlier(ledger: QuotaLedger) -> None:
    """The second answer to a burst of requests may name an earlier time."""
    ledger.close("one", "core", NOW + 60 * SECOND, now=NOW, kind="secondary")
    ledger.close("one", "core", NOW + 30 * SECOND, now=NOW, kind="secondary")
    assert ask(ledger) == NOW + 60 * SECOND


def test_strikes_in_a_row_are_counted(ledger: QuotaLedger) -> None:
    """Each for its token; a success starts anew."""
    assert [ledger.strike("one", now=NOW), ledger.strike("one", now=NOW)] == [1, 2]
    assert ledger.strike("two", now=NOW) == 1
    learn(ledger, told(50))
    assert ledger.strike("one", now=NOW) == 1


def test_echoes_of_one_secondary_limit_are_one_strike(ledger: QuotaLedger) -> None:
    """Requests that were on their way when the token was closed neither double the wait nor end the row."""
    assert ledger.strike("one", now=NOW) == 1
    for bucket in ("core", "graphql"):
        ledger.close("one", bucket, NOW + 60 * SECOND, now=NOW, kind="secondary")
    assert ledger.strike("one", now=NOW + SECOND) == 1
    learn(ledger, told(50), at=NOW + SECOND)
    assert ledger.strike("one", now=NOW + 61 * SECOND) == 2
