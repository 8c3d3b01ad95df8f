"""Several processes on one database at once: every number is exact."""

import os
import signal
from collections.abc import Sequence
from datetime import timedelta

import pytest
import sqlalchemy as sa

from bandsync_dagster.store.engine import create_store_engine, reading, writing
from bandsync_dagster.store.errors import BatchOutOfOrder, IllegalTransition
from bandsync_dagster.store.queries import counter_facts, find_sync
from bandsync_dagster.store.schema import changes, syncs
from bandsync_dagster.store.syncs import Sync, cancel_sync, complete_sync, fail_sync
from bandsync_dagster.store.writes import Written, write_batch
from bandsync_dagster_tests.store.builders import NOW, batch, begin, change, stored
from bandsync_dagster_tests.store.processes import in_processes, meet

PROCESSES = 4
ROUNDS = 10


def _append(url: str, sync_id: int, worker: int) -> int:
    """Append batches of two rows to one sync until ROUNDS of this worker's are in; return how often it was too late."""
    engine = create_store_engine(url)
    late = 0
    for turn in range(ROUNDS):
        numbers = [worker * 1000 + turn * 2, worker * 1000 + turn * 2 + 1]
        while not _appended(engine, sync_id, numbers):
            late += 1
    engine.dispose()
    return late


def _appended(engine: sa.Engine, sync_id: int, numbers: Sequence[int]) -> bool:
    sync = find_sync(engine, sync_id)
    assert sync is not None
    rows = [change(number) for number in numbers]
    try:
        return write_batch(engine, batch(sync, sync.last_batch + 1, rows, requests=1, points=3), now=NOW).applied
    except BatchOutOfOrder:
        return False


def test_increments_of_several_processes_add_up(engine: sa.Engine, database_url: str) -> None:
    """N processes x M batches on the counters of one sync: N x M, in every counter."""
    sync = begin(engine)
    in_processes(_append, [(database_url, sync.id, worker) for worker in range(PROCESSES)])
    now = find_sync(engine, sync.id)
    assert now is not None
    total = PROCESSES * ROUNDS
    assert (now.records_collected, now.records_created, now.requests, now.points, now.last_batch) == (
        2 * total,
        2 * total,
        total,
        3 * total,
        total,
    )
    assert len(stored(engine, changes)) == 2 * total


def _read_modify_write(url: str, sync_id: int) -> None:
    """Count as the predecessor of this project did: read, add, write back."""
    engine = create_store_engine(url)
    for _ in range(ROUNDS):
        with reading(engine) as connection:
            seen = connection.execute(sa.select(syncs.c.requests).where(syncs.c.id == sync_id)).scalar_one()
        meet()
        with writing(engine) as connection:
            connection.execute(syncs.update().where(syncs.c.id == sync_id).values(requests=seen + 1))
        meet()
    engine.dispose()


def test_reading_adding_and_writing_back_would_lose(engine: sa.Engine, database_url: str) -> None:
    """The same increments without an atomic UPDATE: when all read before any writes, all but one are lost."""
    sync = begin(engine)
    in_processes(_read_modify_write, [(database_url, sync.id)] * PROCESSES)
    now = find_sync(engine, sync.id)
    assert now is not None
    assert now.requests == ROUNDS < PROCESSES * ROUNDS


def _collect(url: str, sync: Sync, worker: int) -> list[Written]:
    """Write the same rows as everybody, in another order and in batches of other sizes, each worker's a bit newer."""
    engine = create_store_engine(url)
    age = timedelta(seconds=worker)
    rows = [change(number, title=f"by {worker}", updated_at=NOW + age) for number in range(300)]
    rows = rows[worker * 50 :] + rows[: worker * 50]
    size = 40 + 10 * worker
    parts = [rows[start : start + size] for start in range(0, len(rows), size)]
    written = [write_batch(engine, batch(sync, number, part), now=NOW) for number, part in enumerate(parts, 1)]
    engine.dispose()
    return written


def test_syncs_of_the_same_rows_count_each_row_once(engine: sa.Engine, database_url: str) -> None:
    """Four syncs write the same 300 rows at once: exactly 300 are created, and every row ends at its newest version."""
    started = [begin(engine) for _ in range(PROCESSES)]
    in_processes(_collect, [(database_url, sync, worker) for worker, sync in enumerate(started)])
    ended = [find_sync(engine, sync.id) for sync in started]
    assert sum(sync.records_created for sync in ended if sync) == 300
    for sync in ended:
        assert sync is not None
        assert sync.records_collected == 300
        assert sync.records_created + sync.records_updated + sync.records_unchanged == 300
    assert {row["title"] for row in stored(engine, changes)} == {f"by {PROCESSES - 1}"}
    facts = counter_facts(engine, "acme/pool", "changes")
    assert facts.created_by_all == facts.rows == 300
    assert facts.latest is not None
    assert facts.rows_of_latest == facts.latest.records_created


def _same_batch(url: str, sync: Sync) -> bool:
    engine = create_store_engine(url)
    written = write_batch(engine, batch(sync, 1, [change(number) for number in range(100)]), now=NOW)
    engine.dispose()
    return written.applied


def test_a_batch_sent_by_several_at_once_is_written_once(engine: sa.Engine, database_url: str) -> None:
    """One of them applies it, the others recognise it."""
    sync = begin(engine)
    assert sorted(in_processes(_same_batch, [(database_url, sync)] * 3)) == [False, False, True]
    now = find_sync(engine, sync.id)
    assert now is not None
    assert now.records_collected == 100


def _end(url: str, sync_id: int, event: str) -> str | None:
    engine = create_store_engine(url)
    try:
        if event == "complete":
            return complete_sync(engine, sync_id, now=NOW).state
        if event == "fail":
            return fail_sync(engine, sync_id, outcome="killed", error="x", now=NOW).state
        return cancel_sync(engine, sync_id, reason="x", now=NOW).state
    except IllegalTransition:
        return None
    finally:
        engine.dispose()


def test_only_one_of_several_endings_happens(engine: sa.Engine, database_url: str) -> None:
    """A sync that is completed, failed and cancelled at the same moment ends in one of these, and stays so."""
    sync = begin(engine)
    ended = in_processes(_end, [(database_url, sync.id, event) for event in ("complete", "fail", "cancel")])
    now = find_sync(engine, sync.id)
    assert now is not None
    assert [state for state in ended if state] == [now.state]


def _die_before_commit(url: str, sync: Sync) -> None:
    """Write a batch and be killed when all its statements are sent and the commit is not."""
    engine = create_store_engine(url)

    def die(_connection: sa.Connection) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    sa.event.listen(engine, "commit", die)
    write_batch(engine, batch(sync, 1, [change(1)]), now=NOW)


def test_a_process_killed_inside_a_transaction_leaves_nothing(engine: sa.Engine, database_url: str) -> None:
    """`kill -9` between the last statement and the commit: nothing is written, and the batch can be sent again."""
    sync = begin(engine)
    with pytest.raises(Exception, match="terminated abruptly"):
        in_processes(_die_before_commit, [(database_url, sync)])
    assert stored(engine, changes) == []
    assert find_sync(engine, sync.id) == sync
    assert write_batch(engine, batch(sync, 1, [change(1)]), now=NOW).created == 1
