"""A simulated GitHub, a real store and the collector between them, all on one clock that moves when a test says so."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from itertools import count
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from bandsync_dagster.collection.collector import Collector, Deferred, RunIdentity, StageOptions, StageResult
from bandsync_dagster.collection.pipeline import PipelineOptions
from bandsync_dagster.github.auth import PersonalToken
from bandsync_dagster.github.client import GitHubClient
from bandsync_dagster.github.quota import MemoryLedger
from bandsync_dagster.simulator import DEFAULT_TOKEN, SimulatedGitHub, World
from bandsync_dagster.simulator.limits import BUCKETS
from bandsync_dagster.simulator.records import Repository
from bandsync_dagster.simulator.truth import REST_ONLY
from bandsync_dagster.store.queries import checkpoint
from bandsync_dagster.store.schema import STAGE_TABLES, STAGES

START = datetime(2026, 11, 2, 12, tzinfo=timezone.utc)
_OWN_COLUMNS = {"first_sync_id", "last_sync_id"}


class Clockwork:
    """A clock for the world, the server and the client; sleeping moves it."""

    def __init__(self, now: datetime = START) -> None:
        self.now = now

    def __call__(self) -> datetime:
        """Return the time."""
        return self.now

    def advance(self, **span: float) -> None:
        """Move the time on."""
        self.now += timedelta(**span)

    async def sleep(self, seconds: float) -> None:
        """Wait, which takes no time here but moves the clock."""
        self.advance(seconds=seconds)


class _Meddling(httpx.AsyncHTTPTransport):
    """The network, with something that happens before each request."""

    def __init__(self, before: Callable[[], None]) -> None:
        super().__init__()
        self._before = before

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Let it happen, then send the request."""
        self._before()
        return await super().handle_async_request(request)


@dataclass
class Simulation:
    """A GitHub being served, and the store it is collected into."""

    github: SimulatedGitHub
    engine: sa.Engine
    clock: Clockwork
    tokens: Sequence[str] = (DEFAULT_TOKEN,)
    options: StageOptions = field(default_factory=StageOptions)
    share: float = 0.0
    ledger: MemoryLedger = field(default_factory=MemoryLedger)
    # How far this machine's clock is ahead of GitHub's.
    ahead: timedelta = timedelta(0)
    # Called before each request is sent, on the client's event loop.
    before_request: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        """Number the runs from 1."""
        self._runs = count(1)

    @property
    def world(self) -> World:
        """The world that is served."""
        return self.github.world

    def here(self) -> datetime:
        """Return the time by this machine's clock."""
        return self.clock() + self.ahead

    def client(self) -> GitHubClient:
        """Return a client of the simulated GitHub."""
        return GitHubClient(
            base_url=self.github.url,
            credentials=[PersonalToken(token) for token in self.tokens],
            ledger=self.ledger,
            clock=self.here,
            share=self.share,
            transport=_Meddling(self.before_request) if self.before_request else None,
            sleep=self.clock.sleep,
            jitter=lambda: 0.0,
        )

    def collect(self, stage: str, name: str, *, predecessor: str | None = None, **options: Any) -> StageResult:
        """Collect one stage of a repository."""
        run = f"run-{next(self._runs)}"
        collector = Collector(
            engine=self.engine,
            make_client=self.client,
            clock=self.here,
            pipeline=PipelineOptions(max_size=100, queue_size=1000),
        )
        identity = RunIdentity(run, run, predecessor)
        return collector.collect(stage, name, identity, replace(self.options, **options))

    def collect_all(self, *names: str, stages: Sequence[str] = STAGES, **options: Any) -> dict[str, StageResult]:
        """Collect all stages of repositories, all of them by default; the results of the last."""
        results: dict[str, StageResult] = {}
        for name in names or [repository.full_name for repository in self.world.repositories.values()]:
            results = {stage: self.collect(stage, name, **options) for stage in stages}
        return results

    def collect_through_deferrals(self, stage: str, name: str, **options: Any) -> tuple[StageResult, list[Deferred]]:
        """Collect one stage, going on whenever the quota has come back."""
        deferrals: list[Deferred] = []
        while True:
            predecessor = f"run-{next(self._runs) - 1}" if deferrals else None
            try:
                return self.collect(stage, name, predecessor=predecessor, **options), deferrals
            except Deferred as deferred:
                deferrals.append(deferred)
                self.clock.now = deferred.resume_at + timedelta(seconds=1)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return what the store holds, in the columns of the truth."""
        selected = STAGE_TABLES[table]
        columns = [column for column in selected.c if column.name not in _OWN_COLUMNS]
        with self.engine.connect() as connection:
            return [dict(row) for row in connection.execute(sa.select(*columns).order_by(selected.c.id)).mappings()]

    def position(self, stage: str, name: str) -> dict[str, Any]:
        """Return a checkpoint."""
        repository = self.world.repository(name)
        position = checkpoint(self.engine, repository.id, stage)
        assert position is not None
        return position

    def spent(self) -> dict[str, int]:
        """Return what the requests in the log took from each bucket."""
        return {bucket: self.github.spent(bucket) for bucket in BUCKETS}

    def assert_true(self, *tables: str, detail: str = "basic") -> None:
        """Assert that the store holds the truth: the same rows, each with the same values."""
        truth = self.world.truth(detail=detail)  # pyright: ignore[reportArgumentType]
        for table in tables or STAGES:
            assert_same_rows(self.rows(table), truth[table])


Simulate = Callable[..., Simulation]


def assert_same_rows(stored: Sequence[Mapping[str, Any]], true: Sequence[Mapping[str, Any]]) -> None:
    """Assert that two tables are the same, and name the rows and columns in which they aren't."""
    found, expected = ({row["id"]: row for row in rows} for rows in (stored, true))
    assert len(found) == len(stored)
    missing, extra = expected.keys() - found.keys(), found.keys() - expected.keys()
    assert (len(missing), len(extra)) == (0, 0), f"missing {sorted(missing)[:5]}, not in the truth {sorted(extra)[:5]}"
    differences = {
        (number, name): (found[number][name], value)
        for number, row in expected.items()
        for name, value in row.items()
        if found[number][name] != value and not _more_than_true(name, value)
    }
    assert differences == {}


def _more_than_true(name: str, value: object) -> bool:
    """Whether the truth only says what GraphQL tells; a job that came by REST, because GraphQL failed, has more."""
    return value is None and name in REST_ONLY


# For what takes long and does not depend on the kind of database.
on_sqlite = pytest.mark.parametrize("backend", ["sqlite"])


def fill_with_runs(world: World, name: str, moments: Iterable[datetime], *, jobs: int = 0) -> Repository:
    """Add a repository with a finished run at each of these moments."""
    repository = world.add_repository(name, at=START - timedelta(days=1000))
    for moment in moments:
        world.add_run(repository, at=moment, jobs=jobs)
    return repository


def evenly(count: int, *, days: float) -> Iterator[datetime]:
    """Return moments spread evenly over the days until an hour ago, newest first."""
    for index in range(count):
        yield START - timedelta(hours=1, seconds=int(days * 86_400 * index / count))
