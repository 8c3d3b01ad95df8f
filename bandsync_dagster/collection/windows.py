"""Windows of creation time, and how to cut them. Pure arithmetic on whole seconds; no request is sent here.

GitHub returns at most 1,000 workflow runs for a filtered listing, and an empty page beyond (GitHub docs: REST API
endpoints for workflow runs). `created=A..B` includes both ends, with a resolution of one second.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from bandsync_dagster.collection.moments import SECOND

CAP = 1000
# What a window should hold: well below the cap, so that a guess that is off by a third still fits.
TARGET = 700
# GitHub Actions did not exist before.
FIRST_RUN = datetime(2018, 10, 1, tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True)
class Window:
    """All creation times from `since` (None: from the beginning) to `until`, both included."""

    since: datetime | None
    until: datetime

    @property
    def empty(self) -> bool:
        """Whether no second lies in it."""
        return self.since is not None and self.since > self.until

    @property
    def one_second(self) -> bool:
        """Whether it can't be cut any further."""
        return self.since == self.until

    def length(self) -> timedelta:
        """Return how long it is; an open one is taken to begin with GitHub Actions, and to be a day long at least."""
        if self.since is None:
            return max(self.until - FIRST_RUN, timedelta(days=1))
        return self.until - self.since + SECOND

    def newest(self, span: timedelta) -> tuple["Window", "Window | None"]:
        """Cut off the newest part of that length. Returns it and the rest, if there is any."""
        since = self.until - _whole(span) + SECOND
        if self.since is not None and since <= self.since:
            return self, None
        return Window(since, self.until), Window(self.since, since - SECOND)

    def oldest(self, span: timedelta) -> tuple["Window", "Window | None"]:
        """Cut off the oldest part of that length. Returns it and the rest, if there is any."""
        if self.since is None:
            raise ValueError("a window without a beginning has no oldest part")
        until = self.since + _whole(span) - SECOND
        if until >= self.until:
            return self, None
        return Window(self.since, until), Window(until + SECOND, self.until)


def _whole(span: timedelta) -> timedelta:
    """Return the span in whole seconds, at least one."""
    return max(timedelta(seconds=int(span.total_seconds())), SECOND)


def half(window: Window) -> timedelta:
    """Return half the window's length, in whole seconds, at least one."""
    return _whole(window.length() / 2)


def span_for(count: int, within: timedelta) -> timedelta:
    """Return how long a window should be where `count` runs lie `within` so much time."""
    return _whole(within * (TARGET / max(count, 1)))


def narrowed(window: Window, newest: datetime, oldest: datetime, count: int) -> timedelta:
    """Return a span for the newest part of a window that held too many runs, judging by its newest `count` runs.

    Where nothing was created for longer than the runs are dense, that stretch is cut off first: their density says
    nothing of it. Otherwise the span is at most half the window, so that cutting ends.
    """
    quiet = window.until - newest
    dense = span_for(count, newest - oldest + SECOND)
    return quiet if quiet > dense else min(quiet + dense, half(window))


def adapted(span: timedelta, window: Window, total: int) -> timedelta | None:
    """Return the span after a window that held `total` runs, at most four times as long; None after none."""
    return min(span_for(total, window.length()), span * 4) if total else None
