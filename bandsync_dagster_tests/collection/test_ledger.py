"""The shared quota ledger keeps its word through an outage of the store."""

from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta

import pytest
import sqlalchemy as sa

from bandsync_dagster.collection.ledger import StoreLedger
from bandsync_dagster.github.quota import Grant, QuotaReading
from bandsync_dagster.store.errors import StoreUnavailable
from bandsync_dagster_tests.collection.commits import lose_connection, strike_while
from bandsync_dagster_tests.collection.time_by_hand import EPOCH

RESET = EPOCH + timedelta(hours=1)
FINGERPRINT = "0123456789ab"
Call = Callable[[StoreLedger, Grant], object]

CALLS: dict[str, Call] = {
    "reserve": lambda ledger, _: ledger.reserve([FINGERPRINT], "core", 1, share=0.05, now=EPOCH),
    "settle": lambda ledger, grant: ledger.settle(grant, "core", None, now=EPOCH),
    "release": lambda ledger, grant: ledger.release(grant, "core", now=EPOCH),
    "close": lambda ledger, _: ledger.close(FINGERPRINT, "core", RESET, now=EPOCH, kind="primary"),
    "strike": lambda ledger, _: ledger.strike(FINGERPRINT, now=EPOCH),
}


def known(engine: sa.Engine, remaining: int) -> StoreLedger:
    """Return a ledger that knows how much is left of 5,000."""
    ledger = StoreLedger(engine)
    grant = ledger.reserve([FINGERPRINT], "core", 1, share=0.05, now=EPOCH)
    assert isinstance(grant, Grant)
    ledger.settle(grant, "core", QuotaReading("core", 5000, remaining, RESET), now=EPOCH)
    return ledger


def test_the_ledger_grants_defers_and_says_when_it_opens(engine: sa.Engine) -> None:
    """With less left than is kept back, a request waits for the reset; two processes see the same."""
    known(engine, remaining=250)
    other = StoreLedger(engine)
    opens = RESET + timedelta(seconds=1)
    assert other.reserve([FINGERPRINT], "core", 1, share=0.05, now=EPOCH) == opens
    assert other.opens_at([FINGERPRINT], "core", share=0.05, now=EPOCH) == opens
    assert other.opens_at([FINGERPRINT], "core", share=0.0, now=EPOCH) is None


@pytest.mark.parametrize("name", [name for name in CALLS if name != "release"])
def test_every_call_but_one_is_made_again_while_the_store_is_away(engine: sa.Engine, name: str) -> None:
    """After 2, 4, 8, 16 and 32 seconds; the sixth attempt gets through. What is only to be dropped expires as well."""
    known(engine, remaining=5000)
    grant = StoreLedger(engine).reserve([FINGERPRINT], "core", 1, share=0.0, now=EPOCH)
    assert isinstance(grant, Grant)
    pauses: list[float] = []
    strike_while(engine, lambda: len(pauses) < 5, lose_connection(engine))
    CALLS[name](StoreLedger(engine, pause=pauses.append), grant)
    assert pauses == [2.0, 4.0, 8.0, 16.0, 32.0]


@pytest.mark.parametrize("name", CALLS)
def test_an_outage_beyond_the_last_attempt_is_told_unless_an_answer_would_be_lost(engine: sa.Engine, name: str) -> None:
    """Nothing is sent while nobody knows whether there is quota for it; what was sent is worth keeping."""
    grant = known(engine, remaining=5000).reserve([FINGERPRINT], "core", 1, share=0.0, now=EPOCH)
    assert isinstance(grant, Grant)
    pauses: list[float] = []
    strike_while(engine, lambda: True, lose_connection(engine))
    has_an_answer = name in {"settle", "release"}
    with nullcontext() if has_an_answer else pytest.raises(StoreUnavailable):
        CALLS[name](StoreLedger(engine, pause=pauses.append), grant)
    assert len(pauses) == (0 if name == "release" else 5)
