"""What a person sees while a collection runs. `view` and `line` are pure; `Display` puts them on the screen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from bandsync_dagster.cli.facts import NO_FACTS, BucketQuota, Facts
from bandsync_dagster.cli.tracking import Standing, Track, count
from bandsync_dagster.clock import Clock
from bandsync_dagster.store.gate import Gate
from bandsync_dagster.store.syncs import Sync
from bandsync_dagster.wording import limit_reached, moment, sentence

_BAR_WIDTH: Final = 40
# Runs shown by name; the pool lets five work at a time.
_NAMED: Final = 5
# A run that can write does so every 15 s.
_MUTE_SECONDS: Final = 45.0
# Without a terminal: seconds between two lines that differ only in numbers.
_LINE_SECONDS: Final = 10.0


@dataclass(frozen=True)
class Snapshot:
    """A collection at one moment. `tracks` is None until it is known which repositories there are."""

    phase: str
    began: datetime
    now: datetime
    tracks: Mapping[str, Track] | None = None
    facts: Facts = NO_FACTS

    @property
    def elapsed(self) -> float:
        """Seconds since the collection began."""
        return (self.now - self.began).total_seconds()


def view(snapshot: Snapshot) -> RenderableType:
    """Lay out a snapshot for a terminal."""
    if snapshot.tracks is None:
        phase = Text(f"{stopwatch(snapshot.elapsed)}  {snapshot.phase} …")
        return Group(phase, *_gate_lines(snapshot), *_trouble_lines(snapshot))
    return Group(
        _bar(snapshot, snapshot.tracks),
        Text(f"       {standings(snapshot.tracks)}"),
        Text(f"       {_numbers(snapshot.facts)}", style="dim"),
        *_gate_lines(snapshot),
        *_trouble_lines(snapshot),
        *_running_lines(snapshot.tracks, snapshot.facts.syncs),
    )


def line(snapshot: Snapshot) -> str:
    """Say a snapshot in one line, for a log."""
    parts = [stopwatch(snapshot.elapsed), snapshot.phase]
    if snapshot.tracks is not None:
        parts += [standings(snapshot.tracks), _numbers(snapshot.facts)]
    return "  ".join([*parts, *_gate_texts(snapshot), *_trouble_texts(snapshot)])


def stopwatch(seconds: float) -> str:
    """Print a duration as a clock does: `0:42`, `1:03:07`."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


def standings(tracks: Mapping[str, Track]) -> str:
    """Count the repositories in words; what is zero and says nothing is left out."""
    counts = count(tracks)
    waiting = counts[Standing.WAITING] + counts[Standing.MISSING]
    shown = [(counts[Standing.DONE], "done"), (counts[Standing.RUNNING], "running"), (waiting, "waiting")]
    rare = [
        (counts[Standing.DEFERRED], "deferred"),
        (counts[Standing.FAILED], "failed"),
        (counts[Standing.CANCELLED], "cancelled"),
    ]
    return " · ".join(f"{number:,} {word}" for number, word in [*shown, *(pair for pair in rare if pair[0])])


def quota_text(quota: BucketQuota) -> str:
    """Say what is left of a rate limit."""
    left = "unlimited" if quota.limit is None else f"{quota.remaining:,} of {quota.limit:,} left"
    return f"{quota.bucket} {left}"


def gate_text(gate: Gate | None, now: datetime) -> str | None:
    """Say until when a closed gate is closed, and why; None when it is open."""
    if gate is None or gate.state != "closed":
        return None
    reason = f", {limit_reached(gate.bucket)}" if gate.bucket else " by hand"
    return f"Gate closed{reason}; goes on {moment(gate.closed_until, now) if gate.closed_until else 'when opened'}"


def _bar(snapshot: Snapshot, tracks: Mapping[str, Track]) -> RenderableType:
    final = sum(track.standing.is_final for track in tracks.values())
    row = Table.grid(padding=(0, 1))
    row.add_row(
        Text(f"{stopwatch(snapshot.elapsed):<6}"),
        ProgressBar(total=max(len(tracks), 1), completed=final, width=_BAR_WIDTH),
        Text(f"{final:,} of {len(tracks):,} repositories"),
    )
    return row


