"""Connecting: what URLs mean, what errors say, and what a transaction promises."""

import re
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from bandsync_dagster.store.engine import (
    CONNECTIONS_PER_PROCESS,
    create_store_engine,
    reading,
    transient,
    upgrade,
    writing,
)
from bandsync_dagster.store.errors import StoreError, StoreMisconfigured, StoreRefused, StoreUnavailable
from bandsync_dagster.store.queries import find_sync, list_repositories
from bandsync_dagster.store.repositories import upsert_repositories
from bandsync_dagster.store.schema import syncs
from bandsync_dagster.store.writes import write_batch
from bandsync_dagster_tests.conftest import PostgresDatabases
from bandsync_dagster_tests.store.builders import NOW, batch, begin, change, repository

SECRET = "sesame-4711"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (f"nonsense {SECRET}", "not a database URL"),
        (f"postgresql://me:{SECRET}@host:port@x/database", "not a database URL"),
        ("", "not a database URL"),
        (f"mysql://me:{SECRET}@host/database", "no database driver named 'mysql'"),
        (f"postgresql+asyncpg://me:{SECRET}@host/database", "no database driver named 'postgresql+asyncpg'"),
        ("sqlite://", "in memory cannot be shared"),
        ("sqlite:///:memory:", "in memory cannot be shared"),
    ],
)
def test_a_url_that_cannot_work_is_refused_at_once(url: str, said: str) -> None:
    """The message is one line, shows what a URL looks like, and nothing of what was given."""
    with pytest.raises(StoreMisconfigured, match=re.escape(said)) as refused:
        create_store_engine(url)
    assert "\n" not in str(refused.value)
    assert "sqlite:////" in str(refused.value)
    assert SECRET not in str(refused.value)
    assert refused.value.__cause__ is None


def test_a_short_postgres_url_means_the_driver_we_install() -> None:
    """`postgres://` and `postgresql://` both work, with psycopg2."""
    for scheme in ("postgres", "postgresql", "postgresql+psycopg2"):
        assert create_store_engine(f"{scheme}://me@host/database").url.drivername == "postgresql+psycopg2"


def test_an_unreachable_server_is_named_without_the_password() -> None:
    """Nobody listens on the port: worth trying again, and the line says which database."""
    engine = create_store_engine(f"postgresql://me:{SECRET}@127.0.0.1:1/history?password={SECRET}")
    with pytest.raises(
        StoreUnavailable, match=r"PostgreSQL database history on 127\.0\.0\.1:1 is not available"
    ) as raised:
        upgrade(engine)
    assert "\n" not in str(raised.value)
    assert SECRET not in repr(raised.value)
    assert SECRET not in repr(engine.url)
    assert transient(raised.value)


def test_a_database_that_does_not_exist_is_not_worth_trying_again(postgres: PostgresDatabases) -> None:
    """Waiting creates no database: a person has to."""
    url = sa.make_url(postgres.create())
    postgres.drop(url.render_as_string())
    engine = create_store_engine(url.render_as_string())
    with pytest.raises(StoreMisconfigured, match="does not exist; check the database URL") as raised:
        upgrade(engine)
    assert not transient(raised.value)


