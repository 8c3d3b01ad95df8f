"""Making rows fit their table, before any of them is written. Pure: no database.

Every string loses its NUL characters (PostgreSQL refuses them; real titles have them) and its lone surrogates (they
have no UTF-8), at any depth. A value of another type than its column's is refused here, with the row and the column
named: SQLite would store it as it is, and PostgreSQL would reject the whole batch without saying which row.
"""

import math
import re
import reprlib
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from functools import cache
from typing import Any, NamedTuple, cast

import sqlalchemy as sa

from bandsync_dagster.store.errors import RowRejected
from bandsync_dagster.store.types import UtcDateTime

Row = dict[str, Any]

_FORBIDDEN = re.compile("[\x00\ud800-\udfff]")
_BIGINT = range(-(2**63), 2**63)

# Deeper than anything GitHub sends, far from Python's recursion limit.
_DEEPEST = 64


def clean_text(text: str) -> str:
    """Return the text without NUL characters and lone surrogates."""
    return _FORBIDDEN.sub("", text)


def clean_json(value: object, depth: int = 0) -> Any:  # noqa: ANN401  (as JSON is)
    """Return a JSON value with all its strings clean, keys included.

    Raises:
        ValueError: The value is not JSON: another type, a number that is not finite, too deep.
    """
    if depth > _DEEPEST:
        raise ValueError(f"is nested deeper than {_DEEPEST} levels")
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return {clean_text(str(key)): clean_json(item, depth + 1) for key, item in items}
    if isinstance(value, list | tuple):
        return [clean_json(item, depth + 1) for item in cast("list[object]", value)]
    return _json_scalar(value)


def _json_scalar(value: object) -> object:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise ValueError(f"holds {reprlib.repr(value)}, which is not JSON")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise _unlike("text", value)
    return clean_text(value)


def _integer(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _unlike("a whole number", value)
    if value not in _BIGINT:
        raise ValueError("is beyond 64 bits")
    return value


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise _unlike("true or false", value)
    return value


def _time(value: object) -> datetime:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise _unlike("a time with its zone", value)
    try:
        return value.astimezone(timezone.utc)
    except OverflowError:
        raise ValueError(f"is beyond the calendar: {value}") from None


def _unlike(wanted: str, value: object) -> ValueError:
    return ValueError(f"is {reprlib.repr(value)}, not {wanted}")


_CLEANERS: dict[type[sa.types.TypeEngine[Any]], Callable[[object], Any]] = {
    sa.Text: _text,
    sa.BigInteger: _integer,
    sa.Boolean: _boolean,
    UtcDateTime: _time,
    sa.JSON: clean_json,
}


class _Field(NamedTuple):
    name: str
    nullable: bool
    clean: Callable[[object], Any]


@cache
def _fields(table: sa.Table, without: frozenset[str]) -> tuple[_Field, ...]:
    columns = (column for column in table.columns if column.key not in without)
    return tuple(_Field(column.key, bool(column.nullable), _CLEANERS[type(column.type)]) for column in columns)


def clean_row(table: sa.Table, row: Mapping[str, Any], *, without: frozenset[str] = frozenset()) -> Row:
    """Return a row with every column of the table (but those in `without`), each value as the store keeps it.

    Raises:
        RowRejected: A value does not fit its column.
        ValueError: The row has a column that the table does not have.
    """
    cleaned = {field.name: _clean_value(table, row, field) for field in _fields(table, without)}
    unknown = row.keys() - cleaned.keys()
    if unknown:
        raise ValueError(f"table {table.name} takes no column {', '.join(sorted(unknown))}")
    return cleaned


def _clean_value(table: sa.Table, row: Mapping[str, Any], field: _Field) -> Any:  # noqa: ANN401  (as columns are)
    value = row.get(field.name)
    if value is None:
        if field.nullable:
            return None
        raise RowRejected(table.name, row.get("id"), field.name, "must be known")
    try:
        return field.clean(value)
    except ValueError as problem:
        raise RowRejected(table.name, row.get("id"), field.name, str(problem)) from None
