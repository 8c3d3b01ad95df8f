"""A run's process killed when a stage is stored and Dagster does not know it yet; then another run."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import dagster as dg
import pytest
import sqlalchemy as sa

from bandsync_dagster.definitions import build_defs
from bandsync_dagster.resources import Services
from bandsync_dagster.settings import Settings
from bandsync_dagster.simulator import SimulatedGitHub, generate
from bandsync_dagster.store.engine import create_store_engine
from bandsync_dagster.store.schema import STAGE_TABLES, STAGES, syncs
from bandsync_dagster.tags import COLLECTION_JOB
from bandsync_dagster_tests.asset_runs import services_for
from bandsync_dagster_tests.collection.simulated import assert_same_rows, on_sqlite
from bandsync_dagster_tests.collection.workers import die
from bandsync_dagster_tests.store.builders import stored
from bandsync_dagster_tests.store.processes import in_process_that_is_killed

NAME = "acme/alto"


def collect(services: Services, instance: dg.DagsterInstance) -> dg.ExecuteInProcessResult:
    """Collect the repository in a run in this process."""
    job = build_defs(resource_overrides={"services": services}).resolve_job_def(COLLECTION_JOB)
    return job.execute_in_process(partition_key=NAME, instance=instance, raise_on_error=False)


def collect_until(home: str, settings: Settings, stage: str, moment: str) -> None:
    """Collect in this process, which dies when the asset has got its result, or when its materialization is stored."""
    with dg.DagsterInstance.from_config(home) as instance:
        store = instance.event_log_storage.store_event

        def store_event(event: dg.EventLogEntry) -> None:
            if moment == _moment_of(event, stage):
                die()
            store(event)

        instance.event_log_storage.store_event = store_event
        collect(Services(settings, create_store_engine(settings.database_url)), instance)


def _moment_of(entry: dg.EventLogEntry, stage: str) -> str | None:
    if entry.dagster_event is None:
        return "result" if f"{stage} collected" in entry.user_message else None
    materialized = entry.dagster_event.event_type == dg.DagsterEventType.ASSET_MATERIALIZATION
    return "materialization" if materialized and entry.dagster_event.asset_key == dg.AssetKey(stage) else None


@pytest.fixture
def github() -> Iterator[SimulatedGitHub]:
    """A GitHub with one repository, in which everything is finished."""
    with SimulatedGitHub(generate(9, repositories=1, changes=6, runs=6, awkward=False)) as github:
        yield github


@on_sqlite
@pytest.mark.parametrize(
    ("stage", "moment"),
    [("changes", "result"), ("verifications", "materialization"), ("jobs", "materialization")],
)
def test_what_dagster_was_not_told_of_any_more_is_not_collected_again(
    github: SimulatedGitHub,
    engine: sa.Engine,
    instance: dg.DagsterInstance,
    tmp_path: Path,
    *,
    stage: str,
    moment: str,
) -> None:
    """The other run only makes sure that nothing is new, materializes everything, and the counters are exact."""
    instance.add_dynamic_partitions("repositories", [NAME])
    services = services_for(github, engine, tmp_path)
    in_process_that_is_killed(collect_until, str(tmp_path / "dagster"), services.settings, stage, moment)
    assert materialized(instance) == set(STAGES[: STAGES.index(stage)])
    assert [sync["state"] for sync in stored(engine, syncs)] == ["completed"] * (STAGES.index(stage) + 1)
    github.clear_log()
    assert collect(services, instance).success
    assert materialized(instance) == set(STAGES)
    assert_only_looked_at(STAGES[: STAGES.index(stage) + 1], github)
    for each in STAGES:
        rows = stored(engine, STAGE_TABLES[each])
        assert_same_rows(rows, github.world.truth()[each])
        own = [sync for sync in stored(engine, syncs) if sync["stage"] == each]
        assert sum(sync["records_created"] for sync in own) == len(rows)
        assert all(sync["records_collected"] == sync["records_created"] for sync in own)


def assert_only_looked_at(done: Sequence[str], github: SimulatedGitHub) -> None:
    """Of a stage that is stored it is asked whether anything is new, which nothing is; of the repository nothing."""
    asked = {
        "changes": [request.document for request in github.log if "Changes" in (request.document or "")],
        "verifications": [request.status for request in github.log if request.path.endswith("/actions/runs")],
        "jobs": [request.path for request in github.log if request.document == "Suites" or "/jobs" in request.path],
    }
    looks: dict[str, list[object]] = {"changes": ["ChangesForward"], "verifications": [304], "jobs": []}
    assert {stage: asked[stage] for stage in done} == {stage: looks[stage] for stage in done}
    assert github.count(path=f"/repos/{NAME}$") == 0


def materialized(instance: dg.DagsterInstance) -> set[str]:
    """Return the stages that Dagster shows as materialized for the repository."""
    return {stage for stage in STAGES if NAME in instance.get_materialized_partitions(dg.AssetKey(stage))}
