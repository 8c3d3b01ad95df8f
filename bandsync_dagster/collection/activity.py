"""Which of many repositories have anything new, for next to nothing. Decides only; collecting is the stages' business.

Pull requests: the time of the latest update, 100 repositories for one point. Workflow runs: the head page with its
ETag, free where nothing is new (GitHub docs: best practices for using the REST API, "Use conditional requests").
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from bandsync_dagster.clock import Clock
from bandsync_dagster.collection.archived import is_final
from bandsync_dagster.collection.changes import Covered
from bandsync_dagster.collection.interruptible import outlast_cancellation
from bandsync_dagster.collection.pages import PageSize, ask_adaptively
from bandsync_dagster.collection.run_progress import Progress
from bandsync_dagster.collection.verifications import is_relist_due
from bandsync_dagster.github.client import GitHubClient
from bandsync_dagster.github.errors import AccessError, QueryTooLarge
from bandsync_dagster.github.graphql import MOST_ITEMS, Activity, fetch_activity
from bandsync_dagster.github.rest import RunPage, fetch_runs
from bandsync_dagster.store.activity import Look
from bandsync_dagster.store.queries import StoredRepository
from bandsync_dagster.store.schema import STAGES
from bandsync_dagster.store.standing import Standing

# Conditional requests in flight at once.
CONCURRENCY = 4

# What an hourly look found is good until the next one is due.
FRESH = timedelta(hours=1)


# Takes what was found: why each repository is worth collecting, by id, in a few words each and none where nothing is
# new; and when it was looked at.
Record = Callable[[Mapping[int, tuple[str, ...]], datetime], Awaitable[None]]


async def find_active(client: GitHubClient, standings: Sequence[Standing], *, clock: Clock, record: Record) -> None:
    """Find out which repositories have something new, or something left to do, and have it recorded.

    Asks GitHub only about those of which the store doesn't tell already: about pull requests in bulk, and about runs
    only where there is no news of pull requests either. What is found is recorded piece by piece, so that whoever
    begins anew after an error or a rate limit can go on with those that are missing.
    """
    now = clock()
    known = {standing.repository.id: known_reasons(standing, now) for standing in standings}
    quiet = [standing for standing in standings if not known[standing.repository.id] and not _is_final(standing)]
    for standing in quiet:
        del known[standing.repository.id]
    await record(known, now)
    size = PageSize()
    # As many as one point pays for.
    for start in range(0, len(quiet), MOST_ITEMS):
        await _look_at(client, quiet[start : start + MOST_ITEMS], size, now=clock(), record=record)


async def _look_at(
    client: GitHubClient, standings: Sequence[Standing], size: PageSize, *, now: datetime, record: Record
) -> None:
    """Ask GitHub about some repositories; whatever ends it, what was answered until then is recorded."""
    found: dict[int, tuple[str, ...]] = {}

    async def ask(standing: Standing) -> None:
        found[standing.repository.id] = ("new workflow runs",) if await _has_new_runs(client, standing) else ()

    try:
        for standing, activity in await fetch_activities(client, standings, size):
            if reasons := change_reasons(standing, activity):
                found[standing.repository.id] = reasons
        await _for_each([standing for standing in standings if standing.repository.id not in found], ask)
    finally:
        await outlast_cancellation(record(found, now))


def is_up_to_date(standing: Standing, look: Look | None, *, now: datetime) -> bool:
    """Whether there is certainly nothing to collect: decided from what is stored, without asking GitHub.

    That takes a fresh look that found nothing, or whose findings were all collected since, and a store that knows of
    nothing left to do. Whatever is not known is to be collected.
    """
    if look is None or now - look.checked_at >= FRESH or known_reasons(standing, now):
        return False
    return look.reasons is None or all(started >= look.checked_at for started in standing.completed.values())


def known_reasons(standing: Standing, now: datetime) -> tuple[str, ...]:
    """Return the reasons to collect that the store knows of."""
    return tuple(_known_reasons(standing, now))


def _known_reasons(standing: Standing, now: datetime) -> Iterator[str]:
    if len(standing.completed) < len(STAGES):
        yield "not collected completely"
    if standing.pending:
        yield f"{standing.pending} runs whose jobs are to be collected"
    if _is_final(standing):
        return
    if standing.unfinished:
        yield f"{standing.unfinished} runs that had not finished"
    if _may_have_been_run_again(standing, now):
        yield "daily look at runs that may have been run again"
    if _has_unsettled_changes(standing):
        yield "pull requests that were too young to be settled"


def _is_final(standing: Standing) -> bool:
    """Whether the repository is archived and collected completely since."""
    both = ("changes", "verifications")
    return standing.repository.archived and all(is_final(standing.positions.get(stage)) for stage in both)


def _may_have_been_run_again(standing: Standing, now: datetime) -> bool:
    position = standing.positions.get("verifications")
    return position is not None and is_relist_due(Progress.load(position), now)


def _has_unsettled_changes(standing: Standing) -> bool:
    position = standing.positions.get("changes")
    if position is None or standing.newest_change is None or "upper" not in position:
        return False
    upper_at = Covered.load(position).upper_at
    return upper_at is None or upper_at < standing.newest_change


def change_reasons(standing: Standing, activity: Activity | None) -> tuple[str, ...]:
    """Return why a repository is to be collected, judging by its pull requests."""
    if activity is None:
        # GitHub didn't say: collecting will tell.
        return ("GitHub did not tell its activity",)
    latest, stored = activity.change_updated_at, standing.newest_change
    if latest is None or (stored is not None and latest <= stored):
        return ()
    return ("new or changed pull requests",)


async def fetch_activities(
    client: GitHubClient, standings: Sequence[Standing], size: PageSize | None = None
) -> list[tuple[Standing, Activity | None]]:
    """Ask for the activity of repositories, 100 at a time unless `size` says less; None where GitHub doesn't tell."""
    found: list[Activity | None] = []
    size = size or PageSize()

    async def ask(count: int) -> list[Activity | None]:
        some = standings[len(found) : len(found) + count]
        return await fetch_activity(client, [standing.repository.node_id for standing in some])

    while len(found) < len(standings):
        found += await ask_adaptively(ask, size, choking=QueryTooLarge, at_most=len(standings) - len(found))
    return list(zip(standings, found, strict=True))


async def _has_new_runs(client: GitHubClient, standing: Standing) -> bool:
    try:
        page = await ask_head(client, standing.repository, Progress.load(standing.positions["verifications"]))
    except AccessError:
        # Why it can't be read is for the collection to find out, and to note.
        return True
    return page.modified


async def ask_head(client: GitHubClient, repository: StoredRepository, progress: Progress) -> RunPage:
    """Ask for the head page of a repository's runs just as its last sync did, so that the ETag is good."""
    return await fetch_runs(
        client,
        repository.full_name,
        repository_id=repository.id,
        per_page=PageSize(progress.page_size).size,
        etag=progress.etags.get,
    )


async def _for_each(standings: Sequence[Standing], ask: Callable[[Standing], Awaitable[None]]) -> None:
    """Ask about all, a few at a time. After the first error nothing more is asked; what was asked is waited for.

    It may be paid for.
    """
    left = deque(standings)

    async def work() -> None:
        try:
            while left:
                await ask(left.popleft())
        finally:
            left.clear()

    workers = [asyncio.ensure_future(work()) for _ in range(CONCURRENCY)]
    try:
        await asyncio.wait(workers)
    finally:
        for worker in workers:
            worker.cancel()
        outcomes = await asyncio.gather(*workers, return_exceptions=True)
    for error in filter(None, outcomes):
        raise error
