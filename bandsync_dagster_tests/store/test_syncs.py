"""The lifecycle of a sync: every state against every event."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from bandsync_dagster.store.engine import writing
from bandsync_dagster.store.errors import IllegalTransition, StoreRefused, UnknownSync
from bandsync_dagster.store.queries import find_sync
from bandsync_dagster.store.schema import SYNC_STATES, syncs
from bandsync_dagster.store.syncs import (
    TRANSITIONS,
    Sync,
    beat,
    cancel_sync,
    complete_sync,
    continue_sync,
    defer_sync,
    fail_sync,
    identify_sync,
    start_sync,
)
from bandsync_dagster.store.writes import write_batch
from bandsync_dagster_tests.store.builders import HOUR, NOW, REPOSITORY, batch, begin, change

LATER = NOW + HOUR

EVENTS: dict[str, Callable[[sa.Engine, int], Sync]] = {
    "defer": lambda engine, sync_id: defer_sync(engine, sync_id, resume_at=LATER, bucket="core", now=NOW),
    "complete": lambda engine, sync_id: complete_sync(engine, sync_id, now=NOW),
    "fail": lambda engine, sync_id: fail_sync(engine, sync_id, outcome="failed", error="why", now=NOW),
    "cancel": lambda engine, sync_id: cancel_sync(engine, sync_id, reason="why", now=NOW),
}

# How a new sync comes into each state.
PATHS = {
    "running": (),
    "deferred": ("defer",),
    "completed": ("complete",),
    "failed": ("fail",),
    "cancelled": ("cancel",),
}

# The whole table, written out: what the code's own must say.
ARROWS = {
    ("running", "defer"): "deferred",
    ("running", "complete"): "completed",
    ("running", "fail"): "failed",
    ("running", "cancel"): "cancelled",
    ("deferred", "continue"): "running",
    ("deferred", "fail"): "failed",
    ("deferred", "cancel"): "cancelled",
}


def sync_in(engine: sa.Engine, state: str) -> Sync:
    """Return a sync in a state."""
    sync = begin(engine)
    for event in PATHS[state]:
        sync = EVENTS[event](engine, sync.id)
    assert sync.state == state
    return sync


def resume(engine: sa.Engine, predecessor: str = "run-1", run: str = "run-2", **fields: Any) -> Sync | None:
    """Continue the sync that a run left behind."""
    known = {"full_name": "acme/pool", "stage": "changes"} | fields
    return continue_sync(engine, predecessor_run_id=predecessor, run_id=run, now=LATER, **known)


def test_the_table_of_arrows_is_the_one_written_here() -> None:
    """And final states have no way out."""
    table = {(source, event): arrow.target for event, arrow in TRANSITIONS.items() for source in arrow.sources}
    assert table == ARROWS
    assert {source for source, _ in table}.isdisjoint({"completed", "failed", "cancelled"})
    assert set(PATHS) == set(SYNC_STATES)


@pytest.mark.parametrize(("state", "event"), list(itertools.product(SYNC_STATES, EVENTS)))
def test_every_event_in_every_state(engine: sa.Engine, state: str, event: str) -> None:
    """An event with an arrow moves the sync along it; any other is refused, says why, and changes nothing."""
    sync = sync_in(engine, state)
    if (state, event) in ARROWS:
        moved = EVENTS[event](engine, sync.id)
        assert moved.state == ARROWS[state, event]
        assert find_sync(engine, sync.id) == moved
        return
    with pytest.raises(IllegalTransition, match=f"sync {sync.id} is {state}: cannot {event} it") as refused:
        EVENTS[event](engine, sync.id)
    assert (refused.value.event, refused.value.state) == (event, state)
    assert find_sync(engine, sync.id) == sync


@pytest.mark.parametrize("event", EVENTS)
def test_events_of_an_unknown_sync_are_refused(engine: sa.Engine, event: str) -> None:
    """A sync that is not there is told apart from one in the wrong state."""
    with pytest.raises(UnknownSync, match="no sync 4711"):
        EVENTS[event](engine, 4711)


def test_a_new_sync_runs_and_has_counted_nothing(engine: sa.Engine) -> None:
    """It knows the run that started it, and is alive."""
    sync = begin(engine, root_run_id="root", run_id="run")
    assert (sync.state, sync.root_run_id, sync.run_id) == ("running", "root", "run")
    assert (sync.records_collected, sync.requests, sync.points, sync.deferrals, sync.last_batch) == (0,) * 5
    assert (sync.started_at, sync.heartbeat_at, sync.finished_at) == (NOW, NOW, None)
    assert find_sync(engine, sync.id) == sync


def test_a_stage_that_is_none_is_the_callers_mistake(engine: sa.Engine) -> None:
    """Only the three stages have syncs."""
    with pytest.raises(ValueError, match="no stage 'change': one of changes, verifications, jobs"):
        begin(engine, stage="change")


def test_the_database_itself_refuses_a_state_that_is_none(engine: sa.Engine) -> None:
    """Whoever writes by hand is held to the same states."""
    sync = begin(engine)
    with pytest.raises(StoreRefused), writing(engine) as connection:
        connection.execute(syncs.update().where(syncs.c.id == sync.id).values(state="done"))


def test_deferring_counts_and_says_until_when(engine: sa.Engine) -> None:
    """What was spent is added, the deferral counted, and the sync is not finished."""
    sync = begin(engine)
    values = {"resume_at": LATER, "bucket": "graphql", "requests": 2, "points": 30, "metrics": {"batches": [1]}}
    deferred = defer_sync(engine, sync.id, **values, now=NOW)
    assert (deferred.resume_at, deferred.bucket, deferred.deferrals) == (LATER, "graphql", 1)
    assert (deferred.requests, deferred.points, deferred.metrics) == (2, 30, {"batches": [1]})
    assert deferred.finished_at is None


def test_deferrals_add_up_over_any_number_of_runs(engine: sa.Engine) -> None:
    """Each run continues what the one before it left, with everything it counted."""
    sync = begin(engine)
    for number in range(1, 11):
        defer_sync(engine, sync.id, resume_at=LATER, bucket="core", requests=1, now=NOW)
        continued = resume(engine, f"run-{number}", f"run-{number + 1}")
        assert continued is not None
        assert (continued.id, continued.state, continued.deferrals) == (sync.id, "running", number)
    ended = complete_sync(engine, sync.id, requests=1, now=LATER)
    assert (ended.deferrals, ended.requests, ended.root_run_id, ended.run_id) == (10, 11, "run-1", "run-11")
    assert (ended.started_at, ended.finished_at) == (NOW, LATER)


def test_continuing_clears_what_the_deferral_said(engine: sa.Engine) -> None:
    """A running sync waits for nothing, and is alive again."""
    sync_in(engine, "deferred")
    continued = resume(engine)
    assert continued is not None
    assert (continued.resume_at, continued.bucket, continued.heartbeat_at) == (None, None, LATER)


def test_a_completed_sync_is_told_again_and_moves_on(engine: sa.Engine) -> None:
    """A stage that was completed before the deferral returns as it is, to each further successor in turn."""
    sync = sync_in(engine, "completed")
    for number in (1, 2):
        told = resume(engine, f"run-{number}", f"run-{number + 1}")
        assert told is not None
        assert (told.id, told.state, told.finished_at) == (sync.id, "completed", NOW)
    assert resume(engine, "run-1", "run-9") is None


@pytest.mark.parametrize("state", ["running", "failed", "cancelled"])
def test_nothing_else_is_continued(engine: sa.Engine, state: str) -> None:
    """A sync that runs has somebody, and one that ended badly gets a new one."""
    sync = sync_in(engine, state)
    assert resume(engine) is None
    assert find_sync(engine, sync.id) == sync


@pytest.mark.parametrize("other", [{"predecessor": "run-0"}, {"full_name": "acme/other"}, {"stage": "jobs"}])
def test_only_the_predecessors_sync_is_continued(engine: sa.Engine, other: dict[str, str]) -> None:
    """Of this repository and this stage."""
    sync = sync_in(engine, "deferred")
    assert resume(engine, **other) is None
    assert find_sync(engine, sync.id) == sync


def test_a_name_is_the_same_in_any_case(engine: sa.Engine) -> None:
    """As it is for GitHub."""
    sync_in(engine, "deferred")
    assert resume(engine, full_name="Acme/POOL") is not None


def test_a_deferred_sync_is_continued_by_one_run_only(engine: sa.Engine) -> None:
    """A second run with the same predecessor starts anew."""
    sync_in(engine, "deferred")
    assert resume(engine, run="run-2") is not None
    assert resume(engine, run="run-3") is None


def test_a_sync_ends_with_its_outcome_and_reason(engine: sa.Engine) -> None:
    """Completed with another outcome than complete, failed or cancelled: the store says why."""
    skipped = complete_sync(engine, begin(engine).id, outcome="skipped", reason="archived", now=LATER)
    assert (skipped.state, skipped.outcome, skipped.error) == ("completed", "skipped", "archived")
    failed = fail_sync(engine, begin(engine).id, outcome="no_access", error="404\x00", now=LATER)
    assert (failed.state, failed.outcome, failed.error) == ("failed", "no_access", "404")
    cancelled = cancel_sync(engine, begin(engine).id, reason="run-1 was cancelled", now=LATER)
    assert (cancelled.outcome, cancelled.error, cancelled.finished_at) == ("cancelled", "run-1 was cancelled", LATER)


def test_ending_a_deferred_sync_takes_it_off_the_waiting_list(engine: sa.Engine) -> None:
    """Nothing resumes what was cancelled."""
    ended = cancel_sync(engine, sync_in(engine, "deferred").id, reason="x", now=LATER)
    assert (ended.resume_at, ended.bucket) == (None, None)


def test_metrics_stay_unless_new_ones_are_given(engine: sa.Engine) -> None:
    """An ending that knows none keeps those of the deferral."""
    sync = begin(engine)
    defer_sync(engine, sync.id, resume_at=LATER, bucket="core", metrics={"waits": 1}, now=NOW)
    assert fail_sync(engine, sync.id, outcome="killed", error="x", now=NOW).metrics == {"waits": 1}


def test_a_sync_is_identified_before_its_first_batch_only(engine: sa.Engine) -> None:
    """Afterwards its counters are of a repository."""
    sync = begin(engine, repository_id=None)
    assert identify_sync(engine, sync.id, repository_id=5, now=LATER).repository_id == 5
    assert identify_sync(engine, sync.id, repository_id=REPOSITORY, now=LATER).repository_id == REPOSITORY
    write_batch(engine, batch(sync, 1, [change(1)]), now=NOW)
    with pytest.raises(IllegalTransition, match="cannot identify it"):
        identify_sync(engine, sync.id, repository_id=5, now=LATER)


@pytest.mark.parametrize("state", SYNC_STATES)
def test_only_a_running_sync_beats(engine: sa.Engine, state: str) -> None:
    """And is told when it no longer runs."""
    sync = sync_in(engine, state)
    assert beat(engine, sync.id, now=LATER) is (state == "running")
    now = find_sync(engine, sync.id)
    assert now is not None
    assert now.heartbeat_at == (LATER if state == "running" else NOW)


def test_names_are_cleaned(engine: sa.Engine) -> None:
    """A name from outside may hold anything."""
    sync = start_sync(
        engine, repository_id=None, full_name="a/\x00b\ud800", stage="jobs", root_run_id="r", run_id="r", now=NOW
    )
    assert sync.full_name == "a/b"
