"""A disk that is full: the database's, or the one that database and spool are on. It is an outage a person can end."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import sqlalchemy as sa
from sqlalchemy import event

from bandsync_dagster.collection.collector import RunIdentity
from bandsync_dagster.store.errors import SpoolError, StoreUnavailable
from bandsync_dagster.store.spool import Spool
from bandsync_dagster_tests.collection.collecting import PAGES, Collecting, all_rows
from bandsync_dagster_tests.collection.small_github import SmallGitHub

AGAIN = RunIdentity("run-2", "run-2")

# What PostgreSQL does with an insert into a table that its disk has no room for.
_NO_ROOM = """
CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE 'could not extend file "base/5/16384": No space left on device' USING ERRCODE = 'disk_full';
END $$;
CREATE TRIGGER no_room BEFORE INSERT ON changes EXECUTE FUNCTION no_room()
"""


class Disk:
    """The disk that a database is on."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def fill(self) -> None:
        """Leave no room for more changes. SQLite then fails of itself: its file may not have another page."""
        if self._engine.dialect.name == "sqlite":
            event.listen(self._engine, "checkout", _allow_no_more_pages)
        else:
            self._execute(_NO_ROOM)

    def free(self) -> None:
        """Make room."""
        if self._engine.dialect.name == "sqlite":
            event.remove(self._engine, "checkout", _allow_no_more_pages)
            self._engine.dispose()
        else:
            self._execute("DROP TRIGGER no_room ON changes")

    def _execute(self, statement: str) -> None:
        with self._engine.begin() as connection:
            connection.exec_driver_sql(statement)


def _allow_no_more_pages(connection: object, *_: object) -> None:
    cursor = connection.cursor()  # pyright: ignore[reportAttributeAccessIssue]
    (pages,) = cursor.execute("PRAGMA page_count").fetchone()
    cursor.execute(f"PRAGMA max_page_count = {pages}")
    cursor.close()


@pytest.fixture
def disk(engine: sa.Engine) -> Disk:
    """The disk that the test's database is on."""
    return Disk(engine)


def fills_up(github: SmallGitHub, disk: Disk) -> None:
    """Fill the disk as soon as the third page is asked for."""

    async def fill(_request: httpx.Request) -> None:
        if len(github.log) == 3:
            disk.fill()

    github.before = fill


@contextmanager
def whole_disk(github: SmallGitHub, disk: Disk) -> Iterator[None]:
    """Fill the disk likewise, also for every file of this process, until the end of the block."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    async def fill(_request: httpx.Request) -> None:
        if len(github.log) == 3:
            disk.fill()
            # The system refuses to write to a file beyond its first kilobyte, as it does on a disk without room.
            resource.setrlimit(resource.RLIMIT_FSIZE, (1024, limits[1]))

    github.before = fill
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_room_that_is_made_in_time_is_all_it_takes(collect: Collecting, github: SmallGitHub, disk: Disk) -> None:
    """The batch waits, is written once, and nothing else tells of it but the number of retries."""
    fills_up(github, disk)
    github.time.while_asleep = lambda: disk.free() if github.time.slept[-2:] == [2.0, 4.0] else None
    result = collect()
    assert collect.rows == all_rows()
    assert (result.created, result.metrics["retries"]) == (len(all_rows()), 2)
    collect.assert_agreed()


def test_a_disk_that_stays_full_leaves_what_was_fetched_to_the_spool(
    collect: Collecting, github: SmallGitHub, disk: Disk, tmp_path: Path
) -> None:
    """The error says what to do; once somebody has, the next run writes it first and asks only for what is missing."""
    collect.spool = Spool(tmp_path / "spool", 1 << 20)
    fills_up(github, disk)
    with pytest.raises(StoreUnavailable, match=r"(is full|No space left on device).*; free space on .* disk$"):
        collect()
    assert len(list((tmp_path / "spool").rglob("*.batch"))) == 1
    collect.assert_agreed()
    fetched = sum(path.startswith("/pages/") for path in github.log)
    disk.free()
    github.log.clear()
    github.before = None
    collect(run=AGAIN)
    assert github.log == [f"/pages/{number}" for number in range(fetched, PAGES)]
    assert_complete(collect, tmp_path)


def test_a_spool_on_the_same_full_disk_says_so_and_the_next_run_fetches_it_again(
    collect: Collecting, github: SmallGitHub, disk: Disk, tmp_path: Path
) -> None:
    """What to do about both is in the error; rows, counters and checkpoint agree before and afterwards."""
    collect.spool = Spool(tmp_path / "spool", 1 << 20)
    with whole_disk(github, disk), pytest.raises(SpoolError, match=r"cannot keep a batch.* BANDSYNC_SPOOL") as raised:
        collect()
    assert "free space on" in str(raised.value.__cause__)
    collect.assert_agreed()
    disk.free()
    reached = (collect.position or {"next": 0})["next"]
    github.log.clear()
    github.before = None
    collect(run=AGAIN)
    assert github.log == [f"/pages/{number}" for number in range(reached, PAGES)]
    assert_complete(collect, tmp_path)


def assert_complete(collect: Collecting, folder: Path) -> None:
    """Assert that everything is in the database once, counted once, and nothing is left in the spool."""
    assert collect.rows == all_rows()
    assert sum(sync["records_created"] for sync in collect.syncs) == len(all_rows())
    assert [path for path in (folder / "spool").rglob("*") if path.is_file()] == []
    collect.assert_agreed()
