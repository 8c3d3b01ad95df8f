"""Rate limits by the numbers, with time by hand."""

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bandsync_dagster.simulator.limits import ANONYMOUS, Limits, RateLimiter, Refusal

START = datetime(2026, 11, 1, 12, 0, 0, 700_000, tzinfo=timezone.utc)


def _after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def test_a_bucket_gives_what_it_has_and_no_more() -> None:
    """A cost that is not there is refused whole, and takes nothing."""
    limiter = RateLimiter(Limits(graphql=5))
    assert limiter.take("a", "graphql", 3, START)
    assert not limiter.take("a", "graphql", 3, START)
    assert limiter.read("a", "graphql", START).remaining == 2


def test_buckets_and_tokens_do_not_share() -> None:
    """Each token has its own two."""
    limiter = RateLimiter(Limits(core=1, graphql=1))
    assert all(limiter.take(who, bucket, 1, START) for who in ("a", "b") for bucket in ("core", "graphql"))
    assert not limiter.take("a", "core", 1, START)


def test_a_window_starts_with_the_first_use_and_ends_on_time() -> None:
    """Reading a bucket starts nothing; after the window everything is there again."""
    limiter = RateLimiter(Limits(core=2, window=2.5))
    limiter.read("a", "core", START)
    assert limiter.take("a", "core", 2, _after(10))
    assert not limiter.take("a", "core", 1, _after(12.4))
    assert limiter.take("a", "core", 1, _after(12.5))
    assert limiter.read("a", "core", _after(12.5)).remaining == 1


@given(first=st.floats(0, 10), window=st.floats(0.1, 20))
def test_the_reset_never_comes_after_the_announced_second(first: float, window: float) -> None:
    """Whoever waits until the announced second is over finds a full bucket."""
    limiter = RateLimiter(Limits(core=1, window=window))
    limiter.take("a", "core", 1, _after(first))
    announced = int(limiter.read("a", "core", _after(first)).headers()["x-ratelimit-reset"])
    waited = datetime.fromtimestamp(announced + 1, timezone.utc)
    assert limiter.read("a", "core", max(waited, _after(first))).remaining == 1


def test_somebody_else_can_spend_a_tokens_quota_but_not_more_than_all() -> None:
    """The second consumer starts the window too."""
    limiter = RateLimiter(Limits(core=10))
    limiter.spend("a", "core", 4, START)
    assert limiter.read("a", "core", START).used == 4
    limiter.spend("a", "core", 100, _after(1))
    assert limiter.read("a", "core", _after(1)).remaining == 0
    assert limiter.read("a", "core", _after(1)).reset_at == START.timestamp() + 3600


def test_without_a_token_there_are_60_requests_and_no_graphql() -> None:
    """As for any address that tells no token."""
    limiter = RateLimiter(Limits())
    assert limiter.read(ANONYMOUS, "core", START).limit == 60
    assert limiter.read(ANONYMOUS, "graphql", START).limit == 0


def test_more_requests_at_once_than_allowed_close_the_token() -> None:
    """For REST and GraphQL together, until the time told; others are not concerned."""
    limiter = RateLimiter(Limits(concurrent=2, retry_after=7))
    assert [limiter.enter("a", bucket, START) for bucket in ("core", "graphql")] == [None, None]
    assert limiter.enter("a", "core", START) == Refusal(7)
    assert limiter.enter("b", "core", START) is None
    limiter.leave("a")
    assert limiter.enter("a", "core", _after(6)) == Refusal(1)
    assert limiter.enter("a", "core", _after(7)) is None


@pytest.mark.parametrize(("bucket", "limit"), [("core", 3), ("graphql", 5)])
def test_points_per_minute_are_counted_over_the_last_minute(bucket: str, limit: int) -> None:
    """Each side has its own number, and old requests stop counting."""
    limits = Limits(rest_points_per_minute=3, graphql_points_per_minute=5, retry_after=1)
    limiter = RateLimiter(limits)
    for second in range(limit):
        assert limiter.enter("a", bucket, _after(second)) is None  # type: ignore[arg-type]
        limiter.leave("a")
    assert limiter.enter("a", bucket, _after(10)) == Refusal(1)  # type: ignore[arg-type]
    assert limiter.enter("a", bucket, _after(60.5)) is None  # type: ignore[arg-type]


def test_the_first_answers_may_lack_the_time_to_wait() -> None:
    """As many as was asked for."""
    limiter = RateLimiter(Limits(concurrent=0, retry_after=60, retry_after_missing_first=2))
    assert [limiter.enter("a", "core", START) for _ in range(3)] == [Refusal(None), Refusal(None), Refusal(60)]
