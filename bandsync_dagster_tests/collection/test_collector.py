"""What a collection leaves behind, however it ends: rows, counters, checkpoint and the state of the sync."""

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import httpx
import pytest
import sqlalchemy as sa

from bandsync_dagster.collection.collector import Deferred, RunIdentity
from bandsync_dagster.collection.outage import BACKOFF
from bandsync_dagster.collection.scan import Scan
from bandsync_dagster.github.errors import BadCredentials, Blocked, Forbidden, PayloadError, ServerError
from bandsync_dagster.store.schema import changes
from bandsync_dagster_tests.collection.collecting import PAGES, SECOND, Algorithm, Collecting, all_rows
from bandsync_dagster_tests.collection.commits import lose_connection, strike_at, strike_while
from bandsync_dagster_tests.collection.small_github import (
    ROWS_PER_PAGE,
    SmallGitHub,
    collect_pages,
    rows_of,
)
from bandsync_dagster_tests.store.builders import REPOSITORY


def failing(error: BaseException, after: int = 2) -> Algorithm:
    """Return an algorithm that collects some pages and then raises."""

    async def algorithm(scan: Scan) -> None:
        await collect_pages(after)(scan)
        raise error

    return algorithm


def test_a_completed_collection_tells_what_it_did(collect: Collecting) -> None:
    """The result, the sync, the rows and the checkpoint agree to the last number."""
    result = collect()
    collect.assert_agreed()
    (sync,) = collect.syncs
    assert collect.rows == all_rows()
    assert collect.position == {"next": PAGES}
    assert (sync["state"], sync["outcome"], sync["error"]) == ("completed", "complete", None)
    assert (result.sync_id, result.stage, result.repository_id) == (sync["id"], "changes", REPOSITORY)
    assert (result.collected, result.created, result.updated, result.unchanged) == (18, 18, 0, 0)
    assert (result.requests, result.points, result.deferrals, result.rows) == (1 + PAGES, 0, 0, 18)
    assert (result.outcome, result.full_name, result.resumed_completed) == ("complete", "acme/pool", False)
    assert result.metrics["rows"] == 18
    assert result.metrics["rows_max"] <= 4
    assert result.metrics["github_total"] == 18


def test_collecting_again_changes_only_the_unchanged_counter(collect: Collecting) -> None:
    """A full refresh of a repository that stands still creates and updates nothing."""
    collect()
    result = collect(run=RunIdentity("run-2", "run-2"), full_refresh=True)
    collect.assert_agreed()
    assert (result.created, result.updated, result.unchanged, result.rows) == (0, 0, 18, 18)


def test_a_new_sync_goes_on_from_the_checkpoint(collect: Collecting, github: SmallGitHub) -> None:
    """What an earlier sync covered is not asked for again."""
    collect(collect_pages(4))
    github.log.clear()
    result = collect(run=RunIdentity("run-2", "run-2"))
    assert github.log == ["/pages/4", "/pages/5"]
    assert (result.collected, result.rows) == (6, 18)


def test_a_rate_limit_becomes_a_deferral_after_everything_fetched_is_stored(
    collect: Collecting, github: SmallGitHub
) -> None:
    """The deferral says what the run needs to come back: bucket, time, kind, and how far it got."""
    github.limited_after = 4
    with pytest.raises(Deferred) as raised:
        collect()
    (sync,) = collect.syncs
    resume_at = github.time.clock() + timedelta(seconds=1801)
    assert (raised.value.stage, raised.value.sync_id, raised.value.bucket) == ("changes", sync["id"], "core")
    assert (raised.value.resume_at, raised.value.kind) == (resume_at, "primary")
    assert (raised.value.collected, raised.value.requests) == (9, 5)
    assert (sync["state"], sync["bucket"], sync["resume_at"]) == ("deferred", "core", resume_at)
    assert (sync["deferrals"], sync["outcome"], sync["requests"]) == (1, None, 5)
    assert collect.rows == all_rows(3)
    assert collect.position == {"next": 3}
    collect.assert_agreed()


def test_a_successor_goes_on_with_the_same_sync_and_asks_nothing_twice(
    collect: Collecting, github: SmallGitHub
) -> None:
    """Across a deferral it is one sync: its counters and metrics go on."""
    github.limited_after = 4
    with pytest.raises(Deferred):
        collect()
    github.limited_after = None
    github.log.clear()
    result = collect(run=SECOND)
    (sync,) = collect.syncs
    assert github.log == ["/pages/3", "/pages/4", "/pages/5"]
    assert (sync["state"], sync["run_id"], sync["root_run_id"]) == ("completed", "run-2", "run-1")
    assert (result.collected, result.created, result.requests, result.deferrals) == (18, 18, 5 + 3, 1)
    assert result.metrics["rows"] == 18
    collect.assert_agreed()


