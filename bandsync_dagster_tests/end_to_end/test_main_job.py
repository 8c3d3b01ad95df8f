"""The main job in the Dagster UI: discovery, a backfill, a rerun, one bad repository."""

from bandsync_dagster.simulator import generate
from bandsync_dagster.store.status import coverage
from bandsync_dagster.tags import PARTITION
from bandsync_dagster_tests.end_to_end.conftest import Deploy


def test_a_backfill_collects_every_repository_and_a_rerun_changes_nothing(deploy: Deploy) -> None:
    """All rows are as in the world, all checks pass; collecting one repository again only counts `unchanged`."""
    dagster = deploy(generate(2, repositories=12, changes=15, runs=15, rerun_share=0.1))
    assert dagster.discover().status == "SUCCESS"
    assert dagster.finish_backfill(dagster.backfill(dagster.names)) == "COMPLETED_SUCCESS"
    dagster.assert_true()
    assert dagster.failed_checks() == {}
    assert coverage(dagster.engine, dagster.names)["reached"] == 12

    before = {stage: dagster.table(stage) for stage in ("changes", "verifications", "jobs")}
    rerun = dagster.collect(dagster.names[0])
    assert rerun.status == "SUCCESS"
    assert {stage: dagster.table(stage) for stage in before} == before
    for sync in dagster.syncs()[-3:]:
        assert sync.run_id == rerun.id
        assert sync.records_collected == sync.records_unchanged
        assert (sync.records_created, sync.records_updated) == (0, 0)
    assert dagster.failed_checks() == {}


def test_one_bad_repository_fails_alone(deploy: Deploy) -> None:
    """Data that makes the code raise ends that repository's run; the other eleven succeed and are complete."""
    world = generate(3, repositories=12, changes=5, runs=5)
    dagster = deploy(world)
    bad = dagster.names[4]
    world.repository(bad).runs[0].run_number = "seven"  # pyright: ignore[reportAttributeAccessIssue]
    dagster.discover()
    assert dagster.finish_backfill(dagster.backfill(dagster.names)) == "COMPLETED_FAILED"
    status = {run.tags[PARTITION]: run.status for run in dagster.runs() if PARTITION in run.tags}
    assert status == {name: "FAILURE" if name == bad else "SUCCESS" for name in dagster.names}
    dagster.assert_true(bad)
    assert coverage(dagster.engine, dagster.names)["failed"] == 1
    reasons = [sync.error for sync in dagster.syncs() if sync.state == "failed"]
    assert len(reasons) == 1
    assert "run_number" in (reasons[0] or "")
