"""Deferral: who continues what, what a successor is like, and that no attempt is used up."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import dagster as dg
import pytest
import sqlalchemy as sa
from dagster._core.execution.retries import auto_reexecution_should_retry_run
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteRepositoryOrigin
from dagster._core.storage.tags import MAX_RETRIES_TAG, RETRY_NUMBER_TAG, ROOT_RUN_ID_TAG

from bandsync_dagster.collection.collector import RunIdentity
from bandsync_dagster.deferral import find_successor, identity, queue_successor
from bandsync_dagster.definitions import build_defs
from bandsync_dagster.gate import pool_limit
from bandsync_dagster.resources import Services
from bandsync_dagster.settings import Settings
from bandsync_dagster.simulator import DEFAULT_TOKEN, SimulatedGitHub, generate
from bandsync_dagster.step_retries import STEP_RETRIES, StepRetries
from bandsync_dagster.store.schema import STAGES
from bandsync_dagster.store.status import coverage
from bandsync_dagster.tags import (
    COLLECTION,
    COLLECTION_JOB,
    DEFERRED_BUCKET,
    DEFERRED_UNTIL,
    DISCOVERY_JOB,
    PARTITION,
    SUCCESSOR_OF,
)

NOON = {DEFERRED_UNTIL: "2026-03-01T12:00:00+00:00", DEFERRED_BUCKET: "core"}
LATER = {DEFERRED_UNTIL: "2026-03-01T13:00:00+00:00", DEFERRED_BUCKET: "graphql"}
ORIGIN = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("bandsync"), "__repository__").get_job_origin("collection")


@pytest.fixture(scope="module")
def code() -> dg.RepositoryDefinition:
    """What a step sees as the repository definition it belongs to."""
    return build_defs().get_repository_def()


def start(instance: dg.DagsterInstance, code: dg.RepositoryDefinition, *assets: str, **tags: str) -> dg.DagsterRun:
    """Create a started run of the collection job, or of some of its assets, as the queue leaves it."""
    instance.add_dynamic_partitions("repositories", ["acme/pool"])
    job = code.get_job(COLLECTION_JOB)
    return instance.create_run_for_job(
        job,
        tags={PARTITION: "acme/pool", COLLECTION: "c1", ".dagster/grpc_info": "{}", RETRY_NUMBER_TAG: "1", **tags},
        asset_selection=frozenset(map(dg.AssetKey, assets)) or None,
        status=dg.DagsterRunStatus.STARTED,
        remote_job_origin=ORIGIN,
    )


def end(instance: dg.DagsterInstance, run: dg.DagsterRun, *, well: bool) -> dg.DagsterRun:
    """End a run; return it as it is afterwards."""
    if not well:
        instance.report_run_failed(run)
    else:
        instance.report_dagster_event(dg.DagsterEvent("PIPELINE_SUCCESS", run.job_name), run.run_id)
    after = instance.get_run_by_id(run.run_id)
    assert after is not None
    return after


def test_a_successor_does_what_its_predecessor_did(instance: dg.DagsterInstance, code: dg.RepositoryDefinition) -> None:
    """It selects the same assets and steps, carries its tags, waits in the queue, and is linked as a re-execution."""
    run = start(instance, code, "verifications", "jobs")
    successor = queue_successor(instance, run.run_id, NOON, code)
    assert successor is not None
    queued = instance.get_run_by_id(successor.run_id)
    assert queued is not None
    assert queued.status == dg.DagsterRunStatus.QUEUED
    assert (queued.parent_run_id, queued.root_run_id) == (run.run_id, run.run_id)
    assert queued.asset_selection == run.asset_selection
    assert queued.execution_plan_snapshot_id == run.execution_plan_snapshot_id
    assert queued.run_op_concurrency == run.run_op_concurrency
    assert {k: queued.tags[k] for k in (PARTITION, COLLECTION, *NOON)} == {
        PARTITION: "acme/pool",
        COLLECTION: "c1",
        **NOON,
    }
    assert not {".dagster/grpc_info", RETRY_NUMBER_TAG} & queued.tags.keys()


def test_a_run_has_one_successor_however_often_it_is_deferred(
    instance: dg.DagsterInstance, code: dg.RepositoryDefinition
) -> None:
    """Two stages of a run may both meet the quota, and a step may be tried again: the later time is the one shown."""
    run = start(instance, code)
    first = queue_successor(instance, run.run_id, NOON, code)
    second = queue_successor(instance, run.run_id, LATER, code)
    third = queue_successor(instance, run.run_id, NOON, code)
    assert first is not None
    assert second is not None
    assert third is not None
    assert first.run_id == second.run_id == third.run_id
    shown = find_successor(instance, run.run_id)
    assert shown is not None
    assert {key: shown.tags[key] for key in LATER} == LATER


@pytest.mark.parametrize("status", [dg.DagsterRunStatus.CANCELING, dg.DagsterRunStatus.CANCELED])
def test_a_run_that_is_being_cancelled_gets_no_successor(
    instance: dg.DagsterInstance, code: dg.RepositoryDefinition, status: dg.DagsterRunStatus
) -> None:
    """What somebody cancelled stays cancelled."""
    run = start(instance, code)
    instance.report_run_canceling(run)
    if status == dg.DagsterRunStatus.CANCELED:
        instance.report_run_canceled(run)
    assert queue_successor(instance, run.run_id, NOON, code) is None
    assert find_successor(instance, run.run_id) is None


def test_only_a_successor_continues_syncs(instance: dg.DagsterInstance, code: dg.RepositoryDefinition) -> None:
    """A rerun by hand copies the tag that names the predecessor, but its parent is another run."""
    run = start(instance, code)
    assert identity(run) == RunIdentity(run.run_id, run.run_id, None)
    successor = queue_successor(instance, run.run_id, NOON, code)
    assert successor is not None
    assert identity(successor) == RunIdentity(successor.run_id, run.run_id, run.run_id)
    rerun = start(instance, code, **{SUCCESSOR_OF: run.run_id})
    assert identity(rerun).predecessor is None


def test_ten_deferrals_leave_an_error_all_its_retries(
    instance: dg.DagsterInstance, code: dg.RepositoryDefinition
) -> None:
    """Dagster counts runs with the same root as retries; each successor's limit makes up for its deferral."""
    run = start(instance, code)
    for _ in range(10):
        successor = queue_successor(instance, run.run_id, NOON, code)
        assert successor is not None
        end(instance, run, well=True)
        run = successor
    for number in range(instance.run_retries_max_retries):
        lost = end(instance, run, well=False)
        assert auto_reexecution_should_retry_run(instance, lost, None), f"no retry {number + 1}"
        run = instance.create_run_for_job(
            code.get_job(COLLECTION_JOB),
            tags={tag: lost.tags[tag] for tag in (PARTITION, MAX_RETRIES_TAG, ROOT_RUN_ID_TAG)},
            parent_run_id=lost.run_id,
            root_run_id=lost.root_run_id,
            status=dg.DagsterRunStatus.STARTED,
            remote_job_origin=ORIGIN,
        )
    assert not auto_reexecution_should_retry_run(instance, end(instance, run, well=False), None)


