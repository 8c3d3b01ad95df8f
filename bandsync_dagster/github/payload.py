"""Reading GitHub's answers strictly: each field has the documented type, or a PayloadError names it.

No endpoint and no row class belongs here; those are in `rest` and `graphql`.
"""

import json
import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, NoReturn, cast

from bandsync_dagster.github.errors import PayloadError

_ABSENT = object()
_LARGEST_ID = 2**63 - 1
# One form for all Python versions: `datetime.fromisoformat` took week dates and more from 3.11 on.
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:?\d\d)", re.ASCII)
_FIRST_REAL_YEAR = 2000
# What GitHub allows in a name; "." and ".." would change the path they stand in.
_FULL_NAME = re.compile(r"(?!\.\.?/)[A-Za-z0-9._-]+/(?!\.\.?\Z)[A-Za-z0-9._-]+")


def decode(body: bytes) -> Any:  # noqa: ANN401 - JSON is anything
    """Return what the JSON in `body` says.

    Raises:
        ValueError: It is not JSON: cut, HTML, another encoding, or nested deeper than anything GitHub sends.
    """
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None


class Fields:
    """A JSON object, with where it was found. Reading a field checks it."""

    __slots__ = ("_values", "endpoint", "path")

    def __init__(self, endpoint: str, path: str, value: object) -> None:
        self.endpoint = endpoint
        self.path = path
        if not isinstance(value, Mapping):
            raise PayloadError(endpoint, path or "(whole answer)", f"should be an object, not {_kind(value)}")
        self._values = cast("Mapping[str, Any]", value)

    def __contains__(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self._values.get(name) is not None

    def name(self, field: str) -> str:
        """Return the full path of a field."""
        return f"{self.path}.{field}" if self.path else field

    def fail(self, field: str, problem: str) -> NoReturn:
        """Raise a PayloadError about a field."""
        raise PayloadError(self.endpoint, self.name(field), problem)

    def integer(self, field: str) -> int:
        """Return a whole number that fits the 64 bits of the database's."""
        value = self._required(field)
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(field, f"should be an integer, not {_kind(value)}")
        if abs(value) > _LARGEST_ID:
            self.fail(field, "does not fit into 64 bits")
        return value

    def big_integer(self, field: str) -> int:
        """Return a GraphQL BigInt, which GitHub encodes as a string of digits."""
        value = self._required(field)
        if not isinstance(value, str):
            return self.integer(field)
        if not re.fullmatch(r"-?\d{1,19}", value, re.ASCII) or abs(int(value)) > _LARGEST_ID:
            self.fail(field, "should be an integer of at most 64 bits in a string")
        return int(value)

    def text(self, field: str) -> str:
        """Return a string."""
        value = self._required(field)
        if not isinstance(value, str):
            self.fail(field, f"should be a string, not {_kind(value)}")
        return value

    def full_name(self, field: str) -> str:
        """Return the full name of a repository, fit to be asked for."""
        value = self.text(field)
        if not _FULL_NAME.fullmatch(value):
            self.fail(field, "should be the name of a repository, such as owner/name")
        return value

    def boolean(self, field: str) -> bool:
        """Return true or false."""
        value = self._required(field)
        if not isinstance(value, bool):
            self.fail(field, f"should be true or false, not {_kind(value)}")
        return value

    def time(self, field: str) -> datetime:
        """Return a time with an offset, in UTC."""
        moment = _parse_time(self.text(field))
        if moment is None:
            self.fail(field, "should be a time with an offset, such as 2026-01-31T12:00:00Z")
        return moment

    def fields(self, field: str) -> "Fields":
        """Return an object."""
        return Fields(self.endpoint, self.name(field), self._required(field))

    def items(self, field: str) -> list[Any]:
        """Return a list, its elements unchecked."""
        value = self._required(field)
        if not isinstance(value, list):
            self.fail(field, f"should be a list, not {_kind(value)}")
        return cast("list[Any]", value)

    def objects(self, field: str) -> list["Fields"]:
        """Return a list of objects."""
        return [
            Fields(self.endpoint, f"{self.name(field)}[{index}]", value)
            for index, value in enumerate(self.items(field))
        ]

    def texts(self, field: str) -> list[str]:
        """Return a list of strings."""
        values = self.items(field)
        for index, value in enumerate(values):
            if not isinstance(value, str):
                self.fail(f"{field}[{index}]", f"should be a string, not {_kind(value)}")
        return values

    def optional_integer(self, field: str) -> int | None:
        """Return a whole number, or None where GitHub has none."""
        return self.integer(field) if field in self else None

    def optional_text(self, field: str) -> str | None:
        """Return a string, or None where GitHub has none."""
        return self.text(field) if field in self else None

    def optional_boolean(self, field: str) -> bool | None:
        """Return true or false, or None where GitHub says neither."""
        return self.boolean(field) if field in self else None

    def optional_time(self, field: str) -> datetime | None:
        """Return a time, or None where GitHub has none.

        Steps and check runs that never started carry `0001-01-01T00:00:00Z` instead of null.
        """
        moment = self.time(field) if field in self else None
        return moment if moment is not None and moment.year >= _FIRST_REAL_YEAR else None

    def optional_fields(self, field: str) -> "Fields | None":
        """Return an object, or None where GitHub has none."""
        return self.fields(field) if field in self else None

    def optional_texts(self, field: str) -> list[str] | None:
        """Return a list of strings, or None where GitHub has none."""
        return self.texts(field) if field in self else None

    def _required(self, field: str) -> Any:  # noqa: ANN401 - JSON is anything
        value = self._values.get(field, _ABSENT)
        if value is _ABSENT:
            self.fail(field, "is missing")
        if value is None:
            self.fail(field, "is null")
        return value


def _kind(value: object) -> str:
    names: dict[type, str] = {
        type(None): "null",
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "a string",
        list: "a list",
    }
    return names.get(type(value), "an object")


def _parse_time(text: str) -> datetime | None:
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    day, clock, fraction, offset = match.groups()
    offset = "+00:00" if offset in "Zz" else offset
    offset = offset if ":" in offset else f"{offset[:3]}:{offset[3:]}"
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}.{(fraction or '')[:6]:0<6}{offset}")
        return moment.astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return None
