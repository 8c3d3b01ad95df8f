"""The one write path, on both databases."""

import dataclasses

import sqlalchemy as sa

from bandsync_dagster.store.queries import checkpoint, find_sync
from bandsync_dagster.store.schema import changes
from bandsync_dagster.store.writes import Written, write_batch
from bandsync_dagster_tests.store.builders import NOW, REPOSITORY, batch, begin, change, stored


def test_what_is_written_is_read_back_as_it_was(engine: sa.Engine) -> None:
    """Every column of a row survives the database, in UTC."""
    sync = begin(engine)
    write_batch(engine, batch(sync, 1, [change(1)]), now=NOW)
    assert stored(engine, changes) == [change(1) | {"first_sync_id": sync.id, "last_sync_id": sync.id}]


def test_created_updated_and_unchanged_are_told_apart(engine: sa.Engine) -> None:
    """A batch of all three kinds counts each row under exactly one."""
    first = begin(engine)
    assert write_batch(engine, batch(first, 1, [change(1), change(2)]), now=NOW) == Written(2, 2, 0, 0)
    second = begin(engine)
    rows = [change(1), change(2, title="Other"), change(3)]
    assert write_batch(engine, batch(second, 1, rows), now=NOW) == Written(3, 1, 1, 1)
    found = find_sync(engine, second.id)
    assert found is not None
    assert (found.records_collected, found.records_created, found.records_updated, found.records_unchanged) == (
        3,
        1,
        1,
        1,
    )


def test_a_batch_sent_again_is_recognised(engine: sa.Engine) -> None:
    """After a commit whose answer was lost, the same batch does and counts nothing."""
    sync = begin(engine)
    sent = batch(sync, 1, [change(1)], requests=2)
    assert write_batch(engine, sent, now=NOW).applied
    assert write_batch(engine, dataclasses.replace(sent, position={"other": 1}), now=NOW) == Written(applied=False)
    found = find_sync(engine, sync.id)
    assert found is not None
    assert (found.records_collected, found.requests, found.last_batch) == (1, 2, 1)
    assert checkpoint(engine, REPOSITORY, "changes") == {"batch": 1}