def test_a_database_of_another_encoding_is_refused(postgres: PostgresDatabases) -> None:
    """Titles have emoji: a database that cannot store them is refused before the first."""
    postgres.execute("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    latin = sa.make_url(postgres.create()).set(database="latin").render_as_string()
    engine = create_store_engine(latin)
    with pytest.raises(StoreMisconfigured, match="has the encoding LATIN1: create it with ENCODING 'UTF8'"):
        upgrade(engine)
    engine.dispose()
    postgres.drop(latin)


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    """The folder is missing: the message names the file."""
    path = tmp_path / "missing" / "bandsync.db"
    with pytest.raises(StoreMisconfigured, match=f"SQLite database {path} cannot be used: unable to open"):
        upgrade(create_store_engine(f"sqlite:///{path}"))


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    """Somebody's text file is left alone."""
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but longer than a header of one" * 100)
    before = path.read_bytes()
    with pytest.raises(StoreMisconfigured, match="file is not a database"):
        upgrade(create_store_engine(f"sqlite:///{path}"))
    assert path.read_bytes() == before


def test_an_empty_database_says_what_is_missing(empty_database_url: str) -> None:
    """Without the tables every question ends in the remedy."""
    engine = create_store_engine(empty_database_url)
    with pytest.raises(StoreMisconfigured, match=r"has not been set up by this project .*: upgrade it first"):
        list_repositories(engine)
    engine.dispose()


def test_a_refused_statement_is_not_worth_trying_again(engine: sa.Engine) -> None:
    """A constraint holds however often it is tried, and the values do not reach the message."""
    sync = begin(engine)
    with pytest.raises(StoreRefused) as raised, writing(engine) as connection:
        connection.execute(syncs.update().where(syncs.c.id == sync.id).values(state=SECRET))
    assert "\n" not in str(raised.value)
    assert not transient(raised.value)


def test_an_error_inside_a_transaction_leaves_nothing(engine: sa.Engine) -> None:
    """What a block wrote before it raised is gone."""
    sync = begin(engine)
    with pytest.raises(StoreRefused), writing(engine) as connection:  # noqa: PT012  (two statements, one transaction)
        connection.execute(syncs.delete())
        connection.exec_driver_sql("INSERT INTO syncs (id) VALUES (1)")
    assert find_sync(engine, sync.id) == sync


def test_reading_sees_one_moment(engine: sa.Engine) -> None:
    """What others commit while a block reads stays out of its sight."""
    count = sa.select(sa.func.count()).select_from(syncs)
    with reading(engine) as connection:
        assert connection.execute(count).scalar_one() == 0
        begin(engine)
        assert connection.execute(count).scalar_one() == 0
    with reading(engine) as connection:
        assert connection.execute(count).scalar_one() == 1


def test_a_process_holds_at_most_two_connections(engine: sa.Engine) -> None:
    """The third asks in vain until one of the two is given back: the number is stated in the documentation."""
    assert CONNECTIONS_PER_PROCESS == 2
    assert isinstance(engine.pool, sa.QueuePool)
    with engine.connect(), engine.connect():
        assert engine.pool.checkedout() == 2
        engine.pool._timeout = 0
        with pytest.raises(StoreUnavailable) as raised, reading(engine):
            pass
    assert transient(raised.value)


@pytest.mark.parametrize("backend", ["postgresql"])
def test_the_server_sees_who_is_connected(engine: sa.Engine) -> None:
    """Connections carry the project's name, so that an administrator can tell them apart."""
    with reading(engine) as connection:
        assert connection.exec_driver_sql("SHOW application_name").scalar_one() == "bandsync"


@pytest.mark.parametrize("backend", ["postgresql"])
def test_a_cut_connection_is_replaced(engine: sa.Engine, postgres: PostgresDatabases) -> None:
    """After the server has cut all connections, the first call may fail as unavailable; the next one works."""
    sync = begin(engine)
    cut = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{engine.url.database}'"
    with pytest.raises(StoreUnavailable), writing(engine) as connection:  # noqa: PT012  (cut in the middle of one)
        postgres.execute(cut)
        connection.exec_driver_sql("SELECT 1")
    assert write_batch(engine, batch(sync, 1, [change(1)]), now=NOW).created == 1


@pytest.mark.parametrize("backend", ["postgresql"])
@pytest.mark.parametrize("state", ["40001", "40P01", "53100", "53300", "57P01", "57P03", "08006", "55P03"])
def test_what_passes_by_itself_is_transient(engine: sa.Engine, state: str) -> None:
    """Serialization, deadlock, disk full, too many connections, shutting down, starting up, connection lost, a lock."""
    with pytest.raises(StoreUnavailable) as raised, writing(engine) as connection:
        connection.exec_driver_sql(f"DO $$ BEGIN RAISE EXCEPTION 'raised' USING ERRCODE = '{state}'; END $$")
    assert transient(raised.value)


@pytest.mark.parametrize("backend", ["postgresql"])
@pytest.mark.parametrize(("state", "remedy"), [("53100", "free space on the server's disk"), ("53300", "raise .*")])
def test_a_server_that_lacks_something_says_what_a_person_can_do(engine: sa.Engine, state: str, remedy: str) -> None:
    """It may pass by itself, or not at all until somebody does something."""
    with pytest.raises(StoreUnavailable, match=f"; {remedy}$"), writing(engine) as connection:
        connection.exec_driver_sql(f"DO $$ BEGIN RAISE EXCEPTION 'raised' USING ERRCODE = '{state}'; END $$")


@pytest.fixture
def impatient(database_url: str) -> Iterator[sa.Engine]:
    """An engine on SQLite that waits a hundredth of a second for a lock."""
    engine = create_store_engine(f"{database_url}?timeout=0.01")
    yield engine
    engine.dispose()


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_locked_file_is_worth_trying_again(impatient: sa.Engine) -> None:
    """A writer that holds the file for too long makes others fail as unavailable, from the start of a transaction."""
    with writing(impatient):
        with pytest.raises(StoreUnavailable, match="database is locked") as raised:
            begin(impatient)
        assert transient(raised.value)
        # Readers are not in its way.
        assert list_repositories(impatient) == []
    assert begin(impatient).state == "running"


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_full_disk_is_worth_trying_again(engine: sa.Engine) -> None:
    """A batch that found no room wrote nothing, and is written once there is room."""
    sync = begin(engine)
    rows = [change(number, title="x" * 1000) for number in range(500)]
    # Both connections of the pool, whichever is used.
    with engine.connect() as one, engine.connect() as other:
        for connection in (one, other):
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 10}")
    with pytest.raises(StoreUnavailable, match=r"disk is full; free space on its disk$"):
        write_batch(engine, batch(sync, 1, rows), now=NOW)
    engine.dispose()
    assert write_batch(engine, batch(sync, 1, rows), now=NOW).created == 500


