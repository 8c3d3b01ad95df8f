"""A worker killed with SIGKILL at every moment that could matter, and a second one that goes on after it."""

import httpx
import pytest
import sqlalchemy as sa

from bandsync_dagster.collection.collector import RunIdentity
from bandsync_dagster.store.engine import create_store_engine
from bandsync_dagster_tests.collection.collecting import PAGES, Collecting, all_rows
from bandsync_dagster_tests.collection.commits import strike_at
from bandsync_dagster_tests.collection.small_github import ROWS_PER_PAGE, SmallGitHub
from bandsync_dagster_tests.collection.workers import die
from bandsync_dagster_tests.store.processes import in_process_that_is_killed

COMMITS = 9


def collect_and_die_at_commit(url: str, number: int, *, after: bool) -> None:
    """Collect in this process, which dies at the n-th commit."""
    engine = create_store_engine(url)
    strike_at(engine, number, die, after=after)
    Collecting(engine, SmallGitHub())()


def collect_and_die_at_request(url: str, number: int) -> None:
    """Collect in this process, which dies when the n-th request has reached GitHub."""
    github = SmallGitHub()

    async def strike(_request: httpx.Request) -> None:
        if len(github.log) == number:
            die()

    github.before = strike
    Collecting(create_store_engine(url), github)()


def assert_second_worker_completes(engine: sa.Engine) -> None:
    """Whatever the first one left: every row is there once, counted once, and nothing stored is asked for again."""
    collect = Collecting(engine, SmallGitHub())
    collect.assert_agreed()
    covered = (collect.position or {"next": 0})["next"]
    left = len(collect.rows)
    result = collect(run=RunIdentity("run-2", "run-2"))
    collect.assert_agreed()
    assert collect.rows == all_rows()
    assert sum(sync["records_created"] for sync in collect.syncs) == len(all_rows())
    assert [path for path in collect.github.log if path.startswith("/pages")] == [
        f"/pages/{number}" for number in range(covered, PAGES)
    ]
    # Of a page whose position was not stored some rows may have been.
    assert result.unchanged == left - covered * ROWS_PER_PAGE


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(COMMITS))
def test_a_worker_killed_at_any_commit_leaves_what_a_second_one_completes(
    engine: sa.Engine, database_url: str, number: int, *, after: bool
) -> None:
    """Rows, counters and checkpoint are those of an undisturbed collection in the end."""
    in_process_that_is_killed(collect_and_die_at_commit, database_url, number, after=after)
    assert_second_worker_completes(engine)


@pytest.mark.parametrize("number", range(PAGES + 1))
def test_a_worker_killed_at_any_request_leaves_what_a_second_one_completes(
    engine: sa.Engine, database_url: str, number: int
) -> None:
    """The page that was on its way is asked for again, and nothing else: all before it are stored."""
    in_process_that_is_killed(collect_and_die_at_request, database_url, number)
    position = Collecting(engine, SmallGitHub()).position or {"next": 0}
    assert position["next"] == max(number - 1, 0)
    assert_second_worker_completes(engine)
