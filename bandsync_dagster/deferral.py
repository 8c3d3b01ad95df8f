"""A rate limit becomes a deferral: the gate closes and a successor of the run waits in the queue.

The one module that may import `dagster._core`: Dagster has no public way to queue a run that takes over from another
one before that one ends (the backfill that asked for a partition gives it up as soon as it sees the run end without a
materialization and no other run of the backfill).
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import partial

import dagster as dg
from dagster._core.execution.backfill import BulkActionStatus
from dagster._core.instance import DagsterInstance
from dagster._core.run_coordinator import QueuedRunCoordinator, SubmitRunContext
from dagster._core.storage.tags import (
    BACKFILL_ID_TAG,
    BACKFILL_TAGS,
    HIDDEN_TAG_PREFIX,
    MAX_RETRIES_TAG,
    PARENT_RUN_ID_TAG,
    ROOT_RUN_ID_TAG,
    TAGS_TO_MAYBE_OMIT_ON_RETRY,
)

from bandsync_dagster.collection.collector import Deferred, RunIdentity
from bandsync_dagster.gate import close_gate
from bandsync_dagster.resources import Services
from bandsync_dagster.tags import DEFERRED_BUCKET, DEFERRED_UNTIL, SUCCESSOR_OF
from bandsync_dagster.wording import limit_reached, moment

_BEING_CANCELLED = frozenset({dg.DagsterRunStatus.CANCELING, dg.DagsterRunStatus.CANCELED})


def defer(
    context: dg.AssetExecutionContext,
    services: Services,
    deferral: Deferred,
    *,
    so_far: Mapping[str, str] | None = None,
) -> None:
    """Close the gate and queue the run's successor; the step then ends without materializing anything.

    Closing comes first: a successor queued before an open gate would be launched at once, to find the quota closed.
    `so_far` are tags for the successor: how far this came, where no sync in the store says so.
    """
    now = services.clock()
    context.log.info("%s. Everything collected so far is stored.", deferral)
    close = partial(close_gate, context.instance)
    services.patiently(close, bucket=deferral.bucket, until=deferral.resume_at, now=now)
    tags = {DEFERRED_BUCKET: deferral.bucket, DEFERRED_UNTIL: deferral.resume_at.isoformat(timespec="seconds")}
    tags.update(so_far or {})
    context.instance.add_run_tags(context.run.run_id, tags)
    context.log_event(_observation(context, deferral, now))
    if not _has_queue(context):
        # What has no partition has no checkpoint either.
        goes_on = "; it goes on where it stopped" if context.has_partition_key else ""
        context.log.warning(
            "Not materialized: this run did not come from Dagster's queue, so nothing will take over from it. "
            "Run it again %s%s.",
            moment(deferral.resume_at, now),
            goes_on,
        )
        return
    successor = queue_successor(context.instance, context.run.run_id, tags, context.repository_def)
    if successor:
        when = moment(deferral.resume_at, now)
        context.log.info("Run %s waits in the queue and goes on %s.", successor.run_id, when)


def identity(run: dg.DagsterRun) -> RunIdentity:
    """Say which run this is and which one's syncs it continues, if any.

    Tags are copied when somebody re-executes a run by hand; only a run whose parent is the one the tag names is a
    successor.
    """
    named = run.tags.get(SUCCESSOR_OF)
    predecessor = named if named and named == run.parent_run_id else None
    return RunIdentity(run_id=run.run_id, root_run_id=run.root_run_id or run.run_id, predecessor=predecessor)


def queue_successor(
    instance: DagsterInstance,
    run_id: str,
    tags: Mapping[str, str],
    repository_def: dg.RepositoryDefinition,
) -> dg.DagsterRun | None:
    """Queue the run that takes over from `run_id`, once, however often this is called.

    Returns:
        The successor, or None when the run is being cancelled: what is cancelled stays cancelled.
    """
    run = instance.get_run_by_id(run_id)
    if run is None or run.status in _BEING_CANCELLED:
        return None
    successor = find_successor(instance, run_id)
    if successor is None:
        successor = _create_successor(instance, run, tags, repository_def)
    elif tags[DEFERRED_UNTIL] > successor.tags.get(DEFERRED_UNTIL, ""):
        instance.add_run_tags(successor.run_id, tags)
    if successor.status == dg.DagsterRunStatus.NOT_STARTED:
        instance.run_coordinator.submit_run(SubmitRunContext(successor, workspace=None))  # pyright: ignore[reportArgumentType]
    return successor


def find_successor(instance: DagsterInstance, run_id: str) -> dg.DagsterRun | None:
    """Return the run queued to take over from `run_id`, whatever became of it since."""
    records = instance.get_run_records(dg.RunsFilter(tags={SUCCESSOR_OF: run_id}))
    return next((r.dagster_run for r in records if r.dagster_run.parent_run_id == run_id), None)


def _has_queue(context: dg.AssetExecutionContext) -> bool:
    """Tell whether a daemon would launch a run queued from here (`dagster asset materialize` has none behind it)."""
    return context.run.remote_job_origin is not None and isinstance(
        context.instance.run_coordinator, QueuedRunCoordinator
    )


def _observation(context: dg.AssetExecutionContext, deferral: Deferred, now: datetime) -> dg.AssetObservation:
    """Show the deferral on the asset; an observation is not a materialization."""
    return dg.AssetObservation(
        asset_key=context.asset_key,
        partition=context.partition_key if context.has_partition_key else None,
        description=f"Deferred: {limit_reached(deferral.bucket)}; goes on {moment(deferral.resume_at, now)}.",
        metadata={
            "resume_at": dg.MetadataValue.timestamp(deferral.resume_at),
            "bucket": deferral.bucket,
            "limit": deferral.kind,
            "records_so_far": deferral.collected,
        },
    )


def _create_successor(
    instance: DagsterInstance,
    run: dg.DagsterRun,
    tags: Mapping[str, str],
    repository_def: dg.RepositoryDefinition,
) -> dg.DagsterRun:
    """Create a run like `run`, linked to it as a re-execution. What was selected and how it was planned is the same."""
    job_snapshot_id, plan_snapshot_id = run.job_snapshot_id, run.execution_plan_snapshot_id
    if job_snapshot_id is None or plan_snapshot_id is None:
        raise RuntimeError(f"run {run.run_id} was launched without snapshots of its job; launch it from the Dagster UI")
    return instance.create_run(
        job_name=run.job_name,
        run_id=None,
        run_config=run.run_config,
        status=None,
        tags=dict(_successor_tags(instance, run)) | dict(tags),
        root_run_id=run.root_run_id or run.run_id,
        parent_run_id=run.run_id,
        step_keys_to_execute=run.step_keys_to_execute,
        execution_plan_snapshot=instance.get_execution_plan_snapshot(plan_snapshot_id),
        job_snapshot=instance.get_job_snapshot(job_snapshot_id),
        parent_job_snapshot=None,
        asset_selection=run.asset_selection,
        asset_check_selection=run.asset_check_selection,
        resolved_op_selection=run.resolved_op_selection,
        op_selection=run.op_selection,
        remote_job_origin=run.remote_job_origin,
        job_code_origin=run.job_code_origin,
        asset_graph=repository_def.asset_graph,
    )


def _successor_tags(instance: DagsterInstance, run: dg.DagsterRun) -> Iterator[tuple[str, str]]:
    """Yield the tags that pass from a run to its successor."""
    dropped = TAGS_TO_MAYBE_OMIT_ON_RETRY - (BACKFILL_TAGS if _backfill_is_open(instance, run) else set())
    for key, value in run.tags.items():
        if key not in dropped and not key.startswith(HIDDEN_TAG_PREFIX):
            yield key, value
    yield SUCCESSOR_OF, run.run_id
    yield PARENT_RUN_ID_TAG, run.run_id
    yield ROOT_RUN_ID_TAG, run.root_run_id or run.run_id
    yield from _retries_left(instance, run)


def _retries_left(instance: DagsterInstance, run: dg.DagsterRun) -> Iterator[tuple[str, str]]:
    """Raise the limit of run retries by one.

    Dagster counts every run with the same root as a retry, so that each deferral would use one up.
    """
    limit = int(run.tags.get(MAX_RETRIES_TAG, instance.run_retries_max_retries))
    if limit > 0:
        yield MAX_RETRIES_TAG, str(limit + 1)


def _backfill_is_open(instance: DagsterInstance, run: dg.DagsterRun) -> bool:
    """Tell whether the run's backfill still counts runs; a finished one would show a late run as its own."""
    backfill_id = run.tags.get(BACKFILL_ID_TAG)
    backfill = instance.get_backfill(backfill_id) if backfill_id else None
    return backfill is not None and backfill.status == BulkActionStatus.REQUESTED
