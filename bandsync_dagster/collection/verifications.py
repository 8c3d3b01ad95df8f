"""Collects workflow runs: one covered interval of creation times, grown forward to the present, then into history.

    head page, with its ETag      304: nothing new, and that is all
    forward                       windows between the interval and the head page, oldest first
    horizon, once a day           what may have been run again is listed again: a re-run keeps its creation time
    unfinished                    stored runs that were not completed are asked one by one
    backward                      windows below the interval, newest first, down to `history_days`

How a window is listed without a hole is in `listing`; requests and parsing live in `github`.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from bandsync_dagster.collection.archived import ends_as_final, mark_final
from bandsync_dagster.collection.listing import Listing, recognised
from bandsync_dagster.collection.moments import SECOND, days_before, settled_before
from bandsync_dagster.collection.pages import PageSize, ask_adaptively
from bandsync_dagster.collection.run_progress import Progress, Refresh, Relist
from bandsync_dagster.collection.scan import Scan
from bandsync_dagster.collection.windows import CAP, Window, span_for
from bandsync_dagster.github.errors import Forbidden, GitHubError, NotFound, TransientError
from bandsync_dagster.github.models import Verification
from bandsync_dagster.github.rest import RunPage, fetch_repository, fetch_run, fetch_runs
from bandsync_dagster.store.queries import UnfinishedVerification, unfinished_verifications

# A run may be run again up to 30 days after its first run (GitHub docs: re-running workflows and jobs).
RERUN_HORIZON = timedelta(days=30)
RELIST_EVERY = timedelta(days=1)
# A run lasts 35 days at most, waiting included (GitHub docs: usage limits of GitHub Actions). One that is older and
# still not completed is asked once a day only.
LONGEST_RUN = timedelta(days=36)
# Pages smaller than this don't help a server that fails.
SMALLEST_PAGE = 10
# Fingerprints whose ETags are remembered: more tokens than anybody uses for one repository.
MOST_ETAGS = 50


class UnsplittableSecond(GitHubError):
    """More runs were created within one second than GitHub returns for any listing: the rest can't be had."""

    def __init__(self, full_name: str, seconds: Sequence[datetime]) -> None:
        named = ", ".join(f"{second:%Y-%m-%dT%H:%M:%SZ}" for second in seconds)
        super().__init__(
            f"{full_name}: more workflow runs were created within one second than the 1,000 GitHub returns for a "
            f"listing, and a second can't be split: {named}. The first 1,000 of each and everything else are stored"
        )
        self.seconds = tuple(seconds)


async def collect_verifications(scan: Scan) -> None:
    """Collect a repository's workflow runs, going on from `scan.position`.

    Raises:
        UnsplittableSecond: Everything was collected but for a second that holds too many runs.
    """
    if await ends_as_final(scan):
        return
    walk = _Walk(scan)
    try:
        await walk.forward()
    except (NotFound, Forbidden) as error:
        await _make_sure_it_is_disabled(scan, error)
        return
    await walk.retry_overfull()
    await walk.relist()
    await walk.refresh_unfinished()
    await walk.backward()
    await walk.finish()


async def _make_sure_it_is_disabled(scan: Scan, error: NotFound | Forbidden) -> None:
    """End as disabled if the repository can be read and only its runs can't; otherwise raise the error.

    Where Actions are disabled, some hosts answer as if there were no runs, and others that there is no such thing.
    """
    if isinstance(error, Forbidden) and "disabled" not in str(error).lower():
        raise error
    found = await fetch_repository(scan.client, scan.repository.full_name)
    scan.recognise(found.id, found.full_name)
    scan.outcome("disabled", f"GitHub Actions is disabled in this repository: {error}")


