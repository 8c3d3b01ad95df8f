"""Sinks for a pipeline that keep what they are given, and can be held up or made to refuse."""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bandsync_dagster.collection.pipeline import Page, Row
from bandsync_dagster.store.errors import StoreUnavailable
from bandsync_dagster.store.writes import Batch, Written


def page(first: int, count: int, position: int | None = None) -> Page:
    """Return a page of rows with ascending ids and a position."""
    return Page([{"id": n} for n in range(first, first + count)], None if position is None else {"at": position})


def ids(batches: Sequence[Batch]) -> list[list[int]]:
    """Return the ids in each batch."""
    return [[row["id"] for row in batch.rows] for batch in batches]


class RecordingSink:
    """Keeps the batches it is given.

    Attributes:
        written: What was written, in order.
        attempts: What was tried, in order.
        kept: What was set aside.
        open: Writing waits while this is not set.
        refusals: Errors for the next attempts; None lets one through.
    """

    def __init__(self) -> None:
        self.written: list[Batch] = []
        self.attempts: list[Batch] = []
        self.kept: list[Batch] = []
        self.open = threading.Event()
        self.open.set()
        self.refusals: list[Exception | None] = []
        self._number = 0
        self._loop = asyncio.get_running_loop()
        self._tried = asyncio.Event()

    def seal(self, rows: Sequence[Row], position: Mapping[str, Any] | None, job_totals: Sequence[Row]) -> Batch:
        """Number the batch."""
        self._number += 1
        return Batch(self._number, "changes", 1, 1, rows, position, job_totals)

    def write(self, batch: Batch) -> Written:
        """Keep the batch, or refuse it."""
        self.attempts.append(batch)
        self._loop.call_soon_threadsafe(self._tried.set)
        self.open.wait()
        refusal = self.refusals.pop(0) if self.refusals else None
        if refusal is not None:
            raise refusal
        self.written.append(batch)
        return Written(len(batch.rows))

    def set_aside(self, batch: Batch) -> None:
        """Keep the batch apart."""
        self.kept.append(batch)

    async def attempted(self, count: int) -> None:
        """Wait until as many attempts have begun."""
        await until(lambda: len(self.attempts) >= count, self._tried)


async def until(reached: Callable[[], bool], happened: asyncio.Event) -> None:
    """Wait until something is so, looking again whenever something happened."""
    while not reached():
        happened.clear()
        await happened.wait()


def away() -> StoreUnavailable:
    """Return what the store raises while it is away."""
    return StoreUnavailable("the database is restarting")
