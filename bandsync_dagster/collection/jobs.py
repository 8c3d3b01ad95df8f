"""Collects the jobs of workflow runs whose jobs of the current attempt are not stored, newest run first.

    first attempt, detail basic   by GraphQL, up to 100 check suites per request and point
    re-runs, detail full          by REST, one run per request: only REST knows a job's attempt, labels, runner, steps
    what GraphQL leaves out       (a null node) by REST, alone
    GraphQL forbidden             all by REST: there are tokens that may read jobs and no check suites

A run is done when its total is written, together with its jobs; nothing else is a checkpoint here. Which runs are
pending is the store's question, requests and parsing live in `github`.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from bandsync_dagster.collection.copies import with_copies
from bandsync_dagster.collection.pages import PageSize, ask_adaptively
from bandsync_dagster.collection.scan import Scan
from bandsync_dagster.github.errors import Forbidden, NotFound, QueryTooLarge, ServerError, TransientError
from bandsync_dagster.github.graphql import SuiteJobs, fetch_suite, fetch_suites
from bandsync_dagster.github.models import Job
from bandsync_dagster.github.rest import fetch_jobs, fetch_repository
from bandsync_dagster.store.queries import PendingVerification, pending_verifications

# When to ask again for jobs that had not finished under a finished run: at the next sync, then ever more rarely, then
# never. GitHub may lag behind, but some jobs stay unfinished for ever.
RETRY_AFTER = (
    timedelta(0),
    timedelta(minutes=10),
    timedelta(hours=1),
    timedelta(hours=6),
    timedelta(days=1),
    timedelta(days=3),
)
# A run lasts 35 days at most, waiting included (GitHub docs: usage limits of GitHub Actions).
LONGEST_RUN = timedelta(days=36)
# How many pending runs to read from the store at once.
CHUNK = 1000
# Pages of jobs smaller than this don't help a server that fails.
SMALLEST_PAGE = 10
# So many runs in a row that fail, and it isn't the runs.
MOST_FAILURES = 3


@dataclass(frozen=True, slots=True)
class RunJobs:
    """All jobs of a run that GitHub has, and the total it gave; none if it has the run no more."""

    run: PendingVerification
    jobs: Sequence[Job]
    total: int
    detail: str
    gone: bool = False
    # A check suite can lag behind its run.
    lagging: bool = False

    @property
    def settled(self) -> bool:
        """Whether nothing more is to be expected. A run that is gone may come back: Actions may have been disabled."""
        return not self.gone and not self.lagging and all(is_settled(job) for job in self.jobs)


async def collect_jobs(scan: Scan) -> None:
    """Collect the jobs of all pending runs of a repository.

    Raises:
        ServerError: Everything was collected but for runs whose jobs GitHub failed to return.
    """
    work = _Work(scan)
    batch: list[PendingVerification] = []
    async for run in _pending(scan):
        if not work.in_bulk(run):
            await work.by_rest(run)
            continue
        batch.append(run)
        if len(batch) >= work.batch_size:
            await work.by_graphql(batch)
            batch = []
    await work.by_graphql(batch)
    work.finish()


async def _pending(scan: Scan) -> AsyncIterator[PendingVerification]:
    """Yield all pending runs, newest first; each once, whatever is stored meanwhile."""
    before: tuple[datetime, int] | None = None
    now = scan.clock()
    while True:
        chunk = await scan.read(
            pending_verifications,
            scan.repository.id,
            now=now,
            limit=CHUNK,
            detail=scan.options.detail,
            since=scan.sync.started_at,
            before=before,
        )
        for run in chunk:
            yield run
        if len(chunk) < CHUNK:
            return
        before = (chunk[-1].created_at, chunk[-1].id)


def in_bulk(run: PendingVerification, detail: str) -> bool:
    """Whether GraphQL tells all that is wanted. It doesn't know the attempt of a job: there must have been one only."""
    return detail == "basic" and run.run_attempt == 1 and run.check_suite_node_id is not None


def is_settled(job: Job) -> bool:
    """Whether nothing more is to be expected of a job: some are completed before they have a conclusion."""
    return job.status == "completed" and job.conclusion is not None


