"""What a database's own errors mean: which are worth another attempt, and how they read in one line.

The sorting is by SQLSTATE on PostgreSQL (documentation, appendix A "PostgreSQL Error Codes") and by message on SQLite,
whose error codes Python shows only since 3.11.
"""

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager

import sqlalchemy as sa
from sqlalchemy import exc

from bandsync_dagster.store.errors import StoreError, StoreMisconfigured, StoreRefused, StoreUnavailable

# Whole classes: connection exceptions, transaction rollback (serialization, deadlock), insufficient resources (disk
# full, too many connections), operator intervention (shutdown, starting up), system error (I/O).
_TRANSIENT_CLASSES = frozenset({"08", "40", "53", "57", "58"})
# Lock not available in time; read-only while a standby takes over.
_TRANSIENT_STATES = frozenset({"55P03", "25006"})
_UNDEFINED_TABLE = "42P01"

# A failed connection has no SQLSTATE in psycopg2. What waiting does not mend:
_HOPELESS_CONNECTIONS = (
    "authentication failed",
    "no password supplied",
    "does not exist",
    "pg_hba.conf",
    "permission denied",
)

_TRANSIENT_SQLITE = ("is locked", "is full", "disk i/o error")

# What a person can do about something that may also pass by itself, by SQLite's words or PostgreSQL's state.
_REMEDIES = {
    "is full": "free space on its disk",
    "disk i/o error": "free space on its disk, and check that the disk is sound",
    "is locked": "end whatever keeps it locked",
    "53100": "free space on the server's disk",
    "53300": "raise the server's max_connections, or lower the limit of the pool",
}
_UNUSABLE_SQLITE = ("unable to open", "readonly database", "not a database", "malformed")


def transient(error: BaseException) -> bool:
    """Tell whether the same call may succeed later, without anybody changing anything."""
    if isinstance(error, StoreUnavailable | exc.TimeoutError):
        return True
    if not isinstance(error, exc.DBAPIError):
        return False
    if error.connection_invalidated:
        return True
    state = _sqlstate(error)
    if state is not None:
        return state[:2] in _TRANSIENT_CLASSES or state in _TRANSIENT_STATES
    return _transient_text(error)


def _transient_text(error: exc.DBAPIError) -> bool:
    text = str(error.orig).lower()
    if isinstance(error.orig, sqlite3.Error):
        return any(phrase in text for phrase in _TRANSIENT_SQLITE)
    lost = isinstance(error, exc.OperationalError | exc.InterfaceError)
    return lost and not any(phrase in text for phrase in _HOPELESS_CONNECTIONS)


def _sqlstate(error: exc.DBAPIError) -> str | None:
    return getattr(error.orig, "pgcode", None)


def describe(url: sa.URL) -> str:
    """Name the database so that a person recognises it, without user, password or options."""
    if url.get_backend_name() == "sqlite":
        return f"the SQLite database {url.database}"
    host = url.host or url.query.get("host") or "the local socket"
    port = f":{url.port}" if url.port else ""
    return f"the PostgreSQL database {url.database} on {host}{port}"


def as_store_error(error: exc.SQLAlchemyError, url: sa.URL) -> StoreError:
    """Return the store's error for one of SQLAlchemy's, with a message of one line."""
    cause = getattr(error, "orig", None) or error
    text = " ".join(str(cause).split()).replace(url.password or "\0", "***")
    where = describe(url)
    if transient(error):
        return StoreUnavailable(f"{where} is not available: {text}{_remedy(error)}")
    if _tables_missing(error):
        return StoreMisconfigured(f"{where} has not been set up by this project ({text}): upgrade it first")
    if _unusable(error):
        return StoreMisconfigured(f"{where} cannot be used: {text}; check the database URL and the rights it gives")
    return StoreRefused(f"{where} refused a statement: {text}")


def _remedy(error: exc.SQLAlchemyError) -> str:
    """Return how a message ends: in what a person can do, where there is anything."""
    cause = getattr(error, "orig", None)
    sign = str(cause).lower() if isinstance(cause, sqlite3.Error) else str(getattr(cause, "pgcode", None))
    return next((f"; {remedy}" for phrase, remedy in _REMEDIES.items() if phrase in sign), "")


def _tables_missing(error: exc.SQLAlchemyError) -> bool:
    cause = getattr(error, "orig", None)
    return getattr(cause, "pgcode", None) == _UNDEFINED_TABLE or "no such table" in str(cause)


def _unusable(error: exc.SQLAlchemyError) -> bool:
    cause = getattr(error, "orig", None)
    if isinstance(cause, sqlite3.Error):
        return any(phrase in str(cause).lower() for phrase in _UNUSABLE_SQLITE)
    return isinstance(error, exc.OperationalError) and getattr(cause, "pgcode", None) is None


@contextmanager
def translated(url: sa.URL) -> Generator[None, None, None]:
    """Turn what the database raises inside of the block into one of the store's errors."""
    try:
        yield
    except (exc.DBAPIError, exc.TimeoutError) as error:
        raise as_store_error(error, url) from error
