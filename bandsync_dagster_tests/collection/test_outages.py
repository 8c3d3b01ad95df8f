"""A database that goes away in the middle of a collection: nothing is lost, nothing is counted twice."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from bandsync_dagster.collection.collector import RunIdentity
from bandsync_dagster.collection.ledger import StoreLedger
from bandsync_dagster.collection.pipeline import PipelineOptions
from bandsync_dagster.store.errors import StoreUnavailable
from bandsync_dagster.store.spool import Spool
from bandsync_dagster_tests.collection.collecting import PAGES, Collecting, all_rows
from bandsync_dagster_tests.collection.commits import count_commits, lose_connection, strike_at, strike_while
from bandsync_dagster_tests.collection.small_github import SmallGitHub

AGAIN = RunIdentity("run-2", "run-2")
# Starting the sync, storing the repository and its state, identifying it, at least five batches, completing.
COMMITS = 9


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(COMMITS))
def test_a_lost_connection_at_any_commit_changes_nothing_in_the_end(
    collect: Collecting, number: int, *, after: bool
) -> None:
    """Whether the transaction was stored before its answer was lost or not: each row is there, and counted, once."""
    strike_at(collect.engine, number, lose_connection(collect.engine), after=after)
    result = collect()
    collect.assert_agreed()
    assert collect.rows == all_rows()
    assert collect.position == {"next": PAGES}
    assert (result.collected, result.created, result.requests, result.outcome) == (18, 18, 1 + PAGES, "complete")


def test_an_outage_of_a_minute_is_waited_out_with_the_backoff(collect: Collecting, github: SmallGitHub) -> None:
    """Five attempts are refused; the sixth, after 2 + 4 + 8 + 16 + 32 seconds, is let through."""
    refusals = iter(range(5))
    rows_arrive = lambda: len(github.log) > PAGES and next(refusals, None) is not None  # noqa: E731
    strike_while(collect.engine, rows_arrive, lose_connection(collect.engine))
    result = collect()
    assert github.time.slept[-5:] == [2.0, 4.0, 8.0, 16.0, 32.0]
    assert result.rows == 18
    collect.assert_agreed()


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was logged of an outage."""
    return [record.getMessage() for record in caplog.records if record.name.startswith("bandsync_dagster")]


def test_who_reads_the_log_of_an_outage_learns_what_is_wrong_and_when_it_is_tried_again(
    collect: Collecting, github: SmallGitHub, caplog: pytest.LogCaptureFixture
) -> None:
    """A line for each attempt, with what it was about; and one when it is over, so that nobody waits on."""
    refusals = iter(range(2))
    rows_arrive = lambda: len(github.log) == 3 and next(refusals, None) is not None  # noqa: E731
    strike_while(collect.engine, rows_arrive, lose_connection(collect.engine))
    collect()
    first, second, over = told(caplog)
    assert re.fullmatch(r"The \w+ database .* is not available: .*\. Attempt 1 of 6 \(3 changes\) failed; .*", first)
    assert first.endswith("the next is in 2 s.")
    assert second.endswith("Attempt 2 of 6 (3 changes) failed; the next is in 4 s.")
    assert over == "The database answers again: attempt 3 of 6 (3 changes) succeeded."


@pytest.mark.parametrize("spools", [True, False])
def test_at_the_end_of_all_patience_the_log_says_what_becomes_of_the_records(
    collect: Collecting, caplog: pytest.LogCaptureFixture, tmp_path: Path, *, spools: bool
) -> None:
    """Kept, and where; or to be fetched again."""
    collect.spool = Spool(tmp_path / "spool", 1 << 20) if spools else None
    with away(collect), pytest.raises(StoreUnavailable):
        collect()
    given_up, kept = [line for line in told(caplog) if "the last" in line or "did not take" in line][:2]
    assert given_up.endswith("Attempt 6 of 6 (3 changes) failed; it was the last.")
    assert kept.startswith("3 changes of acme/pool that the database did not take are ")
    (path,) = (tmp_path / "spool").rglob("*.batch") if spools else [None]
    ending = f"kept in {path}: the next run writes them first." if spools else "the next run fetches them again."
    assert kept.endswith(ending)


@contextmanager
def away(collect: Collecting) -> Iterator[None]:
    """Take the database away as soon as the third page has been asked for, and bring it back at the end."""
    gone = [True]
    strike_while(collect.engine, lambda: gone[0] and len(collect.github.log) >= 4, lose_connection(collect.engine))
    yield
    gone[0] = False


