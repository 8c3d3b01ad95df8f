"""The three stages of a collection over HTTP, killed with SIGKILL at every moment, and run again by another worker.

What a sync that begins anew asks in any case is whether the newest changes and the newest workflow runs are still those
that are stored. Beside that, the two workers together send no more than one request that a worker nobody disturbs does
not send: again the one whose answer was not stored yet.
"""

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import sqlalchemy as sa

from bandsync_dagster.simulator import Limits, SimulatedGitHub, generate
from bandsync_dagster.simulator.incoming import Incoming
from bandsync_dagster.store.engine import create_store_engine
from bandsync_dagster.store.schema import STAGE_TABLES, STAGES, checkpoints, job_totals, repositories, syncs
from bandsync_dagster_tests.collection.commits import count_commits
from bandsync_dagster_tests.collection.simulated import START, Clockwork, on_sqlite
from bandsync_dagster_tests.collection.workers import SMALL_PAGES, Worker, collect_until_answer, collect_until_commit
from bandsync_dagster_tests.store.builders import stored
from bandsync_dagster_tests.store.processes import in_process_that_is_killed

NAME = "acme/alto"
REQUESTS = 15
COMMITS = 24

# Which sync did something is no part of what it comes to.
_OWN_COLUMNS = {"first_sync_id", "last_sync_id", "sync_id"}


class Asked(NamedTuple):
    """One request: what it asks for, in every detail that tells it from others."""

    path: str
    query: str
    document: str | None
    variables: str

    @classmethod
    def read(cls, incoming: Incoming) -> "Asked":
        """Read what arrived."""
        query, variables = (
            json.dumps(dict(part or {}), sort_keys=True) for part in (incoming.query, incoming.variables)
        )
        return cls(incoming.path, query, incoming.document_name, variables)

    @property
    def is_fresh_look(self) -> bool:
        """Whether a sync sends it first of all although it has a checkpoint."""
        newest_runs = self.path.endswith("/actions/runs") and "created" not in self.query
        return self.document == "ChangesForward" or newest_runs


@dataclass
class Watched:
    """A GitHub whose requests are kept in every detail."""

    github: SimulatedGitHub
    asked: list[Asked] = field(default_factory=list[Asked])

    def __post_init__(self) -> None:
        """Listen to what arrives."""
        application = self.github.application
        serve = application._serve

        async def remember(incoming: Incoming) -> Any:
            self.asked.append(Asked.read(incoming))
            return await serve(incoming)

        application._serve = remember

    def take(self) -> list[Asked]:
        """Return what was asked since the last time."""
        taken = self.asked[:]
        assert len(taken) == len(self.github.log)
        self.asked.clear()
        self.github.clear_log()
        return taken


@dataclass(frozen=True)
class Undisturbed:
    """A GitHub, and what collecting from it comes to when nothing happens."""

    watched: Watched
    left_behind: dict[str, Any]
    unchanged: dict[str, int]
    asked: Sequence[Asked]
    commits: int

    @property
    def url(self) -> str:
        """Where this GitHub is."""
        return self.watched.github.url


@pytest.fixture(scope="module")
def undisturbed(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Undisturbed]:
    """Serve a repository that takes several requests in each stage, and collect it once."""
    clock = Clockwork()
    world = generate(3, repositories=1, changes=22, runs=24, rerun_share=0.1, awkward=False, now=START, clock=clock)
    plenty = Limits(core=10**6, graphql=10**6, rest_points_per_minute=10**6, graphql_points_per_minute=10**6)
    path = tmp_path_factory.mktemp("undisturbed") / "bandsync.db"
    shutil.copy(sqlite_template, path)
    engine = create_store_engine(f"sqlite:///{path}")
    commits = count_commits(engine)
    with SimulatedGitHub(world, clock=clock, limits=plenty) as github:
        watched = Watched(github)
        Worker(engine, github.url)(NAME, "run-0")
        yield Undisturbed(watched, left_behind(engine), counted(engine, "unchanged"), watched.take(), commits[0])
    engine.dispose()


