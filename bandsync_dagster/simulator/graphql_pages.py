"""Pages of GraphQL connections: value cursors, bounds and slices.

A cursor is the sort key and id of its row, not a position, so a stored one stays valid while rows come, go and move:
base64 of `cursor:v2:` and a msgpack array, as GitHub's are.
"""

import base64
import binascii
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

from bandsync_dagster.simulator.graphql_cost import PAGE_LIMIT
from bandsync_dagster.simulator.graphql_errors import FaultError

Key = tuple[Any, ...]

_MARK = b"cursor:v2:"
_ARRAY, _TEXT, _NUMBER = 0x90, 0xD9, 0xCF  # msgpack: fixarray, str 8, uint 64
_NUMBER_SIZE = 8


@dataclass(frozen=True, slots=True)
class Order:
    """How a connection is sorted: the key of an item (ending in its id), the types in the key, and the direction."""

    key: Callable[[Any], Key]
    types: tuple[type, ...]
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Bounds:
    """The arguments of one page, as asked for."""

    first: int | None = None
    last: int | None = None
    after: str | None = None
    before: str | None = None

    def check(self, connection: str) -> None:
        """Refuse what GitHub refuses: no bound, two bounds, one below 0 or above 100."""
        if self.first is None and self.last is None:
            raise FaultError(
                "MISSING_PAGINATION_BOUNDARIES",
                f"You must provide a `first` or `last` value to properly paginate the `{connection}` connection.",
            )
        if self.first is not None and self.last is not None:
            raise FaultError(
                "AMBIGUOUS_PAGINATION",
                f"Passing both `first` and `last` to paginate the `{connection}` connection is not supported.",
            )
        name, size = ("first", self.first) if self.first is not None else ("last", self.last or 0)
        if size < 0:
            raise FaultError(
                "INVALID_PAGINATION", f"`{name}` on the `{connection}` connection cannot be less than zero."
            )
        if size > PAGE_LIMIT:
            raise FaultError(
                "EXCESSIVE_PAGINATION",
                f"Requesting {size} records on the `{connection}` connection exceeds the `{name}` limit of "
                f"{PAGE_LIMIT} records.",
            )


@dataclass(frozen=True, slots=True)
class Edge:
    """One item and its cursor."""

    cursor: str
    node: Any


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a connection. `nodes` are what GraphQL sees, `items` what they were made of."""

    total: int
    nodes: Sequence[Any] = ()
    items: Sequence[Any] = ()
    order: Order | None = None
    has_next: bool = False
    has_previous: bool = False

    @property
    def edges(self) -> list[Edge]:
        """The nodes with a cursor each."""
        return [Edge(self._cursor(item), node) for item, node in zip(self.items, self.nodes, strict=True)]

    @property
    def start_cursor(self) -> str | None:
        """The cursor of the first item."""
        return self._cursor(self.items[0]) if self.items else None

    @property
    def end_cursor(self) -> str | None:
        """The cursor of the last item."""
        return self._cursor(self.items[-1]) if self.items else None

    def _cursor(self, item: Any) -> str:  # noqa: ANN401  (a record of any kind)
        return "" if self.order is None else encode(self.order.key(item))


def paginate(items: Sequence[Any], order: Order, bounds: Bounds, wrap: Callable[[Any], Any]) -> Page:
    """Cut one page out of `items`, which are in ascending order of `order.key`."""
    low, high = _between(items, order, bounds)
    if (bounds.first is not None) != order.descending:
        # Counted from the low end: `first` of an ascending list, or `last` of a descending one.
        size = bounds.last if order.descending else bounds.first
        high = min(high, low + (size or 0))
    else:
        size = bounds.first if order.descending else bounds.last
        low = max(low, high - (size or 0))
    part = items[low:high]
    more_above, more_below = high < len(items), low > 0
    if order.descending:
        part, more_above, more_below = part[::-1], more_below, more_above
    return Page(len(items), [wrap(item) for item in part], part, order, more_above, more_below)


def _between(items: Sequence[Any], order: Order, bounds: Bounds) -> tuple[int, int]:
    """Return the range of positions that the cursors leave."""
    above, below = (bounds.before, bounds.after) if order.descending else (bounds.after, bounds.before)
    low = 0 if above is None else bisect_right(items, decode(above, order.types), key=order.key)
    high = len(items) if below is None else bisect_left(items, decode(below, order.types), key=order.key)
    return low, max(low, high)


def encode(key: Key) -> str:
    """Write a sort key as a cursor."""
    return base64.b64encode(_MARK + bytes([_ARRAY + len(key)]) + b"".join(map(_pack, key))).decode()


def _pack(part: datetime | str | int) -> bytes:
    if isinstance(part, int):
        return bytes([_NUMBER]) + part.to_bytes(_NUMBER_SIZE, "big")
    text = (part.isoformat() if isinstance(part, datetime) else part).encode()[:255]
    return bytes([_TEXT, len(text)]) + text


def decode(cursor: str, types: tuple[type, ...]) -> Key:
    """Read a cursor back, or refuse it as GitHub does."""
    try:
        raw = base64.b64decode(cursor, validate=True)
        if not raw.startswith(_MARK):
            _reject()
        return _unpack(raw.removeprefix(_MARK), types)
    except (binascii.Error, ValueError, IndexError) as error:
        raise FaultError("INVALID_CURSOR_ARGUMENTS", f"`{cursor}` does not appear to be a valid cursor.") from error


def _reject() -> NoReturn:
    raise ValueError("not a cursor")


def _unpack(raw: bytes, types: tuple[type, ...]) -> Key:
    if raw[0] != _ARRAY + len(types):
        _reject()
    parts, position = [], 1
    for kind in types:
        part, position = _unpack_part(raw, position, kind)
        parts.append(part)
    if position != len(raw):
        _reject()
    return tuple(parts)


def _unpack_part(raw: bytes, position: int, kind: type) -> tuple[Any, int]:
    mark, position = raw[position], position + 1
    if kind is int and mark == _NUMBER and len(raw) >= position + _NUMBER_SIZE:
        return int.from_bytes(raw[position : position + _NUMBER_SIZE], "big"), position + _NUMBER_SIZE
    if kind is int or mark != _TEXT:
        _reject()
    end = position + 1 + raw[position]
    text = raw[position + 1 : end].decode()
    return _aware(text) if kind is datetime else text, end


def _aware(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        _reject()
    return time
