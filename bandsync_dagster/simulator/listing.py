"""How REST lists things: pages, `Link` headers, and the `created` search syntax.

Sources: GitHub docs, "Using pagination in the REST API" and "Understanding the search syntax".
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from urllib.parse import urlencode

DEFAULT_PER_PAGE = 30
LARGEST_PAGE = 100

Interval = tuple[datetime | None, datetime | None]


@dataclass(frozen=True, slots=True)
class Page:
    """Which page of a list is asked for. Sizes beyond 100 are clamped, and nonsense counts as the default."""

    number: int
    size: int

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "Page":
        """Read `page` and `per_page`."""
        size = _number(query.get("per_page"), DEFAULT_PER_PAGE)
        return cls(max(1, _number(query.get("page"), 1)), min(max(1, size), LARGEST_PAGE))

    @property
    def start(self) -> int:
        """Position of its first item."""
        return (self.number - 1) * self.size

    @property
    def stop(self) -> int:
        """Position after its last item."""
        return self.number * self.size

    def links(self, url: str, query: Mapping[str, str], total: int) -> dict[str, str]:
        """Return the `Link` header of a list with this many items; a list of one page has none."""
        last = max(1, -(-total // self.size))
        targets = {"prev": self.number - 1, "next": self.number + 1, "last": last, "first": 1}
        wanted = {
            "prev": self.number > 1,
            "next": self.number < last,
            "last": self.number < last,
            "first": self.number > 1,
        }
        links = [
            f'<{url}?{urlencode({**query, "page": target})}>; rel="{name}"'
            for name, target in targets.items()
            if wanted[name]
        ]
        return {"link": ", ".join(links)} if links else {}


def _number(text: str | None, default: int) -> int:
    return int(text) if text is not None and text.isdecimal() else default


class NoInterval(ValueError):
    """A text that means no interval of time."""


def parse_created(text: str) -> Interval:
    """Return the interval that a `created` filter means, both ends included; None is an open end.

    Raises:
        NoInterval: The text is none of `A..B`, `A..*`, `*..B`, `>A`, `>=A`, `<A`, `<=A`, `A`.
    """
    try:
        return _interval(text)
    except (ValueError, OverflowError):
        raise NoInterval(text) from None


def _interval(text: str) -> Interval:
    first, separator, last = text.partition("..")
    if separator:
        return (None if first == "*" else _moment(first)[0]), (None if last == "*" else _moment(last)[1])
    match = re.fullmatch(r"(>=|<=|>|<|)(.+)", text)
    if match is None:
        raise ValueError(text)
    start, end = _moment(match[2])
    second = timedelta(seconds=1)
    ends: dict[str, Interval] = {
        ">=": (start, None),
        ">": (end + second, None),
        "<=": (None, end),
        "<": (None, start - second),
        "": (start, end),
    }
    return ends[match[1]]


def _moment(text: str) -> tuple[datetime, datetime]:
    """Return the first and last second of what a text names: a day, or a second."""
    if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        start = datetime.combine(date.fromisoformat(text), datetime.min.time(), timezone.utc)
        return start, start + timedelta(days=1, seconds=-1)
    # A plus sign that was not encoded arrives as a space.
    exact = datetime.fromisoformat(text.replace("Z", "+00:00").replace(" ", "+"))
    exact = exact.replace(tzinfo=exact.tzinfo or timezone.utc).astimezone(timezone.utc).replace(microsecond=0)
    return exact, exact
