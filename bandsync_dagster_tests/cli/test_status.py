"""What `bandsync status` tells people and programs."""

import io
import json
from datetime import timedelta

import pytest
import sqlalchemy as sa
from rich.console import Console

from bandsync_dagster.cli.status import Status, print_json, print_status, read_status
from bandsync_dagster.store.gate import locked_gate
from bandsync_dagster.store.repositories import mark_repository, upsert_repositories
from bandsync_dagster.store.syncs import complete_sync, defer_sync, fail_sync
from bandsync_dagster.store.writes import write_batch
from bandsync_dagster.tags import POOL
from bandsync_dagster_tests.store.builders import HOUR, NOW, REPOSITORY, batch, begin, change, repository


def shown(status: Status, *, every_repository: bool = False) -> str:
    """Return what is printed on a terminal of 80 columns."""
    console = Console(file=io.StringIO(), width=80)
    print_status(console, status, every_repository=every_repository)
    return console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


def collect(engine: sa.Engine) -> None:
    """Store a repository with its changes complete, and its other stages not collected."""
    upsert_repositories(engine, [repository()], now=NOW)
    sync = begin(engine)
    write_batch(engine, batch(sync, 1, [change(1), change(2)]), now=NOW)
    complete_sync(engine, sync.id, outcome="complete", requests=0, points=0, metrics={}, now=NOW)


def test_an_empty_database_says_that_nothing_was_collected(engine: sa.Engine) -> None:
    """The first thing a newcomer may type."""
    text = shown(read_status(engine, NOW))
    assert "Nothing has been collected yet." in text
    assert "Gate: open" in text
    assert "nothing is known of it yet" in text


def test_what_is_missing_is_named_with_its_stage(engine: sa.Engine) -> None:
    """Rows of one stage say nothing about the others."""
    collect(engine)
    status = read_status(engine, NOW)
    assert {(gap.full_name, gap.stage, gap.state) for gap in status.gaps} == {
        ("acme/pool", "verifications", "missing"),
        ("acme/pool", "jobs", "missing"),
    }
    assert "1 missing" in shown(status)
    assert status.rows["changes"] == 2


def test_a_deferral_says_when_it_goes_on_and_is_never_called_a_failure(engine: sa.Engine) -> None:
    """Nothing has gone wrong, so no word may say so."""
    collect(engine)
    for stage in ("verifications", "jobs"):
        sync = begin(engine, stage)
        defer_sync(engine, sync.id, resume_at=NOW + HOUR, bucket="core", requests=1, points=0, metrics={}, now=NOW)
    with locked_gate(engine, POOL) as handle:
        handle.write(state="closed", limit=5, bucket="core", closed_until=NOW + HOUR, now=NOW)
    text = shown(read_status(engine, NOW), every_repository=True)
    local = f"{(NOW + HOUR).astimezone():%H:%M:%S}"
    assert f"goes on at {local} (in 1 h 00 min)" in text
    assert "Gate closed, GitHub's core limit is reached" in text
    assert not any(word in text.lower() for word in ("fail", "error"))


def test_a_failure_is_told_with_its_reason(engine: sa.Engine) -> None:
    """And counted as failed, not as reached."""
    collect(engine)
    sync = begin(engine, "jobs")
    fail_sync(engine, sync.id, outcome="blocked", error="GitHub has blocked it (dmca)", requests=0, points=0, now=NOW)
    status = read_status(engine, NOW)
    assert status.coverage["failed"] == 1
    assert "GitHub has blocked it (dmca)" in shown(status)


@pytest.mark.parametrize("state", ["gone", "blocked"])
def test_nothing_is_missing_of_a_repository_out_of_reach(engine: sa.Engine, state: str) -> None:
    """What GitHub no longer shows can't be collected; it is counted apart."""
    upsert_repositories(engine, [repository()], now=NOW)
    mark_repository(engine, REPOSITORY, state, "no longer listed", now=NOW)
    status = read_status(engine, NOW)
    assert not status.gaps
    assert f"1 {state}" in shown(status)


def test_json_holds_everything_with_times_in_utc(engine: sa.Engine, capsys: pytest.CaptureFixture[str]) -> None:
    """Programs read the same facts, each under one name."""
    collect(engine)
    print_json(read_status(engine, NOW + timedelta(seconds=1)))
    document = json.loads(capsys.readouterr().out)
    assert document["at"] == "2026-11-29T12:00:01+00:00"
    assert document["rows"]["changes"] == 2
    assert document["coverage"] == {"failed": 0, "deferred": 0, "running": 0, "missing": 1, "reached": 0}
    (done,) = [row for row in document["stages"] if row["state"] == "completed"]
    assert (done["stage"], done["records_created"], done["finished_at"]) == ("changes", 2, "2026-11-29T12:00:00+00:00")
    assert [gap["stage"] for gap in document["missing"]] == ["verifications", "jobs"]
    assert document["gate"] == {"state": "open"}
