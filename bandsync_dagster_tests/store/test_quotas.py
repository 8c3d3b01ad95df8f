"""The quota ledger: one suite over the one in memory and the one in the database, then what only a database can do."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from bandsync_dagster.github.quota import Grant, MemoryLedger, QuotaLedger, QuotaReading
from bandsync_dagster.store.quotas import SqlQuotaLedger
from bandsync_dagster_tests.store.builders import HOUR, NOW

SECOND = timedelta(seconds=1)


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def ledger(request: pytest.FixtureRequest) -> QuotaLedger:
    """A ledger of each kind, knowing nothing."""
    if request.param == "memory":
        return MemoryLedger()
    return SqlQuotaLedger(request.getfixturevalue("engine"))


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> str:
    """The database of the ledger under test."""
    return request.node.callspec.params["ledger"]


def told(remaining: int, *, limit: int = 100, reset_at: datetime = NOW + HOUR, bucket: str = "core") -> QuotaReading:
    """Return a reading."""
    return QuotaReading(bucket, limit, remaining, reset_at)


def ask(ledger: QuotaLedger, *tokens: str, **given: Any) -> Any:
    """Reserve a request of cost 1 in `core`, nothing kept back, unless told otherwise."""
    known = {"bucket": "core", "cost": 1, "share": 0.0, "now": NOW} | given
    return ledger.reserve(tokens or ("one",), known["bucket"], known["cost"], share=known["share"], now=known["now"])


def learn(ledger: QuotaLedger, reading: QuotaReading | None, token: str = "one", now: datetime = NOW) -> None:
    """Settle a response that said this."""
    ledger.settle(Grant(token), "core", reading, now=now)


def test_an_unknown_bucket_is_granted(ledger: QuotaLedger) -> None:
    """Nothing is known before the first response, so the first request goes out."""
    assert ask(ledger).fingerprint == "one"
