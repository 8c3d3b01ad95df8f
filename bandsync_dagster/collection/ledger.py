"""The quota ledger that clients of all processes share: the store's, with patience for outages of the store."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial

import sqlalchemy as sa

from bandsync_dagster.collection.outage import BACKOFF, Pause, Result, persist_here
from bandsync_dagster.github.errors import LimitKind
from bandsync_dagster.github.quota import Grant, QuotaReading
from bandsync_dagster.store.errors import StoreUnavailable
from bandsync_dagster.store.quotas import SqlQuotaLedger


class StoreLedger:
    """A `QuotaLedger` kept in the store. Its methods block, so the client calls them in threads.

    A call that the store did not answer is made again. That is safe for all of them: a reservation made twice expires,
    and everything else sets what it says. If the store stays away nothing more is granted, but what was granted before
    has its answer: that a reservation can't be replaced then, and expires, is no reason to lose it. To drop one is not
    worth waiting for either.

    Args:
        engine: The store.
        pause: Waits for a number of seconds while the store is away; of the thread alone by default.
        delays: Seconds between attempts.
    """

    def __init__(self, engine: sa.Engine, *, pause: Pause | None = None, delays: tuple[float, ...] = BACKOFF) -> None:
        self._ledger = SqlQuotaLedger(engine)
        self._pause = pause
        self._delays = delays

    def reserve(
        self, fingerprints: Sequence[str], bucket: str, cost: int, *, share: float, now: datetime
    ) -> Grant | datetime:
        """Grant a request to the token with most left, or say when one can be tried."""
        answer = self._persist(partial(self._ledger.reserve, fingerprints, bucket, cost, share=share, now=now))
        return answer if isinstance(answer, datetime) else Grant(answer.fingerprint, answer.reservation)

    def settle(self, grant: Grant, bucket: str, reading: QuotaReading | None, *, now: datetime) -> None:
        """Replace the reservation by what the response said; None if it said nothing of limits."""
        with suppress(StoreUnavailable):
            self._persist(partial(self._ledger.settle, grant, bucket, reading, now=now))

    def release(self, grant: Grant, bucket: str, *, now: datetime) -> None:
        """Drop the reservation: there was no answer, or one that says nothing of the quota."""
        with suppress(StoreUnavailable):
            self._ledger.release(grant, bucket, now=now)

    def close(
        self, grant_or_fingerprint: Grant | str, bucket: str, until: datetime, *, now: datetime, kind: LimitKind
    ) -> None:
        """Send nothing more with this token to this bucket until then."""
        self._persist(partial(self._ledger.close, grant_or_fingerprint, bucket, until, now=now, kind=kind))

    def strike(self, fingerprint: str, *, now: datetime) -> int:
        """Count one more secondary limit that came without `retry-after`, and return how many in a row that makes."""
        return self._persist(partial(self._ledger.strike, fingerprint, now=now))

    def opens_at(self, fingerprints: Sequence[str], bucket: str, *, share: float, now: datetime) -> datetime | None:
        """Return when a request could be granted again; None if one would be granted now."""
        return self._persist(partial(self._ledger.opens_at, fingerprints, bucket, share=share, now=now))

    def _persist(self, call: Callable[[], Result]) -> Result:
        return persist_here(call, what="quota", pause=self._pause, delays=self._delays)
