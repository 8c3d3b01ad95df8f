"""What is left of GitHub's rate limit: readings from responses, and the ledger that grants requests.

The rules for choosing a token and for holding back are `MemoryLedger`'s; a ledger in a database follows the same.
What a refused response means is decided in `verdict`.
"""

import itertools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from typing import Protocol

from bandsync_dagster.github.errors import LimitKind

BUCKETS = ("core", "graphql")

# PyGithub and octokit wait one second more: GitHub does not say when within its second the reset takes place.
RESET_MARGIN = timedelta(seconds=1)
# Two readings of one window may give resets this far apart: times are in whole seconds, and clocks are compared.
SAME_WINDOW = timedelta(seconds=2)
# A request that nobody settled (its process was killed) stops counting after this long.
RESERVATION_LIFE = timedelta(minutes=2)
# GitHub's windows last an hour. A reset beyond this is a broken header, which must not close a bucket for ever.
_LONGEST_WINDOW = timedelta(hours=2)


@dataclass(frozen=True, slots=True)
class QuotaReading:
    """What one response said of one bucket. `reset_at` is in this machine's time."""

    bucket: str
    limit: int
    remaining: int
    reset_at: datetime


@dataclass(frozen=True, slots=True)
class Grant:
    """Leave to send one request with the token of this fingerprint."""

    fingerprint: str
    reservation: int | None = None


class QuotaLedger(Protocol):
    """Who may send what, shared by everybody on the same tokens. Methods block; the client calls them in a thread."""

    def reserve(
        self, fingerprints: Sequence[str], bucket: str, cost: int, *, share: float, now: datetime
    ) -> Grant | datetime:
        """Grant a request to the token with most left, or say when one can be tried."""
        ...

    def settle(self, grant: Grant, bucket: str, reading: QuotaReading | None, *, now: datetime) -> None:
        """Replace the reservation by what the response said; None if it said nothing of limits."""
        ...

    def release(self, grant: Grant, bucket: str, *, now: datetime) -> None:
        """Drop the reservation: there was no answer, or one that says nothing of the quota."""
        ...

    def close(
        self, grant_or_fingerprint: Grant | str, bucket: str, until: datetime, *, now: datetime, kind: LimitKind
    ) -> None:
        """Send nothing more with this token to this bucket until then."""
        ...

    def strike(self, fingerprint: str, *, now: datetime) -> int:
        """Count one more secondary limit that came without `retry-after`, and return how many in a row that makes."""
        ...


def read_quota(headers: Mapping[str, str], bucket: str, *, now: datetime) -> QuotaReading | None:
    """Return what the headers say of the quota, or None if the host reports no limits.

    GitHub Enterprise Server without rate limits sends no such headers, or a limit of 0, which means none.

    Args:
        headers: The response's, under lower-case names.
        bucket: The bucket to assume when the response does not name one.
        now: When the response arrived, by this machine's clock.
    """
    limit = _number(headers.get("x-ratelimit-limit"))
    remaining = _number(headers.get("x-ratelimit-remaining"))
    reset = _number(headers.get("x-ratelimit-reset"))
    if not limit or remaining is None or reset is None:
        return None
    reset_at = local_time(reset, headers, now=now)
    return QuotaReading(headers.get("x-ratelimit-resource") or bucket, limit, remaining, reset_at)


def local_time(epoch: int, headers: Mapping[str, str], *, now: datetime) -> datetime:
    """Translate a moment of GitHub's clock into this machine's, given a response that just arrived."""
    ahead = epoch - (now - clock_skew(headers, now=now)).timestamp()
    return now + min(timedelta(seconds=min(ahead, 1e9)), _LONGEST_WINDOW)


def clock_skew(headers: Mapping[str, str], *, now: datetime) -> timedelta:
    """Return how far this machine's clock is ahead of the server's; less than its resolution counts as nothing."""
    try:
        date = parsedate_to_datetime(headers.get("date", ""))
    except (ValueError, IndexError, TypeError):
        return timedelta(0)
    skew = now - (date if date.tzinfo else date.replace(tzinfo=timezone.utc))
    return skew if abs(skew) > SAME_WINDOW else timedelta(0)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 12 else None  # noqa: PLR2004 - an epoch has ten digits