def _numbers(facts: Facts) -> str:
    return " · ".join([f"{facts.records:,} records", *map(quota_text, facts.quotas)])


def _gate_texts(snapshot: Snapshot) -> list[str]:
    text = gate_text(snapshot.facts.gate, snapshot.now)
    return [text] if text else []


def _gate_lines(snapshot: Snapshot) -> list[Text]:
    return [Text(f"       {text}. Nothing is sent meanwhile.", style="yellow") for text in _gate_texts(snapshot)]


def _trouble_texts(snapshot: Snapshot) -> list[str]:
    """Say why the numbers stand still: the database can't be read, or can be, and no run can write to it."""
    if trouble := snapshot.facts.trouble:
        return [sentence(trouble)]
    beats = [sync.heartbeat_at for sync in snapshot.facts.syncs if sync.state == "running" and sync.heartbeat_at]
    mute = (snapshot.now - max(beats, default=snapshot.now)).total_seconds()
    told = f"No run has written to the database for {stopwatch(mute)}; their logs say why, such as a full disk"
    return [told] if mute > _MUTE_SECONDS else []


def _trouble_lines(snapshot: Snapshot) -> list[Text]:
    return [
        Text(f"       {text}. It is tried again; the numbers are older.", style="yellow")
        for text in _trouble_texts(snapshot)
    ]


def _running_lines(tracks: Mapping[str, Track], syncs: Sequence[Sync]) -> list[Text]:
    """Name the repositories being worked on, with the stage each is in."""
    running = [key for key, track in tracks.items() if track.standing is Standing.RUNNING]
    latest = {sync.full_name.lower(): sync for sync in syncs}
    lines = [_running_line(key, latest.get(key.lower())) for key in running[:_NAMED]]
    if len(running) > _NAMED:
        lines.append(Text(f"       … and {len(running) - _NAMED} more", style="dim"))
    return lines


def _running_line(key: str, sync: Sync | None) -> Text:
    return Text.assemble("       ", (key, "bold"), (f"  {_doing(sync)}", "dim"))


def _doing(sync: Sync | None) -> str:
    """Say how far a repository is, from the last of its syncs."""
    if sync is None or sync.state == "deferred":
        return "starting"
    if sync.state == "running":
        return f"{sync.stage}, {sync.records_collected:,} so far"
    return f"{sync.stage} {sync.state}"


class Display:
    """Shows snapshots: a live view on a terminal, a line now and then anywhere else."""

    def __init__(self, console: Console, clock: Clock) -> None:
        self._console = console
        self._clock = clock
        self._began = clock()
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self._last: Snapshot | None = None

    def start(self) -> None:
        """Take over the lower end of the screen."""
        if self._live:
            self._live.start()

    def stop(self) -> None:
        """Give the screen back, once or more often; the view disappears, what was printed stays."""
        if self._live:
            self._live.stop()

    @property
    def elapsed(self) -> float:
        """Seconds since the display was made."""
        return (self._clock() - self._began).total_seconds()

    def show(self, phase: str, tracks: Mapping[str, Track] | None = None, facts: Facts = NO_FACTS) -> None:
        """Show how things stand now."""
        snapshot = Snapshot(phase, self._began, self._clock(), tracks, facts)
        if self._live:
            self._live.update(view(snapshot), refresh=True)
        elif self._is_news(snapshot):
            self._console.print(line(snapshot), highlight=False, soft_wrap=True)
            self._last = snapshot

    def _is_news(self, snapshot: Snapshot) -> bool:
        """Tell whether a line is due: another phase or gate, or trouble, at once; other numbers after a while."""
        last = self._last
        if last is None or _state(last) != _state(snapshot):
            return True
        recent = (snapshot.now - last.now).total_seconds() < _LINE_SECONDS
        return not recent and (last.tracks, last.facts) != (snapshot.tracks, snapshot.facts)


def _state(snapshot: Snapshot) -> tuple[object, ...]:
    gate = snapshot.facts.gate
    return snapshot.phase, gate.state if gate else None, bool(_trouble_texts(snapshot))
