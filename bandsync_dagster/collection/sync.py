"""One sync from its start to its end: what it writes, what it has spent, and how it ends, whatever ends it."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, TypeVar

from bandsync_dagster.clock import Clock, utc_now
from bandsync_dagster.collection.interruptible import outlast_cancellation
from bandsync_dagster.collection.outage import Sleep, Store
from bandsync_dagster.collection.pipeline import Pipeline, PipelineOptions, Row
from bandsync_dagster.collection.scan import Ending, IdentityError
from bandsync_dagster.github.errors import AccessError, Blocked, GitHubError, RateLimited
from bandsync_dagster.github.exchange import Spent
from bandsync_dagster.store.errors import IllegalTransition, StoreError
from bandsync_dagster.store.queries import find_sync
from bandsync_dagster.store.spool import Spool
from bandsync_dagster.store.syncs import Sync, beat, cancel_sync, complete_sync, defer_sync, fail_sync
from bandsync_dagster.store.writes import Batch, Written, write_batch

Begun = TypeVar("Begun", bound=Sync | None)

HEARTBEAT_SECONDS = 15.0
# After one that the store did not take. Once it is back, whoever looks for lost workers must hear of this one soon.
UNHEARD_SECONDS = 5.0

_log = logging.getLogger(__name__)

_ENDS = {complete_sync: "completed", defer_sync: "deferred", fail_sync: "failed", cancel_sync: "cancelled"}


class _Bill:
    """What the client has spent since the sync was opened, and how much of it the store knows already."""

    def __init__(self, spent: Spent) -> None:
        self.spent = spent
        self.requests = spent.requests
        self.points = spent.points

    def open(self) -> tuple[int, int]:
        """Return the requests and points nobody has added yet."""
        return self.spent.requests - self.requests, self.spent.points - self.points

    def add(self, requests: int, points: int) -> None:
        """Note that these are with the store, or in a batch on its way there."""
        self.requests += requests
        self.points += points


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a sync is run with.

    Attributes:
        store: The store, and how to wait while it is away.
        clock: The time.
        options: Sizes and waits of the pipeline.
        spool: Where batches go that the store does not take; None is nowhere.
        pulse: Waits between two heartbeats.
    """

    store: Store
    clock: Clock = utc_now
    options: PipelineOptions = field(default_factory=PipelineOptions)
    spool: Spool | None = None
    pulse: Sleep = asyncio.sleep


