"""Jobs where GraphQL tells nothing of check suites: a token that may not read them, or may not even know of them."""

from collections import Counter

import pytest

from bandsync_dagster.github.errors import Forbidden
from bandsync_dagster.simulator import Limits, World, generate
from bandsync_dagster.simulator.faults import Fault
from bandsync_dagster.store.queries import syncs_of_run
from bandsync_dagster_tests.collection.simulated import START, Clockwork, Simulate, Simulation, on_sqlite

pytestmark = on_sqlite

RUNS = 130


def listed(simulate: Simulate, limits: Limits | None = None, *, awkward: bool = True) -> Simulation:
    """Return a repository whose runs are collected, and their jobs are not; its log is empty."""
    clock = Clockwork()
    world = generate(repositories=1, changes=0, runs=RUNS, awkward=awkward, now=START, clock=clock)
    simulation = simulate(world, clock, limits=limits or Limits())
    simulation.collect("verifications", "acme/alto")
    simulation.github.clear_log()
    return simulation


def forbid_suites(simulation: Simulation) -> Fault:
    """Take the permission away that reading check suites by GraphQL needs."""
    return simulation.github.faults.add("forbidden_nodes", document="Suites", times=None)


def assert_asked_once_by_rest(simulation: Simulation) -> None:
    """Assert that every run was asked for by REST, and no page of its jobs twice."""
    asked = [(each.path, each.query["page"]) for each in simulation.github.log if each.path.endswith("/jobs")]
    assert len({path for path, _ in asked}) == RUNS
    assert set(Counter(asked).values()) == {1}


def test_a_token_that_may_not_read_check_suites_gets_the_jobs_run_by_run(simulate: Simulate) -> None:
    """GraphQL is asked once, REST once for each run, and whoever wonders at the cost finds out why."""
    simulation = listed(simulate)
    forbid_suites(simulation)
    result = simulation.collect("jobs", "acme/alto")
    simulation.assert_true("jobs")
    assert result.outcome == "complete"
    assert result.metrics["bulk"] == "forbidden"
    assert simulation.github.count(document="Suites") == 1
    assert_asked_once_by_rest(simulation)
    assert (result.requests, result.points) == (len(simulation.github.log), 1)


def test_the_next_sync_asks_graphql_again(simulate: Simulate) -> None:
    """Somebody may have granted it. Where there is nothing to collect, nothing is asked."""
    simulation = listed(simulate, awkward=False)
    forbidden = forbid_suites(simulation)
    simulation.collect("jobs", "acme/alto")
    simulation.github.clear_log()
    assert "bulk" not in simulation.collect("jobs", "acme/alto").metrics
    assert simulation.github.log == []
    simulation.github.faults.remove(forbidden)
    for _ in range(3):
        simulation.world.add_run(simulation.world.repository("acme/alto"))
    simulation.clock.advance(minutes=5)
    simulation.collect("verifications", "acme/alto")
    simulation.github.clear_log()
    assert "bulk" not in simulation.collect("jobs", "acme/alto").metrics
    assert simulation.spent() == {"core": 0, "graphql": 1}
    simulation.assert_true("jobs")


def test_where_rest_is_forbidden_too_there_is_no_access(simulate: Simulate) -> None:
    """One request more tells; the sync says what GitHub said."""
    simulation = listed(simulate, awkward=False)
    forbid_suites(simulation)
    simulation.github.faults.add("forbidden", path="/jobs$", times=None)
    with pytest.raises(Forbidden, match="not accessible"):
        simulation.collect("jobs", "acme/alto")
    assert len(simulation.github.log) == 2
    [sync] = syncs_of_run(simulation.engine, "run-2")
    assert (sync.state, sync.outcome) == ("failed", "no_access")
    assert simulation.rows("jobs") == []


def test_a_quota_that_ends_in_the_middle_costs_no_run_a_second_request(simulate: Simulate) -> None:
    """Each part goes on behind the last; only GraphQL is asked once more."""
    simulation = listed(simulate, Limits(core=40))
    forbid_suites(simulation)
    result, deferrals = simulation.collect_through_deferrals("jobs", "acme/alto")
    simulation.assert_true("jobs")
    assert {deferral.bucket for deferral in deferrals} == {"core"}
    assert result.deferrals == len(deferrals) == 3
    assert_asked_once_by_rest(simulation)
    assert simulation.github.count(document="Suites") == len(deferrals) + 1
    assert (result.requests, result.points) == (len(simulation.github.log), len(deferrals) + 1)
    assert result.collected == result.created == result.rows
    assert result.metrics["bulk"] == "forbidden"


def test_a_permission_taken_away_in_the_middle_of_a_suite_costs_no_job(simulate: Simulate) -> None:
    """The run whose jobs were being paged through is asked for by REST, and so are the others."""
    clock = Clockwork()
    world = World(clock=clock)
    repository = world.add_repository("acme/alto")
    for jobs in (250, 3, 3):
        world.add_run(repository, jobs=jobs)
    clock.advance(minutes=5)
    simulation = simulate(world, clock)
    simulation.collect("verifications", "acme/alto")
    simulation.github.faults.add("forbidden_nodes", document="Suites", at=range(2, 9), times=None)
    simulation.collect("jobs", "acme/alto")
    simulation.assert_true("jobs")
    assert len({each.path for each in simulation.github.log if each.path.endswith("/jobs")}) == 1


def test_pages_of_nothing_but_gaps_go_to_rest_run_by_run(simulate: Simulate) -> None:
    """GitHub may answer as if there were no such suites; nothing is asked for twice, and nothing fails."""
    simulation = listed(simulate)
    simulation.github.faults.add("unknown_nodes", document="Suites", times=None)
    result = simulation.collect("jobs", "acme/alto")
    simulation.assert_true("jobs")
    assert result.outcome == "complete"
    assert simulation.github.count(document="Suites") == 2
    assert_asked_once_by_rest(simulation)
