"""Reconciliation: which unfinished syncs are ended, with which reason, and which are left alone."""

from datetime import datetime, timedelta, timezone

import dagster as dg
import pytest
import sqlalchemy as sa
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteRepositoryOrigin
from dagster._core.test_utils import create_run_for_test
from dagster._core.utils import make_new_run_id

from bandsync_dagster.reconciliation import SILENCE, SPEECHLESS, Reconciliation, reconcile
from bandsync_dagster.store.queries import find_sync
from bandsync_dagster.store.syncs import Sync, complete_sync, defer_sync, start_sync
from bandsync_dagster.tags import SUCCESSOR_OF

NOW = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
Status = dg.DagsterRunStatus

ORIGIN = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("bandsync"), "__repository__").get_job_origin("collection")
ALIVE = [Status.NOT_STARTED, Status.QUEUED, Status.STARTING, Status.STARTED, Status.CANCELING]
ENDED = [Status.SUCCESS, Status.FAILURE]


def make_run(instance: dg.DagsterInstance, status: dg.DagsterRunStatus, after: str | None = None) -> str:
    """Create a run in a status, as the successor of another one if that is given; return its id."""
    run_id = make_new_run_id()
    linked = {"tags": {SUCCESSOR_OF: after}, "parent_run_id": after, "root_run_id": after} if after else {}
    create_run_for_test(instance, run_id=run_id, status=status, remote_job_origin=ORIGIN, **linked)
    return run_id


def make_sync(engine: sa.Engine, run_id: str, *, deferred: bool = False, at: datetime = NOW) -> Sync:
    """Start a sync for a run; defer it if asked to."""
    sync = start_sync(
        engine, repository_id=7, full_name="acme/pool", stage="changes", root_run_id=run_id, run_id=run_id, now=at
    )
    if deferred:
        return defer_sync(engine, sync.id, resume_at=at + timedelta(hours=1), bucket="core", now=at)
    return sync


def has_status(instance: dg.DagsterInstance, run_id: str, status: dg.DagsterRunStatus) -> bool:
    """Tell whether a run has a status."""
    run = instance.get_run_by_id(run_id)
    return run is not None and run.status == status


def look(instance: dg.DagsterInstance, engine: sa.Engine, sync: Sync) -> tuple[str, str | None, str | None]:
    """Reconcile once; return the sync's state, outcome and reason."""
    reconcile(instance, engine, suspects=frozenset(), now=NOW)
    after = find_sync(engine, sync.id)
    assert after is not None
    return after.state, after.outcome, after.error


@pytest.mark.parametrize("status", ALIVE)
def test_a_sync_whose_run_is_alive_is_left_alone(
    instance: dg.DagsterInstance, engine: sa.Engine, status: dg.DagsterRunStatus
) -> None:
    """Queued, starting, started and ending runs still tell how their syncs went."""
    sync = make_sync(engine, make_run(instance, status))
    assert look(instance, engine, sync)[0] == "running"


@pytest.mark.parametrize("deferred", [False, True], ids=["running", "deferred"])
@pytest.mark.parametrize("status", ENDED)
def test_a_sync_whose_run_ended_without_telling_is_failed_with_the_reason(
    instance: dg.DagsterInstance, engine: sa.Engine, status: dg.DagsterRunStatus, *, deferred: bool
) -> None:
    """Also a deferred one, when no successor was left behind."""
    run_id = make_run(instance, status)
    state, outcome, reason = look(instance, engine, make_sync(engine, run_id, deferred=deferred))
    assert (state, outcome) == ("failed", "killed")
    assert reason is not None
    assert run_id in reason


@pytest.mark.parametrize("deferred", [False, True], ids=["running", "deferred"])
def test_a_sync_whose_run_was_cancelled_is_cancelled(
    instance: dg.DagsterInstance, engine: sa.Engine, *, deferred: bool
) -> None:
    """Its state says what somebody did, and not that something failed."""
    run_id = make_run(instance, Status.CANCELED)
    state, _, reason = look(instance, engine, make_sync(engine, run_id, deferred=deferred))
    assert state == "cancelled"
    assert reason is not None
    assert run_id in reason


def test_a_sync_whose_run_was_deleted_is_failed(instance: dg.DagsterInstance, engine: sa.Engine) -> None:
    """Dagster does not know the run any more."""
    assert look(instance, engine, make_sync(engine, make_new_run_id())) == ("failed", "killed", "its run was deleted")


@pytest.mark.parametrize("status", ALIVE)
def test_a_deferred_sync_with_a_waiting_successor_is_left_alone(
    instance: dg.DagsterInstance, engine: sa.Engine, status: dg.DagsterRunStatus
) -> None:
    """However long the quota takes to come back."""
    run_id = make_run(instance, Status.SUCCESS)
    make_run(instance, status, after=run_id)
    sync = make_sync(engine, run_id, deferred=True, at=NOW - timedelta(days=2))
    assert look(instance, engine, sync)[0] == "deferred"


