"""Running a coroutine apart from the main thread: results, errors and interrupts arrive as if it were not."""

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from types import FrameType
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
            # As a flush does, this takes many turns of the loop.
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


class Interrupting:
    """Raises KeyboardInterrupt in this thread before the n-th line that leads up to waiting for the work.

    Attributes:
        lines: How many such lines came by.
    """

    def __init__(self, number: int) -> None:
        self.lines = 0
        self._number = number

    def call(self, frame: FrameType, _event: str, _argument: object) -> Callable[..., Any] | None:
        """Follow the functions in which the work is started."""
        if frame.f_code.co_name == "await_outcome":
            sys.settrace(None)
        return self._line if frame.f_code.co_name in ("run_interruptibly", "begin") else None

    def _line(self, _frame: FrameType, event: str, _argument: object) -> Callable[..., Any]:
        if event == "line":
            self.lines += 1
            if self.lines == self._number:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self._line


def run_with_interrupt_at(number: int, work: Coroutine[Any, Any, None]) -> int:
    """Run, with an interrupt at a line; return how many lines there were."""
    interrupting = Interrupting(number)
    sys.settrace(interrupting.call)
    try:
        run_interruptibly(work)
    finally:
        sys.settrace(None)
    return interrupting.lines


def test_an_interrupt_while_work_is_started_leaves_nothing_running() -> None:
    """At each line in turn: either nothing has begun, or it was cancelled and has ended in order."""
    lines = run_with_interrupt_at(0, end_at_once())
    assert lines >= 6
    # Up to its `try` the function has not taken charge of the coroutine.
    for number in range(3, lines + 1):
        states: list[str] = []
        with pytest.raises(KeyboardInterrupt):
            run_with_interrupt_at(number, note_states(states))
        assert states in ([], ["begun", "ended"])


async def end_at_once() -> None:
    """End at once."""


async def note_states(states: list[str]) -> None:
    """Wait until cancelled, and note beginning and end."""
    states.append("begun")
    try:
        await asyncio.Event().wait()
    finally:
        states.append("ended")
