"""Running a coroutine apart from the main thread: results, errors and interrupts arrive as if it were not."""

import asyncio
import signal
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from bandsync_dagster.collection.interruptible import run_interruptibly


async def give(value: int) -> int:
    """Return a value."""
    await asyncio.sleep(0)
    return value


async def fail() -> None:
    """Raise."""
    raise KeyError("boom")


def interrupt_main_thread() -> None:
    """Send the main thread what Ctrl-C sends."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


class Patient:
    """A coroutine that is interrupted, and takes its time to end in order."""

    def __init__(self) -> None:
        self.ended_in_order = False

    async def run(self) -> None:
        """Interrupt the main thread, wait, and clean up at length."""
        try:
            interrupt_main_thread()
            await asyncio.Event().wait()
        finally:
            for _ in range(100):
                await asyncio.sleep(0)
            self.ended_in_order = True


def test_the_result_comes_back() -> None:
    """As from `asyncio.run`."""
    assert run_interruptibly(give(7)) == 7


def test_an_error_comes_back() -> None:
    """With its type and its message."""
    with pytest.raises(KeyError, match="boom"):
        run_interruptibly(fail())


def test_an_interrupt_cancels_the_coroutine_and_waits_for_its_end() -> None:
    """Ctrl-C goes on only after the coroutine has had time to end in order."""
    patient = Patient()
    with pytest.raises(KeyboardInterrupt):
        run_interruptibly(patient.run())
    assert patient.ended_in_order


def test_it_works_inside_of_a_running_event_loop() -> None:
    """Where `asyncio.run` refuses to."""

    async def nested(work: Coroutine[Any, Any, int]) -> int:
        return run_interruptibly(work)

    assert asyncio.run(nested(give(7))) == 7


async def interrupt_and_end() -> None:
    """Interrupt the main thread and be done."""
    interrupt_main_thread()


def test_a_coroutine_that_ends_in_spite_of_the_interrupt_keeps_it_from_nobody() -> None:
    """It may be over before it can be cancelled; the interrupt arrives all the same."""

    def run_and_wait() -> None:
        run_interruptibly(interrupt_and_end())
        threading.Event().wait()

    with pytest.raises(KeyboardInterrupt):
        run_and_wait()
