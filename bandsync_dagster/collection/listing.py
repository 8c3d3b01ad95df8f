"""Lists every workflow run created in a window of time, however many there are, without a hole.

A window with more runs than GitHub returns for one listing is cut by time. Within a window the listing goes on by
creation time, never by page number: each answer is complete in itself down to its oldest second, so runs that arrive
or are deleted between two answers shift nothing. Page numbers are used only inside a single second that fills a page.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from bandsync_dagster.collection.moments import SECOND
from bandsync_dagster.collection.pages import PageSize, ask_adaptively
from bandsync_dagster.collection.scan import Scan
from bandsync_dagster.collection.windows import CAP, Window, adapted, half, narrowed
from bandsync_dagster.github.errors import ServerError, TransientError
from bandsync_dagster.github.models import Verification
from bandsync_dagster.github.rest import RunPage, fetch_runs


@dataclass(frozen=True, slots=True)
class Slice:
    """Runs that came together, and what is complete with them.

    Attributes:
        runs: Newest first.
        window: The window they were asked for.
        down_to: The window is complete from its end down to this second; None while nothing is claimed.
        done: Whether the window is complete altogether; then `down_to` is its `since`.
    """

    runs: Sequence[Verification]
    window: Window
    down_to: datetime | None = None
    done: bool = False


class Listing:
    """Lists windows of one repository's runs.

    Attributes:
        size: How many runs to ask for at once.
        span: How long a window to ask for; None tries the whole.
        overfull: Seconds met that hold more runs than GitHub returns.
    """

    def __init__(self, scan: Scan, size: PageSize) -> None:
        self.size = size
        self.span: timedelta | None = None
        self.overfull: set[datetime] = set()
        self._scan = scan

    async def walk(self, window: Window, *, oldest_first: bool = False) -> AsyncIterator[Slice]:
        """List a window in parts, from its end, or from its beginning if it has one; each part newest first."""
        rest: Window | None = window
        while rest is not None and not rest.empty:
            part, beyond = self._cut(rest, oldest_first=oldest_first)
            page = await self._ask(part)
            if holds_too_many(page) and not part.one_second:
                yield Slice(page.verifications, part)
                # The runs on the page are the newest: they tell nothing of the other end.
                self.span = half(part) if oldest_first else _narrowed(part, page)
                continue
            async for piece in self._down(part, page):
                yield piece
            self.span = adapted(self.span, part, page.total) if self.span else None
            rest = beyond

    async def is_overfull(self, second: datetime) -> bool:
        """Ask whether a second still holds more runs than GitHub returns."""
        too_many = holds_too_many(await self._ask(Window(second, second)))
        if too_many:
            self.overfull.add(second)
        return too_many

    def _cut(self, window: Window, *, oldest_first: bool) -> tuple[Window, Window | None]:
        if self.span is None:
            return window, None
        return window.oldest(self.span) if oldest_first else window.newest(self.span)

    async def _down(self, part: Window, page: RunPage) -> AsyncIterator[Slice]:
        """List a part that GitHub returns in full, given its first page."""
        until = part.until
        while page.total > len(page.verifications):
            oldest = page.verifications[-1].created_at
            if oldest < until:
                yield Slice(page.verifications, part, oldest + SECOND)
                until = oldest
            else:
                yield Slice(await self._second(until), part, until, done=until == part.since)
                until -= SECOND
            if part.since is not None and until < part.since:
                return
            page = await self._ask(Window(part.since, until))
        yield Slice(page.verifications, part, part.since, done=True)

    async def _second(self, second: datetime) -> Sequence[Verification]:
        """List a second that fills more than a page; all GitHub returns of it if even that isn't all."""

        async def ask(count: int) -> Sequence[Verification]:
            return await self._numbered_pages(Window(second, second), count)

        return await ask_adaptively(ask, self.size, choking=TransientError)

    async def _numbered_pages(self, window: Window, per_page: int) -> Sequence[Verification]:
        """List a window page by page; ServerError if it changed meanwhile, because then pages may have shifted."""
        found: dict[int, Verification] = {}
        totals: set[int] = set()
        for number in range(1, CAP // per_page + 1):
            page = await self._fetch(window, per_page, number)
            found.update((run.id, run) for run in page.verifications)
            totals.add(page.total)
            if holds_too_many(page):
                self.overfull.add(window.until)
            if page.next is None or not page.verifications:
                break
        complete = len(totals) == 1 and len(found) >= max(totals)
        if not complete and window.until not in self.overfull:
            raise ServerError(f"GET workflow runs created at {window.until.isoformat()}: they change while listed")
        return list(found.values())

    async def _ask(self, window: Window) -> RunPage:
        """Ask for the newest runs of a window."""

        async def ask(count: int) -> RunPage:
            page = await self._fetch(window, count, 1)
            if page.total and not page.verifications:
                raise ServerError(f"GET workflow runs: GitHub counts {page.total} and returns none")
            return page

        return await ask_adaptively(ask, self.size, choking=TransientError)

    async def _fetch(self, window: Window, per_page: int, number: int) -> RunPage:
        repository = self._scan.repository
        page = await fetch_runs(
            self._scan.client,
            repository.full_name,
            repository_id=repository.id,
            created=(window.since, window.until),
            per_page=per_page,
            page=number,
        )
        return recognised(self._scan, page)


def recognised(scan: Scan, page: RunPage) -> RunPage:
    """Return the page, having made sure that its runs are of the repository being collected."""
    if page.repository_id is not None:
        scan.recognise(page.repository_id)
    return page


def holds_too_many(page: RunPage) -> bool:
    """Whether GitHub would not return all of it, or doesn't know: a lower bound is never taken for a total."""
    return not page.exact or page.total >= CAP


def _narrowed(window: Window, page: RunPage) -> timedelta:
    runs = page.verifications
    return narrowed(window, runs[0].created_at, runs[-1].created_at, len(runs))
