"""One collection, driven from outside as a person would drive it in the Dagster UI.

It discovers, launches a run for each repository and follows them to the end. What a run does is none of its business.
"""

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from bandsync_dagster.cli.errors import BrokenOffError, CommandError
from bandsync_dagster.cli.facts import NO_FACTS, read_facts, read_what_can_be
from bandsync_dagster.cli.forecasting import forecast_cost
from bandsync_dagster.cli.interrupts import Interrupts
from bandsync_dagster.cli.local import POLL_SECONDS, UNFINISHED, Local
from bandsync_dagster.cli.progress import Display
from bandsync_dagster.cli.report import ROWS_SHOWN, Report, Row, build_report
from bandsync_dagster.cli.tracking import Track, track, tracks
from bandsync_dagster.cli.webserver import Launch, Run
from bandsync_dagster.collection.outage import persist_here
from bandsync_dagster.collection.scan import StageOptions
from bandsync_dagster.store.schema import STAGES
from bandsync_dagster.store.syncs import Sync
from bandsync_dagster.tags import COLLECTION, COLLECTION_JOB, COVERAGE_JOB, DISCOVERY_JOB, PARTITION
from bandsync_dagster.wording import counted

# Dagster's own: ends a run that takes longer, in seconds.
_MAX_RUNTIME: Final = "dagster/max_runtime"

# A poll may take at most this share of the time, so that watching a large collection does not slow it down.
_POLL_SHARE: Final = 0.2


@dataclass(frozen=True)
class Plan:
    """What is collected, and how.

    Attributes:
        options: How the stages are collected.
        max_runtime: Seconds after which a repository's run is ended.
        forecast: Whether to ask first what it will cost.
        id: Tells the collection's runs from all others.
    """

    options: StageOptions
    max_runtime: int
    forecast: bool = False
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])

    @property
    def tags(self) -> dict[str, str]:
        """The tag that all runs of the collection share; successors of deferred runs inherit it."""
        return {COLLECTION: self.id}

    def discovery(self) -> Launch:
        """Launch the listing of the sources."""
        return Launch(DISCOVERY_JOB, self.tags)

    def coverage(self) -> Launch:
        """Launch the final count of what was reached."""
        return Launch(COVERAGE_JOB, self.tags)

    def repository(self, key: str) -> Launch:
        """Launch the collection of one repository."""
        tags = {**self.tags, PARTITION: key, _MAX_RUNTIME: str(self.max_runtime)}
        # The other options reach the runs by their environment, as for runs that somebody launches in the UI.
        config = {"full_refresh": self.options.full_refresh}
        return Launch(COLLECTION_JOB, tags, {"ops": {stage: {"config": config} for stage in STAGES}})


