"""Collecting one stage of one repository: which repository the name means, which sync goes on, and how it ended."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from bandsync_dagster.clock import Clock, utc_now
from bandsync_dagster.collection.identity import Registry
from bandsync_dagster.collection.interruptible import run_interruptibly
from bandsync_dagster.collection.outage import Sleep, Store
from bandsync_dagster.collection.pipeline import PipelineOptions
from bandsync_dagster.collection.scan import Ending, IdentityError, Scan, StageOptions
from bandsync_dagster.collection.stages import ALGORITHMS, Algorithm
from bandsync_dagster.collection.sync import OpenSync, Surroundings, begin
from bandsync_dagster.github.client import GitHubClient
from bandsync_dagster.github.errors import NotFound, RateLimited
from bandsync_dagster.github.models import Repository
from bandsync_dagster.store.queries import StoredRepository, checkpoint, row_count
from bandsync_dagster.store.spool import Spool, replay
from bandsync_dagster.store.syncs import Sync, continue_sync, identify_sync, start_sync

__all__ = ["Collector", "Deferred", "RunIdentity", "StageOptions", "StageResult"]

# How often in one collection a name may turn out to have been given to another repository.
_IDENTITIES = 3


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """Which run collects.

    Attributes:
        run_id: The run.
        root_run_id: The first run of its chain of deferrals.
        predecessor: The run whose deferred and completed syncs this run takes over; None starts new ones.
    """

    run_id: str
    root_run_id: str
    predecessor: str | None = None


@dataclass(frozen=True, slots=True)
class StageResult:
    """How a completed sync went, over all its deferrals.

    Attributes:
        sync_id: The sync.
        stage: `changes`, `verifications` or `jobs`.
        repository_id: GitHub's id of the repository.
        full_name: The name it was collected under.
        outcome: One word: `complete`, or what else the store says in `syncs.outcome`.
        collected: Rows that came from GitHub: the next three together.
        created: Rows that were new.
        updated: Rows that had changed.
        unchanged: Rows that were stored already as they are.
        requests: Requests sent.
        points: GraphQL points spent.
        deferrals: How often it waited for quota.
        rows: Rows the table has of the repository now.
        metrics: Batch sizes, waits, queue depth, and the facts the stage noted.
        resumed_completed: The sync was completed by an earlier run of the chain; nothing was asked this time.
    """

    sync_id: int
    stage: str
    repository_id: int | None
    full_name: str
    outcome: str
    collected: int
    created: int
    updated: int
    unchanged: int
    requests: int
    points: int
    deferrals: int
    rows: int
    metrics: Mapping[str, Any]
    resumed_completed: bool = False


class Deferred(Exception):
    """A stage stopped for lack of quota. All that was fetched is stored; it can go on from `resume_at`.

    Attributes:
        stage: What was being collected.
        sync_id: The deferred sync; None for what has no sync.
        bucket: The rate limit resource that is used up.
        resume_at: When to go on, in UTC.
        kind: Which rule says so.
        collected: Rows collected by this sync so far.
        requests: Requests sent by this sync so far.
    """

    def __init__(self, *, stage: str, limit: RateLimited, sync: Sync | None = None) -> None:
        super().__init__(f"{stage}: {limit}")
        self.stage = stage
        self.sync_id = sync.id if sync else None
        self.bucket = limit.bucket
        self.resume_at = limit.resume_at
        self.kind = limit.kind
        self.collected = sync.records_collected if sync else 0
        self.requests = sync.requests if sync else 0


class Collector:
    """Collects stages of repositories into the store.

    Args:
        engine: The store.
        make_client: Makes a client for one collection; it is opened and closed here.
        clock: The time.
        pipeline: Sizes and waits of batches.
        spool: Where batches go while the store is away; None is nowhere.
        algorithms: How each stage is collected.
        sleep: Waits for a number of seconds: while a batch fills, while the store is away.
        pulse: Waits between two heartbeats.
    """

    def __init__(
        self,
        *,
        engine: sa.Engine,
        make_client: Callable[[], GitHubClient],
        clock: Clock = utc_now,
        pipeline: PipelineOptions | None = None,
        spool: Spool | None = None,
        algorithms: Mapping[str, Algorithm] = ALGORITHMS,
        sleep: Sleep = asyncio.sleep,
        pulse: Sleep = asyncio.sleep,
    ) -> None:
        self._make_client = make_client
        pipeline = pipeline or PipelineOptions()
        self._around = Surroundings(Store(engine, sleep, pipeline.backoff), clock, pipeline, spool, pulse)
        self._algorithms = algorithms

    def collect(self, stage: str, full_name: str, run: RunIdentity, options: StageOptions) -> StageResult:
        """Collect one stage of one repository, or tell again how that went if a run before this one has completed it.

        Whatever ends it, what was fetched is stored first, together with the checkpoint it justifies.

        Raises:
            Deferred: GitHub's quota is used up.
            GitHubError: GitHub refuses, or could not be reached.
            StoreError: The store refuses, or stayed away.
            ValueError: There is no such stage.
        """
        if stage not in self._algorithms:
            raise ValueError(f"no stage {stage!r}: one of {', '.join(self._algorithms)}")
        collection = _Collection(stage, full_name, run, options, self._algorithms[stage], self._around)
        return run_interruptibly(collection.run(self._make_client))


@dataclass(frozen=True, slots=True)
class _Collection:
    """One call of `collect`."""

    stage: str
    full_name: str
    run_identity: RunIdentity
    options: StageOptions
    algorithm: Algorithm
    around: Surroundings

    @property
    def registry(self) -> Registry:
        return Registry(self.around.store, self.around.clock)

    async def run(self, make_client: Callable[[], GitHubClient]) -> StageResult:
        known = await self.registry.known(self.full_name)
        earlier = await begin(self._take_over(), self.around)
        if earlier is not None and earlier.state == "completed":
            return await self._result(earlier, resumed_completed=True)
        async with make_client() as client:
            sync = await self._collect(client, known, earlier)
        return await self._result(sync)

    async def _collect(
        self, client: GitHubClient, known: StoredRepository | None, earlier: Sync | None, identities: int = 1
    ) -> Sync:
        """Collect under one identity of the name, and again if it turns out to have been given anew meanwhile."""
        sync = earlier or await begin(self._start(known), self.around)
        opened = OpenSync(sync, client.spent, self.around)
        try:
            return await self._collect_into(opened, client, known, doubted=identities > 1)
        except RateLimited as limit:
            raise Deferred(stage=self.stage, limit=limit, sync=opened.sync) from limit
        except IdentityError:
            if identities == _IDENTITIES:
                raise
        known = await self.registry.known(self.full_name)
        return await self._collect(client, known, None, identities + 1)

    async def _collect_into(
        self, opened: OpenSync, client: GitHubClient, known: StoredRepository | None, *, doubted: bool
    ) -> Sync:
        async with opened:
            repository = None if doubted else self.registry.believed(known)
            repository = repository or await self._ask(client, known, opened)
            await self._assign(opened, repository)
            await self._write_spooled(repository.id)
            await self._scan(client, repository, opened)
        return opened.sync

    async def _ask(self, client: GitHubClient, known: StoredRepository | None, opened: OpenSync) -> Repository:
        try:
            return await self.registry.ask(client, self.full_name, known)
        except NotFound as error:
            # GitHub answers alike when there is nothing and when the token may not see it; having seen it decides.
            opened.ending = Ending("no_access" if known is None else "gone", str(error))
            raise

    async def _assign(self, opened: OpenSync, repository: Repository) -> None:
        """Make the sync one of this repository."""
        was = opened.sync.repository_id
        if was != repository.id:
            if opened.sync.last_batch > 0:
                raise IdentityError(self.full_name, was or 0, repository.id)
            opened.sync = await self.around.store.call(
                identify_sync, opened.sync.id, repository_id=repository.id, now=self.around.clock()
            )

    async def _scan(self, client: GitHubClient, repository: Repository, opened: OpenSync) -> None:
        """Run the stage's algorithm; note what it found out about the repository's name."""
        position = await self._position(opened.sync, repository.id)
        async with opened.pipeline as pipeline:
            scan = Scan(
                client=client,
                sync=opened.sync,
                repository=repository,
                position=position,
                options=self.options,
                clock=self.around.clock,
                pipeline=pipeline,
                store=self.around.store,
                sleep=self.around.store.sleep,
                notes=opened.notes,
            )
            try:
                await self.algorithm(scan)
            except NotFound:
                # Is it the repository, or something in it? If it is the repository, this raises in place of the other.
                await self._ask(client, await self.registry.known(self.full_name), opened)
                raise
        opened.ending = scan.ending
        if scan.repository.full_name != repository.full_name:
            await self.registry.note(scan.repository, asked_as=self.full_name)

    async def _position(self, sync: Sync, repository_id: int) -> dict[str, Any] | None:
        """Return the checkpoint to go on from. A full refresh starts without one, but goes on after a deferral."""
        if self.options.full_refresh and sync.last_batch == 0:
            return None
        return await self.around.store.call(checkpoint, repository_id, self.stage)

    async def _take_over(self) -> Sync | None:
        if self.run_identity.predecessor is None:
            return None
        return await self.around.store.call(
            continue_sync,
            full_name=self.full_name,
            stage=self.stage,
            predecessor_run_id=self.run_identity.predecessor,
            run_id=self.run_identity.run_id,
            now=self.around.clock(),
        )

    async def _start(self, known: StoredRepository | None) -> Sync:
        return await self.around.store.call(
            start_sync,
            repository_id=known.id if known else None,
            full_name=self.full_name,
            stage=self.stage,
            root_run_id=self.run_identity.root_run_id,
            run_id=self.run_identity.run_id,
            now=self.around.clock(),
        )

    async def _write_spooled(self, repository_id: int) -> None:
        """Write what an earlier sync had fetched and could not store; its checkpoint then is the one to go on from."""
        if self.around.spool is not None:
            await self.around.store.call(replay, self.around.spool, repository_id, self.stage, now=self.around.clock())

    async def _result(self, sync: Sync, *, resumed_completed: bool = False) -> StageResult:
        rows = 0
        if sync.repository_id is not None:
            rows = await self.around.store.call(row_count, sync.repository_id, self.stage)
        return StageResult(
            sync_id=sync.id,
            stage=sync.stage,
            repository_id=sync.repository_id,
            full_name=sync.full_name,
            outcome=sync.outcome or "complete",
            collected=sync.records_collected,
            created=sync.records_created,
            updated=sync.records_updated,
            unchanged=sync.records_unchanged,
            requests=sync.requests,
            points=sync.points,
            deferrals=sync.deferrals,
            rows=rows,
            metrics=sync.metrics or {},
            resumed_completed=resumed_completed,
        )