class Interruption(BaseException):
    """As little an error as KeyboardInterrupt."""


def test_an_error_in_a_step_is_tried_again_and_a_permanent_one_is_not() -> None:
    """Interrupts pass untouched: a cancelled step must not start again."""
    with pytest.raises(dg.RetryRequested) as retry, StepRetries():
        raise RuntimeError
    assert retry.value.max_retries == STEP_RETRIES
    with pytest.raises(dg.Failure), StepRetries():
        raise dg.Failure("no such repository", allow_retries=False)
    with pytest.raises(Interruption), StepRetries():
        raise Interruption


@pytest.fixture
def github() -> Iterator[SimulatedGitHub]:
    """A simulated GitHub with one repository."""
    with SimulatedGitHub(generate(7, repositories=1, changes=5, runs=5)) as github:
        yield github


def services_for(github: SimulatedGitHub, engine: sa.Engine, folder: Path) -> Services:
    """Return services that collect from it."""
    settings = Settings(
        home=folder,
        database_url=engine.url.render_as_string(hide_password=False),
        github_url=github.url,
        tokens=(DEFAULT_TOKEN,),
    )
    return Services(settings, engine)


def materialize(services: Services, instance: dg.DagsterInstance) -> dg.ExecuteInProcessResult:
    """Materialize the three stages without a queue, as `dagster asset materialize` does."""
    instance.add_dynamic_partitions("repositories", ["acme/alto"])
    job = build_defs(resource_overrides={"services": services}).resolve_job_def(COLLECTION_JOB)
    return job.execute_in_process(partition_key="acme/alto", instance=instance, raise_on_error=False)


