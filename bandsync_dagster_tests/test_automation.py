"""Schedules: what a tick launches, and what it leaves out."""

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteRepositoryOrigin
from dagster._core.test_utils import create_run_for_test
from dagster._core.utils import make_new_run_id

from bandsync_dagster.automation import FRESH_ACTIVITY, collection_requests, hourly_collection, retirement
from bandsync_dagster.collection.collector import RunIdentity, StageOptions
from bandsync_dagster.definitions import build_defs
from bandsync_dagster.resources import Services
from bandsync_dagster.settings import Settings
from bandsync_dagster.simulator import DEFAULT_TOKEN, Limits, SimulatedGitHub, generate
from bandsync_dagster.store.queries import find_repository
from bandsync_dagster.store.repositories import mark_repository
from bandsync_dagster.store.schema import STAGES
from bandsync_dagster.tags import ACTIVITY_JOB, DISCOVERY_JOB, PARTITION

TICK = datetime(2026, 3, 1, 12, 15, tzinfo=timezone.utc)
KEYS = ["acme/Alto", "acme/bass", "acme/cello"]
ORIGIN = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("bandsync"), "__repository__").get_job_origin("collection")
PLENTY = Limits(rest_points_per_minute=10**6, graphql_points_per_minute=10**6)


def requested(**known: Any) -> list[str | None]:
    """Return the partitions that a tick requests."""
    given: dict[str, Any] = {"busy": set(), "unchanged": set(), **known}
    return [request.partition_key for request in collection_requests(KEYS, tick=TICK, **given)]


def test_a_tick_requests_every_partition_once() -> None:
    """Run keys are of the tick and the partition: the same tick twice requests nothing new."""
    first, second = (list(collection_requests(KEYS, busy=set(), unchanged=set(), tick=TICK)) for _ in range(2))
    assert [request.partition_key for request in first] == KEYS
    assert len({request.run_key for request in first}) == len(KEYS)
    assert [request.run_key for request in first] == [request.run_key for request in second]
    later = collection_requests(KEYS, busy=set(), unchanged=set(), tick=TICK + timedelta(hours=1))
    assert not {request.run_key for request in first} & {request.run_key for request in later}


def test_a_partition_with_an_unfinished_run_is_not_requested_again() -> None:
    """Whoever asked for that run: a tick before, a backfill or a person."""
    assert requested(busy={"acme/bass"}) == ["acme/Alto", "acme/cello"]


def test_an_unchanged_repository_is_left_out_however_its_name_is_spelled() -> None:
    """The store compares names without regard to case, as GitHub does."""
    assert requested(unchanged={"acme/alto"}) == ["acme/bass", "acme/cello"]


@pytest.fixture
def github() -> Iterator[SimulatedGitHub]:
    """A simulated GitHub with three repositories."""
    with SimulatedGitHub(generate(11, repositories=3, changes=4, runs=4, awkward=False), limits=PLENTY) as github:
        yield github


@pytest.fixture
def services(engine: sa.Engine, github: SimulatedGitHub, tmp_path: Path) -> Services:
    """Services that collect from it."""
    return Services(
        Settings(
            home=tmp_path,
            database_url=engine.url.render_as_string(hide_password=False),
            github_url=github.url,
            tokens=(DEFAULT_TOKEN,),
            sources=("org:acme",),
        ),
        engine,
    )


def run_job(services: Services, instance: dg.DagsterInstance, job: str) -> dict[str, Any]:
    """Run an asset job in this process; return the metadata of what it materialized."""
    defs = build_defs(resource_overrides={"services": services})
    result = defs.resolve_job_def(job).execute_in_process(instance=instance)
    (event,) = result.get_asset_materialization_events()
    return {name: value.value for name, value in event.step_materialization_data.materialization.metadata.items()}


def collect_everything(services: Services) -> None:
    """Collect all stages of all repositories."""
    for number, key in enumerate(("acme/alto", "acme/bass", "acme/cello")):
        run = RunIdentity(f"run-{number}", f"run-{number}")
        for stage in STAGES:
            services.collector().collect(stage, key, run, StageOptions())


