"""Waiting out a store that is away: one rule for batches, for the life of a sync and for the quota ledger."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa

from bandsync_dagster.store.engine import transient
from bandsync_dagster.store.errors import StoreError

Sleep = Callable[[float], Awaitable[object]]
Pause = Callable[[float], object]
Params = ParamSpec("Params")
Result = TypeVar("Result")

BACKOFF = (2.0, 4.0, 8.0, 16.0, 32.0)


def _ignore() -> None:
    """Nothing needs to be noted."""


async def persist(
    call: Callable[[], Result],
    *,
    sleep: Sleep = asyncio.sleep,
    delays: tuple[float, ...] = BACKOFF,
    on_retry: Callable[[], None] = _ignore,
) -> Result:
    """Make a call to the store in a thread, again after each delay while the store is away.

    Raises:
        StoreError: The store is still away after the last delay, or it objects to the call itself.
    """
    for delay in delays:
        try:
            return await asyncio.to_thread(call)
        except StoreError as error:
            if not transient(error):
                raise
        on_retry()
        await sleep(delay)
    return await asyncio.to_thread(call)


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
    call: Callable[[], Result], *, pause: Pause | None = None, delays: tuple[float, ...] = BACKOFF
) -> Result:
    """Make a call to the store in this thread, again after each delay while the store is away.

    Raises:
        StoreError: As `persist`.
    """
    pause = pause or threading.Event().wait
    for delay in delays:
        try:
            return call()
        except StoreError as error:
            if not transient(error):
                raise
        pause(delay)
    return call()