def test_a_deferral_without_a_queue_ends_unmaterialized_and_says_when_to_run_again(
    instance: dg.DagsterInstance, engine: sa.Engine, github: SimulatedGitHub, tmp_path: Path
) -> None:
    """Nothing would ever take over, so no successor is made; the next run goes on from the checkpoints."""
    services = services_for(github, engine, tmp_path)
    github.spend("graphql", 10**6)
    github.spend("core", 10**6)
    result = materialize(services, instance)
    assert result.success
    assert result.get_asset_materialization_events() == []
    assert find_successor(instance, result.run_id) is None
    messages = [entry.user_message for entry in instance.all_logs(result.run_id)]
    assert any("Not materialized" in text and "Run it again at" in text for text in messages)
    assert any(text.endswith("it goes on where it stopped.") for text in messages)
    assert pool_limit(instance) == 0

    with engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM quotas"))
    github.reset_limits()
    again = materialize(services, instance)
    assert again.success
    assert len(again.get_asset_materialization_events()) == len(STAGES)
    assert coverage(engine, ["acme/alto"])["reached"] == 1


def test_a_discovery_deferred_without_a_queue_does_not_promise_to_go_on(
    instance: dg.DagsterInstance, engine: sa.Engine, github: SimulatedGitHub, tmp_path: Path
) -> None:
    """It has no checkpoint: the next run lists the sources from the start."""
    github.spend("core", 10**6)
    services = services_for(github, engine, tmp_path)
    services = replace(services, settings=replace(services.settings, sources=("org:acme",)))
    job = build_defs(resource_overrides={"services": services}).resolve_job_def(DISCOVERY_JOB)
    result = job.execute_in_process(instance=instance)
    assert result.get_asset_materialization_events() == []
    (told,) = [entry.user_message for entry in instance.all_logs(result.run_id) if "Not mat" in entry.user_message]
    assert "Run it again at" in told
    assert "goes on" not in told


def test_a_deferral_is_visible_on_run_and_asset(
    instance: dg.DagsterInstance, engine: sa.Engine, github: SimulatedGitHub, tmp_path: Path
) -> None:
    """The run's tags and an observation of the asset say which quota it was and when work goes on."""
    github.spend("graphql", 10**6)
    result = materialize(services_for(github, engine, tmp_path), instance)
    run = instance.get_run_by_id(result.run_id)
    assert run is not None
    assert run.tags[DEFERRED_BUCKET] == "graphql"
    until = datetime.fromisoformat(run.tags[DEFERRED_UNTIL])
    assert until - datetime.now(timezone.utc) < timedelta(hours=1, minutes=1)
    (observation,) = result.get_asset_observation_events()[:1]
    seen = observation.asset_observation_data.asset_observation
    assert seen.partition == "acme/alto"
    assert seen.metadata["bucket"].value == "graphql"
    assert seen.metadata["resume_at"].value == pytest.approx(until.timestamp(), abs=1)
