"""Payloads that are wrong in every way, through the real client and the real store: rows or one typed error.

Behind the client is the simulated GitHub; some of its answers are spoilt on the way. The suite spoils a few hundred;
this spoils more:

    pytest bandsync_dagster_tests/collection/test_fuzz.py -s --spoilt-payloads 20000

Everything is drawn from the number of the episode, which is the last thing printed when a test fails.
"""

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from bandsync_dagster.collection.collector import Collector, Deferred, RunIdentity, StageOptions
from bandsync_dagster.collection.pipeline import PipelineOptions
from bandsync_dagster.collection.scan import IdentityError
from bandsync_dagster.github.auth import PersonalToken
from bandsync_dagster.github.client import GitHubClient
from bandsync_dagster.github.errors import GitHubError, PayloadError, ServerError
from bandsync_dagster.github.quota import MemoryLedger
from bandsync_dagster.simulator import DEFAULT_TOKEN, World, generate
from bandsync_dagster.simulator.application import Application, Options
from bandsync_dagster.store.schema import STAGE_TABLES, metadata, syncs
from bandsync_dagster_tests.collection.simulated import START, Clockwork, on_sqlite
from bandsync_dagster_tests.collection.small_github import described
from bandsync_dagster_tests.github.payloads import change_node, changes_data
from bandsync_dagster_tests.github.test_fuzz import response
from bandsync_dagster_tests.store.builders import stored

# An undisturbed collection takes ten at most; adapting to bad answers multiplies that, but has an end.
MOST_REQUESTS = 2_000
# Each of them collects again from what the one before it left.
MOST_SYNCS = 4
# The shares of answers that are spoilt: in one sync all the same.
SHARES = (0.3, 0.6, 1.0)
STAGES: Sequence[tuple[str, StageOptions]] = (
    ("changes", StageOptions()),
    ("verifications", StageOptions()),
    ("jobs", StageOptions()),
    ("jobs", StageOptions(detail="full")),
)


class SpoilingTransport(httpx.AsyncBaseTransport):
    """The way to the simulated GitHub, on which some answers are spoilt: each for itself, or each request's for good.

    Attributes:
        spoilt: How many answers were spoilt.
    """

    def __init__(self, application: Application, chance: random.Random, share: float) -> None:
        self.spoilt = 0
        self._requests = 0
        self._network = httpx.ASGITransport(application)
        self._chance = chance
        self._share = share
        self._for_good = chance.random() < 0.5
        self._seeds: dict[tuple[str, str, bytes], float | None] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request; return the answer, or what became of it."""
        self._requests += 1
        assert self._requests < MOST_REQUESTS, "asks without end"
        answer = await self._network.handle_async_request(request)
        body = await answer.aread()
        seed = self._seed(request)
        if seed is None:
            return httpx.Response(answer.status_code, headers=answer.headers, stream=httpx.ByteStream(body))
        self.spoilt += 1
        return _spoil(answer, body, random.Random(seed))  # noqa: S311 - repeatable, not secret

    def _seed(self, request: httpx.Request) -> float | None:
        """Return what the answer's damage is drawn from; None leaves it as it is."""
        seed = self._chance.random() if self._chance.random() < self._share else None
        if not self._for_good:
            return seed
        return self._seeds.setdefault((request.method, str(request.url), request.content), seed)


def _spoil(answer: httpx.Response, body: bytes, chance: random.Random) -> httpx.Response:
    """Return a spoilt answer, in half of all cases with the good one's headers."""
    spoilt = response(json.loads(body or b"null"), chance)
    if chance.random() < 0.5:
        for name in ("link", "etag", "date"):
            if name in answer.headers and name not in spoilt.headers:
                spoilt.headers[name] = answer.headers[name]
    return spoilt


