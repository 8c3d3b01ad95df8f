"""The one write path, on both databases: rows, counters and checkpoint agree, whatever is written and what fails."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
import sqlalchemy as sa

from bandsync_dagster.store.errors import BatchOutOfOrder, IllegalTransition, RowRejected, UnknownSync
from bandsync_dagster.store.queries import checkpoint, find_sync
from bandsync_dagster.store.schema import changes, checkpoints, job_totals, jobs, syncs, verifications
from bandsync_dagster.store.syncs import Sync, cancel_sync, complete_sync, defer_sync, fail_sync
from bandsync_dagster.store.writes import SYNC_COLUMNS, Batch, Written, write_batch, write_spooled_batch
from bandsync_dagster_tests.store.builders import (
    HOUR,
    NOW,
    REPOSITORY,
    batch,
    begin,
    change,
    job,
    stored,
    verification,
)

LATER = NOW + timedelta(seconds=1)


class PlannedFailure(Exception):
    """What a test makes a statement fail with."""


def found(engine: sa.Engine, sync: Sync) -> Sync:
    """Return a sync as it is stored now."""
    now = find_sync(engine, sync.id)
    assert now is not None
    return now


def counters(engine: sa.Engine, sync: Sync) -> tuple[int, int, int, int]:
    """Return a sync's counters: collected, created, updated, unchanged."""
    now = found(engine, sync)
    return now.records_collected, now.records_created, now.records_updated, now.records_unchanged


def everything(engine: sa.Engine) -> dict[str, list[dict[str, Any]]]:
    """Return all that a batch may write."""
    return {table.name: stored(engine, table) for table in (changes, jobs, job_totals, checkpoints, syncs)}


