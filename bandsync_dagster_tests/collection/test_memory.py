"""Memory while the database is a hundred times slower than GitHub, as the operating system counts it."""

import asyncio
import multiprocessing
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bandsync_dagster.collection.outage import Store
from bandsync_dagster.collection.pipeline import Page, Pipeline, PipelineOptions, Row
from bandsync_dagster.collection.sync import OpenSync, Surroundings
from bandsync_dagster.github.exchange import Spent
from bandsync_dagster.store.engine import create_store_engine
from bandsync_dagster.store.queries import find_sync
from bandsync_dagster.store.writes import Batch, Written
from bandsync_dagster_tests.collection.simulated import on_sqlite
from bandsync_dagster_tests.collection.time_by_hand import TimeByHand
from bandsync_dagster_tests.store.builders import begin, job

ROWS = 200_000
ROWS_PER_PAGE = 100
PRODUCED_PER_SECOND = 5_000
WRITTEN_PER_SECOND = 50
OPTIONS = PipelineOptions(max_size=500, queue_size=2_000)

STATM = Path("/proc/self/statm")


@dataclass(frozen=True)
class Measured:
    """What a collection took: bytes, rows at once, seconds of its own time."""

    at_start: int
    at_most: int
    most_held: int
    seconds: float


class _Slow:
    """A sync that takes its time to write what it really writes; the time is the test's.

    Attributes:
        rows: How many are written.
        busy: Set while a write lasts.
        until: When it ends.
    """

    def __init__(self, sync: OpenSync, time: TimeByHand) -> None:
        self.rows = 0
        self.busy = asyncio.Event()
        self.until = 0.0
        self._sync = sync
        self._time = time
        self._loop = asyncio.get_running_loop()
        self._over = threading.Semaphore(0)

    def seal(self, rows: Sequence[Row], position: Mapping[str, Any] | None, job_totals: Sequence[Row]) -> Batch:
        """Number the batch; its writing begins at once."""
        return self._sync.seal(rows, position, job_totals)

    def write(self, batch: Batch) -> Written:
        """Write the batch, once its time has passed."""
        self.until = self._time.seconds + len(batch.rows) / WRITTEN_PER_SECOND
        self._loop.call_soon_threadsafe(self.busy.set)
        self._over.acquire()
        self.rows += len(batch.rows)
        return self._sync.write(batch)

    def set_aside(self, batch: Batch) -> None:
        """Nothing is: the store is slow and not away."""
        raise AssertionError(f"batch {batch.number} was set aside")

    def finish(self) -> None:
        """Let the write that lasts come to its end, at the time it ends."""
        self._time.advance(max(0.0, self.until - self._time.seconds))
        self.busy.clear()
        self._over.release()


def resident() -> int:
    """Return the bytes of memory that this process has."""
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def collect_slowly(url: str) -> Measured:
    """Put all rows through the pipeline of a sync into a database, in this process."""
    return asyncio.run(_collect_slowly(url))


async def _collect_slowly(url: str) -> Measured:
    engine = create_store_engine(url)
    sync = OpenSync(begin(engine, "jobs"), Spent(), Surroundings(Store(engine)))
    time = TimeByHand()
    sink = _Slow(sync, time)
    at_start = at_most = resident()
    most_held = 0
    async with Pipeline(sink, OPTIONS, sleep=time.sleep, timer=time.timer) as pipe:
        for first in range(0, ROWS, ROWS_PER_PAGE):
            time.advance(ROWS_PER_PAGE / PRODUCED_PER_SECOND)
            if sink.busy.is_set() and time.seconds >= sink.until:
                sink.finish()
            rows = [job(number) for number in range(first, first + ROWS_PER_PAGE)]
            await _get_on(asyncio.ensure_future(pipe.put(Page(rows, {"at": first}))), sink)
            most_held = max(most_held, first + ROWS_PER_PAGE - sink.rows)
            at_most = max(at_most, resident())
        await _get_on(asyncio.ensure_future(pipe.flush()), sink)
    ended = find_sync(engine, sync.sync.id)
    assert ended is not None
    assert ended.records_created == ended.records_collected == ROWS
    return Measured(at_start, at_most, most_held, time.seconds)


async def _get_on(waiting: asyncio.Future[None], sink: _Slow) -> None:
    """Wait for the pipeline; time passes only while nobody can do anything but the slow writer."""
    while not waiting.done():
        busy = asyncio.ensure_future(sink.busy.wait())
        await asyncio.wait([waiting, busy], return_when=asyncio.FIRST_COMPLETED)
        busy.cancel()
        if not waiting.done():
            sink.finish()
    await waiting


@on_sqlite
@pytest.mark.skipif(not STATM.exists(), reason="this system does not say so")
def test_a_writer_a_hundred_times_slower_than_the_producer_does_not_make_memory_grow(database_url: str) -> None:
    """Over 200,000 rows never more than the queue and one batch are held, and a fresh process stays within 40 MB."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        measured = pool.submit(collect_slowly, database_url).result()
    assert measured.most_held <= OPTIONS.queue_size + OPTIONS.max_size
    # The writer was that slow, and the producer that fast.
    assert measured.seconds >= (ROWS - measured.most_held) / WRITTEN_PER_SECOND
    assert measured.at_most - measured.at_start < 40 * 1024 * 1024
