"""The hourly look at the repositories' activity in a whole deployment, when it takes more quota than a window has."""

from collections.abc import Iterator

import dagster as dg
import pytest
import sqlalchemy as sa

from bandsync_dagster.automation import hourly_collection
from bandsync_dagster.clock import utc_now
from bandsync_dagster.simulator import Limits, generate
from bandsync_dagster.simulator.limits import RateLimiter
from bandsync_dagster.store.activity import latest_looks
from bandsync_dagster.tags import ACTIVITY_JOB, DEFERRED_BUCKET, SUCCESSOR_OF
from bandsync_dagster_tests.asset_runs import PLENTY, collect
from bandsync_dagster_tests.end_to_end.conftest import Deploy
from bandsync_dagster_tests.end_to_end.deployed import Deployed

WINDOW = 60.0


def shrink_windows(dagster: Deployed, core: int) -> None:
    """Let GitHub grant only so many requests in a window from now on, and let nobody know anything else."""
    dagster.github.application.limiter = RateLimiter(Limits(core=core, window=WINDOW))
    with dagster.engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM quotas"))


def requested(dagster: Deployed) -> set[str]:
    """Return the repositories that the hourly collection would launch now."""
    resources = {"services": dagster.local.services}
    with dg.build_schedule_context(
        instance=dagster.instance, scheduled_execution_time=utc_now(), resources=resources
    ) as context:
        requests: Iterator[dg.RunRequest] = hourly_collection(context)  # pyright: ignore[reportAssignmentType]
        return {request.partition_key or "" for request in requests}


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_look_that_takes_two_windows_of_quota_ends_well(deploy: Deploy) -> None:
    """Its run is green, its successor waits and asks about the others only; then the active ones are collected."""
    world = generate(4, repositories=12, changes=2, runs=2, awkward=False)
    dagster = deploy(world, limits=PLENTY, settings={"BANDSYNC_RESERVE": "0"})
    dagster.discover()
    collect(dagster.local.services, *dagster.names)
    busy = set(dagster.names[2:])
    for name in busy:
        world.add_run(world.repository(name))
    assert requested(dagster) == set(dagster.names)

    shrink_windows(dagster, core=7)
    dagster.github.clear_log()
    first = dagster.finish(dagster.launch(ACTIVITY_JOB))
    assert (first.status, first.tags[DEFERRED_BUCKET]) == ("SUCCESS", "core")
    [waiting] = dagster.runs(**{SUCCESSOR_OF: first.id})
    assert (waiting.parent, waiting.status) == (first.id, "QUEUED")
    assert 0 < len(latest_looks(dagster.engine)) < 12
    assert dagster.instance.get_latest_materialization_event(dg.AssetKey("activity")) is None

    assert dagster.finish(waiting.id).status == "SUCCESS"
    event = dagster.instance.get_latest_materialization_event(dg.AssetKey("activity"))
    assert event is not None
    assert event.asset_materialization is not None
    told = {name: value.value for name, value in event.asset_materialization.metadata.items()}
    log = dagster.github.log
    # Behind the last query for activity is the forecast.
    looked = log[: max(number for number, each in enumerate(log) if each.bucket == "graphql")]
    asked = sorted(each.path for each in looked if each.bucket == "core")
    assert asked == sorted(f"/repos/{name}/actions/runs" for name in dagster.names)
    assert (told["repositories"], told["active"], told["deferrals"]) == (12, 10, 1)
    assert told["requests"] == len(looked)
    assert requested(dagster) == busy
