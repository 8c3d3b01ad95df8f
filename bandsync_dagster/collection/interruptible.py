"""Ending in order what is interrupted or cancelled. Knows nothing of what that is."""

import asyncio
import threading
from collections.abc import Awaitable, Coroutine
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")

_SIGNALS_SECONDS = 0.5


def run_interruptibly(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine on an event loop of its own, in a thread.

    An interrupt (Ctrl-C, or the SIGTERM that Dagster turns into an exception) is raised in the main thread at
    whatever line it is just executing. On an event loop there, that can be inside a callback, where asyncio logs the
    exception and drops it, or halfway through somebody's clean-up. Here it strikes while waiting, always: the
    coroutine is then cancelled, has its time to end in order, and the interrupt goes on.
    """
    work = _Work(main)
    try:
        threading.Thread(target=work.run, name="collection").start()
        work.begin()
        return work.await_outcome()
    finally:
        work.stop()


class _Work(Generic[Result]):
    """A coroutine in a thread. It begins only when told to: an interrupt while the thread starts finds it idle."""

    def __init__(self, main: Coroutine[Any, Any, Result]) -> None:
        self.outcome: Future[Result] = Future()
        self._main = main
        self._begun = False
        self._decided = threading.Event()
        self._started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Result]]] = Future()

    def begin(self) -> None:
        self._begun = True
        self._decided.set()

    def await_outcome(self) -> Result:
        """Wait for the outcome, but never long at a time.

        Python looks for signals when a wait ends or is disturbed. One that arrives while this thread is just about to
        wait disturbs nothing, and would go unnoticed until the work is over.
        """
        while not self.outcome.done():
            wait([self.outcome], timeout=_SIGNALS_SECONDS)
        return self.outcome.result()

    def stop(self) -> None:
        """Cancel the coroutine if it is under way, and wait for its end."""
        self._decided.set()
        if not self._begun:
            self._main.close()
        elif not self.outcome.done():
            loop, task = self._started.result()
            # The coroutine may end, and close its loop, at the same moment.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(task.cancel)
            wait([self.outcome])

    def run(self) -> None:
        self._decided.wait()
        if not self._begun:
            return
        try:
            self.outcome.set_result(asyncio.run(self._tell_and_run()))
        except BaseException as error:  # noqa: BLE001  (whatever it is, it is raised where the outcome is waited for)
            self.outcome.set_exception(error)

    async def _tell_and_run(self) -> Result:
        task = asyncio.ensure_future(self._main)
        self._started.set_result((asyncio.get_running_loop(), task))
        return await task


async def outlast_cancellation(work: Awaitable[None]) -> None:
    """Finish the work although the caller is cancelled meanwhile; the cancellation is raised afterwards."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        await outlast_cancellation(task)
        raise
    task.result()
