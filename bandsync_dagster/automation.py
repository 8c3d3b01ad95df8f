"""Schedules and sensors: what happens by itself. Each body reads, calls one decision, and translates the answer."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

import dagster as dg

from bandsync_dagster.collection.activity import is_up_to_date
from bandsync_dagster.gate import buckets_needed, tend_gate
from bandsync_dagster.partitions import repositories_partitions
from bandsync_dagster.reconciliation import reconcile
from bandsync_dagster.resources import Services
from bandsync_dagster.store import queries
from bandsync_dagster.store.activity import latest_looks
from bandsync_dagster.store.standing import standings
from bandsync_dagster.tags import ACTIVITY_JOB, COLLECTION_JOB, DISCOVERY_JOB, PARTITION, POOL, PRIORITY
from bandsync_dagster.wording import limit_reached, moment

UNFINISHED = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


@dg.schedule(
    job_name=DISCOVERY_JOB,
    cron_schedule="0 * * * *",
    description="Every hour: list the repositories of all sources, so that new ones become partitions.",
)
def hourly_discovery(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
    """Request one discovery an hour, unless the last one still waits or works."""
    return _request_once(context, DISCOVERY_JOB, "discovery")


@dg.schedule(
    job_name=ACTIVITY_JOB,
    cron_schedule="5 * * * *",
    description="Every hour: find out which repositories have anything to collect, for almost no quota.",
)
def hourly_activity(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
    """Request one look at the repositories' activity an hour, unless the last one still waits or works."""
    # Ahead of the collections in the queue: most of those may turn out not to be needed.
    return _request_once(context, ACTIVITY_JOB, "activity", **{PRIORITY: "10"})


def _request_once(
    context: dg.ScheduleEvaluationContext, job: str, name: str, **tags: str
) -> dg.RunRequest | dg.SkipReason:
    if context.instance.get_runs_count(dg.RunsFilter(job_name=job, statuses=UNFINISHED)):
        return dg.SkipReason(f"The last run of {job} has not finished: two would spend the same quota.")
    return dg.RunRequest(run_key=f"{name}/{context.scheduled_execution_time:%Y-%m-%dT%H:%M}", tags=tags)


@dg.schedule(
    job_name=COLLECTION_JOB,
    cron_schedule="15 * * * *",
    description="Every hour: collect every repository, except those without anything new since the last look at their "
    "activity and those that have an unfinished run.",
)
def hourly_collection(
    context: dg.ScheduleEvaluationContext, services: dg.ResourceParam[Services]
) -> Iterator[dg.RunRequest]:
    """Request one run for each repository that may have anything new and that nobody is about to collect."""
    return collection_requests(
        context.instance.get_dynamic_partitions(repositories_partitions.name or ""),
        busy=_partitions_with_unfinished_runs(context.instance),
        up_to_date=_up_to_date(services),
        tick=context.scheduled_execution_time,
    )


def collection_requests(
    keys: Sequence[str], *, busy: set[str], up_to_date: set[str], tick: datetime
) -> Iterator[dg.RunRequest]:
    """Choose what a tick of the collection schedule launches.

    Args:
        keys: The partitions.
        busy: Those of them that have an unfinished run.
        up_to_date: The lower-case names of the repositories that are known to have nothing to collect.
        tick: The tick's time. Each partition is requested at most once for it.
    """
    for key in keys:
        if key not in busy and key.lower() not in up_to_date:
            yield dg.RunRequest(run_key=f"{tick:%Y-%m-%dT%H:%M}/{key}", partition_key=key)


@dg.sensor(
    name="quota_gate",
    minimum_interval_seconds=5,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Opens the gate when GitHub's quota is back: while it is closed the pool's limit is 0 and runs wait.",
)
def quota_gate(context: dg.SensorEvaluationContext, services: dg.ResourceParam[Services]) -> dg.SkipReason:
    """Do to the gate what is due, and say how it stands."""
    now = services.clock()
    needed = buckets_needed(_queued_runs(context.instance))
    gate = tend_gate(context.instance, services.engine, needed=needed, opens_at=services.opens_at(needed, now), now=now)
    if gate is None or gate.state != "closed":
        return dg.SkipReason("The gate is open.")
    when = moment(gate.closed_until, now) if gate.closed_until else "as soon as possible"
    why = limit_reached(gate.bucket) if gate.bucket else "somebody closed it"
    return dg.SkipReason(f"The gate is closed: {why}. It opens {when}.")


