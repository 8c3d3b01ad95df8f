"""Ending in order what is interrupted or cancelled. Knows nothing of what that is."""

import asyncio
from collections.abc import Awaitable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


def run_interruptibly(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine on an event loop of its own, in a thread.

    An interrupt (Ctrl-C, or the SIGTERM that Dagster turns into an exception) is raised in the main thread at
    whatever line it is just executing. On an event loop there, that can be inside a callback, where asyncio logs the
    exception and drops it, or halfway through somebody's clean-up. Here it strikes while waiting, always: the
    coroutine is then cancelled, has its time to end in order, and the interrupt goes on.
    """
    cancellable = _Cancellable(main)
    with ThreadPoolExecutor(1, thread_name_prefix="collection") as pool:
        running = pool.submit(asyncio.run, cancellable.run())
        try:
            return running.result()
        finally:
            if not running.done():
                cancellable.cancel()


class _Cancellable(Generic[Result]):
    """A coroutine that another thread can cancel."""

    def __init__(self, main: Coroutine[Any, Any, Result]) -> None:
        self._main = main
        self._started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Result]]] = Future()

    async def run(self) -> Result:
        task = asyncio.ensure_future(self._main)
        self._started.set_result((asyncio.get_running_loop(), task))
        return await task

    def cancel(self) -> None:
        loop, task = self._started.result()
        # The coroutine may end, and close its loop, at the same moment.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(task.cancel)


async def outlast_cancellation(work: Awaitable[None]) -> None:
    """Finish the work although the caller is cancelled meanwhile; the cancellation is raised afterwards."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        await outlast_cancellation(task)
        raise
    task.result()