@contextmanager
def statements(engine: sa.Engine, *, fail_at: int | None = None) -> Iterator[list[str]]:
    """Record the statements sent inside of the block; optionally make one of them fail, counted from 0."""
    sent: list[str] = []

    def record(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if len(sent) == fail_at:
            raise PlannedFailure
        sent.append(statement)

    sa.event.listen(engine, "before_cursor_execute", record)
    try:
        yield sent
    finally:
        sa.event.remove(engine, "before_cursor_execute", record)


@pytest.mark.parametrize(
    ("stage", "table", "row"),
    [
        (
            "changes",
            changes,
            change(1, merged_at=NOW, author_is_bot=True, labels=["a", "\N{ROCKET}"], number=2**63 - 1),
        ),
        ("verifications", verifications, verification(1, run_started_at=NOW, actor_id=2**40)),
        ("jobs", jobs, job(1, labels=[], steps=[{"number": 1, "name": "x", "completed_at": None}])),
    ],
)
def test_what_is_written_is_read_back_as_it_was(
    engine: sa.Engine, stage: str, table: sa.Table, row: dict[str, Any]
) -> None:
    """Every column of a row survives the database, with ids beyond 2^31 and times in UTC."""
    sync = begin(engine, stage)
    write_batch(engine, batch(sync, 1, [row]), now=NOW)
    assert stored(engine, table) == [row | {"first_sync_id": sync.id, "last_sync_id": sync.id}]


def test_times_of_any_zone_are_stored_in_utc(engine: sa.Engine) -> None:
    """To the microsecond."""
    given = datetime(2026, 3, 1, 1, 30, 0, 123456, tzinfo=timezone(timedelta(hours=2)))
    write_batch(engine, batch(begin(engine), 1, [change(1, created_at=given)]), now=NOW)
    (row,) = stored(engine, changes)
    assert row["created_at"] == given
    assert row["created_at"].tzinfo == timezone.utc


def test_what_is_not_known_is_null_in_sql(engine: sa.Engine) -> None:
    """Not JSON's null either: people write `IS NULL`."""
    write_batch(engine, batch(begin(engine, "jobs"), 1, [job(1)]), now=NOW)
    with engine.connect() as connection:
        counted = connection.exec_driver_sql("SELECT count(*) FROM jobs WHERE labels IS NULL AND steps IS NULL")
        assert counted.scalar_one() == 1


def test_strings_lose_what_databases_refuse(engine: sa.Engine) -> None:
    """NUL characters and lone surrogates are removed in columns, labels, steps and the checkpoint."""
    bad = "a\x00b\ud800c"
    write_batch(engine, batch(begin(engine), 1, [change(1, title=bad, labels=[bad])]), now=NOW)
    sync = begin(engine, "jobs")
    step = {"name": bad, "inner": {bad: [bad]}}
    write_batch(engine, batch(sync, 1, [job(1, name=bad, steps=[step])], position={"cursor": bad}), now=NOW)
    assert (stored(engine, changes)[0]["title"], stored(engine, changes)[0]["labels"]) == ("abc", ["abc"])
    assert stored(engine, jobs)[0]["steps"] == [{"name": "abc", "inner": {"abc": ["abc"]}}]
    assert checkpoint(engine, REPOSITORY, "jobs") == {"cursor": "abc"}


def test_created_updated_and_unchanged_are_told_apart(engine: sa.Engine) -> None:
    """A batch of all three kinds counts each row under exactly one, and only what changed names the new sync."""
    first, second = begin(engine), begin(engine)
    assert write_batch(engine, batch(first, 1, [change(1), change(2)]), now=NOW) == Written(2, 2, 0, 0)
    rows = [change(1), change(2, title="Other"), change(3)]
    assert write_batch(engine, batch(second, 1, rows), now=NOW) == Written(3, 1, 1, 1)
    assert counters(engine, first) == (2, 2, 0, 0)
    assert counters(engine, second) == (3, 1, 1, 1)
    written_by = [(row["first_sync_id"], row["last_sync_id"]) for row in stored(engine, changes)]
    assert written_by == [(first.id, first.id), (first.id, second.id), (second.id, second.id)]


def test_a_change_of_any_column_is_an_update(engine: sa.Engine) -> None:
    """Nothing that is stored is left out when deciding whether a row changed."""
    other = {"Text": "other", "BigInteger": 99, "Boolean": True, "UtcDateTime": LATER, "JSON": ["other"]}
    sync = begin(engine)
    names = sorted(set(changes.columns.keys()) - SYNC_COLUMNS - {"id", "repository_id"})
    write_batch(engine, batch(sync, 1, [change(number) for number, _ in enumerate(names)]), now=NOW)
    rows = [change(number, **{name: other[type(changes.c[name].type).__name__]}) for number, name in enumerate(names)]
    assert write_batch(engine, batch(sync, 2, rows), now=NOW) == Written(len(names), 0, len(names), 0)
    assert [row[name] for row, name in zip(stored(engine, changes), names, strict=True)] == [
        row[name] for row, name in zip(rows, names, strict=True)
    ]


def test_older_data_never_replaces_newer(engine: sa.Engine) -> None:
    """A page that was fetched before another but arrives after it is unchanged, and changes nothing."""
    sync = begin(engine)
    write_batch(engine, batch(sync, 1, [change(1, title="new", updated_at=LATER)]), now=NOW)
    assert write_batch(engine, batch(sync, 2, [change(1, title="old")]), now=NOW) == Written(1, 0, 0, 1)
    assert stored(engine, changes)[0]["title"] == "new"


def test_a_completed_job_stays_completed(engine: sa.Engine) -> None:
    """A stale answer does not bring a job back to life, and bulk data keeps what only REST told."""
    sync = begin(engine, "jobs")
    full = job(1, runner_name="runner-7", labels=["linux"], steps=[], created_at=NOW)
    write_batch(engine, batch(sync, 1, [full]), now=NOW)
    stale = job(1, status="in_progress", conclusion=None, completed_at=None)
    assert write_batch(engine, batch(sync, 2, [stale]), now=NOW).unchanged == 1
    assert write_batch(engine, batch(sync, 3, [job(1)]), now=NOW).unchanged == 1
    (row,) = stored(engine, jobs)
    assert row == full | {"first_sync_id": sync.id, "last_sync_id": sync.id}


def test_an_id_that_occurs_twice_is_counted_once(engine: sa.Engine) -> None:
    """At its newest; of two equally new, at the later one."""
    rows = [change(1, title="new", updated_at=LATER), change(1, title="old"), change(2), change(2, title="later")]
    assert write_batch(engine, batch(begin(engine), 1, rows), now=NOW) == Written(2, 2, 0, 0)
    assert [row["title"] for row in stored(engine, changes)] == ["new", "later"]


def test_an_empty_batch_moves_the_checkpoint(engine: sa.Engine) -> None:
    """A stage that found nothing has still looked."""
    sync = begin(engine)
    assert write_batch(engine, batch(sync, 1, [], requests=1, points=2), now=NOW) == Written()
    assert checkpoint(engine, REPOSITORY, "changes") == {"batch": 1}
    assert (found(engine, sync).requests, found(engine, sync).points) == (1, 2)


def test_a_batch_without_position_leaves_the_checkpoint(engine: sa.Engine) -> None:
    """Rows may be stored before it is known how far they reach."""
    sync = begin(engine)
    write_batch(engine, batch(sync, 1, [change(1)]), now=NOW)
    write_batch(engine, batch(sync, 2, [change(2)], position=None), now=NOW)
    assert checkpoint(engine, REPOSITORY, "changes") == {"batch": 1}


def test_a_batch_sent_again_is_recognised(engine: sa.Engine) -> None:
    """After a commit whose answer was lost, the same batch does and counts nothing, even once the sync has ended."""
    sync = begin(engine)
    sent = batch(sync, 1, [change(1)], requests=2)
    assert write_batch(engine, sent, now=NOW).applied
    before = everything(engine)
    assert write_batch(engine, sent, now=NOW + HOUR) == Written(applied=False)
    assert everything(engine) == before
    complete_sync(engine, sync.id, now=NOW)
    assert write_batch(engine, sent, now=NOW) == Written(applied=False)


def test_a_batch_that_skips_one_is_refused(engine: sa.Engine) -> None:
    """Otherwise the checkpoint would vouch for rows that never came."""
    sync = begin(engine)
    with pytest.raises(BatchOutOfOrder, match=f"batch 2 of sync {sync.id} does not follow batch 0"):
        write_batch(engine, batch(sync, 2, [change(1)]), now=NOW)
    assert stored(engine, changes) == []


@pytest.mark.parametrize("state", ["deferred", "completed", "failed", "cancelled"])
def test_only_a_running_sync_is_written_to(engine: sa.Engine, state: str) -> None:
    """Whoever lost a sync cannot write to it any more."""
    sync = begin(engine)
    bring_to(engine, sync, state)
    before = everything(engine)
    with pytest.raises(IllegalTransition, match=f"sync {sync.id} is {state}: cannot write a batch of it"):
        write_batch(engine, batch(sync, 1, [change(1)]), now=NOW)
    assert everything(engine) == before


def bring_to(engine: sa.Engine, sync: Sync, state: str) -> None:
    """Take a running sync to another state."""
    if state == "deferred":
        defer_sync(engine, sync.id, resume_at=NOW + HOUR, bucket="core", now=NOW)
    elif state == "completed":
        complete_sync(engine, sync.id, now=NOW)
    elif state == "failed":
        fail_sync(engine, sync.id, outcome="failed", error="x", now=NOW)
    elif state == "cancelled":
        cancel_sync(engine, sync.id, reason="x", now=NOW)


def test_a_sync_that_does_not_exist_is_named(engine: sa.Engine) -> None:
    """A database that was replaced meanwhile has none of the old syncs."""
    with pytest.raises(UnknownSync, match="no sync 4711"):
        write_batch(engine, Batch(1, "changes", REPOSITORY, 4711, [], None), now=NOW)


def test_a_sync_learns_its_repository_from_its_first_batch(engine: sa.Engine) -> None:
    """A sync that started from a name alone is counted for the repository it found."""
    sync = begin(engine, repository_id=None)
    write_batch(engine, batch(sync, 1, [change(1)]), now=NOW)
    assert found(engine, sync).repository_id == REPOSITORY


@pytest.mark.parametrize(
    "wrong",
    [
        {"stage": "jobs", "rows": []},
        {"repository_id": 5, "rows": []},
        {"rows": [change(1, repository_id=5)]},
        {"rows": [change(1) | {"tilte": "x"}]},
    ],
)
def test_a_batch_for_something_else_is_the_callers_mistake(engine: sa.Engine, wrong: dict[str, Any]) -> None:
    """Another stage, another repository, an unknown column: refused before anything is counted wrongly."""
    sync = begin(engine)
    with pytest.raises(ValueError, match=r"is of|is not of|takes no column"):
        write_batch(engine, dataclasses.replace(batch(sync, 1, []), **wrong), now=NOW)
    assert found(engine, sync) == sync


def test_a_bad_row_rejects_its_whole_batch(engine: sa.Engine) -> None:
    """A batch is written whole or not at all, and can be sent again without the row."""
    sync = begin(engine)
    with pytest.raises(RowRejected, match="column title is 5"):
        write_batch(engine, batch(sync, 1, [change(1), change(2, title=5)]), now=NOW)
    assert stored(engine, changes) == []
    assert write_batch(engine, batch(sync, 1, [change(1)]), now=NOW).created == 1


def test_job_totals_are_noted_with_the_jobs(engine: sa.Engine) -> None:
    """In the same batch; noting them again replaces what was noted, unless that was of a later attempt."""
    sync = begin(engine, "jobs")
    noted = {"verification_id": 1, "run_attempt": 2, "total": 3, "detail": "basic", "retry_at": LATER, "retries": 1}
    write_batch(engine, batch(sync, 1, [job(1)], job_totals=[noted]), now=NOW)
    write_batch(engine, batch(sync, 2, [], job_totals=[noted | {"run_attempt": 1, "total": 9}]), now=NOW)
    expected = noted | {"repository_id": REPOSITORY, "collected_at": NOW}
    assert stored(engine, job_totals) == [expected]
    again = {"verification_id": 1, "run_attempt": 2, "total": 3, "detail": "full"}
    write_batch(engine, batch(sync, 3, [], job_totals=[noted, again]), now=LATER)
    expected |= {"detail": "full", "retry_at": None, "retries": 0, "collected_at": LATER}
    assert stored(engine, job_totals) == [expected]


def _batch_of_everything(sync: Sync) -> Batch:
    rows = [job(1), job(2, name="other"), job(3)]
    total = {"verification_id": 1, "run_attempt": 1, "total": 3, "detail": "basic"}
    return batch(sync, 2, rows, job_totals=[total], requests=1)


def test_a_failure_at_any_statement_leaves_nothing(engine: sa.Engine) -> None:
    """Rows, totals, counters and checkpoint are written together or not at all; the same batch then still fits."""
    sync = begin(engine, "jobs")
    write_batch(engine, batch(sync, 1, [job(1), job(2)]), now=NOW)
    before = everything(engine)
    failures = 0
    while True:
        try:
            with statements(engine, fail_at=failures) as sent:
                written = write_batch(engine, _batch_of_everything(sync), now=NOW)
            break
        except PlannedFailure:
            failures += 1
            assert everything(engine) == before
    assert failures == len(sent) >= 6
    assert written == Written(3, 1, 1, 1)
    assert counters(engine, sync) == (5, 3, 1, 1)


@pytest.mark.parametrize("size", [1_000, 10_000])
def test_a_batch_takes_few_statements(engine: sa.Engine, size: int) -> None:
    """However many rows; and no statement has more values than SQLite takes."""
    sync = begin(engine)
    rows = [change(number) for number in range(size)]
    with statements(engine) as sent:
        assert write_batch(engine, batch(sync, 1, rows), now=NOW).created == size
    assert len(sent) <= 6 + size // 900
    assert all(statement.count("?") <= 32_766 for statement in sent)
    with statements(engine) as sent:
        mixed = [*rows[: size // 2], *(row | {"title": "x"} for row in rows[size // 2 :])]
        assert write_batch(engine, batch(sync, 2, mixed), now=NOW) == Written(size, 0, size // 2, size // 2)
    assert len(sent) <= 8 + 2 * (size // 900)
    assert all(statement.count("?") <= 32_766 for statement in sent)


@pytest.mark.parametrize("state", ["running", "failed", "cancelled"])
def test_a_spooled_batch_counts_for_the_sync_that_fetched_it(engine: sa.Engine, state: str) -> None:
    """Rows and counters of a sync that ended badly become what they would have been, exactly once."""
    sync = begin(engine)
    write_batch(engine, batch(sync, 1, [change(1)]), now=NOW)
    bring_to(engine, sync, state)
    spooled = batch(sync, 2, [change(1), change(2)], requests=3)
    assert write_spooled_batch(engine, spooled, now=LATER) == Written(2, 1, 0, 1)
    assert write_spooled_batch(engine, spooled, now=LATER) == Written(applied=False)
    assert counters(engine, sync) == (3, 2, 0, 1)
    assert (found(engine, sync).state, found(engine, sync).requests) == (state, 3)
    assert checkpoint(engine, REPOSITORY, "changes") == {"batch": 2}


@pytest.mark.parametrize("state", ["deferred", "completed"])
def test_a_sync_that_ended_well_takes_no_spooled_batch(engine: sa.Engine, state: str) -> None:
    """Its counters were told already."""
    sync = begin(engine)
    bring_to(engine, sync, state)
    with pytest.raises(IllegalTransition):
        write_spooled_batch(engine, batch(sync, 1, [change(1)]), now=NOW)


def test_a_spooled_batch_does_not_move_a_checkpoint_that_went_on(engine: sa.Engine) -> None:
    """Another sync has moved the checkpoint since: the rows are stored, the checkpoint stays."""
    old, new = begin(engine), begin(engine)
    write_batch(engine, batch(old, 1, [change(1)]), now=LATER)
    fail_sync(engine, old.id, outcome="failed", error="x", now=LATER)
    write_batch(engine, batch(new, 1, [], position={"further": True}), now=LATER)
    assert write_spooled_batch(engine, batch(old, 2, [change(2)]), now=LATER).created == 1
    assert checkpoint(engine, REPOSITORY, "changes") == {"further": True}


def test_a_spooled_first_batch_moves_the_checkpoint_its_sync_started_from(engine: sa.Engine) -> None:
    """The checkpoint is that of an earlier sync, and nobody has moved it since this one started."""
    earlier = begin(engine)
    write_batch(engine, batch(earlier, 1, []), now=NOW)
    sync = begin(engine, now=LATER)
    fail_sync(engine, sync.id, outcome="failed", error="x", now=LATER)
    write_spooled_batch(engine, batch(sync, 1, [change(1)], position={"spooled": 1}), now=LATER)
    assert checkpoint(engine, REPOSITORY, "changes") == {"spooled": 1}


def test_each_batch_is_a_sign_of_life(engine: sa.Engine) -> None:
    """A sync that writes is alive."""
    sync = begin(engine)
    write_batch(engine, batch(sync, 1, []), now=LATER)
    assert found(engine, sync).heartbeat_at == LATER