def job_total(found: RunJobs, repository_id: int, now: datetime) -> dict[str, Any]:
    """Return the row that says a run's jobs are stored, and when to ask again if they had not all finished."""
    retry_at, retries = next_retry(found, now)
    return {
        "verification_id": found.run.id,
        "repository_id": repository_id,
        "run_attempt": found.run.run_attempt,
        "total": found.total,
        "detail": found.detail,
        "retry_at": retry_at,
        "retries": retries,
        "collected_at": now,
    }


def next_retry(found: RunJobs, now: datetime) -> tuple[datetime | None, int]:
    """Return when to ask again for a run's jobs, None for never, and how often that was done then."""
    run = found.run
    if run.status != "completed" and not found.gone:
        # Still going on: at the next sync, or daily once no run can last so long.
        stuck = now - (run.run_started_at or run.created_at) > LONGEST_RUN
        return now + timedelta(days=1 if stuck else 0), 0
    if found.settled or run.retries >= len(RETRY_AFTER):
        return None, run.retries
    return now + RETRY_AFTER[run.retries], run.retries + 1


def _in_suite(run: PendingVerification, jobs: Sequence[Job], suite: SuiteJobs) -> RunJobs:
    return RunJobs(run, jobs, suite.total, "basic", lagging=suite.status != "completed")


