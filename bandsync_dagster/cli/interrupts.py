"""Ctrl-C as an event to wait for, rather than an exception that may strike anywhere, also while cleaning up."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from bandsync_dagster.cli.errors import Interrupted

_SIGNALS = [signal.SIGINT, signal.SIGTERM] + ([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])


class Interrupts:
    """What was asked for by signal so far: nothing, to stop, or to stop without waiting for work in progress."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._hurry = threading.Event()

    @property
    def asked(self) -> bool:
        """Whether to stop."""
        return self._asked.is_set()

    def pause(self, seconds: float) -> None:
        """Wait, but not longer than until somebody asks to stop.

        Raises:
            Interrupted: Somebody did.
        """
        if self._asked.wait(seconds):
            raise Interrupted

    @property
    def hurried(self) -> bool:
        """Whether to stop at once, without waiting for work in progress."""
        return self._hurry.is_set()

    def pause_stopping(self, seconds: float) -> bool:
        """Wait while stopping; tell whether there is still time for that."""
        return not self._hurry.wait(seconds)

    def receive(self, _number: int, _frame: FrameType | None) -> None:
        """Note a signal: the first asks to stop, the second to hurry."""
        (self._hurry if self._asked.is_set() else self._asked).set()


@contextmanager
def heeding_signals() -> Iterator[Interrupts]:
    """Collect the signals that arrive inside; what they did before is restored at the end."""
    interrupts = Interrupts()
    before = {number: signal.signal(number, interrupts.receive) for number in _SIGNALS}
    try:
        yield interrupts
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
