"""What goes wrong between GitHub and the collector, at every request in turn: the rows are the same in the end."""

import pytest

from bandsync_dagster.github.errors import ServerError
from bandsync_dagster.simulator import World, generate
from bandsync_dagster.store.schema import STAGES
from bandsync_dagster_tests.collection.simulated import START, Clockwork, Simulate, Simulation, on_sqlite

pytestmark = on_sqlite

EVERYWHERE = ("html_502", "html_504", "server_error", "cut", "malformed")
GRAPHQL_ONLY = ("query_timeout", "null_node", "partial", "resource_limits")


def small_world(clock: Clockwork) -> World:
    """Return a world of one repository that takes a few requests of every sort."""
    return generate(repositories=1, changes=140, runs=130, rerun_share=0.03, now=START, clock=clock)


@pytest.mark.parametrize("kind", [*EVERYWHERE, *GRAPHQL_ONLY])
def test_a_fault_at_any_request_costs_requests_but_no_row(simulate: Simulate, kind: str) -> None:
    """Each request in turn meets the fault once; nothing fails, and every row is as in the world."""
    clock = Clockwork()
    simulation = simulate(small_world(clock), clock)
    for stage in STAGES:
        fault, number = None, 0
        while fault is None or fault.fired:
            number += 1
            simulation.github.faults.clear()
            fault = simulation.github.faults.add(kind, at=[number])
            forget(simulation)
            simulation.collect(stage, "acme/alto", full_refresh=True)
        simulation.assert_true(stage)
        assert number > 2 or (kind in GRAPHQL_ONLY and stage != "changes")


def forget(simulation: Simulation) -> None:
    """Make all jobs wanted again, as if nothing had been collected of them."""
    with simulation.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM job_totals")


@pytest.mark.parametrize("kind", ["query_timeout", "resource_limits", "cut", "html_502"])
def test_pages_shrink_to_what_github_can_do_and_the_size_is_remembered(simulate: Simulate, kind: str) -> None:
    """A host that chokes on more than 20 changes is asked for 12 at a time, the next time from the start."""
    clock = Clockwork()
    simulation = simulate(small_world(clock), clock)
    simulation.github.faults.add(kind, document="ChangesBackward", larger_than=20, times=None)
    simulation.collect("changes", "acme/alto")
    simulation.assert_true("changes")
    assert simulation.position("changes", "acme/alto")["page_size"] in (12, 24)
    simulation.github.clear_log()
    simulation.collect("changes", "acme/alto", full_refresh=False)
    assert len(simulation.github.log) == 1


def test_a_suite_github_chokes_on_goes_by_rest(simulate: Simulate) -> None:
    """If not even one check suite can be had by GraphQL, REST pages through its jobs."""
    clock = Clockwork()
    simulation = simulate(small_world(clock), clock)
    simulation.collect("verifications", "acme/alto")
    simulation.github.faults.add("query_timeout", document="Suites", times=None)
    simulation.collect("jobs", "acme/alto")
    simulation.assert_true("jobs")


def test_a_change_that_stays_null_is_named_and_nothing_else_is_lost(simulate: Simulate) -> None:
    """The sync fails at its end, and the next one gets the change without collecting the others again."""
    clock = Clockwork()
    simulation = simulate(small_world(clock), clock)
    # Down to the change alone, and then as often as it is asked for again.
    simulation.github.faults.add("null_node", document="ChangesBackward", times=10)
    with pytest.raises(ServerError, match="as null"):
        simulation.collect("changes", "acme/alto")
    assert len(simulation.rows("changes")) == 139
    simulation.github.clear_log()
    simulation.collect("changes", "acme/alto")
    simulation.assert_true("changes")
    assert len(simulation.github.log) == 2


def test_when_every_change_is_null_the_sync_gives_up_soon(simulate: Simulate) -> None:
    """It isn't one change then, and finding out which costs quota."""
    clock = Clockwork()
    simulation = simulate(small_world(clock), clock)
    fault = simulation.github.faults.add("null_node", document="ChangesBackward", times=None)
    with pytest.raises(ServerError, match="as null"):
        simulation.collect("changes", "acme/alto")
    assert len(simulation.github.log) < 70
    simulation.github.faults.remove(fault)
    simulation.collect("changes", "acme/alto")
    simulation.assert_true("changes")


def test_a_run_whose_jobs_github_fails_to_return_does_not_keep_the_others_back(simulate: Simulate) -> None:
    """The sync fails at its end and names the run; the next one collects just that."""
    clock = Clockwork()
    simulation = simulate(small_world(clock), clock)
    simulation.collect("verifications", "acme/alto")
    run = next(run for run in simulation.world.repository("acme/alto").runs if len(run.attempts) > 1)
    fault = simulation.github.faults.add("server_error", path=f"/runs/{run.id}/jobs", times=None)
    with pytest.raises(ServerError, match=str(run.id)):
        simulation.collect("jobs", "acme/alto")
    missing = {job.id for job in run.jobs}
    stored = {row["id"] for row in simulation.rows("jobs")}
    assert stored | missing == {row["id"] for row in simulation.world.truth()["jobs"]}
    simulation.github.faults.remove(fault)
    simulation.collect("jobs", "acme/alto")
    simulation.assert_true("jobs")


def test_when_every_run_fails_the_sync_gives_up_soon(simulate: Simulate) -> None:
    """It isn't the runs then: three in a row are enough to know."""
    clock = Clockwork()
    simulation = simulate(small_world(clock), clock)
    simulation.collect("verifications", "acme/alto")
    simulation.github.faults.add("server_error", path="/jobs", times=None)
    with pytest.raises(ServerError):
        simulation.collect("jobs", "acme/alto", detail="full")
    assert len({request.path for request in simulation.github.log if request.path.endswith("/jobs")}) == 3