class Collection:
    """Carries a plan out. Every wait ends at once when somebody asks to stop."""

    def __init__(
        self,
        plan: Plan,
        local: Local,
        display: Display,
        interrupts: Interrupts,
    ) -> None:
        self._plan = plan
        self._local = local
        self._webserver = local.webserver
        self._processes = local.processes
        self._engine = local.services.engine
        self._display = display
        self._interrupts = interrupts
        self._clock = local.services.clock
        self._facts = NO_FACTS

    def run(self) -> Report:
        """Collect, and say how it ended.

        Raises:
            CommandError: The sources cannot be read, or one of Dagster's processes ended.
            Interrupted: Somebody asked to stop.
            StoreError: The database stayed away, so that nobody knows how it ended.
        """
        keys, listing_requests = self._discover()
        told = forecast_cost(self._local.services, self._plan.options, keys) if self._plan.forecast else None
        self._launch(keys)
        tracked, syncs = self._follow(keys)
        report = self._explain(build_report(tracked, syncs, self._display.elapsed, told, listing_requests))
        self._count_coverage()
        return report

    def cancel(self) -> int:
        """End every run of the collection, wait until the workers have written what they fetched; count the runs."""
        return self._local.end_runs(
            self._interrupts,
            tags=self._plan.tags,
            statuses=UNFINISHED,
            show=lambda alive: self._display.show(
                f"Stopping; {counted(alive, 'run', 'runs')} left to store what was fetched"
            ),
        )

    def _discover(self) -> tuple[list[str], int]:
        """Have the sources listed; return the keys of the repositories they mean now, and the requests it took."""
        self._webserver.launch([self._plan.discovery()])
        run = self._await_job(DISCOVERY_JOB, "Listing the repositories")
        events = self._webserver.events(run.id)
        if run.status != "SUCCESS":
            raise CommandError(failure_text(events))
        return listed(events)

    def _await_job(self, job: str, phase: str) -> Run:
        """Follow the runs of an unpartitioned job until the last one ended."""
        for runs in self._polls(lambda runs: self._show(phase, runs=runs)):
            followed = track([run for run in runs if run.job == job])
            if followed.latest and followed.standing.is_final:
                return followed.latest
        raise AssertionError("polling ends only by returning or raising")

    def _launch(self, keys: Sequence[str]) -> None:
        launches = [self._plan.repository(key) for key in keys]
        next_look = self._clock()
        while launches:
            self._processes.ensure_alive()
            self._interrupts.pause(0)
            launched = self._webserver.launch(launches)
            launches = launches[len(launched) :]
            if (before := self._clock()) >= next_look:
                runs = self._webserver.runs(self._plan.tags)
                self._show("Collecting", tracked=tracks(keys, runs), runs=runs)
                next_look = self._clock() + (self._clock() - before) / _POLL_SHARE

    def _follow(self, keys: Sequence[str]) -> tuple[Mapping[str, Track], Sequence[Sync]]:
        """Watch until every repository has come to an end; return how it did."""
        tracked: Mapping[str, Track] = {}

        def show(runs: Sequence[Run]) -> None:
            nonlocal tracked
            tracked = tracks(keys, runs)
            self._show("Collecting", tracked=tracked, runs=runs)

        for runs in self._polls(show):
            if all(followed.standing.is_final for followed in tracked.values()):
                return tracked, self._final_syncs(runs)
        raise AssertionError("polling ends only by returning or raising")

    def _final_syncs(self, runs: Sequence[Run]) -> Sequence[Sync]:
        """Return the syncs as they ended. What was read before the database went away does not say that."""
        if self._facts.trouble is None:
            return self._facts.syncs
        reading = partial(read_facts, self._engine, _roots(runs), self._clock())
        return persist_here(reading, pause=self._interrupts.pause).syncs

    def _explain(self, report: Report) -> Report:
        """Have Dagster say why runs failed that could not note it in the database: it was away or full, as a rule."""
        unexplained = [row for row in report.rows if row.is_unexplained][:ROWS_SHOWN]
        failures = {row.key: self._failure(row) for row in unexplained}
        return replace(report, rows=[replace(row, failure=failures.get(row.key)) for row in report.rows])

    def _failure(self, row: Row) -> str | None:
        run = row.track.latest
        return failure_text(self._webserver.events(run.id)) if run else None

    def _count_coverage(self) -> None:
        """Bring the `coverage` asset up to date, for whoever looks at it in the Dagster UI later."""
        self._webserver.launch([self._plan.coverage()])
        self._await_job(COVERAGE_JOB, "Counting what was reached")

    def _polls(self, show: Callable[[Sequence[Run]], object]) -> Iterator[Sequence[Run]]:
        """Yield the collection's runs again and again, each time after showing them."""
        while True:
            before = self._clock()
            self._processes.ensure_alive()
            runs = self._webserver.runs(self._plan.tags)
            show(runs)
            yield runs
            took = (self._clock() - before).total_seconds()
            self._interrupts.pause(max(POLL_SECONDS, took / _POLL_SHARE))

    def _show(self, phase: str, *, tracked: Mapping[str, Track] | None = None, runs: Sequence[Run] = ()) -> None:
        self._facts = read_what_can_be(self._engine, _roots(runs), self._clock(), last=self._facts)
        self._display.show(phase, tracked, self._facts)


def _roots(runs: Sequence[Run]) -> list[str]:
    return [run.id for run in runs if run.parent is None]


def failure_text(events: Sequence[Mapping[str, Any]]) -> str:
    """Return why a run failed, in the words of whoever raised the failure."""
    for event in events:
        if event["__typename"] == "ExecutionStepFailureEvent":
            described = (event.get("failureMetadata") or {}).get("description")
            return described or _cause(event.get("error") or {}) or "the run failed without saying why"
    return next(
        (event["message"] for event in reversed(events) if event["__typename"] == "RunFailureEvent"),
        "the run was cancelled",
    )


def _cause(error: Mapping[str, Any]) -> str:
    """Return what was raised; around it Dagster says only that the step failed, or that its retries are over."""
    chain = error.get("errorChain") or []
    message = chain[0]["error"]["message"] if chain else error.get("message") or ""
    return message.strip()


def listed(events: Sequence[Mapping[str, Any]]) -> tuple[list[str], int]:
    """Return the keys that a discovery listed and the requests it sent, from the metadata of its materialization."""
    entries = {entry["label"]: entry for event in events for entry in event.get("metadataEntries", [])}
    if "keys" not in entries:
        raise BrokenOffError("The discovery ended without saying which repositories there are.")
    return json.loads(entries["keys"]["jsonString"]), entries["requests"]["intValue"]