def tick(services: Services, instance: dg.DagsterInstance) -> list[str]:
    """Return the partitions that the schedule requests now."""
    now = services.clock()
    with dg.build_schedule_context(
        instance=instance, scheduled_execution_time=now, resources={"services": services}
    ) as context:
        return [request.partition_key for request in hourly_collection(context)]


def test_only_what_is_not_known_to_be_unchanged_is_collected(
    services: Services, instance: dg.DagsterInstance, github: SimulatedGitHub
) -> None:
    """Nothing known: all. Scanned and unchanged: none. One touched: that one. The scan too old: all again."""
    run_job(services, instance, DISCOVERY_JOB)
    everything = ["acme/alto", "acme/bass", "acme/cello"]
    assert tick(services, instance) == everything
    first = run_job(services, instance, ACTIVITY_JOB)
    assert first["active"] == 3
    assert first["forecast_core"] > 0
    assert first["forecast_windows"] == 1
    assert tick(services, instance) == everything

    collect_everything(services)
    assert run_job(services, instance, ACTIVITY_JOB)["active"] == 0
    assert tick(services, instance) == []

    github.world.add_run(github.world.repository("acme/bass"))
    scan = run_job(services, instance, ACTIVITY_JOB)
    assert scan["why"] == {"acme/bass": ["new workflow runs"]}
    assert tick(services, instance) == ["acme/bass"]

    late = Services(services.settings, services.engine, lambda: datetime.now(timezone.utc) + FRESH_ACTIVITY)
    assert tick(late, instance) == everything


def test_a_scan_without_quota_is_deferred(
    services: Services, instance: dg.DagsterInstance, github: SimulatedGitHub
) -> None:
    """It materializes nothing and nothing fails."""
    run_job(services, instance, DISCOVERY_JOB)
    collect_everything(services)
    github.spend("graphql", 10**6)
    with services.engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM quotas"))
    defs = build_defs(resource_overrides={"services": services})
    result = defs.resolve_job_def(ACTIVITY_JOB).execute_in_process(instance=instance)
    assert result.success
    assert result.get_asset_materialization_events() == []


def test_a_second_tick_leaves_out_what_the_first_one_queued(services: Services, instance: dg.DagsterInstance) -> None:
    """As long as a partition's run waits in the queue, no other is requested."""
    run_job(services, instance, DISCOVERY_JOB)
    queue(instance, "acme/alto")
    assert tick(services, instance) == ["acme/bass", "acme/cello"]


def queue(instance: dg.DagsterInstance, key: str) -> None:
    """Put a run of a partition into the queue."""
    create_run_for_test(
        instance,
        run_id=make_new_run_id(),
        status=dg.DagsterRunStatus.QUEUED,
        tags={PARTITION: key},
        remote_job_origin=ORIGIN,
    )


def retired(services: Services, instance: dg.DagsterInstance) -> list[str]:
    """Return the partitions that the retirement sensor asks to remove."""
    with dg.build_sensor_context(instance=instance, resources={"services": services}) as context:
        result = retirement(context)
    if isinstance(result, dg.SkipReason):
        return []
    assert isinstance(result, dg.SensorResult)
    return [key for request in result.dynamic_partitions_requests or [] for key in request.partition_keys]


def test_a_partition_is_removed_when_its_repository_is_gone_and_nothing_targets_it(
    services: Services, instance: dg.DagsterInstance
) -> None:
    """Not while it has an unfinished run: that would fail."""
    run_job(services, instance, DISCOVERY_JOB)
    assert retired(services, instance) == []
    gone = find_repository(services.engine, "acme/bass")
    assert gone is not None
    mark_repository(services.engine, gone.id, "gone", "deleted", now=services.clock())
    assert retired(services, instance) == ["acme/bass"]
    queue(instance, "acme/bass")
    assert retired(services, instance) == []