def test_a_stage_completed_in_this_chain_is_told_again_without_any_request(
    collect: Collecting, github: SmallGitHub
) -> None:
    """The successor of a run that was deferred in another stage doesn't collect this one again."""
    first = collect()
    github.log.clear()
    again = collect(run=SECOND)
    third = collect(run=RunIdentity("run-3", "run-1", predecessor="run-2"))
    assert github.log == []
    assert again.resumed_completed
    assert third.resumed_completed
    assert (again.sync_id, again.collected, again.requests) == (first.sync_id, first.collected, first.requests)
    assert again.metrics == first.metrics
    assert len(collect.syncs) == 1


def test_a_run_without_a_predecessor_starts_a_new_sync(collect: Collecting, github: SmallGitHub) -> None:
    """Somebody who runs a partition again does not continue a deferred sync, but goes on from its checkpoint."""
    github.limited_after = 4
    with pytest.raises(Deferred):
        collect()
    github.limited_after = None
    result = collect(run=RunIdentity("run-9", "run-9"))
    assert [sync["state"] for sync in collect.syncs] == ["deferred", "completed"]
    assert (result.collected, result.rows) == (9, 18)
    collect.assert_agreed()


def test_a_rate_limit_on_the_first_request_defers_a_sync_that_its_successor_finds(
    collect: Collecting, github: SmallGitHub
) -> None:
    """Even before GitHub has said which repository the name means."""
    github.limited_after = 0
    with pytest.raises(Deferred):
        collect()
    assert [(sync["state"], sync["repository_id"]) for sync in collect.syncs] == [("deferred", None)]
    github.limited_after = None
    collect(run=SECOND)
    assert [(sync["state"], sync["repository_id"]) for sync in collect.syncs] == [("completed", REPOSITORY)]


def test_a_full_refresh_that_is_deferred_goes_on_where_it_stopped(collect: Collecting, github: SmallGitHub) -> None:
    """The successor has the same options and must not start from the beginning for ever."""
    collect()
    github.log.clear()
    github.limited_after = 3
    with pytest.raises(Deferred):
        collect(run=RunIdentity("run-2", "run-2"), full_refresh=True)
    github.log.clear()
    github.limited_after = None
    collect(run=RunIdentity("run-3", "run-2", predecessor="run-2"), full_refresh=True)
    assert github.log == ["/pages/3", "/pages/4", "/pages/5"]


def test_a_full_refresh_that_is_deferred_before_its_first_row_is_still_one(
    collect: Collecting, github: SmallGitHub
) -> None:
    """The checkpoint it finds on resuming is not its own."""
    collect()
    github.log.clear()
    github.limited_after = 0
    with pytest.raises(Deferred):
        collect(run=RunIdentity("run-2", "run-2"), full_refresh=True)
    github.limited_after = None
    result = collect(run=RunIdentity("run-3", "run-2", predecessor="run-2"), full_refresh=True)
    assert result.unchanged == 18


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (KeyError("number"), "failed"),
        (ServerError("bad gateway"), "failed"),
        (PayloadError("GET /x", "id", "is missing"), "failed"),
        (Forbidden("single sign-on"), "no_access"),
        (BadCredentials("bad credentials"), "no_access"),
        (Blocked("repository access blocked", "dmca"), "blocked"),
    ],
)
def test_an_error_ends_the_sync_as_failed_and_keeps_what_was_fetched(
    collect: Collecting, error: Exception, outcome: str
) -> None:
    """The outcome is one word, the error one line; the rows and their checkpoint are stored all the same."""
    with pytest.raises(type(error)):
        collect(failing(error))
    (sync,) = collect.syncs
    assert (sync["state"], sync["outcome"]) == ("failed", outcome)
    assert str(error) in sync["error"]
    assert sync["requests"] == 3
    assert (collect.rows, collect.position) == (all_rows(2), {"next": 2})
    collect.assert_agreed()


def test_an_unexpected_error_is_named_by_its_type(collect: Collecting) -> None:
    """A bare key means nothing to a person."""
    with pytest.raises(KeyError):
        collect(failing(KeyError("number")))
    assert collect.syncs[0]["error"] == "KeyError: 'number'"


