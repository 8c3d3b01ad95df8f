"""The gate's row: what the stop of a pool is meant to be. What it does to the pool is decided elsewhere."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from bandsync_dagster.store.engine import reading, writing
from bandsync_dagster.store.schema import gates
from bandsync_dagster.store.statements import excluded, insert_into


@dataclass(frozen=True, slots=True)
class Gate:
    """A row of `gates`. `limit` is the pool's limit while the gate is open: what it goes back to."""

    pool: str
    state: str
    limit: int
    bucket: str | None
    closed_until: datetime | None
    changed_at: datetime


class GateHandle:
    """The row of one pool, locked. `gate` is None until somebody writes it for the first time."""

    def __init__(self, connection: sa.Connection, pool: str) -> None:
        self._connection = connection
        self._pool = pool
        self.gate = _find(connection, pool)

    def write(
        self, *, state: str, limit: int, bucket: str | None, closed_until: datetime | None, now: datetime
    ) -> None:
        """Replace the row; others see it at the end of the block."""
        values = {"pool": self._pool, "state": state, "limit_": limit, "bucket": bucket}
        values |= {"closed_until": closed_until, "changed_at": now}
        statement = insert_into(self._connection, gates).values(values)
        statement = statement.on_conflict_do_update(index_elements=["pool"], set_=excluded(statement, "pool"))
        self._connection.execute(statement)
        self.gate = Gate(self._pool, state, limit, bucket, closed_until, now)


def read_gate(engine: sa.Engine, pool: str) -> Gate | None:
    """Return the pool's gate; None when it was never closed."""
    with reading(engine) as connection:
        return _find(connection, pool)


@contextmanager
def locked_gate(engine: sa.Engine, pool: str) -> Generator[GateHandle, None, None]:
    """Lock the pool's gate for the block; what is written is committed at its end, or not at all after an error.

    Keep the block short, and write nothing else to the store inside: on SQLite the lock is that of the whole database.
    """
    with writing(engine) as connection:
        if connection.dialect.name == "postgresql":
            # Of the name and not of the row, which may not exist yet.
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtextextended(f"gate:{pool}", 0))))
        yield GateHandle(connection, pool)


def _find(connection: sa.Connection, pool: str) -> Gate | None:
    columns = (gates.c.pool, gates.c.state, gates.c.limit_, gates.c.bucket, gates.c.closed_until, gates.c.changed_at)
    row = connection.execute(sa.select(*columns).where(gates.c.pool == pool)).one_or_none()
    return None if row is None else Gate(*row)