@pytest.mark.parametrize("backend", ["sqlite"])
def test_the_file_is_in_wal_mode(engine: sa.Engine) -> None:
    """Readers and a writer do not wait for each other."""
    with reading(engine) as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal"


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_writer_waits_for_the_one_before_it(engine: sa.Engine) -> None:
    """The second writer of a file begins when the first has committed, and sees what it wrote."""
    waits = threading.Event()
    counted: list[int] = []

    def second() -> None:
        waits.set()
        with writing(engine) as connection:
            counted.append(connection.execute(sa.select(sa.func.count()).select_from(syncs)).scalar_one())

    thread = threading.Thread(target=second)
    with writing(engine) as connection:
        thread.start()
        assert waits.wait(60)
        row = {"full_name": "a/b", "stage": "jobs", "root_run_id": "", "run_id": "", "state": "running"}
        connection.execute(syncs.insert().values(**row, started_at=NOW))
    thread.join(60)
    assert counted == [1]


def test_errors_of_others_are_not_the_stores() -> None:
    """`transient` says no to whatever did not come from a database, and to any error of the store but one."""
    assert not transient(ValueError("x"))
    assert not transient(sqlite3.OperationalError("database is locked"))
    assert not transient(StoreError("x"))


def test_names_are_stored_as_they_come(engine: sa.Engine) -> None:
    """Emoji, right-to-left text and line ends survive."""
    name = "acme/\N{ROCKET}\u0627\u0644\n"
    upsert_repositories(engine, [repository(full_name=name)], now=NOW)
    assert [found.full_name for found in list_repositories(engine)] == [name]
