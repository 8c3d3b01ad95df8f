"""Rate limits as GitHub has them: primary per token and bucket, secondary per token. No HTTP: numbers and times only.

Source: GitHub docs, "Rate limits for the REST API" and "Rate limits and query limits for the GraphQL API".
"""

import math
import threading
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

Bucket = Literal["core", "graphql"]
BUCKETS: tuple[Bucket, ...] = ("core", "graphql")
ANONYMOUS = "anonymous"


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a host. Windows are fixed and start with the first use after the last one ended.

    `window` and `minute` are in seconds and may be shortened, to see many windows in one test.
    `retry_after_missing_first` is how many of the first secondary answers lack `retry-after`. The last three choose
    among the forms that GitHub's limit answers were seen in.
    """

    core: int = 5000
    graphql: int = 5000
    anonymous_core: int = 60
    window: float = 3600.0
    concurrent: int = 100
    rest_points_per_minute: int = 900
    graphql_points_per_minute: int = 2000
    minute: float = 60.0
    retry_after: float = 60.0
    retry_after_missing_first: int = 0
    rest_status: Literal[403, 429] = 403
    graphql_secondary_status: Literal[200, 403] = 403
    graphql_type: Literal["RATE_LIMITED", "RATE_LIMIT"] = "RATE_LIMITED"

    def of(self, identity: str, bucket: Bucket) -> int:
        """Return the limit of one caller's bucket; nobody may use GraphQL without a token."""
        if identity == ANONYMOUS:
            return self.anonymous_core if bucket == "core" else 0
        return self.core if bucket == "core" else self.graphql

    def points_per_minute(self, bucket: Bucket) -> int:
        """Return the secondary limit of REST or of GraphQL."""
        return self.rest_points_per_minute if bucket == "core" else self.graphql_points_per_minute


@dataclass(frozen=True, slots=True)
class Reading:
    """What a bucket holds at one moment."""

    bucket: Bucket
    limit: int
    used: int
    reset_at: float

    @property
    def remaining(self) -> int:
        """What is left."""
        return self.limit - self.used

    def headers(self) -> dict[str, str]:
        """Return the five headers. The reset comes within the announced second, never after it."""
        return {
            "x-ratelimit-limit": str(self.limit),
            "x-ratelimit-remaining": str(self.remaining),
            "x-ratelimit-used": str(self.used),
            "x-ratelimit-reset": str(math.floor(self.reset_at)),
            "x-ratelimit-resource": self.bucket,
        }


@dataclass(slots=True)
class _Window:
    started: float | None = None
    used: int = 0


@dataclass(slots=True)
class _Secondary:
    in_flight: int = 0
    spent: dict[Bucket, deque[float]] = field(default_factory=lambda: {bucket: deque() for bucket in BUCKETS})
    closed_until: float = 0.0


@dataclass(frozen=True, slots=True)
class Refusal:
    """A secondary limit. `retry_after` is None where GitHub leaves the header out."""

    retry_after: int | None


class RateLimiter:
    """Keeps the buckets of all callers. A caller is an identity: a token, or an App's installation."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._lock = threading.Lock()
        self._windows: dict[tuple[str, Bucket], _Window] = {}
        self._secondary: dict[str, _Secondary] = {}
        self._refusals = 0

    def read(self, identity: str, bucket: Bucket, now: datetime) -> Reading:
        """Return what a bucket holds, without using it."""
        with self._lock:
            return self._read(identity, bucket, now.timestamp())

    def _read(self, identity: str, bucket: Bucket, now: float) -> Reading:
        window = self._window(identity, bucket, now)
        started = now if window.started is None else window.started
        return Reading(bucket, self.limits.of(identity, bucket), window.used, started + self.limits.window)

    def _window(self, identity: str, bucket: Bucket, now: float) -> _Window:
        window = self._windows.setdefault((identity, bucket), _Window())
        if window.started is not None and now >= window.started + self.limits.window:
            window.started, window.used = None, 0
        return window

    def take(self, identity: str, bucket: Bucket, cost: int, now: datetime) -> bool:
        """Use `cost` of a bucket if that much is left."""
        with self._lock:
            reading = self._read(identity, bucket, now.timestamp())
            if cost > reading.remaining:
                return False
            self._use(identity, bucket, cost, now.timestamp())
            return True

    def spend(self, identity: str, bucket: Bucket, cost: int, now: datetime) -> None:
        """Use up to `cost` of a bucket, as somebody else on the same token does."""
        with self._lock:
            reading = self._read(identity, bucket, now.timestamp())
            self._use(identity, bucket, min(cost, reading.remaining), now.timestamp())

    def _use(self, identity: str, bucket: Bucket, cost: int, now: float) -> None:
        window = self._window(identity, bucket, now)
        if window.started is None and cost:
            window.started = now
        window.used += cost

    def reset(self) -> None:
        """Start all windows anew, as if their time had passed."""
        with self._lock:
            self._windows.clear()
            self._secondary.clear()

    def enter(self, identity: str, bucket: Bucket, now: datetime) -> Refusal | None:
        """Let a request in, or refuse it by a secondary limit; every request let in must `leave`."""
        with self._lock:
            mine, time = self._secondary.setdefault(identity, _Secondary()), now.timestamp()
            if time < mine.closed_until:
                return self._refuse(mine, time)
            spent = mine.spent[bucket]
            while spent and spent[0] <= time - self.limits.minute:
                spent.popleft()
            if mine.in_flight >= self.limits.concurrent or len(spent) >= self.limits.points_per_minute(bucket):
                mine.closed_until = time + self.limits.retry_after
                return self._refuse(mine, time)
            spent.append(time)
            mine.in_flight += 1
            return None

    def _refuse(self, mine: _Secondary, time: float) -> Refusal:
        self._refusals += 1
        told = self._refusals > self.limits.retry_after_missing_first
        return Refusal(math.ceil(mine.closed_until - time) if told else None)

    def leave(self, identity: str) -> None:
        """End a request that was let in."""
        with self._lock:
            mine = self._secondary.get(identity)
            if mine is not None:
                mine.in_flight = max(0, mine.in_flight - 1)

    def close(self, identity: str, seconds: float, now: datetime) -> None:
        """Impose a secondary limit, as GitHub does for undisclosed reasons."""
        with self._lock:
            self._secondary.setdefault(identity, _Secondary()).closed_until = now.timestamp() + seconds
