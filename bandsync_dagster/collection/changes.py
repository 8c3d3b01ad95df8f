"""Collects pull requests: one covered interval of the feed they form when ordered by update, oldest first.

    beginning of the feed                                                               its end, now
    ────────────────────────[ lower ═════════ covered ═════════ upper ]─────────────────▶
             walked backward, newest first ◀──┘                └──▶ walked forward, first

GitHub's cursors encode the sort key and the id, so a saved one stays valid although its row moves on. A change that is
touched leaves its old place and turns up again at the end of the feed: whichever way the walk goes, nothing is missed.
Requests and parsing live in `github`; this module decides which page to ask for next and what may be claimed then.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from bandsync_dagster.collection.archived import ends_as_final, mark_final
from bandsync_dagster.collection.moments import days_before, from_text, settled_before, to_text
from bandsync_dagster.collection.pages import PageSize, ask_adaptively
from bandsync_dagster.collection.scan import Scan
from bandsync_dagster.github.errors import QueryTooLarge, RequestRefused, ServerError
from bandsync_dagster.github.graphql import ChangePage, fetch_changes
from bandsync_dagster.github.models import Change

# The first look forward asks for a third of a page: labels, reviews and commits are one connection each per change,
# so this is the most that costs 1 point (GitHub docs: rate limits and query limits for the GraphQL API).
PROBE = 33
# How often a single change that comes back null is asked for before it is left for the next sync.
GAP_ATTEMPTS = 3
# So many of them, and it isn't single changes.
MOST_GAPS = 5
# How many cursors may be refused in one sync before it isn't the cursor.
MOST_RESTARTS = 2


@dataclass(frozen=True, slots=True)
class Covered:
    """The part of the feed known to be stored completely.

    Attributes:
        upper: Cursor of its newest row; None when it ends at the very beginning of the feed.
        upper_at: When that row was updated.
        lower: Cursor of its oldest row.
        lower_at: When that row was updated.
        bottom: Whether there is nothing before it.
    """

    upper: str | None
    upper_at: datetime | None
    lower: str | None
    lower_at: datetime | None
    bottom: bool

    @classmethod
    def load(cls, position: Mapping[str, Any]) -> "Covered":
        """Read what `dump` wrote."""
        return cls(
            position["upper"],
            from_text(position["upper_at"]),
            position["lower"],
            from_text(position["lower_at"]),
            bool(position["bottom"]),
        )

    def dump(self) -> dict[str, Any]:
        """Return it as a checkpoint holds it."""
        return {
            "upper": self.upper,
            "upper_at": to_text(self.upper_at),
            "lower": self.lower,
            "lower_at": to_text(self.lower_at),
            "bottom": self.bottom,
        }

    def reaches(self, floor: datetime | None) -> bool:
        """Whether nothing is left to walk back to."""
        return self.bottom or (floor is not None and self.lower_at is not None and self.lower_at < floor)


def last_settled(changes: Sequence[Change], before: datetime) -> int | None:
    """Return the index of the newest row in the settled head of a page in feed order; None if not even the first is."""
    count = next((index for index, change in enumerate(changes) if change.updated_at > before), len(changes))
    return count - 1 if count else None


async def collect_changes(scan: Scan) -> None:
    """Collect a repository's pull requests, going on from `scan.position`.

    Raises:
        ServerError: Everything was collected but for changes that GitHub keeps returning as null.
    """
    if await ends_as_final(scan):
        return
    walk = _Walk(scan)
    await walk.fill_gaps()
    await walk.forward()
    await walk.backward()
    await walk.finish()


class _Walk:
    """One sync's way along the feed."""

    def __init__(self, scan: Scan) -> None:
        position = scan.position or {}
        self._scan = scan
        self._covered = Covered.load(position) if "upper" in position else None
        self._size = PageSize(position.get("page_size"))
        # Arguments that ask for one change each: those GitHub returned as null.
        self._gaps: list[dict[str, str | None]] = list(position.get("gaps", ()))
        self._restarts = 0

    async def fill_gaps(self) -> None:
        """Ask again for what came back null last time. What was touched since turns up forward anyway."""
        for gap in tuple(self._gaps):
            self._gaps.remove(gap)
            page = await self._alone(gap)
            await self._scan.put(page.changes, position=self._position())

    async def forward(self) -> None:
        """Walk to the end of the feed; the upper end follows as far as rows are settled."""
        if self._covered is None:
            await self._begin()
            return
        try:
            await self._advance(self._covered)
        except RequestRefused as refusal:
            self._count_restart(refusal)
            await self._begin()

    async def backward(self) -> None:
        """Walk towards the beginning, or as far as the history is wanted."""
        floor = days_before(self._scan.clock(), self._scan.options.history_days)
        while self._covered is not None and not self._covered.reaches(floor):
            await self._step_back(self._covered)

    async def finish(self) -> None:
        """Note what was learnt; don't let a gap pass for success."""
        self._scan.note(page_size=self._size.size)
        if self._scan.repository.has_pull_requests is False:
            self._scan.outcome("disabled", "pull requests are disabled in this repository")
        if self._covered is not None and self._covered.bottom and not self._gaps:
            await mark_final(self._scan, self._position())
        if self._gaps:
            raise self._gap_error()

    def _gap_error(self) -> ServerError:
        return ServerError(
            f"{self._scan.repository.full_name}: GitHub returned {len(self._gaps)} pull request(s) as null, "
            f"{GAP_ATTEMPTS} times each; what else was collected is stored, and the next sync asks for them again"
        )

    async def _begin(self) -> None:
        """Found the interval: its upper end is the newest settled row, found from the end of the feed."""
        self._covered = None
        before = None
        while self._covered is None:
            asked_at = self._scan.clock()
            page = await self._page("before", before)
            self._covered = _founded(page, self._settled(asked_at))
            await self._scan.put(page.changes, position=self._position())
            before = page.start_cursor if self._covered else self._moved_on(page.start_cursor, before)

    async def _advance(self, covered: Covered) -> None:
        """Walk forward from the interval's upper end."""
        after, at_most, settling = covered.upper, PROBE, True
        while True:
            asked_at = self._scan.clock()
            page = await self._page("after", after, at_most=at_most)
            if settling:
                settling = self._raise_upper(page, self._settled(asked_at))
            if page.changes:
                await self._scan.put(page.changes, position=self._position())
            if not page.has_next:
                return
            after, at_most = self._moved_on(page.end_cursor, after), self._size.largest

    def _settled(self, asked_at: datetime) -> datetime:
        """Return up to when rows were settled for a request sent then, by GitHub's clock."""
        return settled_before(asked_at - self._scan.client.skew)

    def _raise_upper(self, page: ChangePage, settled_at: datetime) -> bool:
        """Move the upper end over the settled rows of the page. False when it met one that isn't."""
        settled = last_settled(page.changes, settled_at)
        if self._covered is not None and settled is not None:
            upper_at = page.changes[settled].updated_at
            self._covered = replace(self._covered, upper=page.cursors[settled], upper_at=upper_at)
        return not page.changes or settled == len(page.changes) - 1

    async def _step_back(self, covered: Covered) -> None:
        try:
            await self._retreat(covered)
        except RequestRefused as refusal:
            await self._restart_backward(covered, refusal)

    async def _retreat(self, covered: Covered) -> None:
        """Take one page from below the interval's lower end."""
        page = await self._page("before", covered.lower)
        if page.has_previous:
            lower = self._moved_on(page.start_cursor, covered.lower)
        else:
            lower = page.start_cursor or covered.lower
        lower_at = page.changes[0].updated_at if page.changes else covered.lower_at
        self._covered = replace(covered, lower=lower, lower_at=lower_at, bottom=not page.has_previous)
        await self._scan.put(page.changes, position=self._position())

    async def _restart_backward(self, covered: Covered, refusal: RequestRefused) -> None:
        """GitHub doesn't take the lower end's cursor any more: walk back from the upper end again."""
        self._count_restart(refusal)
        if covered.lower == covered.upper:
            await self._begin()
        else:
            self._covered = replace(covered, lower=covered.upper)

    def _count_restart(self, refusal: RequestRefused) -> None:
        """Give up when even fresh cursors are refused: then it isn't the cursor."""
        self._restarts += 1
        if self._restarts > MOST_RESTARTS:
            raise refusal

    async def _page(self, direction: str, cursor: str | None, *, at_most: int = 100) -> ChangePage:
        """Ask for a page before or after the cursor; one that holds nulls in smaller pieces, down to the null alone."""
        page = await self._ask(direction, cursor, at_most)
        while page.missing and at_most > 1:
            at_most = max(1, min(at_most, self._size.size) // 2)
            page = await self._ask(direction, cursor, at_most)
        return await self._alone({direction: cursor}) if page.missing else page

    async def _alone(self, gap: dict[str, str | None]) -> ChangePage:
        """Ask for a single change, and again when it comes back null; a gap that stays is remembered."""
        [(direction, cursor)] = gap.items()
        page = await self._ask(direction, cursor, 1)
        for _ in range(GAP_ATTEMPTS - 1):
            if not page.missing:
                return page
            page = await self._ask(direction, cursor, 1)
        if page.missing:
            self._gaps.append(gap)
            if len(self._gaps) > MOST_GAPS:
                raise self._gap_error()
        return page

    async def _ask(self, direction: str, cursor: str | None, at_most: int) -> ChangePage:
        async def ask(count: int) -> ChangePage:
            scan = self._scan
            if direction == "after":
                return await fetch_changes(scan.client, scan.repository.full_name, first=count, after=cursor)
            return await fetch_changes(scan.client, scan.repository.full_name, last=count, before=cursor)

        page = await ask_adaptively(ask, self._size, choking=QueryTooLarge, at_most=at_most)
        self._scan.recognise(page.repository_id, page.full_name)
        self._scan.note(github_total=page.total, github_total_exact=True)
        return page

    def _moved_on(self, cursor: str | None, previous: str | None) -> str:
        """Return the next cursor; a walk that doesn't move would never end."""
        if cursor is None or cursor == previous:
            raise ServerError(
                f"POST /graphql (pull requests of {self._scan.repository.full_name}): GitHub says there are more, "
                "but gives no cursor to go on from"
            )
        return cursor

    def _position(self) -> dict[str, Any] | None:
        """Return the checkpoint; None before there is anything to claim."""
        if self._covered is None:
            return None
        return {**self._covered.dump(), "page_size": self._size.size, "gaps": [*self._gaps]}


def _founded(page: ChangePage, settled_at: datetime) -> Covered | None:
    """Return the interval that a page from the end of the feed founds; None if nothing on it is settled yet."""
    settled = last_settled(page.changes, settled_at)
    if settled is not None:
        upper_at, lower_at = page.changes[settled].updated_at, page.changes[0].updated_at
        return Covered(page.cursors[settled], upper_at, page.start_cursor, lower_at, not page.has_previous)
    return None if page.has_previous else Covered(None, None, None, None, bottom=True)
