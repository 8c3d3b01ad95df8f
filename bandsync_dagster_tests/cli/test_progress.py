"""What a person sees while a collection runs."""

import io
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from rich.console import Console

from bandsync_dagster.cli.facts import BucketQuota, Facts
from bandsync_dagster.cli.progress import Display, Snapshot, line, stopwatch, view
from bandsync_dagster.cli.tracking import Track, tracks
from bandsync_dagster.store.gate import Gate
from bandsync_dagster.tags import POOL
from bandsync_dagster_tests.cli.collections import NOW, run, sync

QUOTAS = (BucketQuota("core", 4_812, 5_000, 1), BucketQuota("graphql", 0, None, 1))
CLOSED = Gate(POOL, "closed", 5, "core", NOW + timedelta(minutes=23), NOW)


def some_tracks() -> Mapping[str, Track]:
    """Two repositories done, one running, one deferred, one waiting."""
    runs = [
        run(6, "acme/e", "QUEUED", after=5),
        run(5, "acme/e"),
        run(4, "acme/d", "QUEUED"),
        run(3, "acme/c", "STARTED"),
    ]
    return tracks(["acme/a", "acme/b", "acme/c", "acme/d", "acme/e"], [*runs, run(2, "acme/b"), run(1, "acme/a")])


def snapshot(**fields: Any) -> Snapshot:
    """A collection after 83 seconds."""
    known: dict[str, Any] = {"phase": "Collecting", "began": NOW - timedelta(seconds=83), "now": NOW}
    return Snapshot(**(known | fields))


def seen(shown: Snapshot) -> str:
    """Return what is on the screen."""
    console = Console(file=io.StringIO(), width=110)
    console.print(view(shown))
    return console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


def test_the_view_counts_repositories_records_quota_and_time() -> None:
    """Everything a waiting person asks is on the screen."""
    syncs = [sync(1, "changes", state="running", full_name="acme/C", records_collected=1_200)]
    text = seen(snapshot(tracks=some_tracks(), facts=Facts(syncs, QUOTAS)))
    assert "1:23" in text
    assert "2 of 5 repositories" in text
    assert "2 done · 1 running · 1 waiting · 1 deferred" in text
    assert "1,200 records · core 4,812 of 5,000 left · graphql unlimited" in text
    assert "acme/c  changes, 1,200 so far" in text
    assert "Gate" not in text


def test_a_closed_gate_says_why_and_until_when() -> None:
    """A person who sees nothing move learns the reason, the local time and how long it takes."""
    text = seen(snapshot(tracks=some_tracks(), facts=Facts(gate=CLOSED)))
    local = (NOW + timedelta(minutes=23)).astimezone()
    told = f"Gate closed, GitHub's core limit is reached; goes on at {local:%H:%M:%S} (in 23 min)"
    assert told in " ".join(text.split())


def test_a_deferral_is_never_called_a_failure() -> None:
    """Nothing has gone wrong, so no word may say so, neither in the view nor in the lines."""
    deferred = snapshot(tracks=some_tracks(), facts=Facts(gate=CLOSED))
    for text in (seen(deferred), line(deferred)):
        assert not any(word in text.lower() for word in ("fail", "error"))


def test_a_database_that_is_away_is_named_in_the_view_and_at_once_in_a_log() -> None:
    """A person who sees the numbers stand still learns why, and that nothing has to be done."""
    facts = Facts([sync(1, "changes")], trouble="the PostgreSQL database history on db is not available: refused")
    told = "The PostgreSQL database history on db is not available: refused"
    for tracked in (None, some_tracks()):
        shown = seen(snapshot(tracks=tracked, facts=facts))
        assert f"{told}. It is tried again; the numbers are older." in " ".join(shown.split())
    console = Console(file=io.StringIO(), width=200)
    display = Display(console, lambda: NOW)
    for each in (replace(facts, trouble=None), facts, replace(facts, trouble="the same, in other words"), facts):
        display.show("Collecting", some_tracks(), each)
    _, trouble = console.file.getvalue().splitlines()  # pyright: ignore[reportAttributeAccessIssue]
    assert trouble.endswith(f"10 records  {told}")


@pytest.mark.parametrize(("seconds", "is_told"), [(44, False), (75, True)])
def test_runs_that_cannot_write_are_told_although_the_database_can_be_read(seconds: int, *, is_told: bool) -> None:
    """A full or a locked one still answers questions; one run that writes is enough to show that it is neither."""
    silent = sync(1, "changes", state="running", heartbeat_at=NOW - timedelta(seconds=seconds))
    told = "No run has written to the database for 1:15; their logs say why, such as a full disk. It is tried again"
    text = " ".join(seen(snapshot(tracks=some_tracks(), facts=Facts([silent]))).split())
    assert (told in text) == is_told
    writing = sync(2, "jobs", state="running", heartbeat_at=NOW - timedelta(seconds=14))
    assert "No run" not in seen(snapshot(tracks=some_tracks(), facts=Facts([silent, writing])))


def test_before_anything_is_known_the_phase_is_shown() -> None:
    """While Dagster starts there are no repositories to count yet."""
    assert seen(snapshot(phase="Starting Dagster")).strip() == "1:23  Starting Dagster …"


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (59.9, "0:59"), (83, "1:23"), (3_787, "1:03:07")])
def test_durations_read_like_a_clock(seconds: float, text: str) -> None:
    """Minutes and seconds, and hours once there are any."""
    assert stopwatch(seconds) == text


def test_without_a_terminal_a_line_is_printed_only_when_there_is_news() -> None:
    """A log gets a line for each phase and each change of the gate, and otherwise one every ten seconds."""
    now = NOW
    console = Console(file=io.StringIO(), width=200)
    display = Display(console, lambda: now)
    display.start()
    display.show("Starting Dagster")
    display.show("Starting Dagster")
    display.show("Collecting", some_tracks())
    now += timedelta(seconds=3)
    display.show("Collecting", some_tracks(), Facts([sync(1, "changes")]))
    display.show("Collecting", some_tracks(), Facts([sync(1, "changes")], gate=CLOSED))
    now += timedelta(seconds=11)
    display.show("Collecting", some_tracks(), Facts([sync(1, "changes"), sync(2, "jobs")], gate=CLOSED))
    display.stop()
    lines = console.file.getvalue().splitlines()  # pyright: ignore[reportAttributeAccessIssue]
    assert [text.split("  ")[0] for text in lines] == ["0:00", "0:00", "0:03", "0:14"]
    assert "20 records" in lines[-1]
