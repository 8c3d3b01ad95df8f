"""How a collection ended: a table per repository and stage, the totals, and whether anything is missing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bandsync_dagster.cli.progress import stopwatch
from bandsync_dagster.cli.tracking import Standing, Track
from bandsync_dagster.collection.forecast import Cost
from bandsync_dagster.store.schema import STAGES
from bandsync_dagster.store.syncs import Sync
from bandsync_dagster.wording import counted

# Of a large collection, the rows a person can take in; those that are not complete always come first.
ROWS_SHOWN: Final = 60


@dataclass(frozen=True)
class Row:
    """One repository at the end of a collection; `failure` is why its run failed, where that is not in the database."""

    key: str
    track: Track
    syncs: Mapping[str, Sync]
    failure: str | None = None

    @property
    def missing(self) -> list[str]:
        """The stages that are not completed."""
        return [stage for stage in STAGES if stage not in self.syncs or self.syncs[stage].state != "completed"]

    @property
    def is_complete(self) -> bool:
        """Whether the run ended well and every stage says that it is complete."""
        return self.track.standing is Standing.DONE and not self.missing

    @property
    def error(self) -> str | None:
        """The first error that a stage noted in the database."""
        errors = (sync.error for sync in self.syncs.values() if sync.error and sync.state != "completed")
        return next(errors, None)

    @property
    def is_unexplained(self) -> bool:
        """Whether its run failed and could not even note why."""
        return self.track.standing is Standing.FAILED and self.error is None and self.failure is None


@dataclass(frozen=True)
class Report:
    """A whole collection at its end."""

    rows: Sequence[Row]
    seconds: float
    forecast: Cost | None = None
    listing_requests: int = 0

    @property
    def spent(self) -> Cost:
        """What the collection has cost in each bucket.

        The changes come by GraphQL and the verifications by REST. Of the jobs' requests, those by GraphQL cost one
        point each.
        """
        syncs = [sync for row in self.rows for sync in row.syncs.values()]
        by_rest = {"changes": 0, "verifications": 1, "jobs": 1}
        core = sum(by_rest[sync.stage] * (sync.requests - sync.points) for sync in syncs)
        return Cost(core=core, graphql=sum(sync.points for sync in syncs))

    @property
    def is_complete(self) -> bool:
        """Whether every repository is complete. Nothing to collect is complete."""
        return all(row.is_complete for row in self.rows)


def build_report(
    tracks: Mapping[str, Track],
    syncs: Sequence[Sync],
    seconds: float,
    forecast: Cost | None = None,
    listing_requests: int = 0,
) -> Report:
    """Put the runs and the syncs of a collection together. `syncs` are oldest first: the latest of a stage counts."""
    by_run: dict[str, dict[str, Sync]] = {}
    for sync in syncs:
        by_run.setdefault(sync.root_run_id, {})[sync.stage] = sync
    rows = [Row(key, track, by_run.get(track.runs[0].id, {}) if track.runs else {}) for key, track in tracks.items()]
    return Report(rows, seconds, forecast, listing_requests)


def print_report(console: Console, report: Report) -> None:
    """Print the table, what is missing and why, and what it comes to."""
    ranked = sorted(report.rows, key=lambda row: (row.is_complete, row.key.lower()))
    if ranked:
        console.print(_table(ranked))
    if len(ranked) > ROWS_SHOWN:
        console.print(f"… and {len(ranked) - ROWS_SHOWN:,} more, in `bandsync status --all`", style="dim")
    if any(_is_partly_new(sync) for row in ranked[:ROWS_SHOWN] for sync in row.syncs.values()):
        console.print("(+n): so many of the records are new; the others were known", style="dim", highlight=False)
    console.print()
    for row in ranked[:ROWS_SHOWN]:
        if not row.is_complete:
            console.print(Text(f"{row.key}: {why_incomplete(row)}", style="red"))
    console.print(summary(report))
    if report.forecast is not None:
        told, spent = _cost_text(report.forecast), _cost_text(report.spent)
        console.print(f"Forecast: {told}. Spent: {spent}.", highlight=False)


def summary(report: Report) -> Text:
    """Say in one sentence how it went and what it cost."""
    syncs = [sync for row in report.rows for sync in row.syncs.values()]
    requests = counted(sum(sync.requests for sync in syncs), "request", "requests")
    cost = (
        f"{requests} and {counted(sum(sync.points for sync in syncs), 'GraphQL point', 'GraphQL points')}"
        f" besides {counted(report.listing_requests, 'request', 'requests')} to list the sources"
    )
    deferrals = sum(row.track.deferrals for row in report.rows)
    waits = f"; {counted(deferrals, 'run', 'runs')} waited for the quota" if deferrals else ""
    took = stopwatch(report.seconds)
    if report.is_complete:
        created = sum(sync.records_created for sync in syncs)
        told = f"Complete in {took}: {_repositories(report.rows)}, {created:,} new records"
        return Text(f"{told}, for {cost}{waits}.", style="bold green")
    incomplete = sum(not row.is_complete for row in report.rows)
    lack = "is missing something" if incomplete == 1 else "are missing something"
    told = f"Not complete after {took}: {incomplete:,} of {_repositories(report.rows)} {lack}"
    return Text(f"{told}. The same command goes on where this one stopped.", style="bold red")


def _cost_text(cost: Cost) -> str:
    requests, points = ("core request", "core requests"), ("graphql point", "graphql points")
    return f"{counted(cost.core, *requests)}, {counted(cost.graphql, *points)}"


def _repositories(rows: Sequence[Row]) -> str:
    return counted(len(rows), "repository", "repositories")


def why_incomplete(row: Row) -> str:
    """Say why a repository is not complete: the first error a stage gave, or else which stages are missing."""
    if told := row.error or row.failure:
        return told
    if row.track.standing is not Standing.DONE:
        return f"its run {row.track.standing.value}" if row.track.runs else "no run was launched for it"
    return f"{', '.join(row.missing)} not collected"


def _table(rows: Sequence[Row]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", show_edge=False)
    table.add_column("repository", overflow="fold")
    for name in (*STAGES, "requests", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    for row in rows[:ROWS_SHOWN]:
        table.add_row(*_cells(row))
    if len(rows) > 1:
        table.add_section()
        table.add_row(*_totals(rows), style="bold")
    return table


def _cells(row: Row) -> list[str | Text]:
    stages = [_stage_cell(row.syncs.get(stage)) for stage in STAGES]
    requests = sum(sync.requests for sync in row.syncs.values())
    return [row.key, *stages, f"{requests:,}", _duration(row.track), _outcome(row)]


def _stage_cell(sync: Sync | None) -> Text:
    """Show the records of a stage, and how many of them are new unless all are."""
    if sync is None:
        return Text("-")
    new = f" (+{sync.records_created:,})" if _is_partly_new(sync) else ""
    return Text(f"{sync.records_collected:,}{new}", style="" if sync.state == "completed" else "red")


def _is_partly_new(sync: Sync) -> bool:
    return sync.records_created != sync.records_collected


def _duration(track: Track) -> str:
    """Add up the time its runs worked; waiting in the queue is not work."""
    return stopwatch(sum(run.ended - run.started for run in track.runs if run.started and run.ended))


def _outcome(row: Row) -> Text:
    """Show how the stages ended: one word, or several when they differ."""
    if not row.is_complete:
        return Text("missing" if row.track.standing is Standing.DONE else row.track.standing.value, style="red")
    words = list(dict.fromkeys(sync.outcome or "complete" for sync in row.syncs.values()))
    return Text(", ".join(words), style="green" if words == ["complete"] else "yellow")


def _totals(rows: Sequence[Row]) -> list[str]:
    syncs = [sync for row in rows for sync in row.syncs.values()]
    collected = [f"{sum(sync.records_collected for sync in syncs if sync.stage == stage):,}" for stage in STAGES]
    requests = sum(sync.requests for sync in syncs)
    return ["total", *collected, f"{requests:,}", "", ""]
