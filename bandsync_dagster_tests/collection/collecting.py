"""Collecting from the small GitHub into a database, as the assets do, and looking at what that left behind."""

from collections.abc import Awaitable, Callable
from typing import Any

import sqlalchemy as sa

from bandsync_dagster.collection.collector import Collector, RunIdentity, StageOptions, StageResult
from bandsync_dagster.collection.pipeline import PipelineOptions
from bandsync_dagster.collection.scan import Scan
from bandsync_dagster.store.queries import checkpoint
from bandsync_dagster.store.schema import changes, repositories, syncs
from bandsync_dagster.store.spool import Spool
from bandsync_dagster_tests.collection.small_github import ROWS_PER_PAGE, SmallGitHub, collect_pages
from bandsync_dagster_tests.store.builders import REPOSITORY, stored

PAGES = 6
FIRST = RunIdentity("run-1", "run-1")
SECOND = RunIdentity("run-2", "run-1", predecessor="run-1")

Algorithm = Callable[[Scan], Awaitable[None]]


class Collecting:
    """Collects `changes` of one repository into a database, as the asset does."""

    def __init__(self, engine: sa.Engine, github: SmallGitHub) -> None:
        self.engine = engine
        self.github = github
        self.spool: Spool | None = None
        self.pipeline = PipelineOptions(max_size=4, max_age=3600.0, queue_size=8)

    def __call__(
        self,
        algorithm: Algorithm | None = None,
        run: RunIdentity = FIRST,
        *,
        name: str = "acme/pool",
        **options: object,
    ) -> StageResult:
        """Collect once, with a new collector and a new client."""
        collector = Collector(
            engine=self.engine,
            make_client=self.github.client,
            clock=self.github.time.clock,
            pipeline=self.pipeline,
            spool=self.spool,
            algorithms={"changes": algorithm or collect_pages(PAGES)},
            sleep=self.github.time.sleep_briefly,
            pulse=self.github.time.pulse,
        )
        return collector.collect("changes", name, run, StageOptions(**options))  # pyright: ignore[reportArgumentType]

    @property
    def rows(self) -> list[int]:
        """The numbers of the stored changes."""
        return [row["number"] for row in stored(self.engine, changes)]

    @property
    def syncs(self) -> list[dict[str, Any]]:
        """All syncs."""
        return stored(self.engine, syncs)

    @property
    def position(self) -> dict[str, Any] | None:
        """The checkpoint."""
        return checkpoint(self.engine, REPOSITORY, "changes")

    @property
    def repositories(self) -> dict[int, tuple[str, str]]:
        """Name and state of each stored repository."""
        return {row["id"]: (row["full_name"], row["state"]) for row in stored(self.engine, repositories)}

    def assert_agreed(self) -> None:
        """Rows, counters and checkpoint tell the same story."""
        rows = stored(self.engine, changes)
        for sync in self.syncs:
            parts = sync["records_created"] + sync["records_updated"] + sync["records_unchanged"]
            assert sync["records_collected"] == parts
            assert sync["records_created"] == sum(row["first_sync_id"] == sync["id"] for row in rows)
        covered = (self.position or {"next": 0})["next"] * ROWS_PER_PAGE
        assert set(range(covered)) <= set(self.rows)


def all_rows(pages: int = PAGES) -> list[int]:
    """Return the numbers of all changes on so many pages."""
    return list(range(pages * ROWS_PER_PAGE))
