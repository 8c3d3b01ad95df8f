"""Quota: reading it from headers, and granting requests before they are sent."""

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import pytest

from bandsync_dagster.github.quota import Grant, MemoryLedger, QuotaReading, read_quota
from bandsync_dagster_tests.github.surroundings import NOON, quota_headers

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)


def reading(
    remaining: int, *, limit: int = 5000, reset_at: datetime = NOON + HOUR, bucket: str = "core"
) -> QuotaReading:
    """Return a reading of a bucket."""
    return QuotaReading(bucket, limit, remaining, reset_at)


def ask(
    ledger: MemoryLedger, *tokens: str, cost: int = 1, share: float = 0.0, now: datetime = NOON, bucket: str = "core"
) -> Grant | datetime:
    """Ask for leave to send one request."""
    return ledger.reserve(tokens or ("a",), bucket, cost, share=share, now=now)


def told(ledger: MemoryLedger, what: QuotaReading | None, fingerprint: str = "a") -> None:
    """Let a response tell the ledger what is left."""
    grant = ledger.reserve((fingerprint,), "core", 0, share=0, now=NOON)
    assert isinstance(grant, Grant)
    ledger.settle(grant, "core", what, now=NOON)


def test_a_reading_comes_from_the_headers_and_names_its_bucket() -> None:
    """The bucket is the one GitHub names, not the one that was guessed."""
    assert read_quota(quota_headers(42, bucket="graphql"), "core", now=NOON) == QuotaReading(
        "graphql", 5000, 42, NOON + timedelta(minutes=30)
    )


@pytest.mark.parametrize(
    "headers",
    [
        {},
        quota_headers(0, limit=0),
        {**quota_headers(1), "x-ratelimit-remaining": "many"},
        {**quota_headers(1), "x-ratelimit-limit": "-5"},
        {**quota_headers(1), "x-ratelimit-reset": "9" * 40},
        {**quota_headers(1), "x-ratelimit-remaining": "٣"},
    ],
)
def test_headers_without_a_limit_are_no_reading(headers: dict[str, str]) -> None:
    """No headers, 0 of 0 and garbage all mean that nothing is known of a limit."""
    assert read_quota(headers, "core", now=NOON) is None


@pytest.mark.parametrize(
    ("date", "minutes"),
    [
        ("Sun, 01 Mar 2026 12:00:00 GMT", 30),  # the clocks agree
        ("Sun, 01 Mar 2026 12:10:00 GMT", 20),  # this machine is 10 min behind
        ("Sun, 01 Mar 2026 11:50:00 GMT", 40),  # this machine is 10 min ahead
        ("Sun, 01 Mar 2026 11:59:59 GMT", 30),  # a second is within what whole seconds can tell
        ("no date at all", 30),
        ("Sun, 99 Mar 2026 11:59:59 GMT", 30),
    ],
)
def test_the_reset_is_translated_into_this_machines_time(date: str, minutes: int) -> None:
    """A clock that is off neither opens a bucket early nor keeps it closed."""
    told_now = read_quota({**quota_headers(1), "date": date}, "core", now=NOON)
    assert told_now is not None
    assert told_now.reset_at == NOON + timedelta(minutes=minutes)


def test_a_reset_far_in_the_future_is_not_believed() -> None:
    """One broken header must not close a bucket for years."""
    broken = read_quota(quota_headers(0, resets_in=9e8), "core", now=NOON)
    assert broken is not None
    assert broken.reset_at == NOON + 2 * HOUR


def test_nothing_is_held_back_before_a_limit_is_known() -> None:
    """The first request has to be sent to learn the limit."""
    assert isinstance(ask(MemoryLedger(), cost=100), Grant)


def test_a_request_needs_twice_its_cost() -> None:
    """What is left must cover the request and one more of its kind."""
    ledger = MemoryLedger()
    told(ledger, reading(6))
    assert ask(ledger, cost=4) == NOON + HOUR + SECOND
    assert isinstance(ask(ledger, cost=3), Grant)