class _Work:
    """The requests of one sync."""

    def __init__(self, scan: Scan) -> None:
        position = scan.position or {}
        self._scan = scan
        self._suites = PageSize(position.get("suites"))
        self._page = PageSize(position.get("page_size"), smallest=SMALLEST_PAGE)
        self._failed: list[int] = []
        self._failures_in_a_row = 0
        self._sure = False
        self._bulk_forbidden = False

    @property
    def batch_size(self) -> int:
        """How many suites one query asks for at present."""
        return self._suites.size

    def in_bulk(self, run: PendingVerification) -> bool:
        """Whether to ask for a run's jobs together with those of others."""
        return not self._bulk_forbidden and in_bulk(run, self._scan.options.detail)

    async def by_graphql(self, runs: Sequence[PendingVerification]) -> None:
        """Collect the jobs of runs in bulk, in as many queries as GitHub needs."""
        left = runs
        while left and not self._bulk_forbidden:
            left = await self._some_by_graphql(left)
        for run in left:
            await self.by_rest(run)

    async def _some_by_graphql(self, runs: Sequence[PendingVerification]) -> Sequence[PendingVerification]:
        """Collect the jobs of as many of the runs as one query can ask for; return those that are left."""
        try:
            answers = await self._ask_suites(runs)
        except QueryTooLarge:
            # Not even one suite: REST pages through a run's jobs.
            await self.by_rest(runs[0])
            return runs[1:]
        except Forbidden:
            self._forbid_bulk()
            return runs
        await self._take(runs[: len(answers)], answers)
        return runs[len(answers) :]

    def _forbid_bulk(self) -> None:
        """Ask for no check suite any more. Whether the jobs may be read at all is for REST to say.

        Noted for whoever wonders at a request for each run; not remembered beyond this collection, because somebody may
        grant it, and asking costs one point.
        """
        self._bulk_forbidden = True
        self._scan.note(bulk="forbidden")

    async def _ask_suites(self, runs: Sequence[PendingVerification]) -> list[SuiteJobs | None]:
        async def ask(count: int) -> list[SuiteJobs | None]:
            some = [(str(run.check_suite_node_id), run.id) for run in runs[:count]]
            suites = dict(some)
            repository = self._scan.repository
            answers = await fetch_suites(
                self._scan.client, suites, repository_id=repository.id, full_name=repository.full_name
            )
            jobs = dict(zip(suites, answers, strict=True))
            # Should two runs claim one suite, it can't tell whose its jobs are.
            return [jobs[suite] if suites[suite] == run_id else None for suite, run_id in some]

        return await ask_adaptively(ask, self._suites, choking=QueryTooLarge, at_most=len(runs))

    async def _take(self, runs: Sequence[PendingVerification], answers: Sequence[SuiteJobs | None]) -> None:
        """Put what came complete in one go; then ask on for what didn't, run by run."""
        whole: list[RunJobs] = []
        paged: list[tuple[PendingVerification, SuiteJobs | None]] = []
        for run, answer in zip(runs, answers, strict=True):
            if answer is not None and answer.end_cursor is None and len(answer.jobs) >= answer.total:
                whole.append(_in_suite(run, answer.jobs, answer))
            else:
                paged.append((run, answer))
        await self._put(whole)
        for run, answer in paged:
            await self._complete(run, answer)

    async def _complete(self, run: PendingVerification, answer: SuiteJobs | None) -> None:
        """Page through the rest of a suite; where GitHub leaves a gap, REST has to help."""
        jobs = None if answer is None else await self._all_of(run, answer)
        if answer is None or jobs is None:
            await self.by_rest(run)
        else:
            await self._put([_in_suite(run, jobs, answer)])

    async def _all_of(self, run: PendingVerification, suite: SuiteJobs) -> Sequence[Job] | None:
        """Return all jobs of a suite, paging on beyond its first; None if GitHub left some out."""
        jobs = {job.id: job for job in suite.jobs}
        page: SuiteJobs | None = suite
        while page is not None and page.end_cursor is not None:
            page = await self._next_page(run, page)
            jobs.update((job.id, job) for job in (page.jobs if page else ()))
        return list(jobs.values()) if page is not None and len(jobs) >= page.total else None

    async def _next_page(self, run: PendingVerification, page: SuiteJobs) -> SuiteJobs | None:
        try:
            return await fetch_suite(
                self._scan.client,
                page.suite_node_id,
                run.id,
                repository_id=self._scan.repository.id,
                full_name=self._scan.repository.full_name,
                after=page.end_cursor,
            )
        except (QueryTooLarge, Forbidden):
            return None

    async def by_rest(self, run: PendingVerification) -> None:
        """Collect the jobs of all attempts of one run. One that fails doesn't keep the others back."""
        try:
            found = await self._all_attempts(run)
        except TransientError as error:
            self._remember_failure(run, error)
        else:
            self._failures_in_a_row = 0
            await self._put([found])

    async def _all_attempts(self, run: PendingVerification) -> RunJobs:
        async def ask(count: int) -> RunJobs:
            return await self._rest_pages(run, count)

        try:
            return await ask_adaptively(ask, self._page, choking=TransientError)
        except NotFound:
            await self._make_sure_of_repository()
            # This run alone is gone. What is stored of it stays.
            return RunJobs(run, [], 0, self._scan.options.detail, gone=True)

    async def _make_sure_of_repository(self) -> None:
        """A missing run means something only in the right repository: names are given anew. One look is enough."""
        if not self._sure:
            found = await fetch_repository(self._scan.client, self._scan.repository.full_name)
            self._scan.recognise(found.id)
            self._sure = True

    async def _rest_pages(self, run: PendingVerification, per_page: int) -> RunJobs:
        """Page through all jobs of a run; ServerError if they are fewer than GitHub counts."""
        repository, detail = self._scan.repository, self._scan.options.detail
        jobs: dict[int, Job] = {}
        number = 1
        while True:
            page = await fetch_jobs(
                self._scan.client,
                repository.full_name,
                run.id,
                repository_id=repository.id,
                full=detail == "full",
                per_page=per_page,
                page=number,
            )
            jobs.update((job.id, job) for job in page.jobs)
            if page.next is None:
                break
            number += 1
        if len(jobs) < page.total:
            raise ServerError(f"GET jobs of run {run.id}: GitHub counts {page.total} and returns {len(jobs)}")
        return RunJobs(run, with_copies(list(jobs.values())), page.total, detail)

    async def _put(self, found: Sequence[RunJobs]) -> None:
        """Hand over the jobs of runs with the totals that vouch for them."""
        now = self._scan.clock()
        rows = [job for each in found for job in each.jobs]
        totals = [job_total(each, self._scan.repository.id, now) for each in found]
        await self._scan.put(rows, position=self._position(), job_totals=totals)

    def _position(self) -> dict[str, Any]:
        return {"suites": self._suites.size, "page_size": self._page.size}

    def _remember_failure(self, run: PendingVerification, error: TransientError) -> None:
        """Leave the run for the next sync; give up when it isn't this run alone that fails."""
        self._failed.append(run.id)
        self._failures_in_a_row += 1
        if self._failures_in_a_row >= MOST_FAILURES:
            raise error

    def finish(self) -> None:
        """Note what was learnt; don't let a run without its jobs pass for success."""
        self._scan.note(batch_size=self._suites.size, page_size=self._page.size)
        if self._failed:
            raise ServerError(
                f"{self._scan.repository.full_name}: GitHub failed to return the jobs of {len(self._failed)} run(s), "
                f"{', '.join(map(str, self._failed[:20]))}; all others are stored, the next sync asks for these again"
            )