def left_behind(engine: sa.Engine) -> dict[str, Any]:
    """Return all rows of all tables that say what is on GitHub and how far it is known."""
    tables = [*STAGE_TABLES.values(), job_totals, checkpoints, repositories]
    return {
        table.name: [{k: v for k, v in row.items() if k not in _OWN_COLUMNS} for row in stored(engine, table)]
        for table in tables
    }


def counted(engine: sa.Engine, what: str) -> dict[str, int]:
    """Add up a counter of all syncs, stage by stage."""
    sums: Counter[str] = Counter()
    for sync in stored(engine, syncs):
        sums[sync["stage"]] += sync[f"records_{what}"]
    return dict(sums)


def assert_another_worker_completes(engine: sa.Engine, undisturbed: Undisturbed) -> None:
    """Let another worker begin anew. In the end nothing tells that there were two, and nothing was paid for twice."""
    first = undisturbed.watched.take()
    assert_counters_agree(engine)
    Worker(engine, undisturbed.url)(NAME, "run-2")
    second = undisturbed.watched.take()
    assert_counters_agree(engine)
    assert left_behind(engine) == undisturbed.left_behind
    assert counted(engine, "created") == {stage: len(undisturbed.left_behind[stage]) for stage in STAGES}
    assert set(counted(engine, "updated").values()) == {0}
    again = Counter(counted(engine, "unchanged")) - Counter(undisturbed.unchanged)
    # The newest workflow runs, unless GitHub says that they are still the same.
    assert again in (Counter(), Counter(verifications=SMALL_PAGES["verifications"]["page_size"]))
    assert_asked_once(first, second, undisturbed)


def assert_counters_agree(engine: sa.Engine) -> None:
    """Each sync has counted what it wrote, at any moment."""
    for sync in stored(engine, syncs):
        created = sum(row["first_sync_id"] == sync["id"] for row in stored(engine, STAGE_TABLES[sync["stage"]]))
        assert sync["records_created"] == created
        assert sync["records_collected"] == created + sync["records_updated"] + sync["records_unchanged"]


def assert_asked_once(first: Sequence[Asked], second: Sequence[Asked], undisturbed: Undisturbed) -> None:
    """Assert what this module's first lines say of the two workers' requests."""
    together, expected = Counter([*first, *second]), Counter(undisturbed.asked)
    assert expected - together == Counter()
    looks = Counter(asked for asked in second if asked.is_fresh_look)
    assert max(looks.values(), default=0) <= 1
    again = together - expected - looks
    assert again.total() <= 1
    assert set(again) <= {first[-1]} if first else not again


@on_sqlite
@pytest.mark.parametrize("number", range(REQUESTS))
def test_a_worker_killed_after_any_request_costs_that_request_at_most(
    engine: sa.Engine, database_url: str, undisturbed: Undisturbed, number: int
) -> None:
    """It dies when the answer is there and nothing of it is stored."""
    in_process_that_is_killed(collect_until_answer, database_url, undisturbed.url, NAME, number)
    assert len(undisturbed.watched.asked) == number + 1
    assert_another_worker_completes(engine, undisturbed)


def is_after(number: int, backend: str) -> bool:
    """Each moment is tried on one kind of database: before each second commit on the one, after it on the other."""
    return (number % 2 == 0) == (backend == "postgresql")


@pytest.mark.parametrize("number", range(COMMITS))
def test_a_worker_killed_at_any_commit_of_any_stage_leaves_what_another_one_completes(
    engine: sa.Engine, database_url: str, backend: str, *, undisturbed: Undisturbed, number: int
) -> None:
    """With all statements of the transaction sent and none committed; or with all committed and nobody told."""
    after = is_after(number, backend)
    in_process_that_is_killed(collect_until_commit, database_url, undisturbed.url, NAME, number, after=after)
    assert_another_worker_completes(engine, undisturbed)


def test_the_moments_tried_here_are_all_there_are(undisturbed: Undisturbed) -> None:
    """An undisturbed collection has no others, and these are more than 60."""
    assert (len(undisturbed.asked), undisturbed.commits) == (REQUESTS, COMMITS)
    assert REQUESTS + 2 * COMMITS > 60
    assert all(len(undisturbed.left_behind[stage]) > 20 for stage in STAGES)
