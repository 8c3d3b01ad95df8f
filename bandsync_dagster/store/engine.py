"""Connecting to the database, transactions, and bringing its schema up to date. No table is read or written here.

SQLite: one file, WAL, 30 s of patience for another writer, and `BEGIN IMMEDIATE` for every transaction that writes, so
that a transaction never finds out halfway that another one was faster. PostgreSQL: at most two connections for each
process, READ COMMITTED, and the same 30 s for a lock.
"""

import importlib
import sqlite3
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import event, exc

from bandsync_dagster.store.errors import StoreMisconfigured, StoreTooNew
from bandsync_dagster.store.failures import describe, transient, translated

__all__ = ["CONNECTIONS_PER_PROCESS", "create_store_engine", "reading", "transient", "upgrade", "writing"]

CONNECTIONS_PER_PROCESS = 2
LOCK_PATIENCE_SECONDS = 30

# INSERT .. RETURNING tells which rows are new; SQLite has it since March 2021.
OLDEST_SQLITE = (3, 35, 0)

_EXAMPLES = "sqlite:////var/lib/bandsync/bandsync.db or postgresql://user:password@host/database"
_POSTGRESQL_DRIVERS = frozenset({"postgresql", "postgres", "postgresql+psycopg2"})
_SQLITE_DRIVERS = frozenset({"sqlite", "sqlite+pysqlite"})

# Any number that no other user of the same PostgreSQL database is likely to lock: "bandsync" in ASCII.
_UPGRADE_LOCK = int.from_bytes(b"bandsync", "big")
_WRITES = "bandsync_writes"

# Alembic keeps the migration at work in a module variable.
_one_upgrade = threading.Lock()


def create_store_engine(url: str) -> sa.Engine:
    """Return an engine for a database URL. Connects to nothing yet.

    Raises:
        StoreMisconfigured: The URL cannot be used (see `read_url`), or this Python lacks what its database needs.
    """
    parsed = read_url(url)
    return _sqlite_engine(parsed) if parsed.get_backend_name() == "sqlite" else _postgresql_engine(parsed)


def read_url(url: str) -> sa.URL:
    """Read a database URL; its password is where SQLAlchemy never shows it.

    Raises:
        StoreMisconfigured: It cannot be read, or names a database this project does not work with. The message holds
            no part of the URL but the driver's name.
    """
    try:
        parsed = sa.make_url(url)
    except (exc.ArgumentError, ValueError):
        # The cause quotes the URL, and with it the password.
        raise StoreMisconfigured(f"not a database URL: write {_EXAMPLES}") from None
    if "@" in (parsed.host or ""):
        # The end of the password, taken for the host: it would be shown in messages.
        raise StoreMisconfigured("the database URL has more than one @: inside the user name or password write it %40")
    if parsed.drivername in _SQLITE_DRIVERS:
        if parsed.database in (None, "", ":memory:"):
            raise StoreMisconfigured(f"an SQLite database in memory cannot be shared: write {_EXAMPLES}")
        return parsed
    if parsed.drivername in _POSTGRESQL_DRIVERS:
        return _hide_password(parsed.set(drivername="postgresql+psycopg2"))
    raise StoreMisconfigured(f"no database driver named {parsed.drivername!r}: write {_EXAMPLES}")


def _hide_password(url: sa.URL) -> sa.URL:
    """Move a password among the options to the place where SQLAlchemy never shows it."""
    password = url.query.get("password")
    if not isinstance(password, str):
        return url
    return url.set(password=password).difference_update_query(["password"])


def _sqlite_engine(url: sa.URL) -> sa.Engine:
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        needed = ".".join(map(str, OLDEST_SQLITE))
        raise StoreMisconfigured(f"this Python has SQLite {sqlite3.sqlite_version}; {needed} or newer is needed")
    engine = sa.create_engine(
        url,
        hide_parameters=True,
        pool_size=CONNECTIONS_PER_PROCESS,
        max_overflow=0,
        connect_args={} if "timeout" in url.query else {"timeout": LOCK_PATIENCE_SECONDS},
    )
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    # The driver must not begin transactions by itself: `_begin_sqlite` does.
    connection.isolation_level = None
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        connection.execute("PRAGMA journal_mode = WAL")
    # With WAL, NORMAL can lose the last transactions in a power cut, never consistency; they would be collected again.
    connection.execute("PRAGMA synchronous = NORMAL")


