"""The checkpoint of `verifications`: what is known of a repository's workflow runs, and its JSON form. No logic."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from bandsync_dagster.collection.moments import from_text, required, to_text


@dataclass(frozen=True, slots=True)
class Relist:
    """A listing of the re-run horizon under way: what is left of it, and when it began."""

    since: datetime
    until: datetime
    started: datetime

    @classmethod
    def load(cls, saved: Mapping[str, Any]) -> "Relist":
        """Read what `dump` wrote."""
        return cls(*(required(saved[name]) for name in ("since", "until", "started")))

    def dump(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        return {name: to_text(getattr(self, name)) for name in ("since", "until", "started")}


@dataclass(frozen=True, slots=True)
class Refresh:
    """Which of the unfinished runs a sync has asked for: those up to a place, in their order, or all of them."""

    sync: int
    until: tuple[datetime, int] | None

    @classmethod
    def load(cls, saved: Mapping[str, Any]) -> "Refresh":
        """Read what `dump` wrote."""
        until = saved["until"]
        return cls(saved["sync"], (required(until[0]), until[1]) if until else None)

    def dump(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        return {"sync": self.sync, "until": [to_text(self.until[0]), self.until[1]] if self.until else None}


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a repository's runs are known.

    Attributes:
        upper: The newest second of the covered interval; None before any run was seen.
        lower: Its oldest second; one second after `upper` while the interval is empty.
        bottom: Whether no run is older.
        relisted: When the last complete listing of the re-run horizon began.
        relist: One that was begun and is not complete.
        refresh: What a sync that has not ended asked of the runs that were unfinished before it.
        etags: The head page's ETag as each token last saw it, by fingerprint: ETags are token specific.
        head_since: Its oldest second: everything newer is on it. None when it held every run there is.
        overfull: Seconds that hold more runs than GitHub returns.
        gone: Unfinished runs that GitHub doesn't know any more.
        page_size: How many runs to ask for at once.
    """

    upper: datetime | None = None
    lower: datetime | None = None
    bottom: bool = False
    relisted: datetime | None = None
    relist: Relist | None = None
    refresh: Refresh | None = None
    etags: Mapping[str, str] = field(default_factory=dict[str, str])
    head_since: datetime | None = None
    overfull: frozenset[datetime] = frozenset()
    gone: frozenset[int] = frozenset()
    page_size: int | None = None

    @classmethod
    def load(cls, position: Mapping[str, Any]) -> "Progress":
        """Read what `dump` wrote."""
        return cls(
            upper=from_text(position["upper"]),
            lower=from_text(position["lower"]),
            bottom=bool(position["bottom"]),
            relisted=from_text(position["relisted"]),
            relist=Relist.load(position["relist"]) if position["relist"] else None,
            refresh=Refresh.load(position["refresh"]) if position.get("refresh") else None,
            etags=dict(position["etags"]),
            head_since=from_text(position["head_since"]),
            overfull=frozenset(required(text) for text in position["overfull"]),
            gone=frozenset(position["gone"]),
            page_size=position["page_size"],
        )

    def dump(self) -> dict[str, Any]:
        """Return it as a checkpoint holds it."""
        return {
            "upper": to_text(self.upper),
            "lower": to_text(self.lower),
            "bottom": self.bottom,
            "relisted": to_text(self.relisted),
            "relist": self.relist.dump() if self.relist else None,
            "refresh": self.refresh.dump() if self.refresh else None,
            "etags": dict(self.etags),
            "head_since": to_text(self.head_since),
            "overfull": sorted(second.isoformat() for second in self.overfull),
            "gone": sorted(self.gone),
            "page_size": self.page_size,
        }
