"""Syncs that nobody works on any more: found by asking Dagster what became of their runs, and ended with the reason.

It never touches a sync whose run is queued or alive, nor a deferred one whose successor waits.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

import dagster as dg
import sqlalchemy as sa

from bandsync_dagster.deferral import find_successor
from bandsync_dagster.store.errors import IllegalTransition
from bandsync_dagster.store.queries import unfinished_syncs
from bandsync_dagster.store.syncs import Sync, cancel_sync, fail_sync
from bandsync_dagster.tags import SUCCESSOR_OF

# A worker writes a heartbeat every 15 s. One that is silent, and still is at the next look, has lost its process.
# Dagster may not know: its default launcher notices a lost worker only while the code server that started it lives.
# (One look is not enough: after an outage of the database every heartbeat is old.)
SILENCE = timedelta(seconds=30)
# Then again, while the store is away a worker can't write there, not even that one of its syncs has failed. It says so
# in the run's log instead, at most 32 s and one attempt to connect apart.
SPEECHLESS = timedelta(seconds=45)

ENDED = frozenset({dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED})


@dataclass(frozen=True)
class Reconciliation:
    """What one look did: a sentence for each sync it ended, and the silent ones that the next look will judge."""

    ended: tuple[str, ...]
    suspects: frozenset[int]


def reconcile(
    instance: dg.DagsterInstance, engine: sa.Engine, *, suspects: frozenset[int], now: datetime
) -> Reconciliation:
    """End every sync without a run that works on it or will.

    Args:
        instance: Dagster's instance, which knows the runs.
        engine: The store, which has the syncs.
        suspects: The syncs that were silent at the last look.
        now: The present moment.
    """
    _cancel_orphaned_successors(instance)
    unfinished = unfinished_syncs(engine)
    alive = {sync.run_id for sync in unfinished if sync.state == "running" and not _is_silent(sync, now)}
    ended: list[str] = []
    silent: set[int] = set()
    for sync in unfinished:
        run = instance.get_run_by_id(sync.run_id)
        goes_on = sync.run_id in alive
        if not _is_abandoned(instance, sync, run):
            if not _is_silent(sync, now):
                continue
            if sync.id not in suspects or (not goes_on and _speaks(instance, sync.run_id, now)):
                silent.add(sync.id)
                continue
        with suppress(IllegalTransition):  # It ended by itself after it was read.
            ended.append(_end(instance, engine, sync, _heir(instance, sync, run), now, goes_on=goes_on))
    return Reconciliation(tuple(ended), frozenset(silent))


def _is_abandoned(instance: dg.DagsterInstance, sync: Sync, run: dg.DagsterRun | None) -> bool:
    """Tell whether, as Dagster sees it, no run works on the sync or will."""
    heir = _heir(instance, sync, run)
    return heir is None or heir.status in ENDED


def _heir(instance: dg.DagsterInstance, sync: Sync, run: dg.DagsterRun | None) -> dg.DagsterRun | None:
    """Return the run a sync depends on: its own or, once a deferred sync's own has ended, that one's successor."""
    if sync.state != "deferred" or (run is not None and run.status not in ENDED):
        return run
    return find_successor(instance, sync.run_id) or run


def _is_silent(sync: Sync, now: datetime) -> bool:
    """Tell whether a running sync has stopped to give signs of life; a deferred one gives none."""
    return sync.state == "running" and sync.heartbeat_at is not None and now - sync.heartbeat_at > SILENCE


def _speaks(instance: dg.DagsterInstance, run_id: str, now: datetime) -> bool:
    """Tell whether anything was written to a run's log lately."""
    latest = instance.get_records_for_run(run_id, limit=1, ascending=False).records
    return bool(latest) and now.timestamp() - latest[0].event_log_entry.timestamp < SPEECHLESS.total_seconds()


def _end(
    instance: dg.DagsterInstance,
    engine: sa.Engine,
    sync: Sync,
    run: dg.DagsterRun | None,
    now: datetime,
    *,
    goes_on: bool,
) -> str:
    """End the sync as its run ended, and a run that went silent along with it, so that its slot is free again.

    A run that goes on with another sync could not note how this one ended, and is left alone.
    """
    subject = f"{sync.stage} of {sync.full_name}"
    if run is not None and run.status == dg.DagsterRunStatus.CANCELED:
        cancel_sync(engine, sync.id, reason=f"run {run.run_id} was cancelled", now=now)
        return f"{subject}: cancelled with its run"
    reason = _reason(run, goes_on=goes_on)
    fail_sync(engine, sync.id, outcome="killed", error=reason, now=now)
    if run is not None and run.status not in ENDED and not goes_on:
        instance.report_run_failed(run, message=f"bandsync: {reason}")
    return f"{subject}: {reason}"


def _reason(run: dg.DagsterRun | None, *, goes_on: bool) -> str:
    if run is None:
        return "its run was deleted"
    if run.status not in ENDED:
        ended = f"run {run.run_id} tried again, and could not say how this attempt ended"
        return ended if goes_on else f"the process of run {run.run_id} vanished"
    return f"run {run.run_id} ended ({run.status.value.lower()}) without finishing it"


def _cancel_orphaned_successors(instance: dg.DagsterInstance) -> None:
    """Cancel queued successors of cancelled runs: the cancellation came while the successor was being made."""
    for run in _queued_successors(instance):
        predecessor = instance.get_run_by_id(run.tags[SUCCESSOR_OF])
        if predecessor is not None and predecessor.status == dg.DagsterRunStatus.CANCELED:
            instance.report_run_canceled(run, message="The run it continues was cancelled.")


def _queued_successors(instance: dg.DagsterInstance) -> Iterator[dg.DagsterRun]:
    queued = dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED])
    for record in instance.get_run_records(queued):
        if record.dagster_run.tags.get(SUCCESSOR_OF) == record.dagster_run.parent_run_id is not None:
            yield record.dagster_run
