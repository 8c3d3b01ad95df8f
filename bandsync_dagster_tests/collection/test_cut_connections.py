"""A PostgreSQL server that cuts every connection of bandsync's in the middle of a collection, at each commit."""

import itertools
from collections.abc import Callable

import pytest
import sqlalchemy as sa

from bandsync_dagster.collection.ledger import StoreLedger
from bandsync_dagster.simulator import SimulatedGitHub, generate
from bandsync_dagster.store.schema import STAGE_TABLES, STAGES, syncs
from bandsync_dagster_tests.collection.collecting import PAGES, Collecting, all_rows
from bandsync_dagster_tests.collection.commits import strike_at, strike_while
from bandsync_dagster_tests.collection.simulated import START, Clockwork, assert_same_rows
from bandsync_dagster_tests.collection.workers import Worker
from bandsync_dagster_tests.conftest import PostgresDatabases
from bandsync_dagster_tests.store.builders import stored

COMMITS = 9

pytestmark = pytest.mark.parametrize("backend", ["postgresql"])


@pytest.fixture
def cut(engine: sa.Engine, postgres: PostgresDatabases) -> Callable[[], None]:
    """Cuts all connections of bandsync's to the test's database; returns when the server has ended them."""
    mine = f"application_name = 'bandsync' AND datname = '{engine.url.database}'"
    statement = f"SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE {mine}"
    return lambda: postgres.execute(statement)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(COMMITS))
def test_connections_cut_at_any_commit_change_nothing(
    collect: Collecting, cut: Callable[[], None], number: int, *, after: bool
) -> None:
    """What was not committed is written again on a new connection; what was committed is not."""
    strike_at(collect.engine, number, cut, after=after)
    result = collect()
    assert collect.rows == all_rows()
    assert collect.position == {"next": PAGES}
    assert (result.created, result.outcome) == (len(all_rows()), "complete")
    collect.assert_agreed()


def test_connections_cut_at_every_other_commit_change_nothing(engine: sa.Engine, cut: Callable[[], None]) -> None:
    """Over all three stages, with the quota kept in the same database: each transaction is tried twice."""
    clock = Clockwork()
    world = generate(3, repositories=1, changes=12, runs=12, rerun_share=0.1, awkward=False, now=START, clock=clock)
    numbers = itertools.count()
    strike_while(engine, lambda: next(numbers) % 2 == 0, cut)
    with SimulatedGitHub(world, clock=clock) as github:
        ledger = StoreLedger(engine, delays=(0.01,))
        results = Worker(engine, github.url, ledger=ledger, backoff=(0.01,))("acme/alto", "run-1")
    assert next(numbers) > 60
    assert all(result.outcome == "complete" and result.metrics["retries"] > 0 for result in results)
    for stage, result in zip(STAGES, results, strict=True):
        rows = stored(engine, STAGE_TABLES[stage])
        assert_same_rows(rows, world.truth()[stage])
        assert result.created == result.rows == len(rows)
        assert result.collected == result.created + result.unchanged
    assert len(stored(engine, syncs)) == len(STAGES)
