"""The spool: what it keeps comes back as it was, is written exactly once, and nothing is lost silently."""

import dataclasses
import hashlib
import logging
import os
import stat
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from bandsync_dagster.store.engine import create_store_engine
from bandsync_dagster.store.errors import SpoolError, SpoolFull, StoreUnavailable
from bandsync_dagster.store.queries import checkpoint, counter_facts, find_sync
from bandsync_dagster.store.schema import changes
from bandsync_dagster.store.spool import Replay, SetAside, Spool, SpooledBatch, replay
from bandsync_dagster.store.syncs import Sync, complete_sync, fail_sync
from bandsync_dagster.store.writes import Batch, write_batch
from bandsync_dagster_tests.store.builders import HOUR, NOW, REPOSITORY, batch, begin, change, job, stored

LARGE = 10_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the spool is; not made yet."""
    return tmp_path / "spool"


@pytest.fixture
def spool(folder: Path) -> Spool:
    """A spool with room."""
    return Spool(folder, LARGE)


def a_batch(number: int = 1, sync_id: int = 7, stage: str = "changes", **fields: Any) -> Batch:
    """Return a batch that no database has to know."""
    known: dict[str, Any] = {"rows": [change(number)], "position": {"batch": number}}
    return Batch(number=number, stage=stage, repository_id=REPOSITORY, sync_id=sync_id, **(known | fields))


def waiting(spool: Spool, stage: str = "changes") -> list[Batch]:
    """Return the batches that wait."""
    return [found.batch for found in spool.drain(REPOSITORY, stage) if isinstance(found, SpooledBatch)]


def ended_badly(engine: sa.Engine) -> Sync:
    """Return a sync that wrote one batch, and failed when the database went away."""
    sync = begin(engine)
    write_batch(engine, batch(sync, 1, [change(1)]), now=NOW)
    return fail_sync(engine, sync.id, outcome="failed", error="the database is away", now=NOW)


def test_a_batch_comes_back_as_it_was_put(spool: Spool) -> None:
    """Times, text of every kind, JSON inside of JSON, totals and the position."""
    rows = [job(1, steps=[{"name": "\N{ROCKET}\u2028\n\x00\ud800", "at": "2026-01-01T00:00:00Z"}]), job(2, name="")]
    total = {"verification_id": 1, "run_attempt": 1, "total": 2, "detail": "full", "retry_at": NOW}
    put = a_batch(stage="jobs", rows=rows, job_totals=(total,), requests=3, points=4, position={"a": [1, None]})
    spool.put(put)
    assert waiting(spool, "jobs") == [put]


@pytest.mark.parametrize("fields", [{"rows": []}, {"position": None}])
def test_what_is_empty_comes_back_empty(spool: Spool, fields: dict[str, Any]) -> None:
    """A batch without rows or without position is one."""
    spool.put(a_batch(**fields))
    assert waiting(spool) == [a_batch(**fields)]


def test_batches_come_back_in_the_order_they_were_fetched(spool: Spool) -> None:
    """By sync, then by number, whenever they were put; 10 comes after 9."""
    for sync_id, number in ((10, 1), (9, 10), (9, 9), (100, 2)):
        spool.put(a_batch(number, sync_id))
    assert [(found.sync_id, found.number) for found in waiting(spool)] == [(9, 9), (9, 10), (10, 1), (100, 2)]


def test_stages_and_repositories_do_not_mix(spool: Spool) -> None:
    """A sync takes only what is its own to write."""
    spool.put(a_batch())
    assert waiting(spool, "jobs") == []
    assert list(spool.drain(5, "changes")) == []


def test_putting_a_batch_again_replaces_it(spool: Spool, folder: Path) -> None:
    """There is one file for each batch, and no other is left behind."""
    spool.put(a_batch())
    path = spool.put(a_batch())
    assert [found for found in folder.rglob("*") if found.is_file()] == [path]


def test_files_are_for_their_owner_alone(spool: Spool) -> None:
    """Titles of private repositories are nobody else's business."""
    path = spool.put(a_batch())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_full_spool_refuses_and_keeps_what_it_has(folder: Path) -> None:
    """The message says how much it would be; nothing of the refused batch is left."""
    size = Spool(folder, LARGE).put(a_batch(1)).stat().st_size
    small = Spool(folder, 2 * size + 100)
    small.put(a_batch(2))
    with pytest.raises(SpoolFull, match=r"the spool .* is full: this batch makes it [\d,]+ of [\d,]+ bytes"):
        small.put(a_batch(3))
    assert [found.number for found in waiting(small)] == [1, 2]
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) == 2 * size


def test_what_a_dead_process_left_behind_is_swept_away(spool: Spool) -> None:
    """An unfinished file is no batch; after an hour it is nobody's. A younger one may be somebody's."""
    place = spool.put(a_batch(1)).parent
    old, young = place / "old.part", place / "young.part"
    for path in (old, young):
        path.write_bytes(b"half a batch")
    os.utime(old, (0, 0))
    spool.put(a_batch(2))
    assert not old.exists()
    assert young.exists()
    assert [found.number for found in waiting(spool)] == [1, 2]


