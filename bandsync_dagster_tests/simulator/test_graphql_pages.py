"""Value cursors and pages, as a model of a list that moves under its reader."""

import base64
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bandsync_dagster.simulator.graphql_errors import FaultError
from bandsync_dagster.simulator.graphql_pages import Bounds, Order, Page, decode, encode, paginate

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
TYPES = (datetime, int)
Row = tuple[datetime, int]
ASCENDING, DESCENDING = (Order(lambda row: row, TYPES, descending) for descending in (False, True))
ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 2**63)), unique=True).map(
    lambda pairs: sorted((START + timedelta(seconds=second), number) for second, number in pairs)
)


def page(rows: list[Row], order: Order, **bounds: object) -> Page:
    """Return one page of rows that stand for themselves."""
    return paginate(rows, order, Bounds(**bounds), lambda row: row)


@given(st.integers(0, 2**64 - 1), st.datetimes(timezones=st.just(timezone.utc)), st.text(max_size=50))
def test_a_cursor_gives_its_key_back(number: int, time: datetime, text: str) -> None:
    """Encoding loses nothing."""
    assert decode(encode((time, number)), (datetime, int)) == (time, number)
    assert decode(encode((text, number)), (str, int)) == (text, number)


def test_a_cursor_is_spelled_as_githubs_are() -> None:
    """Base64 of `cursor:v2:` and a msgpack array."""
    assert encode((7,)) == "Y3Vyc29yOnYyOpHPAAAAAAAAAAc="


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda raw: encode((0,))[:14] + raw.hex()))
def test_anything_else_is_no_cursor(text: str) -> None:
    """A cursor that GitHub did not make is refused in its words, whatever it is."""
    with pytest.raises(FaultError, match="does not appear to be a valid cursor") as refused:
        decode(text, TYPES)
    assert refused.value.type == "INVALID_CURSOR_ARGUMENTS"


@pytest.mark.parametrize("time", ["2026-01-01T00:00:00", "yesterday", ""])
def test_a_cursor_with_no_moment_in_it_is_refused(time: str) -> None:
    """A key that is no aware time is not one of the list's keys."""
    with pytest.raises(FaultError):
        decode(encode((time, 1)), TYPES)


def test_a_cursor_with_something_behind_it_is_refused() -> None:
    """A cursor ends with its key."""
    with pytest.raises(FaultError):
        decode(base64.b64encode(base64.b64decode(encode((START, 1))) + b"x").decode(), TYPES)


@pytest.mark.parametrize("types", [(int,), (str, int, int), (datetime, str)])
def test_a_cursor_of_another_kind_of_list_is_refused(types: tuple[type, ...]) -> None:
    """The key must have the parts of the list's own keys."""
    with pytest.raises(FaultError):
        decode(encode((START, 1)), types)


@given(ROWS, st.integers(1, 4), st.booleans())
def test_walking_forward_gives_every_row_once_in_order(rows: list[Row], size: int, descending: bool) -> None:
    """`first` with `after` reads the whole list."""
    order = DESCENDING if descending else ASCENDING
    seen: list[Row] = []
    found = page(rows, order, first=size)
    while found.nodes:
        seen += found.nodes
        assert found.has_next == (len(seen) < len(rows))
        found = page(rows, order, first=size, after=found.end_cursor)
    assert seen == (rows[::-1] if descending else rows)


@given(ROWS, st.integers(1, 4), st.booleans())
def test_walking_backward_gives_every_row_once(rows: list[Row], size: int, descending: bool) -> None:
    """`last` with `before` reads the whole list from its end, each page in the list's own order."""
    order = DESCENDING if descending else ASCENDING
    seen: list[Row] = []
    found = page(rows, order, last=size)
    while found.nodes:
        seen = [*found.nodes, *seen]
        assert found.has_previous == (len(seen) < len(rows))
        found = page(rows, order, last=size, before=found.start_cursor)
    assert seen == (rows[::-1] if descending else rows)


@given(ROWS, ROWS, st.data())
def test_a_cursor_stays_valid_while_rows_move(before: list[Row], after: list[Row], data: st.DataObject) -> None:
    """A stored cursor means its place in the order, also when its row is gone and others came."""
    if not before:
        return
    row = data.draw(st.sampled_from(before))
    found = page(after, ASCENDING, first=100, after=encode(row))
    assert list(found.nodes) == [other for other in after if other > row]


@given(ROWS, st.data())
def test_edges_carry_the_cursor_of_their_own_row(rows: list[Row], data: st.DataObject) -> None:
    """Reading on after any edge starts with the row behind it."""
    edges = page(rows, ASCENDING, first=100).edges
    if not edges:
        return
    number = data.draw(st.integers(0, len(edges) - 1))
    following = page(rows, ASCENDING, first=1, after=edges[number].cursor).nodes
    assert list(following) == rows[number + 1 : number + 2]


@pytest.mark.parametrize(
    ("bounds", "kind", "message"),
    [
        (Bounds(), "MISSING_PAGINATION_BOUNDARIES", "You must provide a `first` or `last` value to properly paginate"),
        (Bounds(first=1, last=1), "AMBIGUOUS_PAGINATION", "Passing both `first` and `last`"),
        (Bounds(first=101), "EXCESSIVE_PAGINATION", "Requesting 101 records on the `x` connection exceeds the `first`"),
        (Bounds(last=101), "EXCESSIVE_PAGINATION", "exceeds the `last` limit of 100 records"),
        (Bounds(last=-1), "INVALID_PAGINATION", "`last` on the `x` connection cannot be less than zero"),
    ],
)
def test_wrong_bounds_are_refused_in_githubs_words(bounds: Bounds, kind: str, message: str) -> None:
    """Each wrong page size has an error type of its own."""
    with pytest.raises(FaultError, match=message) as refused:
        bounds.check("x")
    assert refused.value.type == kind