def test_a_share_of_the_limit_is_left_to_people() -> None:
    """With 5 % kept back of 5,000, 251 left is not enough for one request and 252 is."""
    ledger = MemoryLedger()
    told(ledger, reading(252))
    grant = ask(ledger, share=0.05)
    assert isinstance(grant, Grant)
    ledger.settle(grant, "core", reading(251), now=NOON)
    assert ask(ledger, share=0.05) == NOON + HOUR + SECOND


def test_requests_on_their_way_count_as_spent() -> None:
    """Five callers that each see "4 left" do not send five: the fourth would leave nothing to spare."""
    ledger = MemoryLedger()
    told(ledger, reading(4))
    with ThreadPoolExecutor(5) as callers:
        answers = list(callers.map(lambda _: ask(ledger), range(5)))
    assert sum(isinstance(answer, Grant) for answer in answers) == 3


def test_a_released_reservation_is_free_again() -> None:
    """A request that never got an answer has taken nothing."""
    ledger = MemoryLedger()
    told(ledger, reading(2))
    grant = ask(ledger)
    assert isinstance(grant, Grant)
    assert isinstance(ask(ledger), datetime)
    ledger.release(grant, "core", now=NOON)
    assert isinstance(ask(ledger), Grant)


def test_a_reservation_of_a_process_that_died_expires() -> None:
    """What nobody settles does not hold the bucket for ever."""
    ledger = MemoryLedger()
    told(ledger, reading(2))
    ask(ledger)
    assert isinstance(ask(ledger, now=NOON + timedelta(minutes=1)), datetime)
    assert isinstance(ask(ledger, now=NOON + timedelta(minutes=3)), Grant)


def test_a_bucket_is_full_one_second_after_its_reset() -> None:
    """Nothing is granted in the second of the reset, in which GitHub may still count the old window."""
    ledger = MemoryLedger()
    told(ledger, reading(0))
    assert ask(ledger, now=NOON + HOUR) == NOON + HOUR + SECOND
    assert isinstance(ask(ledger, cost=2000, now=NOON + HOUR + SECOND), Grant)


def test_a_full_window_lets_one_request_through_however_small_it_is() -> None:
    """A limit below twice the cost must not defer for ever."""
    ledger = MemoryLedger()
    told(ledger, reading(3, limit=3))
    told(ledger, reading(0, limit=3))
    assert isinstance(ask(ledger, cost=5), datetime)
    assert isinstance(ask(ledger, cost=2, now=NOON + 2 * HOUR), Grant)


def test_where_only_requests_on_their_way_stand_in_the_way_the_wait_is_short() -> None:
    """They are settled within moments; the next reset has nothing to do with it."""
    ledger = MemoryLedger()
    told(ledger, reading(3, limit=3))
    later = NOON + 2 * HOUR
    assert isinstance(ask(ledger, cost=2, now=later), Grant)
    assert ask(ledger, cost=2, now=later) == later + SECOND


def test_within_a_window_what_is_left_only_falls() -> None:
    """Answers overtake each other: an older one must not give back what a later one took."""
    ledger = MemoryLedger()
    told(ledger, reading(10))
    told(ledger, reading(900, reset_at=NOON + HOUR + SECOND))
    assert ask(ledger, cost=6) == NOON + HOUR + SECOND


def test_a_reading_of_an_older_window_is_ignored() -> None:
    """A straggler from before the reset says nothing of the present window."""
    ledger = MemoryLedger()
    told(ledger, reading(4000))
    told(ledger, reading(0, reset_at=NOON + timedelta(minutes=1)))
    assert isinstance(ask(ledger, cost=1000), Grant)


def test_a_reading_of_a_newer_window_replaces_what_was_known() -> None:
    """After the reset there is more again."""
    ledger = MemoryLedger()
    told(ledger, reading(0))
    told(ledger, reading(4999, reset_at=NOON + 2 * HOUR))
    assert isinstance(ask(ledger, cost=1000), Grant)


