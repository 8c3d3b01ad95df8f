"""Workers as a run's process is one: they collect the real stages over HTTP, and may be killed at a chosen moment."""

import itertools
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import sqlalchemy as sa

from bandsync_dagster.collection.collector import Collector, RunIdentity, StageOptions, StageResult
from bandsync_dagster.collection.outage import BACKOFF
from bandsync_dagster.collection.pipeline import PipelineOptions
from bandsync_dagster.collection.run_progress import Progress
from bandsync_dagster.collection.scan import Scan
from bandsync_dagster.collection.stages import ALGORITHMS, Algorithm
from bandsync_dagster.github.auth import PersonalToken
from bandsync_dagster.github.client import GitHubClient
from bandsync_dagster.github.quota import MemoryLedger, QuotaLedger
from bandsync_dagster.simulator import DEFAULT_TOKEN
from bandsync_dagster.store.engine import create_store_engine
from bandsync_dagster.store.schema import STAGES
from bandsync_dagster_tests.collection.commits import strike_at
from bandsync_dagster_tests.collection.simulated import START

# Page sizes with which a small repository has several pages of everything, as if remembered from an earlier sync.
SMALL_PAGES: dict[str, dict[str, Any]] = {
    "changes": {"page_size": 5},
    "verifications": Progress(page_size=10).dump(),
    "jobs": {"suites": 6, "page_size": 10},
}


def die() -> None:
    """End this process as `kill -9` does: nothing is cleaned up."""
    os.kill(os.getpid(), signal.SIGKILL)


class _Network(httpx.AsyncHTTPTransport):
    """The network; something happens after each answer."""

    def __init__(self, after_answer: Callable[[], None]) -> None:
        # Without TLS: reading all certificates takes longer than everything else here.
        super().__init__(verify=False)
        self._after_answer = after_answer

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request."""
        response = await super().handle_async_request(request)
        self._after_answer()
        return response


def in_small_pages(stage: str) -> Algorithm:
    """Return a stage's algorithm, which begins a repository with small pages."""

    async def collect(scan: Scan) -> None:
        scan.position = scan.position or SMALL_PAGES[stage]
        await ALGORITHMS[stage](scan)

    return collect


@dataclass
class Worker:
    """Collects repositories as a run does, one stage after the other, at the moment `START`.

    Attributes:
        engine: The store.
        github_url: Where GitHub is.
        after_answer: Called after each of GitHub's answers.
        ledger: What the quota is kept in.
        backoff: Seconds between attempts to write.
    """

    engine: sa.Engine
    github_url: str
    after_answer: Callable[[], None] = lambda: None
    ledger: QuotaLedger = field(default_factory=MemoryLedger)
    backoff: tuple[float, ...] = BACKOFF

    def __call__(self, name: str, run: str) -> list[StageResult]:
        """Collect all stages of a repository."""
        collector = Collector(
            engine=self.engine,
            make_client=self._client,
            clock=lambda: START,
            pipeline=PipelineOptions(max_size=100, queue_size=1000, backoff=self.backoff),
            algorithms={stage: in_small_pages(stage) for stage in STAGES},
        )
        return [collector.collect(stage, name, RunIdentity(run, run), StageOptions()) for stage in STAGES]

    def _client(self) -> GitHubClient:
        return GitHubClient(
            base_url=self.github_url,
            credentials=[PersonalToken(DEFAULT_TOKEN)],
            ledger=self.ledger,
            clock=lambda: START,
            share=0.0,
            transport=_Network(self.after_answer),
        )


def collect_until_answer(database_url: str, github_url: str, name: str, number: int) -> None:
    """Collect in this process, which dies when GitHub has answered the n-th request, counted from 0."""
    answers = itertools.count()
    after_answer = lambda: die() if next(answers) == number else None  # noqa: E731
    Worker(create_store_engine(database_url), github_url, after_answer)(name, "run-1")


def collect_until_commit(database_url: str, github_url: str, name: str, number: int, *, after: bool) -> None:
    """Collect in this process, which dies at the n-th commit."""
    engine = create_store_engine(database_url)
    strike_at(engine, number, die, after=after)
    Worker(engine, github_url)(name, "run-1")
