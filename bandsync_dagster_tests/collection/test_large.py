"""More than GitHub gives in one answer: windows, seconds, suites and attempts beyond every limit, all complete."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from bandsync_dagster.collection.verifications import UnsplittableSecond
from bandsync_dagster.simulator import World
from bandsync_dagster_tests.collection.simulated import (
    START,
    Clockwork,
    Simulate,
    Simulation,
    evenly,
    fill_with_runs,
    on_sqlite,
)

pytestmark = on_sqlite
JOBS = {"build": "success", "test": "failure", "lint": "success"}
BURST = START - timedelta(days=50)


def with_runs(simulate: Simulate, *moments: Iterator[datetime]) -> Simulation:
    """Return a GitHub with one repository whose runs were created at these moments."""
    clock = Clockwork()
    world = World(clock=clock)
    fill_with_runs(world, "acme/large", (moment for some in moments for moment in some))
    return simulate(world, clock)


def test_2500_runs_are_complete(simulate: Simulate) -> None:
    """More than twice of what a filtered listing returns; the cost of windows is a request or two each."""
    simulation = with_runs(simulate, evenly(2500, days=400))
    simulation.collect("verifications", "acme/large")
    simulation.assert_true("verifications")
    assert simulation.spent()["core"] <= 32


def test_45000_runs_are_complete(simulate: Simulate) -> None:
    """More than an unfiltered listing returns, or counts."""
    simulation = with_runs(simulate, evenly(45_000, days=700))
    simulation.collect("verifications", "acme/large")
    simulation.assert_true("verifications")
    assert simulation.spent()["core"] <= 520


@pytest.mark.parametrize(("count", "seconds"), [(1300, 86_400), (1200, 60), (2600, 60), (999, 1)])
def test_a_burst_of_runs_is_complete(simulate: Simulate, count: int, seconds: int) -> None:
    """1,300 in a day, 1,200 in a minute, 43 in each second of one, 999 in a second, between quieter times."""
    burst = (BURST + timedelta(seconds=index * seconds // count) for index in range(count))
    simulation = with_runs(simulate, evenly(300, days=200), burst)
    simulation.collect("verifications", "acme/large")
    simulation.assert_true("verifications")


def test_a_second_that_can_not_be_split_is_named_and_nothing_else_is_lost(simulate: Simulate) -> None:
    """1,200 runs within one second: the error says which, and comes after everything else is stored."""
    simulation = with_runs(simulate, evenly(1500, days=200), iter([BURST] * 1200))
    with pytest.raises(UnsplittableSecond, match="2026-09-13T12:00:00Z"):
        simulation.collect("verifications", "acme/large")
    stored = [row["created_at"] for row in simulation.rows("verifications")]
    assert stored.count(BURST) == 1000
    assert len(stored) == 1500 + 1000
    assert simulation.spent()["core"] <= 60


@pytest.mark.parametrize("burst_days", [50, 5])
def test_a_gap_with_a_burst_in_it_is_closed(simulate: Simulate, burst_days: int) -> None:
    """After a long pause what is new is listed from its oldest, also where 2,000 runs lie within one minute."""
    clock = Clockwork()
    world = World(clock=clock)
    repository = fill_with_runs(world, "acme/large", [START - timedelta(days=100)])
    simulation = simulate(world, clock)
    simulation.collect("verifications", "acme/large")
    for index in range(2000):
        world.add_run(repository, at=START - timedelta(days=burst_days, seconds=index // 34), jobs=0)
    for moment in evenly(300, days=60):
        world.add_run(repository, at=moment, jobs=0)
    simulation.github.clear_log()
    simulation.collect("verifications", "acme/large")
    simulation.assert_true("verifications")
    assert simulation.spent()["core"] <= 130


def test_a_second_that_could_not_be_split_fails_every_sync_until_it_can(simulate: Simulate) -> None:
    """It is looked at again each time, for one request; when enough of its runs are gone, the rest is collected."""
    simulation = with_runs(simulate, evenly(300, days=200), iter([BURST] * 1200))
    with pytest.raises(UnsplittableSecond):
        simulation.collect("verifications", "acme/large")
    simulation.github.clear_log()
    with pytest.raises(UnsplittableSecond):
        simulation.collect("verifications", "acme/large")
    assert simulation.spent()["core"] == 1
    stored = {row["id"] for row in simulation.rows("verifications")}
    crowd = [run for run in simulation.world.repository("acme/large").runs if run.created_at == BURST]
    for run in [run for run in crowd if run.id in stored][:300]:
        simulation.world.delete_run(run)
    simulation.collect("verifications", "acme/large")
    assert {run.id for run in crowd} <= {row["id"] for row in simulation.rows("verifications")}


@pytest.mark.parametrize("newer", [90, 99, 100])
def test_a_second_cut_by_the_end_of_a_page_is_complete(simulate: Simulate, newer: int) -> None:
    """The head page, and each page after it, may end in the middle of runs created within one second."""
    crowds = (START - timedelta(days=day) for day in (10, 10.5, 11, 11.5) for _ in range(30))
    simulation = with_runs(simulate, evenly(newer, days=9), crowds)
    simulation.collect("verifications", "acme/large")
    simulation.assert_true("verifications")
    for _ in range(newer):
        simulation.world.add_run(simulation.world.repository("acme/large"), at=START + timedelta(hours=1), jobs=0)
    for _ in range(30):
        simulation.world.add_run(simulation.world.repository("acme/large"), at=START + timedelta(minutes=30), jobs=0)
    simulation.clock.advance(hours=2)
    simulation.collect("verifications", "acme/large")
    simulation.assert_true("verifications")


def test_runs_too_young_to_be_settled_are_complete_and_listed_again(simulate: Simulate) -> None:
    """1,200 runs in the last minute are all stored, and not vouched for: one that shows up late is found."""
    clock = Clockwork()
    world = World(clock=clock)
    moments = [START - timedelta(seconds=index % 60) for index in range(1200)]
    repository = fill_with_runs(world, "acme/large", [*evenly(300, days=200), *moments])
    simulation = simulate(world, clock)
    simulation.collect("verifications", "acme/large")
    simulation.assert_true("verifications")
    assert simulation.position("verifications", "acme/large")["upper"] == "2026-11-02T11:58:00+00:00"
    clock.advance(minutes=5)
    world.add_run(repository, at=START - timedelta(seconds=50), jobs=0)
    world.add_run(repository, at=clock.now - timedelta(minutes=4), jobs=0)
    simulation.collect("verifications", "acme/large")
    simulation.assert_true("verifications")


def test_350_jobs_of_one_run_are_complete(simulate: Simulate) -> None:
    """A check suite with more than 100 check runs is paged, by GraphQL and, run again, by REST."""
    clock = Clockwork()
    world = World(clock=clock)
    repository = world.add_repository("acme/wide", at=START - timedelta(days=9))
    run = world.add_run(repository, at=START - timedelta(days=2), jobs=350)
    world.add_run(repository, at=START - timedelta(days=2), jobs=2)
    simulation = simulate(world, clock)
    simulation.collect_all(stages=["verifications", "jobs"])
    simulation.assert_true("verifications", "jobs")
    world.rerun(run, at=START - timedelta(days=1))
    simulation.collect_all(stages=["verifications", "jobs"])
    simulation.assert_true("verifications", "jobs")
    assert len(simulation.rows("jobs")) == 702


def test_a_run_of_40_attempts_is_complete_and_its_copies_are_known(simulate: Simulate) -> None:
    """Every attempt's jobs are kept; those a partial re-run only carried over point to the one that ran."""
    clock = Clockwork()
    world = World(clock=clock)
    repository = world.add_repository("acme/stubborn", at=START - timedelta(days=9))
    jobs = [{"name": name, "conclusion": result} for name, result in JOBS.items()]
    run = world.add_run(repository, at=START - timedelta(days=5), jobs=jobs, conclusion="failure")
    for attempt in range(2, 41):
        world.rerun(
            run, at=START - timedelta(days=5) + timedelta(hours=attempt), failed_only=True, conclusion="failure"
        )
    simulation = simulate(world, clock)
    simulation.collect_all(stages=["verifications", "jobs"])
    simulation.assert_true("verifications", "jobs")
    assert sum(row["copy_of"] is not None for row in simulation.rows("jobs")) == 2 * 39
