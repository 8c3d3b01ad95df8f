"""Waiting out a store that is away: one rule for batches, for the life of a sync and for the quota ledger.

Whoever looks at the log meanwhile learns what is wrong, how often it was tried and when it is tried again.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

import sqlalchemy as sa

from bandsync_dagster.store.engine import transient
from bandsync_dagster.store.errors import StoreError
from bandsync_dagster.wording import sentence

Sleep = Callable[[float], Awaitable[object]]
Pause = Callable[[float], object]
Params = ParamSpec("Params")
Result = TypeVar("Result")

BACKOFF = (2.0, 4.0, 8.0, 16.0, 32.0)

_log = logging.getLogger(__name__)


class _Attempts(Generic[Result]):
    """The attempts to make one call, and what a person is told of them.

    They are told from the thread that makes them: what keeps the log may be as slow as the store is.
    """

    def __init__(self, call: Callable[[], Result], what: str | None, delays: tuple[float, ...]) -> None:
        self._call = call
        self._what = what or _name_of(call)
        self._delays = delays
        self._failed = 0

    def make(self) -> Result:
        """Make the call once more."""
        try:
            result = self._call()
        except StoreError as error:
            self._failed += 1
            if transient(error) and self._delays:
                self._tell_failure(error)
            raise
        if self._failed:
            # A warning like those before it: who filters by that wants to see the end too.
            _log.warning("The database answers again: attempt %s succeeded.", self._numbered(self._failed + 1))
        return result

    def _tell_failure(self, error: StoreError) -> None:
        told = str(error).rstrip(".")
        later = self._delays[self._failed - 1 :]
        next_one = f"the next is in {later[0]:g} s" if later else "it was the last"
        _log.warning("%s. Attempt %s failed; %s.", sentence(told), self._numbered(self._failed), next_one)

    def _numbered(self, number: int) -> str:
        return f"{number} of {len(self._delays) + 1} ({self._what})"


def _name_of(call: Callable[..., Any]) -> str:
    """Return the name of a function, or of the one that a `partial` is of."""
    return getattr(getattr(call, "func", call), "__name__", "a question")


def _ignore() -> None:
    """Nothing needs to be noted."""


def _never() -> bool:
    """Nobody is in a hurry."""
    return False


async def persist(
    call: Callable[[], Result],
    *,
    what: str | None = None,
    sleep: Sleep = asyncio.sleep,
    delays: tuple[float, ...] = BACKOFF,
    on_retry: Callable[[], None] = _ignore,
    gives_up: Callable[[], bool] = _never,
) -> Result:
    """Make a call to the store in a thread, again after each delay while the store is away.

    Args:
        call: Reads or writes.
        what: What it is about, for whoever reads the log of an outage; None names the function called.
        sleep: Waits for a number of seconds.
        delays: Seconds between attempts.
        on_retry: Called before each wait.
        gives_up: Asked after each failure: whether it was the last attempt before its time.

    Raises:
        StoreError: The store is still away after the last attempt, or it objects to the call itself.
    """
    attempts = _Attempts(call, what, delays)
    for delay in delays:
        try:
            return await asyncio.to_thread(attempts.make)
        except StoreError as error:
            if not transient(error) or gives_up():
                raise
        on_retry()
        await sleep(delay)
    return await asyncio.to_thread(attempts.make)


@dataclass(frozen=True, slots=True)
class Store:
    """The store for asynchronous callers: each call in a thread, and with patience.

    Attributes:
        engine: The database.
        sleep: Waits while it is away.
        delays: Seconds between attempts.
    """

    engine: sa.Engine
    sleep: Sleep = asyncio.sleep
    delays: tuple[float, ...] = BACKOFF

    async def call(
        self, function: Callable[Concatenate[sa.Engine, Params], Result], *args: Params.args, **kwargs: Params.kwargs
    ) -> Result:
        """Call a function of the store; its first argument, the engine, is added here."""
        return await persist(partial(function, self.engine, *args, **kwargs), sleep=self.sleep, delays=self.delays)


def persist_here(
    call: Callable[[], Result],
    *,
    what: str | None = None,
    pause: Pause | None = None,
    delays: tuple[float, ...] = BACKOFF,
) -> Result:
    """Make a call to the store in this thread, again after each delay while the store is away; else as `persist`.

    Raises:
        StoreError: As `persist`.
    """
    attempts = _Attempts(call, what, delays)
    pause = pause or threading.Event().wait
    for delay in delays:
        try:
            return attempts.make()
        except StoreError as error:
            if not transient(error):
                raise
        pause(delay)
    return attempts.make()