def test_without_a_spool_a_long_outage_ends_the_step_and_the_checkpoint_has_not_moved(
    collect: Collecting, github: SmallGitHub
) -> None:
    """The next sync asks for everything behind the last batch that was stored."""
    with away(collect), pytest.raises(StoreUnavailable):
        collect()
    collect.assert_agreed()
    before = collect.position
    github.log.clear()
    collect(run=AGAIN)
    assert github.log[0] == f"/pages/{(before or {'next': 0})['next']}"
    assert collect.rows == all_rows()
    collect.assert_agreed()


def test_with_a_spool_a_long_outage_loses_no_page_that_was_paid_for(
    collect: Collecting, github: SmallGitHub, tmp_path: Path
) -> None:
    """What the database didn't take is written first by the next sync, which asks only for what was never fetched."""
    collect.spool = Spool(tmp_path / "spool", 1 << 20)
    with away(collect), pytest.raises(StoreUnavailable):
        collect()
    fetched = len([path for path in github.log if path.startswith("/pages/")])
    github.log.clear()
    collect(run=AGAIN)
    assert github.log == [f"/pages/{number}" for number in range(fetched, PAGES)]
    assert collect.rows == all_rows()
    assert list((tmp_path / "spool").rglob("*.batch")) == []
    collect.assert_agreed()


def test_the_answer_that_was_on_its_way_when_the_database_went_away_is_kept(
    collect: Collecting, github: SmallGitHub, tmp_path: Path
) -> None:
    """Also where the quota is kept in the same database, which can't be told what the answer said of it."""
    collect.spool = Spool(tmp_path / "spool", 1 << 20)
    github.ledger = lambda: StoreLedger(collect.engine, pause=lambda _seconds: None)
    with away(collect), pytest.raises(StoreUnavailable):
        collect()
    assert github.log[-1] == "/pages/2"
    github.log.clear()
    collect(run=AGAIN)
    assert github.log == [f"/pages/{number}" for number in range(3, PAGES)]
    assert collect.rows == all_rows()
    collect.assert_agreed()


def test_a_full_spool_says_so_and_the_database_s_own_error_is_its_cause(collect: Collecting, tmp_path: Path) -> None:
    """Nobody has to guess why batches were not kept."""
    collect.spool = Spool(tmp_path / "spool", 1)
    with away(collect), pytest.raises(Exception, match=r"spool .* is full") as raised:
        collect()
    assert isinstance(raised.value.__cause__, StoreUnavailable)


def test_an_outage_while_a_rate_limit_is_noted_is_told_as_an_outage(collect: Collecting, github: SmallGitHub) -> None:
    """A deferral that isn't in the store would never be continued."""
    collect.pipeline = PipelineOptions(max_size=100, max_age=3600.0, queue_size=100)
    github.limited_after = 3
    strike_while(collect.engine, lambda: len(github.log) == 3, lose_connection(collect.engine))
    with pytest.raises(StoreUnavailable):
        collect()


def test_a_heartbeat_shows_that_a_sync_is_alive(collect: Collecting, github: SmallGitHub) -> None:
    """Also while GitHub takes its time, when nothing is written."""
    beats: list[object] = []

    async def slowly(_request: httpx.Request) -> None:
        if len(github.log) == 3:
            await github.time.beat()
            beats.append(collect.syncs[0]["heartbeat_at"])

    github.before = slowly
    collect()
    (beat,) = beats
    assert beat == github.time.clock()


def test_a_heartbeat_that_the_database_did_not_take_is_soon_followed_by_another(
    collect: Collecting, github: SmallGitHub
) -> None:
    """After an outage a worker has to be heard of before it is taken for one that has died."""
    refusals = iter([True])
    beats: list[tuple[float, bool]] = []

    async def slowly(_request: httpx.Request) -> None:
        if len(github.log) == 3:
            strike_while(collect.engine, lambda: next(refusals, False), lose_connection(collect.engine))
            for _ in range(3):
                before = github.time.seconds
                await github.time.beat()
                heard = collect.syncs[0]["heartbeat_at"] == github.time.clock()
                beats.append((github.time.seconds - before, heard))

    github.before = slowly
    collect()
    assert beats == [(15.0, False), (5.0, True), (15.0, True)]


def test_the_moments_tried_here_are_all_there_are(collect: Collecting) -> None:
    """A collection makes as many commits as the tests above interrupt, or more of the same kind."""
    counted = count_commits(collect.engine)
    collect()
    assert counted[0] >= COMMITS