def test_a_spool_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    """A file where the folder should be."""
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(SpoolError, match="cannot keep a batch"):
        Spool(path, LARGE).put(a_batch())


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1],
        lambda content: content[: len(content) // 2],
        lambda content: content.replace(b"Change 1", b"Change 2"),
        lambda content: content[:0],
        lambda content: b"0" * 64 + content[64:],
    ],
)
def test_a_damaged_file_is_set_aside(spool: Spool, folder: Path, damage: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Cut short, changed, empty: it is kept, with the reason beside it, and an error says where."""
    path = spool.put(a_batch(1))
    spool.put(a_batch(2))
    path.write_bytes(damage(path.read_bytes()))
    damaged, good = spool.drain(REPOSITORY, "changes")
    assert isinstance(damaged, SetAside)
    assert isinstance(good, SpooledBatch)
    assert damaged.path.is_relative_to(folder / "set-aside")
    assert "checksum" in damaged.reason
    assert damaged.path.with_suffix(".txt").read_text() == f"{damaged.reason}\n"
    assert [(record.levelno, str(damaged.path) in record.getMessage()) for record in caplog.records] == [
        (logging.ERROR, True)
    ]
    assert [found.number for found in waiting(spool)] == [2]


def test_a_file_of_another_release_is_set_aside(spool: Spool) -> None:
    """Whole, but with fields this release does not know."""
    path = spool.put(a_batch())
    content = path.read_bytes().split(b"\n", 1)[1].replace(b'"points"', b'"pounds"')
    path.write_bytes(hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
    (found,) = spool.drain(REPOSITORY, "changes")
    assert isinstance(found, SetAside)
    assert "another release wrote this file" in found.reason


def test_replaying_makes_the_old_sync_whole(engine: sa.Engine, spool: Spool) -> None:
    """Rows, counters and checkpoint end as if the database had never been away; the spool is empty."""
    sync = ended_badly(engine)
    for number in (2, 3):
        spool.put(batch(sync, number, [change(number), change(1)], requests=1))
    assert replay(engine, spool, REPOSITORY, "changes", now=NOW) == Replay(2, 4)
    now = find_sync(engine, sync.id)
    assert now is not None
    assert (now.state, now.records_collected, now.records_created, now.records_unchanged, now.requests) == (
        "failed",
        5,
        3,
        2,
        2,
    )
    assert checkpoint(engine, REPOSITORY, "changes") == {"batch": 3}
    facts = counter_facts(engine, "acme/pool", "changes")
    assert facts.created_by_all == facts.rows == 3
    assert waiting(spool) == []
    assert replay(engine, spool, REPOSITORY, "changes", now=NOW) == Replay()


def test_a_batch_whose_commit_was_not_heard_of_is_not_written_twice(engine: sa.Engine, spool: Spool) -> None:
    """It was committed before the connection went away, and spooled because nobody knew."""
    sync = ended_badly(engine)
    spool.put(batch(sync, 1, [change(1)]))
    assert replay(engine, spool, REPOSITORY, "changes", now=NOW) == Replay(0, 0)
    now = find_sync(engine, sync.id)
    assert now is not None
    assert now.records_collected == 1
    assert waiting(spool) == []


def test_a_database_that_is_away_again_leaves_the_spool_as_it_is(engine: sa.Engine, spool: Spool) -> None:
    """Nothing is lost, and the next sync tries again."""
    sync = ended_badly(engine)
    spool.put(batch(sync, 2, [change(2)]))
    away = create_store_engine("postgresql://me@127.0.0.1:1/nowhere")
    with pytest.raises(StoreUnavailable):
        replay(away, spool, REPOSITORY, "changes", now=NOW)
    assert [found.number for found in waiting(spool)] == [2]


def test_what_can_never_be_written_is_set_aside_and_the_rest_written(engine: sa.Engine, spool: Spool) -> None:
    """A missing predecessor, an unknown sync, a sync that ended well, a row that does not fit."""
    sync, well = ended_badly(engine), begin(engine)
    complete_sync(engine, well.id, now=NOW)
    spool.put(batch(sync, 2, [change(2)]))
    spool.put(batch(sync, 4, [change(4)]))
    spool.put(batch(well, 1, [change(5)]))
    spool.put(dataclasses.replace(batch(sync, 1, [change(6)]), sync_id=4711))
    spool.put(dataclasses.replace(batch(sync, 1, [change(7, title=5)]), sync_id=4712))
    done = replay(engine, spool, REPOSITORY, "changes", now=NOW + HOUR)
    assert (done.batches, done.rows) == (1, 1)
    reasons = [aside.reason for aside in done.set_aside]
    assert reasons == [
        f"batch 4 of sync {sync.id} does not follow batch 2, the last one written",
        f"sync {well.id} is completed: cannot write a batch of it",
        "there is no sync 4711 in this database",
        "changes row 3000000007: column title is 5, not text",
    ]
    assert all(aside.path.exists() for aside in done.set_aside)
    assert [row["number"] for row in stored(engine, changes)] == [1, 2]
    assert waiting(spool) == []


def test_what_was_set_aside_counts_for_the_size(spool: Spool, folder: Path) -> None:
    """The bound is on the whole folder: a person has to look at what was set aside."""
    path = spool.put(a_batch(1, rows=[change(1, title="x" * 5000)]))
    spool.set_aside(path, "for a test")
    with pytest.raises(SpoolFull):
        Spool(folder, 5000).put(a_batch(2))