class _Walk:
    """One sync's way through a repository's runs."""

    def __init__(self, scan: Scan) -> None:
        self._scan = scan
        self._progress = Progress.load(scan.position) if scan.position else Progress()
        self._listing = Listing(scan, PageSize(self._progress.page_size, smallest=SMALLEST_PAGE))
        # Runs this sync has already from GitHub: no need to ask for them one by one.
        self._seen: set[int] = set()
        # Runs that may still change.
        self._going_on: set[int] = set()
        self._listed_horizon = False

    async def forward(self) -> None:
        """Take the head page; if it doesn't reach the covered interval, list what lies between."""
        asked_at = self._scan.clock()
        page = await self._head()
        if not page.modified:
            return
        self._note_total(page)
        await self._put(page.verifications)
        if page.verifications:
            await self._join(page, asked_at - self._scan.client.skew)
        # Only now: a 304 to this ETag has to mean that nothing is missing up to the head page.
        await self._put([], etags=self._etags(page))

    async def _join(self, page: RunPage, now: datetime) -> None:
        """Extend the interval to the head page's newest settled second, and downward if the page reaches below it.

        `now` is when the page was asked for, by GitHub's clock.
        """
        newest, oldest = page.verifications[0].created_at, page.verifications[-1].created_at
        # Never beyond what GitHub has shown.
        settled = min(settled_before(now), newest)
        if self._progress.upper is None:
            self._move(upper=settled, lower=settled + SECOND, relisted=now)
        if page.next is not None:
            await self._close_gap(oldest, settled)
        self._raise_upper(settled)
        if page.next is None:
            self._move(bottom=True, head_since=None, relisted=now)
        else:
            self._move(head_since=oldest, lower=min(self._lower, oldest + SECOND))

    async def _close_gap(self, until: datetime, settled: datetime) -> None:
        """List what was created after the interval and up to the head page, oldest first, so that it stays whole."""
        async for piece in self._listing.walk(Window(self._upper + SECOND, until), oldest_first=True):
            if piece.done:
                self._raise_upper(min(piece.window.until, settled))
            await self._put(piece.runs)

    async def retry_overfull(self) -> None:
        """Look again at seconds that held too many runs: some may have been deleted or have expired."""
        for second in sorted(self._progress.overfull):
            if not await self._listing.is_overfull(second):
                async for piece in self._listing.walk(Window(second, second)):
                    await self._put(piece.runs)
                self._move(overfull=self._progress.overfull - {second})
                await self._put([])

    async def relist(self) -> None:
        """List the re-run horizon again if it is due, or go on with a listing that was cut off."""
        relist = self._progress.relist or self._due(self._scan.clock())
        if relist is None:
            return
        async for piece in self._listing.walk(Window(relist.since, relist.until)):
            if piece.down_to is not None:
                relist = replace(relist, until=piece.down_to - SECOND)
                self._move(relist=relist)
            await self._put(piece.runs)
        self._listed_horizon = True
        await self._put([], relist=None, relisted=relist.started)

    def _due(self, now: datetime) -> Relist | None:
        """Return what to list again, if it is time: maybe nothing, as what the head page shows is fresh already."""
        progress = self._progress
        if progress.relisted is None or now - progress.relisted < RELIST_EVERY:
            return None
        since = max(self._lower, progress.relisted - RERUN_HORIZON)
        return Relist(since, progress.head_since or since - SECOND, started=now)

    async def refresh_unfinished(self) -> None:
        """Ask for each stored run that was not completed, unless this sync or the head page told already."""
        stored = await self._scan.read(unfinished_verifications, self._scan.repository.id)
        self._move(gone=self._progress.gone & {run.id for run in stored})
        self._going_on |= {run.id for run in stored} - self._seen - self._progress.gone
        for run in self._not_asked_for(stored):
            if run.id not in self._seen and run.id not in self._progress.gone and self._worth_asking(run):
                self._move(refresh=Refresh(self._scan.sync.id, (run.created_at, run.id)))
                await self._refresh(run.id)
        if self._history() is not None:
            self._move(refresh=Refresh(self._scan.sync.id, None))

    def _not_asked_for(self, stored: Sequence[UnfinishedVerification]) -> Sequence[UnfinishedVerification]:
        """Leave out what this sync asked for before it was deferred."""
        done = self._progress.refresh
        if done is None or done.sync != self._scan.sync.id:
            return stored
        return [] if done.until is None else [run for run in stored if (run.created_at, run.id) > done.until]

    def _worth_asking(self, run: UnfinishedVerification) -> bool:
        head_since = self._progress.head_since
        if head_since is None or run.created_at > head_since:
            return False
        age = self._scan.clock() - (run.run_started_at or run.created_at)
        return age < LONGEST_RUN or self._listed_horizon

    async def _refresh(self, run_id: int) -> None:
        repository = self._scan.repository
        try:
            run = await fetch_run(self._scan.client, repository.full_name, run_id, repository_id=repository.id)
        except NotFound:
            # The repository was readable a moment ago: the run alone is gone, and its row stays as it is.
            self._going_on.discard(run_id)
            await self._put([], gone=self._progress.gone | {run_id})
        else:
            await self._put([run])

    async def backward(self) -> None:
        """List what lies before the interval, newest first."""
        history = self._history()
        if history is None:
            return
        async for piece in self._listing.walk(history):
            if piece.down_to is not None:
                self._move(lower=piece.down_to)
            elif piece.done:
                self._move(bottom=True)
            if piece.done and piece.down_to == history.since:
                self._move(refresh=None)
            await self._put(piece.runs)

    def _history(self) -> Window | None:
        """Return what lies before the interval and is wanted, None if nothing is."""
        if self._progress.bottom or self._progress.upper is None:
            return None
        floor = days_before(self._scan.clock(), self._scan.options.history_days)
        history = Window(floor, self._lower - SECOND)
        return None if history.empty else history

    async def finish(self) -> None:
        """Note what was learnt; don't let a second that can't be split pass for success."""
        self._scan.note(page_size=self._listing.size.size)
        if self._progress.refresh is not None:
            await self._put([], refresh=None)
        if (self._progress.bottom or self._progress.upper is None) and not self._going_on:
            await mark_final(self._scan, self._progress.dump())
        overfull = self._progress.overfull | self._listing.overfull
        if overfull:
            raise UnsplittableSecond(self._scan.repository.full_name, sorted(overfull))

    async def _head(self) -> RunPage:
        """Ask for the newest runs, with the ETag of the last time."""
        repository = self._scan.repository
        etags = self._progress.etags

        async def ask(count: int) -> RunPage:
            return await fetch_runs(
                self._scan.client,
                repository.full_name,
                repository_id=repository.id,
                per_page=count,
                etag=etags.get,
            )

        return recognised(self._scan, await ask_adaptively(ask, self._listing.size, choking=TransientError))

    def _note_total(self, page: RunPage) -> None:
        """Remember the total, and how dense the runs lie, if they won't fit one listing."""
        self._scan.note(github_total=page.total, github_total_exact=page.exact)
        runs = page.verifications
        if runs and (not page.exact or page.total - len(runs) >= CAP):
            self._listing.span = span_for(len(runs), runs[0].created_at - runs[-1].created_at)

    def _etags(self, page: RunPage) -> dict[str, str]:
        """Return the ETags known by token, with the one that came with the head page."""
        latest = {} if page.etag is None else {page.fingerprint: page.etag}
        return dict([*{**self._progress.etags, **latest}.items()][-MOST_ETAGS:])

    @property
    def _upper(self) -> datetime:
        return _given(self._progress.upper)

    @property
    def _lower(self) -> datetime:
        return _given(self._progress.lower)

    def _raise_upper(self, settled: datetime) -> None:
        self._move(upper=max(self._upper, settled))

    def _move(self, **changed: Any) -> None:  # noqa: ANN401  (fields of Progress)
        self._progress = replace(self._progress, **changed)

    async def _put(self, runs: Sequence[Verification], **changed: Any) -> None:  # noqa: ANN401  (fields of Progress)
        """Hand over runs, and with them the checkpoint as it is now."""
        self._seen.update(run.id for run in runs)
        self._going_on.difference_update(run.id for run in runs)
        self._going_on.update(run.id for run in runs if run.status != "completed")
        size, overfull = self._listing.size.size, self._progress.overfull | self._listing.overfull
        self._move(page_size=size, overfull=overfull, **changed)
        await self._scan.put(runs, position=self._progress.dump())


def is_relist_due(progress: Progress, now: datetime) -> bool:
    """Whether the re-run horizon is to be listed again, and has runs in it that the head page doesn't show."""
    if progress.relisted is None or progress.head_since is None or now - progress.relisted < RELIST_EVERY:
        return False
    return progress.head_since >= progress.relisted - RERUN_HORIZON


def _given(moment: datetime | None) -> datetime:
    if moment is None:
        raise ValueError("no interval is covered yet")
    return moment
