"""The few SQL constructs that SQLAlchemy spells once per database. Both databases understand the same statements."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

Insert = postgresql.Insert | sqlite.Insert

# SQLite takes 32,766 values in a statement; SQLAlchemy splits INSERTs by itself, this is for lists of ids.
IDS_PER_STATEMENT = 5_000


def insert_into(connection: sa.Connection, table: sa.Table) -> Insert:
    """Return an INSERT that knows `ON CONFLICT` in the connection's dialect."""
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    return dialect.insert(table)


def excluded(statement: Insert, *without: str) -> dict[str, sa.ColumnElement[Any]]:
    """Return what `ON CONFLICT DO UPDATE` sets to take the new row over, but for some columns."""
    taken: dict[str, sa.ColumnElement[Any]] = {}
    for column in statement.excluded:
        if column.key not in without:
            taken[column.key] = column
    return taken