@dg.sensor(
    name="reconciliation",
    minimum_interval_seconds=10,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Ends syncs whose run ended, was cancelled or vanished without telling, and says why.",
)
def reconciliation(context: dg.SensorEvaluationContext, services: dg.ResourceParam[Services]) -> dg.SkipReason:
    """End what nobody works on any more; the cursor holds the syncs that were silent at the last look."""
    suspects = frozenset(json.loads(context.cursor or "[]"))
    look = reconcile(context.instance, services.engine, suspects=suspects, now=services.clock())
    context.update_cursor(json.dumps(sorted(look.suspects)))
    return dg.SkipReason("; ".join(look.ended) or "Every unfinished sync has a run that works on it or will.")


@dg.sensor(
    name="retirement",
    minimum_interval_seconds=300,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Removes the partitions of repositories that are gone or have another name now, once nothing targets "
    "them any more.",
)
def retirement(
    context: dg.SensorEvaluationContext, services: dg.ResourceParam[Services]
) -> dg.SensorResult | dg.SkipReason:
    """Remove partitions that stand for no repository any more and that no backfill and no unfinished run targets.

    Removing one that a backfill targets would end the whole backfill, so an open backfill postpones all removals.
    """
    keys = partitions_to_retire(
        context.instance.get_dynamic_partitions(repositories_partitions.name or ""),
        gone=queries.gone_repositories(services.engine),
        former=queries.former_names(services.engine),
    )
    if not keys or _backfill_is_open(context.instance):
        return dg.SkipReason("No partition to remove, or a backfill may still need it.")
    idle = sorted(keys - _partitions_with_unfinished_runs(context.instance))
    return dg.SensorResult(dynamic_partitions_requests=[repositories_partitions.build_delete_request(idle)])


def partitions_to_retire(keys: Sequence[str], *, gone: Sequence[str], former: Mapping[str, str]) -> set[str]:
    """Choose the partitions that stand for no repository any more.

    Args:
        keys: The partitions.
        gone: The names of the repositories that are gone.
        former: Names of repositories that have another one now, and that one; in lower case. Such a partition has had
            its day once the present name has one too: both would collect the same.
    """
    spelled = {key.lower(): key for key in keys}
    renamed = (old for old, new in former.items() if new in spelled)
    return {spelled[name] for name in (*map(str.lower, gone), *renamed) if name in spelled}


def _up_to_date(services: Services) -> set[str]:
    """Return the lower-case names of the repositories that are known to have nothing to collect."""
    now = services.clock()
    looks = latest_looks(services.engine)
    known = standings(services.engine, now=now, detail=services.settings.detail)
    repositories = (each.repository for each in known if is_up_to_date(each, looks.get(each.repository.id), now=now))
    return {repository.full_name.lower() for repository in repositories}


def _queued_runs(instance: dg.DagsterInstance) -> Iterator[dg.DagsterRun]:
    """Return the runs that wait in the queue for the pool."""
    queued = dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED])
    for record in instance.get_run_records(queued):
        pools = record.dagster_run.run_op_concurrency
        if pools and pools.all_pools and POOL in pools.all_pools:
            yield record.dagster_run


def _partitions_with_unfinished_runs(instance: dg.DagsterInstance) -> set[str]:
    unfinished = instance.get_run_records(dg.RunsFilter(statuses=UNFINISHED))
    return {key for record in unfinished if (key := record.dagster_run.tags.get(PARTITION))}


def _backfill_is_open(instance: dg.DagsterInstance) -> bool:
    return any(backfill.status.value in {"REQUESTED", "CANCELING", "FAILING"} for backfill in instance.get_backfills())


schedules = [hourly_discovery, hourly_activity, hourly_collection]
sensors = [quota_gate, reconciliation, retirement]