@dataclass(slots=True)
class _Bucket:
    """One bucket of one token. `limit` is None until a response told it."""

    limit: int | None = None
    remaining: int = 0
    reset_at: datetime | None = None
    unlimited: bool = False
    closed_until: datetime | None = None
    reservations: dict[int, tuple[int, datetime]] = field(default_factory=dict[int, tuple[int, datetime]])

    def closed(self, now: datetime) -> bool:
        return self.closed_until is not None and self.closed_until > now

    def in_flight(self, now: datetime) -> int:
        return sum(cost for cost, expires in self.reservations.values() if expires > now)

    def full(self, now: datetime) -> bool:
        """Whether a new window has begun, of which nothing has been read yet."""
        return self.reset_at is None or self.reset_at + RESET_MARGIN <= now

    def spare(self, share: float, now: datetime) -> float:
        """Return what may be spent: what is left, less what is kept back and what is on its way."""
        if self.unlimited or self.limit is None:
            return float("inf")
        left = self.limit if self.full(now) else self.remaining
        return left - int(share * self.limit) - self.in_flight(now)

    def admits(self, cost: int, share: float, now: datetime) -> bool:
        """Whether twice the cost is left; but a full window always lets one request through, however small it is."""
        if self.closed(now):
            return False
        most = float("inf") if self.limit is None else max(self.limit - int(share * self.limit), 1)
        return cost == 0 or self.spare(share, now) >= min(2 * cost, most)

    def opens_at(self, now: datetime) -> datetime:
        """Return when a request that cannot be granted now can be tried."""
        if self.closed(now) and self.closed_until is not None:
            return self.closed_until
        if self.reset_at is not None and not self.full(now):
            return self.reset_at + RESET_MARGIN
        # Only requests on their way stand in the way: they are settled within moments.
        return now + RESET_MARGIN

    def read(self, reading: QuotaReading, now: datetime) -> None:
        """Take over a reading. Within one window what is left only falls; an older window says nothing."""
        if self.limit is None or self.reset_at is None or self.full(now):
            newer = True
        elif reading.reset_at < self.reset_at - SAME_WINDOW:
            return
        else:
            newer = reading.reset_at > self.reset_at + SAME_WINDOW
        self.remaining = reading.remaining if newer else min(self.remaining, reading.remaining)
        self.reset_at = reading.reset_at if newer else self.reset_at
        self.limit, self.unlimited = reading.limit, False


class MemoryLedger:
    """The ledger of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._buckets: dict[tuple[str, str], _Bucket] = {}
        self._strikes: dict[str, int] = {}
        self._numbers = itertools.count(1)

    def reserve(
        self, fingerprints: Sequence[str], bucket: str, cost: int, *, share: float, now: datetime
    ) -> Grant | datetime:
        """Grant a request to the token with most left, or say when one can be tried."""
        with self._lock:
            candidates = [(fingerprint, self._bucket(fingerprint, bucket)) for fingerprint in fingerprints]
            able = [
                (state.spare(share, now), fingerprint, state)
                for fingerprint, state in candidates
                if state.admits(cost, share, now)
            ]
            if not able:
                return min(state.opens_at(now) for _, state in candidates)
            _, fingerprint, state = max(able, key=lambda candidate: candidate[0])
            number = next(self._numbers)
            state.reservations[number] = (cost, now + RESERVATION_LIFE)
            return Grant(fingerprint, number)

    def settle(self, grant: Grant, bucket: str, reading: QuotaReading | None, *, now: datetime) -> None:
        """Replace the reservation by what the response said; None if it said nothing of limits."""
        with self._lock:
            state = self._bucket(grant.fingerprint, bucket)
            cost = self._drop(state, grant)
            # A success that was on its way before the token was closed proves nothing.
            if not self._is_closed(grant.fingerprint, now):
                self._strikes.pop(grant.fingerprint, None)
            if reading is not None and reading.limit > 0:
                self._bucket(grant.fingerprint, reading.bucket).read(reading, now)
            elif state.limit is None:
                state.unlimited = True
            else:
                state.remaining = max(state.remaining - cost, 0)

    def release(self, grant: Grant, bucket: str, *, now: datetime) -> None:  # noqa: ARG002 - the ledger's interface
        """Drop the reservation: there was no answer, or one that says nothing of the quota."""
        with self._lock:
            self._drop(self._bucket(grant.fingerprint, bucket), grant)

    def close(
        self,
        grant_or_fingerprint: Grant | str,
        bucket: str,
        until: datetime,
        *,
        now: datetime,  # noqa: ARG002 - the ledger's interface
        kind: LimitKind,  # noqa: ARG002 - the ledger's interface
    ) -> None:
        """Send nothing more with this token to this bucket until then."""
        fingerprint = (
            grant_or_fingerprint if isinstance(grant_or_fingerprint, str) else grant_or_fingerprint.fingerprint
        )
        with self._lock:
            state = self._bucket(fingerprint, bucket)
            state.closed_until = max(until, state.closed_until or until)

    def strike(self, fingerprint: str, *, now: datetime) -> int:
        """Count one more secondary limit that came without `retry-after`, and return how many in a row that makes.

        While the token is closed for one, others are its echoes from requests that were on their way: not counted.
        """
        with self._lock:
            count = self._strikes.get(fingerprint, 0)
            echo = count > 0 and self._is_closed(fingerprint, now)
            self._strikes[fingerprint] = count if echo else count + 1
            return self._strikes[fingerprint]

    def _is_closed(self, fingerprint: str, now: datetime) -> bool:
        # A secondary limit closes all buckets, so one tells.
        return self._bucket(fingerprint, BUCKETS[0]).closed(now)

    def _bucket(self, fingerprint: str, bucket: str) -> _Bucket:
        return self._buckets.setdefault((fingerprint, bucket), _Bucket())

    @staticmethod
    def _drop(state: _Bucket, grant: Grant) -> int:
        cost, _ = state.reservations.pop(grant.reservation or 0, (0, None))
        return cost
