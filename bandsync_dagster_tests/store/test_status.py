"""How things stand, as people are shown it."""

import sqlalchemy as sa

from bandsync_dagster.store import status
from bandsync_dagster.store.engine import reading
from bandsync_dagster.store.repositories import mark_repository, upsert_repositories
from bandsync_dagster.store.schema import STAGES
from bandsync_dagster.store.syncs import cancel_sync, complete_sync, defer_sync, fail_sync
from bandsync_dagster.store.writes import write_batch
from bandsync_dagster_tests.store.builders import HOUR, NOW, REPOSITORY, batch, begin, change, repository

LATER = NOW + HOUR


def collect(engine: sa.Engine, name: str, *ends: str) -> None:
    """Leave a repository with its stages in these states; fewer states than stages leave the rest out."""
    for stage, end in zip(STAGES, ends, strict=False):
        sync = begin(engine, stage, full_name=name)
        if end == "completed":
            complete_sync(engine, sync.id, now=NOW)
        elif end == "deferred":
            defer_sync(engine, sync.id, resume_at=LATER, bucket="core", now=NOW)
        elif end == "failed":
            fail_sync(engine, sync.id, outcome="no_access", error="404", now=NOW)
        elif end == "cancelled":
            cancel_sync(engine, sync.id, reason="stopped", now=NOW)


def test_coverage_counts_each_repository_under_the_worst_of_its_stages(engine: sa.Engine) -> None:
    """A summary never says reached when something is missing."""
    collect(engine, "a/reached", "completed", "completed", "completed")
    collect(engine, "a/deferred", "completed", "deferred", "running")
    collect(engine, "a/failed", "failed", "deferred", "completed")
    collect(engine, "a/cancelled", "completed", "completed", "cancelled")
    collect(engine, "a/running", "completed", "running")
    collect(engine, "a/partly", "completed", "completed")
    names = ["A/Reached", "a/deferred", "a/failed", "a/cancelled", "a/running", "a/partly", "a/never"]
    assert status.coverage(engine, names) == {"failed": 2, "deferred": 1, "running": 1, "missing": 2, "reached": 1}
    assert status.coverage(engine, []) == dict.fromkeys(status.COVERAGE, 0)


def test_gaps_say_what_is_missing_and_why(engine: sa.Engine) -> None:
    """In the spelling and order asked for."""
    collect(engine, "a/one", "failed", "deferred", "completed")
    collect(engine, "a/two", "cancelled", "completed")
    assert status.uncovered(engine, ["A/Two", "a/one"]) == [
        status.Gap("A/Two", "changes", "cancelled", "stopped", None),
        status.Gap("A/Two", "jobs", "missing", "never collected", None),
        status.Gap("a/one", "changes", "failed", "404", None),
        status.Gap("a/one", "verifications", "deferred", None, LATER),
    ]


def test_only_the_latest_sync_counts(engine: sa.Engine) -> None:
    """A failure that was made good is none any more, and the other way round."""
    collect(engine, "a/one", "failed", "failed", "failed")
    collect(engine, "a/one", "completed", "completed", "completed")
    assert status.coverage(engine, ["a/one"])["reached"] == 1
    collect(engine, "a/one", "failed")
    assert status.coverage(engine, ["a/one"])["failed"] == 1


def test_thousands_of_names_can_be_asked_for_at_once(engine: sa.Engine) -> None:
    """More than a statement takes values."""
    collect(engine, "a/7", "completed", "completed", "completed")
    names = [f"a/{number}" for number in range(6000)]
    assert status.coverage(engine, names) | {"missing": 0} == dict.fromkeys(status.COVERAGE, 0) | {"reached": 1}


def test_the_view_has_a_row_for_each_repository_and_stage(engine: sa.Engine) -> None:
    """How the latest sync ended and why, its counters and the time of the checkpoint; or that there was none."""
    upsert_repositories(engine, [repository()], now=NOW)
    mark_repository(engine, REPOSITORY, "blocked", "dmca", now=NOW)
    begin(engine)
    sync = begin(engine)
    write_batch(engine, batch(sync, 1, [change(1)], requests=2, points=3), now=LATER)
    fail_sync(engine, sync.id, outcome="blocked", error="451", now=LATER)
    rows = status.stage_statuses(engine)
    assert [(row.full_name, row.stage) for row in rows] == [("acme/pool", stage) for stage in sorted(STAGES)]
    row, never = rows[0], rows[1]
    assert (row.repository_id, row.repository_state, row.repository_state_reason) == (REPOSITORY, "blocked", "dmca")
    assert (row.sync_id, row.state, row.outcome, row.error) == (sync.id, "failed", "blocked", "451")
    assert (row.records_collected, row.records_created, row.requests, row.points) == (1, 1, 2, 3)
    assert (row.started_at, row.finished_at, row.checkpoint_at) == (NOW, LATER, LATER)
    assert (never.sync_id, never.state, never.checkpoint_at) == (None, None, None)


def test_the_view_shows_names_that_were_never_resolved(engine: sa.Engine) -> None:
    """No access is not no data: a repository GitHub would not show has its row, until it is known."""
    for name in ("acme/secret", "Acme/Secret"):
        sync = begin(engine, full_name=name, repository_id=None)
    fail_sync(engine, sync.id, outcome="no_access", error="404", now=NOW)
    (row,) = status.stage_statuses(engine)
    assert (row.repository_id, row.full_name, row.outcome) == (None, "Acme/Secret", "no_access")
    upsert_repositories(engine, [repository(full_name="acme/secret")], now=LATER)
    assert {row.repository_id for row in status.stage_statuses(engine)} == {REPOSITORY}


def test_the_view_can_be_queried_by_hand(engine: sa.Engine) -> None:
    """With the names that people read in the documentation."""
    upsert_repositories(engine, [repository()], now=NOW)
    collect(engine, "acme/pool", "deferred")
    question = "SELECT full_name, stage, bucket FROM stage_status WHERE state = 'deferred'"
    with reading(engine) as connection:
        assert connection.exec_driver_sql(question).all() == [("acme/pool", "changes", "core")]


def test_rows_are_counted_by_table(engine: sa.Engine) -> None:
    """Of all that was collected."""
    upsert_repositories(engine, [repository()], now=NOW)
    write_batch(engine, batch(begin(engine), 1, [change(1), change(2)]), now=NOW)
    assert status.row_counts(engine) == {"repositories": 1, "changes": 2, "verifications": 0, "jobs": 0}