def test_an_algorithm_may_say_that_there_was_nothing_to_collect(collect: Collecting) -> None:
    """`disabled` is a success that is told apart from `complete`, with its reason."""

    async def disabled(scan: Scan) -> None:
        scan.outcome("disabled", "pull requests are switched off")

    result = collect(disabled)
    (sync,) = collect.syncs
    assert (result.outcome, result.collected) == ("disabled", 0)
    assert (sync["state"], sync["outcome"], sync["error"]) == (
        "completed",
        "disabled",
        "pull requests are switched off",
    )


def test_an_algorithm_reads_from_the_store_what_it_has_put(collect: Collecting) -> None:
    """After a flush a query sees the rows."""
    seen: list[int] = []

    def count(engine: sa.Engine, repository_id: int) -> int:
        with engine.connect() as connection:
            found = connection.execute(sa.select(changes.c.id).where(changes.c.repository_id == repository_id))
            return len(found.all())

    async def algorithm(scan: Scan) -> None:
        await scan.put(rows_of(0))
        await scan.flush()
        seen.append(await scan.read(count, scan.repository.id))

    collect(algorithm)
    assert seen == [ROWS_PER_PAGE]


class Interrupted(BaseException):
    """What Dagster raises in the main thread when a run is cancelled: no `Exception`."""


@contextmanager
def raising_on(number: signal.Signals, interrupt: type[BaseException]) -> Iterator[threading.Event]:
    """Raise in the main thread when the signal arrives, and tell that it has."""
    arrived = threading.Event()

    def handler(_number: int, _frame: object) -> None:
        arrived.set()
        raise interrupt

    before = signal.signal(number, handler)
    try:
        yield arrived
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, Interrupted])
@pytest.mark.parametrize("at_request", range(PAGES + 1))
def test_an_interrupt_at_any_request_leaves_a_cancelled_sync_and_what_was_fetched(
    collect: Collecting, github: SmallGitHub, interrupt: type[BaseException], at_request: int
) -> None:
    """A real signal in the main thread, while a request is on its way: every page before it is stored."""

    async def strike(_request: httpx.Request) -> None:
        if len(github.log) == at_request:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
            await asyncio.Event().wait()

    github.before = strike
    with raising_on(signal.SIGUSR1, interrupt), pytest.raises(interrupt):
        collect()
    (sync,) = collect.syncs
    assert (sync["state"], sync["outcome"], sync["error"]) == ("cancelled", "cancelled", "the run was stopped")
    assert collect.rows == all_rows(max(at_request - 1, 0))
    collect.assert_agreed()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(9))
def test_an_interrupt_at_any_commit_leaves_no_sync_running(collect: Collecting, number: int, *, after: bool) -> None:
    """Whatever the database was just told; what it had been told is stored, and a later collection completes it."""

    def strike() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        struck.wait()

    strike_at(collect.engine, number, strike, after=after)
    with raising_on(signal.SIGUSR1, Interrupted) as struck, pytest.raises(Interrupted):
        collect()
    assert [sync["state"] for sync in collect.syncs] in (["cancelled"], ["completed"], [])
    collect.assert_agreed()
    collect(run=RunIdentity("run-2", "run-2"))
    assert collect.rows == all_rows()
    collect.assert_agreed()


def test_a_collection_after_an_interrupt_goes_on_where_that_one_stopped(
    collect: Collecting, github: SmallGitHub
) -> None:
    """What was flushed on the way out is not asked for again."""

    async def strike(_request: httpx.Request) -> None:
        if len(github.log) == 4:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
            await asyncio.Event().wait()

    github.before = strike
    with raising_on(signal.SIGUSR1, Interrupted), pytest.raises(Interrupted):
        collect()
    github.before = None
    github.log.clear()
    collect(run=RunIdentity("run-2", "run-2"))
    assert github.log == ["/pages/3", "/pages/4", "/pages/5"]
    assert collect.rows == all_rows()
    collect.assert_agreed()


def test_an_interrupt_while_the_database_is_away_does_not_wait_for_it(collect: Collecting, github: SmallGitHub) -> None:
    """One more attempt to say how the sync ended, and no more: whoever interrupts kills what does not end."""
    away = [False]

    async def strike(_request: httpx.Request) -> None:
        if len(github.log) == 3:
            away[0] = True
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
            await asyncio.Event().wait()

    github.before = strike
    strike_while(collect.engine, lambda: away[0], lose_connection(collect.engine))
    with raising_on(signal.SIGUSR1, Interrupted), pytest.raises(Interrupted):
        collect()
    assert [seconds for seconds in github.time.slept if seconds in BACKOFF and away[0]] == [2.0]
    assert [sync["state"] for sync in collect.syncs] == ["running"]