def test_the_token_with_most_left_is_used() -> None:
    """Several tokens are spent evenly."""
    ledger = MemoryLedger()
    told(ledger, reading(100), "a")
    told(ledger, reading(200), "b")
    told(ledger, reading(150), "c")
    grant = ask(ledger, "a", "b", "c")
    assert isinstance(grant, Grant)
    assert grant.fingerprint == "b"


def test_only_when_all_tokens_are_used_up_is_there_a_wait_and_it_ends_with_the_first_reset() -> None:
    """One good token is enough."""
    ledger = MemoryLedger()
    told(ledger, reading(0, reset_at=NOON + HOUR), "a")
    told(ledger, reading(5, reset_at=NOON + HOUR / 2), "b")
    assert isinstance(ask(ledger, "a", "b"), Grant)
    told(ledger, reading(0, reset_at=NOON + HOUR / 2), "b")
    assert ask(ledger, "a", "b") == NOON + HOUR / 2 + SECOND


def test_a_closed_bucket_grants_nothing_until_then_and_the_other_bucket_goes_on() -> None:
    """`core` and `graphql` are separate; a later closing never shortens an earlier one."""
    ledger = MemoryLedger()
    ledger.close("a", "core", NOON + HOUR, now=NOON, kind="primary")
    ledger.close(Grant("a"), "core", NOON + SECOND, now=NOON, kind="secondary")
    assert ask(ledger) == NOON + HOUR
    assert isinstance(ask(ledger, bucket="graphql"), Grant)
    assert isinstance(ask(ledger, now=NOON + HOUR), Grant)


def test_a_host_that_reports_no_limits_is_unlimited() -> None:
    """GitHub Enterprise Server without rate limits never makes anybody wait."""
    ledger = MemoryLedger()
    told(ledger, None)
    told(ledger, reading(0, limit=0))
    assert isinstance(ask(ledger, cost=10_000), Grant)


def test_an_answer_without_headers_costs_what_was_reserved_where_a_limit_is_known() -> None:
    """A proxy that drops the headers once must not make the bucket unlimited."""
    ledger = MemoryLedger()
    told(ledger, reading(10))
    grant = ask(ledger, cost=4)
    assert isinstance(grant, Grant)
    ledger.settle(grant, "core", None, now=NOON)
    assert isinstance(ask(ledger, cost=4), datetime)
    assert isinstance(ask(ledger, cost=3), Grant)


def test_a_reading_of_another_bucket_is_kept_for_that_one() -> None:
    """The header decides which bucket a reading is about."""
    ledger = MemoryLedger()
    told(ledger, reading(0, bucket="graphql"))
    assert isinstance(ask(ledger), Grant)
    assert isinstance(ask(ledger, bucket="graphql"), datetime)


def test_strikes_count_up_until_a_request_succeeds() -> None:
    """The wait after secondary limits doubles, and starts again from a minute after a success."""
    ledger = MemoryLedger()
    assert [ledger.strike("a", now=NOON) for _ in range(3)] == [1, 2, 3]
    assert ledger.strike("b", now=NOON) == 1
    told(ledger, reading(100))
    assert ledger.strike("a", now=NOON) == 1


def test_what_was_on_its_way_when_a_token_closed_neither_counts_nor_forgives() -> None:
    """Four requests in flight that all meet the limit are one limit; a fifth that succeeds proves nothing."""
    ledger = MemoryLedger()
    late = ask(ledger)
    assert isinstance(late, Grant)
    assert ledger.strike("a", now=NOON) == 1
    ledger.close("a", "core", NOON + SECOND, now=NOON, kind="secondary")
    assert ledger.strike("a", now=NOON) == 1
    ledger.settle(late, "core", reading(100), now=NOON)
    assert ledger.strike("a", now=NOON + SECOND) == 2