@dataclass
class Fuzzing:
    """Collects one stage of a repository through the spoiling transport."""

    engine: sa.Engine
    world: World
    stage: str
    options: StageOptions
    outcomes: Counter[str] = field(default_factory=Counter)
    spoilt: int = 0

    def __post_init__(self) -> None:
        """Number the runs from 1."""
        self._clock = Clockwork()
        self._application = Application(self.world, Options(limits=None, clock=lambda: START))
        self._runs = count(1)
        [self.repository] = self.world.repositories.values()

    def episode(self, number: int) -> None:
        """Collect a few times, beginning with an empty store."""
        chance = random.Random(f"{self.stage} {self.options} {number}")  # noqa: S311 - repeatable, not secret
        self._clock.now = START
        with self.engine.begin() as connection:
            for table in reversed(metadata.sorted_tables):
                connection.execute(table.delete())
        if self.stage == "jobs":
            self.collect("verifications", random.Random(), 0.0)  # noqa: S311
        predecessor = None
        for _ in range(chance.randint(1, MOST_SYNCS)):
            predecessor = self.collect(self.stage, chance, chance.choice(SHARES), predecessor)

    def collect(self, stage: str, chance: random.Random, share: float, predecessor: str | None = None) -> str | None:
        """Collect once; return the run if it was deferred."""
        transport = SpoilingTransport(self._application, chance, share)
        collector = Collector(
            engine=self.engine,
            make_client=lambda: self._client(transport),
            clock=self._clock,
            pipeline=PipelineOptions(max_size=4, queue_size=8),
        )
        run = f"run-{next(self._runs)}"
        deferred = False
        try:
            collector.collect(stage, self.repository.full_name, RunIdentity(run, run, predecessor), self.options)
            self._assert_ended(run, "completed")
        except Deferred:
            deferred = True
            self._assert_ended(run, "deferred")
        except (GitHubError, IdentityError) as error:
            self.outcomes[type(error).__name__] += 1
            self._assert_named(error)
            self._assert_ended(run, "cancelled" if isinstance(error, IdentityError) else "failed")
        self.spoilt += transport.spoilt
        self._assert_whole()
        return run if deferred else None

    def _client(self, transport: SpoilingTransport) -> GitHubClient:
        return GitHubClient(
            credentials=[PersonalToken(DEFAULT_TOKEN)],
            ledger=MemoryLedger(),
            clock=self._clock,
            transport=transport,
            sleep=self._clock.sleep,
            patience=0,
            jitter=lambda: 0.0,
        )

    def _assert_named(self, error: Exception) -> None:
        """The error says which repository and what was asked; one about a field says which."""
        assert self.repository.full_name in str(error), repr(error)
        if isinstance(error, PayloadError):
            assert error.field
            assert error.field in str(error)
            assert error.endpoint.startswith(("GET /", "POST /graphql"))

    def _assert_ended(self, run: str, state: str) -> None:
        """The run's last sync is in this state, and has nothing left open."""
        last = max((sync for sync in stored(self.engine, syncs) if sync["run_id"] == run), key=lambda sync: sync["id"])
        self.outcomes[state] += 1
        assert last["state"] == state
        assert last["error"] or state not in {"failed", "cancelled"}

    def _assert_whole(self) -> None:
        """Counters and rows tell the same story: no transaction was done in part."""
        created: Counter[int] = Counter()
        written: Counter[int] = Counter()
        for table in STAGE_TABLES.values():
            rows = stored(self.engine, table)
            created.update(row["first_sync_id"] for row in rows)
            written.update(row["last_sync_id"] for row in rows)
        for sync in stored(self.engine, syncs):
            _assert_counted(sync, created[sync["id"]], written[sync["id"]])


def _assert_counted(sync: dict[str, Any], created: int, written: int) -> None:
    parts = [sync[f"records_{part}"] for part in ("created", "updated", "unchanged")]
    assert sync["records_collected"] == sum(parts)
    assert sync["records_created"] == created
    # Rows of earlier syncs that a later one wrote are no longer counted here.
    assert written <= parts[0] + parts[1]
    assert sync["state"] != "running"


@pytest.fixture
def spoilt_payloads(request: pytest.FixtureRequest) -> int:
    """How many payloads to spoil for each way to collect."""
    return request.config.getoption("spoilt_payloads") // len(STAGES)


@on_sqlite
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("stage", "options"), STAGES, ids=("changes", "verifications", "jobs", "jobs in full"))
def test_spoilt_payloads_give_rows_or_one_typed_error(
    engine: sa.Engine, stage: str, options: StageOptions, spoilt_payloads: int
) -> None:
    """Whatever came, the sync ended, the error names repository and field, and the counters are those of the rows."""
    world = generate(5, repositories=1, changes=12, runs=12, jobs_per_run=2, rerun_share=0.3, awkward=False, now=START)
    fuzzing = Fuzzing(engine, world, stage, options)
    episodes = count(1)
    try:
        while fuzzing.spoilt < spoilt_payloads:
            fuzzing.episode(next(episodes))
    finally:
        print(f"{next(episodes) - 1} episodes, {fuzzing.spoilt} payloads spoilt: {dict(fuzzing.outcomes)}")  # noqa: T201
    assert {"completed", "failed", "PayloadError"} <= fuzzing.outcomes.keys()


@on_sqlite
def test_a_feed_whose_cursor_stands_still_is_an_error(engine: sa.Engine) -> None:
    """GitHub says again and again that there is more before one and the same page: the walk back has an end."""
    pages: list[dict[str, Any]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, json=described(99))
        pages.append(changes_data([change_node(1), change_node(2)]))
        return httpx.Response(200, json={"data": pages[-1]})

    clock = Clockwork()
    collector = Collector(
        engine=engine,
        make_client=lambda: GitHubClient(
            credentials=[], ledger=MemoryLedger(), clock=clock, sleep=clock.sleep, transport=httpx.MockTransport(answer)
        ),
        clock=clock,
    )
    with pytest.raises(ServerError, match="pull requests of acme/pool"):
        collector.collect("changes", "acme/pool", RunIdentity("run", "run"), StageOptions())
    assert len(pages) == 2
    assert len(stored(engine, STAGE_TABLES["changes"])) == 2
