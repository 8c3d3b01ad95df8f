"""How a collection ended: a table per repository and stage, the totals, and whether anything is missing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bandsync_dagster.cli.progress import standings, stopwatch
from bandsync_dagster.cli.tracking import Standing, Track
from bandsync_dagster.store.schema import STAGES
from bandsync_dagster.store.syncs import Sync

# Of a large collection, the rows a person can take in; those that are not complete always come first.
ROWS_SHOWN: Final = 60


@dataclass(frozen=True)
class Row:
    """One repository at the end of a collection."""

    key: str
    track: Track
    syncs: Mapping[str, Sync]

    @property
    def missing(self) -> list[str]:
        """The stages that are not completed."""
        return [stage for stage in STAGES if stage not in self.syncs or self.syncs[stage].state != "completed"]

    @property
    def is_complete(self) -> bool:
        """Whether the run ended well and every stage says that it is complete."""
        return self.track.standing is Standing.DONE and not self.missing


@dataclass(frozen=True)
class Report:
    """A whole collection at its end."""

    rows: Sequence[Row]
    seconds: float

    @property
    def is_complete(self) -> bool:
        """Whether every repository is complete. Nothing to collect is complete."""
        return all(row.is_complete for row in self.rows)


def build_report(tracks: Mapping[str, Track], syncs: Sequence[Sync], seconds: float) -> Report:
    """Put the runs and the syncs of a collection together. `syncs` are oldest first: the latest of a stage counts."""
    by_run: dict[str, dict[str, Sync]] = {}
    for sync in syncs:
        by_run.setdefault(sync.root_run_id, {})[sync.stage] = sync
    rows = [Row(key, track, by_run.get(track.runs[0].id, {}) if track.runs else {}) for key, track in tracks.items()]
    return Report(rows, seconds)


def print_report(console: Console, report: Report) -> None:
    """Print the table and what it comes to."""
    ranked = sorted(report.rows, key=lambda row: (row.is_complete, row.key.lower()))
    table = Table(box=None, pad_edge=False, header_style="bold", show_footer=False)
    table.add_column("repository", overflow="fold")
    for name in (*STAGES, "requests", "points", "deferrals", "time"):
        table.add_column(name, justify="right")
    table.add_column("outcome", overflow="fold")
    for row in ranked[:ROWS_SHOWN]:
        table.add_row(*_cells(row))
    if len(ranked) > 1:
        table.add_section()
        table.add_row(*_totals(report.rows), style="bold")
    console.print(table)
    if len(ranked) > ROWS_SHOWN:
        console.print(f"… and {len(ranked) - ROWS_SHOWN:,} more, all complete", style="dim")
    console.print(summary(report))


def summary(report: Report) -> Text:
    """Say in one line how it went."""
    tracks = {row.key: row.track for row in report.rows}
    took = stopwatch(report.seconds)
    if report.is_complete:
        created = sum(sync.records_created for row in report.rows for sync in row.syncs.values())
        return Text(f"Complete in {took}: {len(tracks):,} repositories, {created:,} new records.", style="green")
    incomplete = [row for row in report.rows if not row.is_complete]
    return Text(
        f"Not complete after {took}: {len(incomplete):,} of {len(tracks):,} repositories are missing something "
        f"({standings(tracks)}). The same command goes on where this one stopped.",
        style="red",
    )


def _cells(row: Row) -> list[str | Text]:
    syncs = list(row.syncs.values())
    stages = [_stage_cell(row.syncs.get(stage)) for stage in STAGES]
    return [row.key, *stages, *_sums(syncs), _duration(row.track), _outcome(row)]


def _stage_cell(sync: Sync | None) -> Text:
    """Show the records of a stage and how many of them are new; a stage that did not complete shows its state."""
    if sync is None:
        return Text("missing", style="red")
    text = f"{sync.records_collected:,}"
    if sync.records_created != sync.records_collected:
        text += f" ({sync.records_created:,} new)"
    return Text(text) if sync.state == "completed" else Text(f"{text} {sync.state}", style="red")


def _sums(syncs: Sequence[Sync]) -> list[str]:
    deferrals = max((sync.deferrals for sync in syncs), default=0)
    return [f"{sum(sync.requests for sync in syncs):,}", f"{sum(sync.points for sync in syncs):,}", f"{deferrals:,}"]


def _duration(track: Track) -> str:
    """Add up the time its runs worked; waiting in the queue is not work."""
    return stopwatch(sum(run.ended - run.started for run in track.runs if run.started and run.ended))


def _outcome(row: Row) -> Text:
    if row.is_complete:
        words = dict.fromkeys(sync.outcome or "complete" for sync in row.syncs.values())
        return Text(", ".join(words), style="green" if list(words) == ["complete"] else "yellow")
    reasons = [sync.error for sync in row.syncs.values() if sync.error]
    why = reasons[0] if reasons else f"{', '.join(row.missing)} not collected"
    return Text(f"{row.track.standing.value}: {why}", style="red")


def _totals(rows: Sequence[Row]) -> list[str]:
    syncs = [sync for row in rows for sync in row.syncs.values()]
    collected = [f"{sum(sync.records_collected for sync in syncs if sync.stage == stage):,}" for stage in STAGES]
    return [f"{len(rows):,} repositories", *collected, *_sums(syncs), "", ""]