def _begin_sqlite(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _postgresql_engine(url: sa.URL) -> sa.Engine:
    try:
        importlib.import_module("psycopg2")
    except ImportError as error:
        raise StoreMisconfigured("PostgreSQL needs the driver psycopg2: pip install psycopg2-binary") from error
    engine = sa.create_engine(
        url,
        hide_parameters=True,
        isolation_level="READ COMMITTED",
        # A second connection is closed after use: a server has few, and an idle one counts as much.
        pool_size=1,
        max_overflow=CONNECTIONS_PER_PROCESS - 1,
        pool_pre_ping=True,
        connect_args=_postgresql_options(url),
    )
    event.listen(engine, "begin", _begin_postgresql)
    return engine


def _postgresql_options(url: sa.URL) -> dict[str, Any]:
    """Options of libpq that notice a vanished server; what the URL says itself wins."""
    options = {
        "application_name": "bandsync",
        "connect_timeout": 10,
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        "tcp_user_timeout": 60_000,
    }
    return {name: value for name, value in options.items() if name not in url.query}


def _begin_postgresql(connection: sa.Connection) -> None:
    # In the transaction and not among the connection's options, which PgBouncer refuses.
    if connection.get_execution_options().get(_WRITES, False):
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_PATIENCE_SECONDS}s'")


@contextmanager
def reading(engine: sa.Engine) -> Generator[sa.Connection, None, None]:
    """Give a connection for statements that only read. All statements of the block see the same moment."""
    with translated(engine.url), _snapshots(engine).connect() as connection:
        yield connection


def _snapshots(engine: sa.Engine) -> sa.Engine:
    # A transaction of SQLite reads one moment anyway; PostgreSQL's never fails at this level unless it writes.
    if engine.dialect.name == "postgresql":
        return engine.execution_options(isolation_level="REPEATABLE READ")
    return engine


@contextmanager
def writing(engine: sa.Engine) -> Generator[sa.Connection, None, None]:
    """Give a connection in a transaction that writes: committed at the end of the block, rolled back on any error."""
    with translated(engine.url), engine.execution_options(**{_WRITES: True}).begin() as connection:
        yield connection


def upgrade(engine: sa.Engine) -> None:
    """Bring the schema to the revision this release knows. Any number of processes may do so at once.

    Raises:
        StoreTooNew: A newer release has upgraded the database.
        StoreMisconfigured: The database cannot be used: wrong rights, another encoding than UTF-8, an unusable file.
        StoreUnavailable: The database cannot be reached.
    """
    config = migration_config()
    script = ScriptDirectory.from_config(config)
    with reading(engine) as connection:
        _require_utf8(connection)
        if _is_current(connection, script):
            return
    with _one_upgrade, writing(engine) as connection:
        _lock_upgrades(connection)
        if not _is_current(connection, script):
            config.attributes["connection"] = connection
            command.upgrade(config, "head")


def migration_config() -> Config:
    """Return Alembic's configuration for the migrations in this package."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _is_current(connection: sa.Connection, script: ScriptDirectory) -> bool:
    found = MigrationContext.configure(connection).get_current_revision()
    known = [revision.revision for revision in script.walk_revisions()]
    if found is not None and found not in known:
        raise StoreTooNew(describe(connection.engine.url), found, known[0])
    return found == known[0]


def _lock_upgrades(connection: sa.Connection) -> None:
    # SQLite's BEGIN IMMEDIATE already is the lock.
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_UPGRADE_LOCK)))


def _require_utf8(connection: sa.Connection) -> None:
    if connection.dialect.name != "postgresql":
        return
    encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
    if encoding != "UTF8":
        where = describe(connection.engine.url)
        raise StoreMisconfigured(f"{where} has the encoding {encoding}: create it with ENCODING 'UTF8'")
