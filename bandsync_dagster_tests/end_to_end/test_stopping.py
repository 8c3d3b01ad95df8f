"""What Ctrl-C does to the runs: those that have begun end in order, those in the queue stay there."""

import pytest

from bandsync_dagster.cli.interrupts import Interrupts
from bandsync_dagster.cli.local import BEGUN
from bandsync_dagster.simulator import generate
from bandsync_dagster.store.queries import unfinished_syncs
from bandsync_dagster.tags import COLLECTION_JOB, PARTITION
from bandsync_dagster_tests.end_to_end.conftest import Deploy
from bandsync_dagster_tests.end_to_end.deployed import wait_for


def test_runs_just_starting_end_too_and_queued_ones_are_not_launched_meanwhile(deploy: Deploy) -> None:
    """Dagster refuses to end a run that is starting; and each run that ends makes room for one in the queue."""
    dagster = deploy(generate(5, repositories=8, changes=5, runs=5), latency=(2.0, 2.0))
    dagster.discover()
    launched = {dagster.launch(COLLECTION_JOB, **{PARTITION: name}) for name in dagster.names}
    wait_for("a run to be starting", lambda: dagster.runs(["STARTING"]))

    ended = dagster.local.end_runs(Interrupts(), tags={}, statuses=BEGUN, show=lambda _alive: None)

    status = {run.id: run.status for run in dagster.runs() if run.id in launched}
    cancelled = [run for run in status.values() if run == "CANCELED"]
    queued = [run for run in status.values() if run == "QUEUED"]
    assert ended == len(cancelled) >= 1
    # The pool has five places.
    assert len(queued) >= 3
    assert len(cancelled) + len(queued) == 8
    assert unfinished_syncs(dagster.engine) == []


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_repository_that_takes_too_long_makes_room_and_keeps_what_it_has(deploy: Deploy) -> None:
    """Dagster's run monitoring ends its run, its sync says so, and the next run goes on where that one stopped."""
    world = generate(7, repositories=1, changes=5, runs=60, awkward=False)
    dagster = deploy(world, latency=(1.0, 1.0), settings={"BANDSYNC_DETAIL": "full"})
    dagster.discover()
    (name,) = dagster.names
    ended = dagster.collect(name, **{"dagster/max_runtime": "15", "dagster/max_retries": "0"})
    # It depends on whose report is first: the run's own, or the monitoring's.
    assert ended.status in {"CANCELED", "FAILURE"}
    assert any("maximum runtime" in entry.message for entry in dagster.instance.all_logs(ended.id))
    wait_for("its syncs to end", lambda: not unfinished_syncs(dagster.engine))
    (stopped,) = [sync for sync in dagster.syncs() if sync.state != "completed"]
    assert (stopped.stage, stopped.state) == ("jobs", "cancelled")
    assert stopped.error
    kept = dagster.table("jobs")
    assert len(kept) == stopped.records_created > 0

    asked = dagster.github.count(bucket="core")
    assert dagster.collect(name).status == "SUCCESS"
    assert dagster.github.count(bucket="core") - asked < len(dagster.table("verifications"))
    assert {row["id"] for row in kept} < {row["id"] for row in dagster.table("jobs")}
