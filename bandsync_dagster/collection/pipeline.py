"""From pages to transactions: the bounded queue, the batcher and the writer of one stage. Knows nothing of GitHub.

    put(page) ─> queue, bounded in rows ─> batch, by size or age ─> sink.write in a thread, one batch at a time
        ^                                                              │ store away: 2, 4, 8, 16, 32 s, the same batch
        └── waits while another page like it has no room               └ still away: sink.set_aside, then the error

A producer whose pages are dear calls `settle` after each `put`: while the store keeps up, nothing it has fetched is
then in memory only.

A page is atomic: its position and job totals travel with its last row, however the page is cut into batches. Batches
leave in the order in which pages came. Whatever was put is written before the block is left, also when it is left by
cancellation or an error. A cancellation is not held up by a store that is away: one more attempt, then `set_aside`.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Protocol

from bandsync_dagster.collection.interruptible import outlast_cancellation
from bandsync_dagster.collection.metrics import PipelineMetrics
from bandsync_dagster.collection.outage import BACKOFF, Sleep, persist
from bandsync_dagster.store.engine import transient
from bandsync_dagster.store.errors import StoreError
from bandsync_dagster.store.writes import Batch, Written

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Page:
    """Rows that came together, and what may be claimed once they are stored.

    Attributes:
        rows: Mappings from column name to value.
        position: The stage's checkpoint after this page; None leaves the checkpoint where it is.
        job_totals: Rows of `job_totals` for verifications whose jobs are complete with this page.
    """

    rows: Sequence[Row]
    position: Mapping[str, Any] | None = None
    job_totals: Sequence[Row] = ()


@dataclass(frozen=True, slots=True)
class PipelineOptions:
    """How many rows make a batch, how old its oldest may get, and how many may wait.

    Attributes:
        max_size: A batch never holds more rows than this.
        max_age: Seconds after which a batch leaves although it is not full.
        queue_size: Rows that may wait in the queue, job totals counted too. With those in the batch that is being
            written, at most `queue_size + max_size` are held in memory, as long as no single page is larger.
        backoff: Seconds between attempts to write while the store is away.
    """

    max_size: int = 500
    max_age: float = 2.0
    queue_size: int = 2_000
    backoff: tuple[float, ...] = BACKOFF

    def __post_init__(self) -> None:
        """Refuse sizes with which nothing would ever be written."""
        if self.max_size < 1 or self.max_age <= 0:
            raise ValueError(f"batch size {self.max_size} and age {self.max_age} must be positive")
        if self.queue_size < self.max_size:
            raise ValueError(
                f"queue size {self.queue_size} is smaller than the batch size {self.max_size}: no batch would ever fill"
            )


class Sink(Protocol):
    """Where batches go."""

    def seal(self, rows: Sequence[Row], position: Mapping[str, Any] | None, job_totals: Sequence[Row]) -> Batch:
        """Give the batch its number; from here on it is the same batch at every attempt."""
        ...

    def write(self, batch: Batch) -> Written:
        """Write the batch in one transaction. Called in a thread."""
        ...

    def set_aside(self, batch: Batch) -> None:
        """Keep a batch that the store would not take, if there is anywhere to keep it. Called in a thread."""
        ...


@dataclass(slots=True)
class _Queued:
    """A page in the queue: when it came, and how many of its rows have left already."""

    page: Page
    since: float
    taken: int = 0


def _weight(page: Page) -> int:
    """Return what a page counts for in the queue: runs without jobs bring totals and no rows."""
    return len(page.rows) + len(page.job_totals)


@dataclass(slots=True)
class _Load:
    """A batch in the making."""

    rows: list[Row] = field(default_factory=list[Row])
    position: Mapping[str, Any] | None = None
    job_totals: list[Row] = field(default_factory=list[Row])

    def add(self, queued: _Queued, room: int) -> bool:
        """Add up to `room` rows; with the last of the page also its claims. Returns whether the page is used up."""
        rows = queued.page.rows
        end = min(queued.taken + room, len(rows))
        self.rows.extend(rows[queued.taken : end])
        queued.taken = end
        if end < len(rows):
            return False
        self.job_totals.extend(queued.page.job_totals)
        self.position = self.position if queued.page.position is None else queued.page.position
        return True


async def _first_of(waits: Sequence[asyncio.Future[Any]]) -> None:
    """Wait until one of them is done, and end the others."""
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


class Pipeline:
    """Takes pages from any number of producers and writes them in batches. Use it as an asynchronous context manager.

    Args:
        sink: Where batches go.
        options: Sizes, ages and waits.
        sleep: Waits for a number of seconds; the batch's age and the backoff are measured with it.
        timer: Seconds on a clock that never goes back.
    """

    def __init__(
        self,
        sink: Sink,
        options: PipelineOptions | None = None,
        *,
        sleep: Sleep = asyncio.sleep,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self.metrics = PipelineMetrics()
        self._sink = sink
        self._options = options or PipelineOptions()
        self._sleep = sleep
        self._timer = timer
        self._queue: deque[_Queued] = deque()
        self._held = 0
        self._impatient = 0
        self._closing = False
        self._stranded: list[Batch] = []
        self._hurry = asyncio.Event()
        self._last_attempt = False
        self._wake = asyncio.Event()
        self._progress = asyncio.Condition()
        self._writer: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Pipeline":  # noqa: PYI034  (typing.Self is new in Python 3.11)
        """Start the writer."""
        self._writer = asyncio.get_running_loop().create_task(self._write_all(), name="pipeline-writer")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Write what is left, whatever ended the block.

        If that fails, its error is raised in place of the block's own, because the promise to keep what was fetched
        is broken; only a cancellation stays one.
        """
        self._closing = True
        self._wake.set()
        if error is not None and not isinstance(error, Exception):
            # Whoever cancels a run ends its process by force if that takes long.
            self._hurry.set()
        await outlast_cancellation(self._drain())
        if error is None or isinstance(error, Exception):
            self._raise_failure()

    @property
    def gave_up(self) -> bool:
        """Whether the writer ended with an error."""
        return self._writer is not None and self._writer.done() and self._writer.exception() is not None

    async def put(self, page: Page) -> None:
        """Queue a page, then wait until there is room for another one like it.

        The page is taken at once and kept even if the caller is cancelled while waiting. Nobody should ask GitHub for
        more before this returns: that is the back-pressure that bounds memory.

        Raises:
            StoreError: The writer gave up; nothing more will be written.
        """
        self._queue.append(_Queued(page, self._timer()))
        weight = _weight(page)
        self._held += weight
        self.metrics.queued(self._held)
        if self._due() or len(self._queue) == 1:
            self._wake.set()
        started = self._timer()
        if await self._until(lambda: self._held + weight <= max(self._options.queue_size, weight)):
            self.metrics.waited(self._timer() - started)

    async def flush(self) -> None:
        """Wait until everything put so far is in the store, so that a query sees it."""
        await self._until(lambda: not self._queue and not self._stranded)

    async def settle(self) -> None:
        """Wait as `flush` does, but no longer than a batch may age.

        Between two requests this leaves a worker that is killed nothing to ask for again but the page in flight; a
        store that lags behind still doesn't make a window of quota pass unused.

        Raises:
            StoreError: The writer gave up; nothing more will be written.
        """
        waits: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(self.flush()),
            asyncio.ensure_future(self._sleep(self._options.max_age)),
        ]
        await _first_of(waits)
        self._raise_failure()

    async def _until(self, reached: Callable[[], bool]) -> bool:
        """Wait for the writer to get there; a waiting caller makes the next batch leave at once.

        Returns:
            Whether it was necessary to wait.
        """
        self._raise_failure()
        if reached():
            return False
        self._impatient += 1
        self._wake.set()
        try:
            async with self._progress:
                await self._progress.wait_for(lambda: reached() or self._running.done())
        finally:
            self._impatient -= 1
        self._raise_failure()
        return True

    @property
    def _running(self) -> asyncio.Task[None]:
        if self._writer is None:
            raise RuntimeError("the pipeline is used before its block was entered")
        return self._writer

    def _raise_failure(self) -> None:
        if self._running.done():
            self._running.result()

    async def _write_all(self) -> None:
        """Write batches until the block is left and the queue is empty."""
        try:
            while await self._next_is_due():
                await self._write_one()
                await self._announce()
        finally:
            # Nothing suspends between this and the end of the task: whoever wakes up finds it done.
            await self._announce()

    async def _next_is_due(self) -> bool:
        while not self._due():
            if self._closing:
                return False
            await self._something_happens()
        return True

    def _due(self) -> bool:
        """Whether a batch has to leave now."""
        if not self._queue:
            return False
        full = self._held >= self._options.max_size
        return full or self._closing or self._impatient > 0 or self._age() >= self._options.max_age

    def _age(self) -> float:
        return self._timer() - self._queue[0].since

    async def _something_happens(self) -> None:
        """Wait for a put, a flush, the end, or the oldest page's coming of age."""
        self._wake.clear()
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._wake.wait())]
        if self._queue:
            waits.append(asyncio.ensure_future(self._sleep(self._options.max_age - self._age())))
        await _first_of(waits)

    async def _write_one(self) -> None:
        age = self._age()
        batch = self._take()
        self._stranded.append(batch)
        self.metrics.batched(len(batch.rows), age)
        await persist(
            partial(self._sink.write, batch),
            what=f"{len(batch.rows)} {batch.stage}",
            sleep=self._sleep_unless_hurried,
            delays=self._options.backoff,
            on_retry=self.metrics.retried,
            gives_up=lambda: self._last_attempt,
        )
        self._stranded.clear()

    async def _sleep_unless_hurried(self, seconds: float) -> None:
        await _first_of([asyncio.ensure_future(self._sleep(seconds)), asyncio.ensure_future(self._hurry.wait())])
        self._last_attempt = self._hurry.is_set()

    def _take(self) -> Batch:
        """Cut the next batch off the queue."""
        load = _Load()
        while self._queue and load.add(self._queue[0], self._options.max_size - len(load.rows)):
            self._queue.popleft()
        self._held -= len(load.rows) + len(load.job_totals)
        return self._sink.seal(load.rows, load.position, load.job_totals)

    async def _announce(self) -> None:
        async with self._progress:
            self._progress.notify_all()

    async def _drain(self) -> None:
        """Let the writer finish; keep aside what a store that stayed away did not take."""
        await asyncio.wait([self._running])
        failure = self._running.exception()
        if failure is None or not transient(failure):
            return
        while self._queue:
            self._stranded.append(self._take())
        try:
            for batch in self._stranded:
                await asyncio.to_thread(self._sink.set_aside, batch)
        except StoreError as problem:
            raise problem from failure
