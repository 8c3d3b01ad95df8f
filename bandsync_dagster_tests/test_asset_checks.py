"""The asset checks over real rows: they pass on what was collected, and notice every kind of wrong count."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
import sqlalchemy as sa

from bandsync_dagster.asset_checks import CLAIMS, build_asset_checks
from bandsync_dagster.definitions import build_defs
from bandsync_dagster.resources import Services
from bandsync_dagster.settings import Settings
from bandsync_dagster.simulator import DEFAULT_TOKEN, SimulatedGitHub, generate
from bandsync_dagster.store.schema import STAGES
from bandsync_dagster.tags import COLLECTION_JOB, COVERAGE_JOB
from bandsync_dagster_tests.collection.commits import lose_connection, strike_at_statement

NAME = "acme/alto"
Results = dict[str, bool]


@pytest.fixture
def services(engine: sa.Engine, tmp_path: Path) -> Iterator[Services]:
    """Services for a simulated GitHub with one repository."""
    with SimulatedGitHub(generate(9, repositories=1, changes=6, runs=6)) as github:
        url = engine.url.render_as_string(hide_password=False)
        settings = Settings(home=tmp_path, database_url=url, github_url=github.url, tokens=(DEFAULT_TOKEN,))
        yield Services(settings, engine)


def run_job(services: Services, instance: dg.DagsterInstance, job: str, key: str | None) -> dg.ExecuteInProcessResult:
    """Run one of the asset jobs in this process."""
    instance.add_dynamic_partitions("repositories", [NAME])
    defs = build_defs(resource_overrides={"services": services})
    return defs.resolve_job_def(job).execute_in_process(partition_key=key, instance=instance, raise_on_error=False)


def results(result: dg.ExecuteInProcessResult) -> Results:
    """Return whether each check passed, as `stage:check`."""
    return {f"{e.asset_key.to_user_string()}:{e.check_name}": e.passed for e in result.get_asset_check_evaluations()}


def check_again(services: Services) -> Results:
    """Run the stages' checks alone, on what is in the store."""
    passed: Results = {}
    for definition in build_asset_checks():
        (spec,) = definition.check_specs
        if spec.asset_key.to_user_string() in STAGES:
            result = definition(dg.build_op_context(partition_key=NAME), services=services)
            passed[f"{spec.asset_key.to_user_string()}:{spec.name}"] = result.passed  # pyright: ignore[reportAttributeAccessIssue]
    return passed


def test_all_checks_pass_on_what_was_collected(services: Services, instance: dg.DagsterInstance) -> None:
    """Four for each stage, each for the partition that was collected."""
    result = run_job(services, instance, COLLECTION_JOB, NAME)
    assert result.success
    passed = results(result)
    assert len(passed) == len(STAGES) * (len(CLAIMS) + 1)
    assert all(passed.values())
    assert {evaluation.partition for evaluation in result.get_asset_check_evaluations()} == {NAME}


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_check_waits_for_a_database_that_is_away(services: Services, instance: dg.DagsterInstance) -> None:
    """One that fails says that the counters are wrong, and nothing else."""
    assert run_job(services, instance, COLLECTION_JOB, NAME).success
    strike_at_statement(services.engine, 2, lose_connection(services.engine))
    assert set(check_again(services).values()) == {True}


@pytest.mark.parametrize(
    ("damage", "noticed_by"),
    [
        ("UPDATE syncs SET records_collected = records_collected + 1", {"every_record_counted_once"}),
        ("UPDATE syncs SET records_unchanged = records_unchanged + 1", {"every_record_counted_once"}),
        (
            "UPDATE syncs SET records_created = records_created - 1, records_updated = records_updated + 1",
            {"rows_equal_created", "rows_carry_their_sync"},
        ),
        ("UPDATE {stage} SET first_sync_id = -1", {"rows_carry_their_sync"}),
        (
            "DELETE FROM {stage} WHERE id = (SELECT min(id) FROM {stage})",
            {"rows_equal_created", "rows_carry_their_sync", "rows_match_github"},
        ),
    ],
    ids=["counted too often", "counted as unchanged too", "created taken for updated", "wrong sync", "row lost"],
)
def test_a_wrong_count_is_noticed(
    services: Services, instance: dg.DagsterInstance, damage: str, noticed_by: set[str]
) -> None:
    """Each kind of damage fails just the checks it contradicts, in every stage."""
    assert run_job(services, instance, COLLECTION_JOB, NAME).success
    for stage in STAGES:
        with services.engine.begin() as connection:
            connection.execute(sa.text(damage.format(stage=stage)))
        if "{stage}" not in damage:
            break
    failed = {name for name, passed in check_again(services).items() if not passed}
    expected = {f"{stage}:{check}" for stage in STAGES for check in noticed_by}
    assert failed == expected - {"jobs:rows_match_github"}


def test_checks_pass_where_nothing_was_collected_yet(services: Services) -> None:
    """A partition that was just added has nothing to count."""
    assert all(check_again(services).values())


def test_a_wrong_count_stops_what_builds_on_it(services: Services, instance: dg.DagsterInstance) -> None:
    """The counter checks are blocking: jobs are not collected on verifications that do not add up."""
    run_job(services, instance, COLLECTION_JOB, NAME)
    with services.engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM verifications WHERE id = (SELECT min(id) FROM verifications)"))
    result = run_job(services, instance, COLLECTION_JOB, NAME)
    assert not result.success
    assert not results(result)["verifications:rows_equal_created"]
    assert {key.to_user_string() for e in result.get_asset_materialization_events() if (key := e.asset_key)} == {
        "changes",
        "verifications",
    }


def test_coverage_counts_and_its_check_names_what_is_missing(services: Services, instance: dg.DagsterInstance) -> None:
    """Before anything is collected the repository is missing in all stages; afterwards it is reached."""
    before = run_job(services, instance, COVERAGE_JOB, None)
    assert results(before) == {"coverage:every_repository_reached": False}
    (evaluation,) = before.get_asset_check_evaluations()
    assert evaluation.metadata["not_reached"].value == len(STAGES)
    run_job(services, instance, COLLECTION_JOB, NAME)
    after = run_job(services, instance, COVERAGE_JOB, None)
    assert results(after) == {"coverage:every_repository_reached": True}
    (materialization,) = after.asset_materializations_for_node("coverage")
    assert materialization.metadata["reached"].value == 1
