"""What a value must be to be stored, and what is taken out of strings."""

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bandsync_dagster.store.errors import RowRejected
from bandsync_dagster.store.rows import clean_json, clean_row, clean_text
from bandsync_dagster.store.schema import changes, jobs
from bandsync_dagster.store.writes import SYNC_COLUMNS
from bandsync_dagster_tests.store.builders import NOW, change, job

# Every code point, surrogates and NUL included.
ANY_TEXT = st.text(st.characters(exclude_categories=()))
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | ANY_TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner),
    max_leaves=20,
)


def nested(levels: int) -> list[Any]:
    """Return a list in a list in a list."""
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def cleaned(**fields: Any) -> dict[str, Any]:
    """Clean a change with these fields."""
    return clean_row(changes, change(1, **fields), without=SYNC_COLUMNS)


@pytest.mark.parametrize(
    ("given_text", "kept"),
    [
        ("plain", "plain"),
        ("a\x00b", "ab"),
        ("\ud83d", ""),
        ("a\udc00b\x00", "ab"),
        ("\N{ROCKET}", "\N{ROCKET}"),
        ("", ""),
    ],
)
def test_only_what_no_database_takes_is_removed(given_text: str, kept: str) -> None:
    """NUL and lone surrogates go; an emoji, which is no surrogate in Python, stays."""
    assert clean_text(given_text) == kept


@given(ANY_JSON)
def test_any_json_becomes_what_postgresql_takes(value: object) -> None:
    """At any depth, in values and in keys: afterwards everything encodes to UTF-8 and has no NUL."""
    text = json.dumps(clean_json(value), ensure_ascii=False)
    text.encode("utf-8")
    assert "\\u0000" not in text
    assert "\x00" not in text


@given(ANY_JSON)
def test_cleaning_twice_is_cleaning_once(value: object) -> None:
    """What was stored and read back compares equal to the next version of itself."""
    once = clean_json(value)
    assert clean_json(once) == once
    assert json.loads(json.dumps(once)) == once


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("number", "7", "is '7', not a whole number"),
        ("number", 7.0, "is 7.0, not a whole number"),
        ("number", True, "is True, not a whole number"),
        ("number", 2**63, "is beyond 64 bits"),
        ("number", -(2**63) - 1, "is beyond 64 bits"),
        ("number", None, "must be known"),
        ("title", 5, "is 5, not text"),
        ("title", b"x", "is b'x', not text"),
        ("title", ["x" * 1000], ", not text"),
        ("draft", 1, "is 1, not true or false"),
        ("created_at", "2026-01-01T00:00:00Z", "not a time with its zone"),
        ("created_at", datetime(2026, 1, 1), "not a time with its zone"),  # noqa: DTZ001
        ("created_at", datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5))), "is beyond the calendar"),
        ("labels", None, "must be known"),
        ("labels", [float("nan")], "holds nan, which is not JSON"),
        ("labels", [{"at": NOW}], "which is not JSON"),
        ("labels", {1, 2}, "which is not JSON"),
        ("labels", nested(65), "is nested deeper than 64 levels"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_name(column: str, value: object, said: str) -> None:
    """The error names the table, the row, the column and the problem, in one line of bounded length."""
    with pytest.raises(RowRejected) as refused:
        cleaned(**{column: value})
    message = str(refused.value)
    assert message.startswith(f"changes row 3000000001: column {column} ")
    assert said in message
    assert len(message) < 200
    assert "\n" not in message
    assert (refused.value.table, refused.value.row_id, refused.value.column) == ("changes", 3_000_000_001, column)


@pytest.mark.parametrize("column", ["author_login", "reviews", "merged_at", "author_is_bot"])
def test_what_may_be_unknown_may_be_none(column: str) -> None:
    """Nullable columns of every type take None, and no other column does."""
    assert cleaned(**{column: None})[column] is None


def test_times_are_turned_into_utc() -> None:
    """A time with another offset is the same moment in UTC."""
    row = cleaned(created_at=datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))))
    assert row["created_at"] == datetime(2026, 1, 1, tzinfo=timezone.utc)
    assert row["created_at"].tzinfo is timezone.utc


def test_limits_of_64_bits_fit() -> None:
    """The largest and the smallest BIGINT are themselves."""
    assert cleaned(number=2**63 - 1)["number"] == 2**63 - 1
    assert cleaned(number=-(2**63))["number"] == -(2**63)


def test_a_tuple_is_stored_as_the_list_it_becomes() -> None:
    """JSON has no tuples: comparing with what is stored must not see a difference."""
    assert cleaned(labels=("a", "b"))["labels"] == ["a", "b"]


def test_a_row_has_every_column() -> None:
    """A column left out is unknown, where that is allowed."""
    row = job(1)
    del row["steps"]
    assert clean_row(jobs, row, without=SYNC_COLUMNS)["steps"] is None
    del row["name"]
    with pytest.raises(RowRejected, match="column name must be known"):
        clean_row(jobs, row, without=SYNC_COLUMNS)


def test_a_column_the_table_does_not_have_is_the_callers_mistake() -> None:
    """A misspelt name is no bad data: it is a `ValueError`, which names it."""
    with pytest.raises(ValueError, match="table changes takes no column tilte"):
        cleaned(tilte="x")
