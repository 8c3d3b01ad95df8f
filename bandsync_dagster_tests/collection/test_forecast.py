"""What a forecast says, and how it compares with what is spent."""

import asyncio
from typing import Any

import pytest

from bandsync_dagster.collection.forecast import Cost, Forecast, forecast, windows
from bandsync_dagster.collection.scan import StageOptions
from bandsync_dagster.simulator import World, generate
from bandsync_dagster.store.repositories import upsert_repositories
from bandsync_dagster.store.standing import standings
from bandsync_dagster_tests.collection.simulated import (
    START,
    Clockwork,
    Simulate,
    Simulation,
    evenly,
    fill_with_runs,
    on_sqlite,
)

LIMITS = {"core": 5000, "graphql": 5000}


def ask(simulation: Simulation, sample: int | None = None, **options: Any) -> Forecast:
    """Forecast the collection of all repositories in the store."""

    async def ask_github() -> Forecast:
        async with simulation.client() as client:
            known = standings(simulation.engine, now=simulation.clock())
            return await forecast(client, known, StageOptions(**options), now=simulation.clock(), sample=sample)

    return asyncio.run(ask_github())


def discovered(simulate: Simulate, **sizes: Any) -> Simulation:
    """Return a GitHub whose repositories are known and not collected."""
    clock = Clockwork()
    simulation = simulate(generate(awkward=False, now=START, clock=clock, **sizes), clock)
    upsert_repositories(simulation.engine, simulation.world.truth()["repositories"], now=START)
    return simulation


@on_sqlite
def test_the_forecast_of_a_first_load_is_what_it_costs(simulate: Simulate) -> None:
    """Within a few per cent, for a handful of points."""
    simulation = discovered(simulate, repositories=3, changes=450, runs=420)
    told = ask(simulation)
    assert told.exact
    assert told.spent == Cost(core=3, graphql=1)
    simulation.github.clear_log()
    simulation.collect_all()
    spent = simulation.spent()
    assert spent["core"] <= told.cost.core <= spent["core"] * 1.2
    assert spent["graphql"] <= told.cost.graphql <= spent["graphql"] * 1.2


def test_the_forecast_of_what_is_collected_is_next_to_nothing(simulate: Simulate) -> None:
    """From the checkpoints: one look at each end of each repository."""
    simulation = discovered(simulate, repositories=2, changes=120, runs=110)
    simulation.collect_all()
    told = ask(simulation)
    assert told.cost == Cost(core=2, graphql=2)
    assert told.spent == Cost(core=0, graphql=1)


@on_sqlite
def test_full_detail_costs_a_request_for_each_run(simulate: Simulate) -> None:
    """By REST instead of in bulk."""
    simulation = discovered(simulate, repositories=1, changes=10, runs=110)
    [repository] = ask(simulation, detail="full").repositories
    assert repository.stages["jobs"] == Cost(core=110)


@on_sqlite
def test_a_shorter_history_costs_less(simulate: Simulate) -> None:
    """GitHub tells how many runs a number of days has."""
    simulation = discovered(simulate, repositories=1, changes=10, runs=1200)
    told, short = ask(simulation), ask(simulation, history_days=12)
    assert short.cost.core < told.cost.core / 4
    simulation.github.clear_log()
    simulation.collect_all(history_days=12)
    assert simulation.spent()["core"] <= short.cost.core + 1


@on_sqlite
def test_a_full_refresh_costs_as_much_as_the_first_load(simulate: Simulate) -> None:
    """What is stored saves nothing then."""
    simulation = discovered(simulate, repositories=1, changes=150, runs=150)
    first = ask(simulation).cost
    simulation.collect_all()
    again = ask(simulation, full_refresh=True).cost
    assert (again.core, again.graphql) == (first.core, first.graphql)


@on_sqlite
def test_a_repository_that_can_not_be_read_is_named(simulate: Simulate) -> None:
    """Its cost is not known, and not counted as nothing."""
    simulation = discovered(simulate, repositories=2, changes=5, runs=5)
    alto, _ = simulation.world.repositories.values()
    simulation.world.block_repository(alto)
    told = ask(simulation)
    assert told.unreadable == ["acme/alto"]
    assert [each.full_name for each in told.repositories] == ["acme/bass"]


@on_sqlite
def test_86_repositories_with_28000_runs_fit_in_one_window(simulate: Simulate) -> None:
    """The load that took 28,000 requests when jobs were asked for run by run."""
    simulation = discovered(simulate, repositories=86, changes=30, runs=326, jobs_per_run=1)
    told = ask(simulation)
    assert windows(told.cost, LIMITS, LIMITS, share=0.05) == 1
    simulation.github.clear_log()
    simulation.collect_all()
    spent = simulation.spent()
    assert spent["core"] <= told.cost.core + 86
    assert spent["graphql"] <= told.cost.graphql
    assert max(spent.values()) < 5000 * 0.95
    simulation.assert_true()


@on_sqlite
def test_the_runs_of_some_stand_for_those_of_all(simulate: Simulate) -> None:
    """Many repositories cost as little to forecast as a few; the answer is then an estimate, and says so."""
    clock = Clockwork()
    world = World(clock=clock)
    for number in range(60):
        # From 0 to 59 runs: on average 29.5, and the ten that are counted have 27.
        fill_with_runs(world, f"acme/r{number:02}", evenly(number, days=60), jobs=1)
    simulation = simulate(world, clock)
    upsert_repositories(simulation.engine, world.truth()["repositories"], now=START)
    exact, estimate = ask(simulation), ask(simulation, sample=10)
    assert (exact.exact, estimate.exact) == (True, False)
    assert (exact.spent, estimate.spent) == (Cost(core=60, graphql=1), Cost(core=10, graphql=1))
    assert len(estimate.repositories) == 60
    assert estimate.cost.core == exact.cost.core == 60
    assert abs(estimate.cost.graphql - exact.cost.graphql) <= 6
    assert ask(simulation, sample=60).exact


@on_sqlite
def test_what_can_not_be_read_does_not_count_in_an_average(simulate: Simulate) -> None:
    """A sample of which nothing can be read still leaves a forecast of the pull requests."""
    simulation = discovered(simulate, repositories=4, changes=5, runs=5)
    simulation.github.faults.add("forbidden", path="alto/actions", times=None)
    simulation.github.faults.add("forbidden", path="cello/actions", times=None)
    told = ask(simulation, sample=2)
    assert told.unreadable == ["acme/alto", "acme/cello"]
    assert [each.cost for each in told.repositories] == [Cost(core=1, graphql=1 + 3)] * 2


@pytest.mark.parametrize(
    ("cost", "remaining", "expected"),
    [
        (Cost(), {}, 1),
        (Cost(core=4750), {}, 1),
        (Cost(core=4751), {}, 2),
        (Cost(core=100, graphql=9500), {}, 2),
        (Cost(core=100), {"core": 100}, 2),
        (Cost(core=100), {"core": 351}, 1),
    ],
)
def test_windows_are_counted_by_the_bucket_that_needs_most(
    cost: Cost, remaining: dict[str, int], expected: int
) -> None:
    """What is kept back for others is never counted as left."""
    assert windows(cost, LIMITS, remaining, share=0.05) == expected


def test_a_host_without_limits_needs_one_window() -> None:
    """Where nothing is counted, nothing is waited for."""
    assert windows(Cost(core=10**6), {}, {}, share=0.05) == 1
