"""A time that moves only when a test says so, for everything that waits by `sleep` or measures by `timer`."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

LONGEST_RETRY = 32.0
EPOCH = datetime(2026, 11, 29, 12, 0, tzinfo=timezone.utc)


class TimeByHand:
    """A clock, a timer and a sleep that agree with each other.

    Attributes:
        slept: The seconds of each wait, in order.
        while_asleep: Called during each wait that passes at once.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.slept: list[float] = []
        self.while_asleep: Callable[[], None] = lambda: None
        self._pulse: asyncio.Future[None] | None = None
        self._beaten: asyncio.Future[None] | None = None
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def timer(self) -> float:
        """Return the seconds since the test began."""
        return self.seconds

    def clock(self) -> datetime:
        """Return the same as a moment."""
        return EPOCH + timedelta(seconds=self.seconds)

    async def sleep(self, seconds: float) -> None:
        """Wait until the test has moved the time on."""
        self.slept.append(seconds)
        awake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.seconds + seconds, awake))
        await awake

    async def sleep_at_once(self, seconds: float) -> None:
        """Move the time on by as much as the sleeper wants, and let everybody else have a turn."""
        self.slept.append(seconds)
        self.seconds += seconds
        self.while_asleep()
        await asyncio.sleep(0)

    async def sleep_briefly(self, seconds: float) -> None:
        """Let the waits of retries pass at once; a longer one, such as a batch's age, lasts until it is cancelled."""
        if seconds > LONGEST_RETRY:
            await asyncio.Event().wait()
        await self.sleep_at_once(seconds)

    async def pulse(self, seconds: float) -> None:
        """Wait until the test wants a heartbeat."""
        self._pulse = asyncio.get_running_loop().create_future()
        if self._beaten is not None:
            self._beaten.set_result(None)
            self._beaten = None
        await self._pulse
        self.seconds += seconds

    async def beat(self) -> None:
        """Let one heartbeat happen, and return when the next one is waited for."""
        if self._pulse is None:
            raise RuntimeError("nobody waits for a heartbeat")
        self._beaten = asyncio.get_running_loop().create_future()
        beaten = self._beaten
        self._pulse.set_result(None)
        await beaten

    def advance(self, seconds: float) -> None:
        """Move the time on and wake whoever waited for it."""
        self.seconds += seconds
        due = [awake for at, awake in self._sleepers if at <= self.seconds and not awake.done()]
        for awake in due:
            awake.set_result(None)