class OpenSync:
    """A sync that is running. As an asynchronous context manager it ends in the store however the block ends.

    | the block ends with | the sync becomes |
    |---|---|
    | nothing raised | completed, with the outcome `ending` says |
    | RateLimited | deferred |
    | IdentityError, or cancelled | cancelled |
    | any other error | failed, with the outcome `ending` says, or one word for the error |

    Attributes:
        sync: The sync as the store has it.
        ending: How it ends when it is not simply complete; may be set until the block is left.
        notes: Facts to keep among the sync's metrics.
        pipeline: What writes the sync's rows; enter it inside the block.
    """

    def __init__(self, sync: Sync, spent: Spent, around: Surroundings) -> None:
        self.sync = sync
        self.ending: Ending | None = None
        self.notes: dict[str, Any] = {}
        self.pipeline = Pipeline(self, around.options, sleep=around.store.sleep)
        self._around = around
        self._bill = _Bill(spent)
        self._number = sync.last_batch
        self._heart: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "OpenSync":  # noqa: PYI034  (typing.Self is new in Python 3.11)
        """Start the heartbeat."""
        self._heart = asyncio.get_running_loop().create_task(self._keep_beating(), name="heartbeat")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the sync in the store, also while being cancelled."""
        await outlast_cancellation(self._end(error))

    def seal(self, rows: Sequence[Row], position: Mapping[str, Any] | None, job_totals: Sequence[Row]) -> Batch:
        """Give a batch its number and what was spent on it."""
        if self.sync.repository_id is None:
            raise RuntimeError(f"rows of {self.sync.full_name} before it was known which repository that is")
        self._number += 1
        requests, points = self._bill.open()
        self._bill.add(requests, points)
        return Batch(
            number=self._number,
            stage=self.sync.stage,
            repository_id=self.sync.repository_id,
            sync_id=self.sync.id,
            rows=rows,
            position=position,
            job_totals=job_totals,
            requests=requests,
            points=points,
        )

    def write(self, batch: Batch) -> Written:
        """Write a batch in one transaction."""
        return write_batch(self._around.store.engine, batch, now=self._around.clock())

    def set_aside(self, batch: Batch) -> None:
        """Keep a batch for the next sync of this repository; without a spool it is collected again."""
        what = f"{len(batch.rows)} {batch.stage} of {self.sync.full_name} that the database did not take"
        if self._around.spool is None:
            _log.warning("%s are dropped, as there is no spool: the next run fetches them again.", what)
            return
        path = self._around.spool.put(batch)
        _log.warning("%s are kept in %s: the next run writes them first.", what, path)

    async def _keep_beating(self) -> None:
        """Show that the sync is alive, so that nobody takes it for one whose process died."""
        pause = HEARTBEAT_SECONDS
        while True:
            await self._around.pulse(pause)
            pause = UNHEARD_SECONDS
            with suppress(StoreError):
                await asyncio.to_thread(beat, self._around.store.engine, self.sync.id, now=self._around.clock())
                pause = HEARTBEAT_SECONDS

    async def _end(self, error: BaseException | None) -> None:
        if self._heart is not None:
            self._heart.cancel()
            await asyncio.gather(self._heart, return_exceptions=True)
        event, details = self._event(error)
        try:
            self.sync = await self._follow(self._store_at_the_end(error), event, details | self._measured())
        except StoreError:
            # An error that is on its way says more than that it could not be noted; a deferral must be noted.
            if error is None or isinstance(error, RateLimited):
                raise

    def _store_at_the_end(self, error: BaseException | None) -> Store:
        """Return the store, with as much patience as there is reason for."""
        store = self._around.store
        if isinstance(error, StoreError) or self.pipeline.gave_up:
            # It was away for longer than all patience.
            return replace(store, delays=())
        if error is not None and not isinstance(error, Exception):
            # Whoever cancels a run ends its process by force if that takes long; the end is then noted for it.
            return replace(store, delays=store.delays[:1])
        return store

    async def _follow(self, store: Store, event: Callable[..., Sync], details: Mapping[str, Any]) -> Sync:
        """Change the sync's state. If the store answers that this is its state already, an earlier attempt did it."""
        try:
            return await store.call(event, self.sync.id, **details)
        except IllegalTransition:
            now = await store.call(find_sync, self.sync.id)
            if now is None or now.state != _ENDS[event]:
                raise
            return now

    def _event(self, error: BaseException | None) -> tuple[Callable[..., Sync], dict[str, Any]]:
        """Choose how the sync ends."""
        if error is None:
            ending = self.ending or Ending("complete", None)
            return complete_sync, {"outcome": ending.word, "reason": ending.reason}
        if isinstance(error, RateLimited):
            return defer_sync, {"resume_at": error.resume_at, "bucket": error.bucket}
        if isinstance(error, IdentityError) or not isinstance(error, Exception):
            return cancel_sync, {"reason": str(error) or "the run was stopped"}
        ending = self.ending or Ending(_word_for(error), None)
        return fail_sync, {"outcome": ending.word, "error": _one_line(error)}

    def _measured(self) -> dict[str, Any]:
        """Return what goes with every end: the time, the metrics, and what no batch has added."""
        requests, points = self._bill.open()
        metrics = self.pipeline.metrics.as_dict(self.sync.metrics) | self.notes
        return {"requests": requests, "points": points, "metrics": metrics, "now": self._around.clock()}


async def begin(start: Coroutine[Any, Any, Begun], around: Surroundings) -> Begun:
    """Wait for a sync to be started or taken over. If cancelled meanwhile, the sync is cancelled too.

    The store is asked in a thread, which goes on in spite of a cancellation: nobody else would know of the sync.
    """
    starting = asyncio.ensure_future(start)
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError as stop:
        await outlast_cancellation(_undo(starting, stop, around))
        raise


async def _undo(starting: asyncio.Task[Any], stop: BaseException, around: Surroundings) -> None:
    await asyncio.wait([starting])
    sync: Sync | None = None if starting.exception() else starting.result()
    if sync is not None and sync.state == "running":
        await OpenSync(sync, Spent(), around).__aexit__(type(stop), stop, None)


def _word_for(error: Exception) -> str:
    """Return the outcome of a sync that an error ended, where nothing more is known."""
    if isinstance(error, Blocked):
        return "blocked"
    return "no_access" if isinstance(error, AccessError) else "failed"


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, GitHubError | StoreError) else f"{type(error).__name__}: {text}"
