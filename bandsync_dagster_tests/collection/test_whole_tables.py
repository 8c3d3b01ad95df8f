"""Whole repositories, from the simulated GitHub over HTTP into both databases: every row as in the world."""

from datetime import timedelta
from pathlib import Path

import pytest

from bandsync_dagster.simulator import World, generate, recorded
from bandsync_dagster_tests.collection.simulated import START, Clockwork, Simulate, evenly, fill_with_runs

RECORDED = Path(__file__).parents[1] / "data" / "recorded"


def test_a_generated_world_is_collected_row_by_row(simulate: Simulate) -> None:
    """Every awkward value of the world ends up in the store as it is."""
    clock = Clockwork()
    world = generate(seed=3, repositories=2, changes=120, runs=150, rerun_share=0.1, now=START, clock=clock)
    simulation = simulate(world, clock)
    simulation.collect_all()
    simulation.assert_true()


def test_recorded_payloads_are_stored_field_by_field(simulate: Simulate) -> None:
    """The pull requests, runs and jobs once recorded from GitHub are all there, those of unfinished runs too."""
    clock = Clockwork()
    simulation = simulate(recorded(RECORDED, clock=clock), clock)
    simulation.collect_all("acme/pool")
    simulation.assert_true()
    assert len(simulation.rows("jobs")) == 24


def test_full_detail_has_what_only_rest_knows(simulate: Simulate) -> None:
    """Labels, runner, queue time and steps of every job, first attempts included."""
    clock = Clockwork()
    simulation = simulate(generate(repositories=1, changes=0, runs=30, now=START, clock=clock), clock)
    simulation.collect_all(detail="full")
    simulation.assert_true(detail="full")


def test_more_detail_is_fetched_later_for_the_jobs_that_lack_it(simulate: Simulate) -> None:
    """A collection in full detail after one in basic detail asks again, once."""
    clock = Clockwork()
    world = generate(repositories=1, changes=0, runs=30, awkward=False, now=START, clock=clock)
    simulation = simulate(world, clock)
    simulation.collect_all()
    for expected in (30, 0):
        simulation.github.clear_log()
        simulation.collect("jobs", "acme/alto", detail="full")
        assert simulation.github.count(path="/jobs") == expected
    simulation.collect("jobs", "acme/alto")
    simulation.assert_true(detail="full")


@pytest.mark.parametrize("values", [{"empty": True}, {"actions": "empty"}])
def test_nothing_is_collected_from_a_repository_that_has_nothing(simulate: Simulate, values: dict[str, object]) -> None:
    """No changes and no runs, or Actions disabled: a success with zeros, twice."""
    clock = Clockwork()
    world = World(clock=clock)
    world.add_repository("acme/void", at=START - timedelta(days=3), **({} if "empty" in values else values))
    simulation = simulate(world, clock)
    for _ in range(2):
        for result in simulation.collect_all().values():
            assert (result.outcome, result.collected, result.rows) == ("complete", 0, 0)


def test_a_second_collection_finds_everything_unchanged(simulate: Simulate) -> None:
    """A full refresh collects every row again and writes none."""
    clock = Clockwork()
    simulation = simulate(generate(repositories=1, changes=130, runs=130, now=START, clock=clock), clock)
    simulation.collect_all()
    for result in simulation.collect_all(full_refresh=True, stages=["changes", "verifications"]).values():
        assert (result.created, result.updated) == (0, 0)
        assert result.unchanged == result.collected >= 130
    simulation.assert_true()


def test_the_history_wanted_bounds_what_is_collected_and_what_is_asked(simulate: Simulate) -> None:
    """Ten days of a repository that is a hundred days old are a tenth of it, and so are the requests."""
    clock = Clockwork()
    world = World(clock=clock)
    repository = fill_with_runs(world, "acme/long", evenly(2000, days=100))
    for moment in sorted(evenly(2000, days=100)):
        world.add_change(repository, at=moment)
    simulation = simulate(world, clock)
    simulation.collect_all(history_days=10, stages=["changes", "verifications"])
    wanted = {run.id for run in repository.runs if run.created_at >= START - timedelta(days=10)}
    assert {row["id"] for row in simulation.rows("verifications")} == wanted
    wanted = {change.id for change in repository.changes if change.updated_at >= START - timedelta(days=10)}
    found = {row["id"] for row in simulation.rows("changes")}
    assert wanted <= found
    assert len(found) <= len(wanted) + 100
    assert len(simulation.github.log) <= 1 + 3 + 4


def test_a_longer_history_goes_on_where_the_shorter_one_ended(simulate: Simulate) -> None:
    """Nothing that is stored is collected again but for the page at the end."""
    clock = Clockwork()
    world = World(clock=clock)
    repository = fill_with_runs(world, "acme/long", evenly(600, days=60))
    for moment in sorted(evenly(600, days=60)):
        world.add_change(repository, at=moment)
    simulation = simulate(world, clock)
    stages = ["changes", "verifications"]
    simulation.collect_all(history_days=30, stages=stages)
    results = simulation.collect_all(stages=stages)
    simulation.assert_true(*stages)
    assert all(result.collected <= 340 for result in results.values())