def test_a_deferred_sync_whose_successor_was_cancelled_is_cancelled(
    instance: dg.DagsterInstance, engine: sa.Engine
) -> None:
    """Cancelling the waiting run in the Dagster UI is how one cancels a deferred collection."""
    run_id = make_run(instance, Status.SUCCESS)
    successor = make_run(instance, Status.CANCELED, after=run_id)
    state, _, reason = look(instance, engine, make_sync(engine, run_id, deferred=True))
    assert state == "cancelled"
    assert reason is not None
    assert successor in reason


def test_a_completed_sync_is_never_touched(instance: dg.DagsterInstance, engine: sa.Engine) -> None:
    """Its run may have been deleted since."""
    sync = make_sync(engine, make_new_run_id())
    complete_sync(engine, sync.id, now=NOW)
    assert look(instance, engine, sync)[:2] == ("completed", "complete")


def test_a_silent_sync_is_ended_at_the_second_look_and_its_run_with_it(
    instance: dg.DagsterInstance, engine: sa.Engine
) -> None:
    """A worker that vanished together with its code server is noticed by its missing heartbeats."""
    run_id = make_run(instance, Status.STARTED)
    sync = make_sync(engine, run_id, at=NOW - SILENCE - timedelta(seconds=1))
    first = reconcile(instance, engine, suspects=frozenset(), now=NOW)
    assert first.ended == ()
    second = reconcile(instance, engine, suspects=first.suspects, now=NOW)
    assert len(second.ended) == 1
    after = find_sync(engine, sync.id)
    assert after is not None
    assert (after.state, after.outcome) == ("failed", "killed")
    run = instance.get_run_by_id(run_id)
    assert run is not None
    assert run.status == Status.FAILURE


def test_one_late_heartbeat_is_no_reason_to_end_a_sync(instance: dg.DagsterInstance, engine: sa.Engine) -> None:
    """After an outage of the database every heartbeat is old; the next look finds them fresh."""
    run_id = make_run(instance, Status.STARTED)
    sync = make_sync(engine, run_id, at=NOW - SILENCE - timedelta(seconds=1))
    first = reconcile(instance, engine, suspects=frozenset(), now=NOW)
    assert first.suspects == {sync.id}
    later = reconcile(instance, engine, suspects=first.suspects, now=NOW - timedelta(seconds=5))
    assert later.suspects == frozenset()
    assert look(instance, engine, sync)[0] == "running"


def test_a_run_that_goes_on_is_not_ended_with_an_attempt_that_could_not_say_how_it_ended(
    instance: dg.DagsterInstance, engine: sa.Engine
) -> None:
    """After an outage of the database that outlasted all patience the step tries again, and begins another sync."""
    run_id = make_run(instance, Status.STARTED)
    first = make_sync(engine, run_id, at=NOW - SILENCE - timedelta(seconds=1))
    second = make_sync(engine, run_id, at=NOW)
    ended = reconcile(instance, engine, suspects=frozenset({first.id}), now=NOW).ended
    assert ended == (f"changes of acme/pool: run {run_id} tried again, and could not say how this attempt ended",)
    states = [sync.state for each in (first, second) if (sync := find_sync(engine, each.id))]
    assert states == ["failed", "running"]
    assert has_status(instance, run_id, Status.STARTED)


def test_a_run_that_tells_of_an_outage_in_its_log_is_not_ended(instance: dg.DagsterInstance, engine: sa.Engine) -> None:
    """In the database it can show no sign of life; once its log has been silent too, it is gone."""
    now = datetime.now(timezone.utc)
    run_id = make_run(instance, Status.STARTED)
    run = instance.get_run_by_id(run_id)
    assert run is not None
    instance.report_engine_event("The database is not available.", run)
    sync = make_sync(engine, run_id, at=now - timedelta(minutes=3))
    suspects = frozenset({sync.id})
    assert reconcile(instance, engine, suspects=suspects, now=now) == Reconciliation((), suspects)
    assert has_status(instance, run_id, Status.STARTED)
    later = now + SPEECHLESS + timedelta(seconds=1)
    assert len(reconcile(instance, engine, suspects=suspects, now=later).ended) == 1
    assert has_status(instance, run_id, Status.FAILURE)


def test_the_waiting_successor_of_a_cancelled_run_is_cancelled(instance: dg.DagsterInstance, engine: sa.Engine) -> None:
    """The cancellation came in the moment the successor was made."""
    run_id = make_run(instance, Status.CANCELED)
    successor_id = make_run(instance, Status.QUEUED, after=run_id)
    assert look(instance, engine, make_sync(engine, run_id, deferred=True))[0] == "cancelled"
    successor = instance.get_run_by_id(successor_id)
    assert successor is not None
    assert successor.status == Status.CANCELED


def test_a_rerun_by_hand_is_no_successor(instance: dg.DagsterInstance, engine: sa.Engine) -> None:
    """It carries the tag of the run it copies but has another parent, so that nothing waits for it."""
    original = make_run(instance, Status.SUCCESS)
    deferred = make_run(instance, Status.SUCCESS, after=original)
    create_run_for_test(
        instance,
        run_id=make_new_run_id(),
        status=Status.QUEUED,
        tags={SUCCESSOR_OF: original},
        parent_run_id=deferred,
        root_run_id=original,
        remote_job_origin=ORIGIN,
    )
    assert look(instance, engine, make_sync(engine, deferred, deferred=True))[0] == "failed"
