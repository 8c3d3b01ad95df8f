"""What is there when the quota ends in the middle, and how it goes on."""

import re
from collections import Counter
from datetime import datetime, timedelta

import pytest

from bandsync_dagster.collection.collector import Deferred
from bandsync_dagster.simulator import Limits, World
from bandsync_dagster.store.schema import STAGES
from bandsync_dagster_tests.collection.simulated import (
    Clockwork,
    Simulate,
    Simulation,
    evenly,
    fill_with_runs,
    on_sqlite,
)

COUNT = 1500


def cut_short(simulate: Simulate, *, core: int = 5000, graphql: int = 5000) -> Simulation:
    """Return a GitHub with one large repository and too little quota for it."""
    clock = Clockwork()
    world = World(clock=clock)
    repository = fill_with_runs(world, "acme/huge", evenly(COUNT, days=150), jobs=1)
    for moment in sorted(evenly(COUNT, days=150)):
        world.add_change(repository, at=moment)
    return simulate(world, clock, limits=Limits(core=core, graphql=graphql))


def test_a_first_load_of_changes_cut_by_the_quota_has_the_newest_part_complete(simulate: Simulate) -> None:
    """What is stored are the most recently updated changes, without a hole."""
    simulation = cut_short(simulate, graphql=8)
    with pytest.raises(Deferred):
        simulation.collect("changes", "acme/huge")
    stored = {row["id"] for row in simulation.rows("changes")}
    newest = simulation.world.repository("acme/huge").changes_by_update[-len(stored) :]
    assert 100 <= len(stored) < COUNT / 4
    assert stored == {change.id for change in newest}


def test_a_first_load_of_runs_cut_by_the_quota_has_the_newest_part_complete(simulate: Simulate) -> None:
    """What is stored are the most recently created runs, without a hole."""
    simulation = cut_short(simulate, core=6)
    with pytest.raises(Deferred):
        simulation.collect("verifications", "acme/huge")
    stored = {row["id"] for row in simulation.rows("verifications")}
    assert 100 <= len(stored) < COUNT / 3
    assert stored == {run.id for run in simulation.world.repository("acme/huge").runs[-len(stored) :]}


def test_the_jobs_of_the_newest_runs_come_first(simulate: Simulate) -> None:
    """Cut by the quota, the jobs stored are those of the newest runs, each run complete."""
    simulation = cut_short(simulate)
    simulation.collect("verifications", "acme/huge")
    simulation.github.spend("graphql", 4996)
    with pytest.raises(Deferred):
        simulation.collect("jobs", "acme/huge")
    stored = {row["verification_id"] for row in simulation.rows("jobs")}
    assert len(stored) % 100 == 0
    assert stored == {run.id for run in simulation.world.repository("acme/huge").runs[-len(stored) :]}


@pytest.mark.parametrize("stage", ["changes", "verifications"])
@on_sqlite
def test_what_is_new_meanwhile_comes_first_on_resuming(simulate: Simulate, stage: str) -> None:
    """After the deferral the collection goes forward before it goes on into history."""
    simulation = cut_short(simulate, core=6, graphql=8)
    with pytest.raises(Deferred) as cut:
        simulation.collect(stage, "acme/huge")
    simulation.clock.now = cut.value.resume_at + timedelta(seconds=1)
    repository = simulation.world.repository("acme/huge")
    new = [simulation.world.add_change(repository).id, simulation.world.add_run(repository).id]
    simulation.clock.advance(minutes=3)
    simulation.github.spend("core", 2)
    simulation.github.spend("graphql", 3)
    before = len(simulation.rows(stage))
    with pytest.raises(Deferred):
        simulation.collect(stage, "acme/huge", predecessor="run-1")
    rows = {row["id"] for row in simulation.rows(stage)}
    assert rows & set(new)
    assert len(rows) > before


@on_sqlite
def test_no_page_is_asked_for_twice_however_often_the_quota_ends(simulate: Simulate) -> None:
    """Over all deferrals, each stage costs its pages, and one look at the newest for each time it goes on."""
    simulation = cut_short(simulate, core=5, graphql=9)
    for stage in STAGES:
        simulation.github.clear_log()
        result, deferrals = simulation.collect_through_deferrals(stage, "acme/huge")
        answered = [request for request in simulation.github.log if request.limited is None]
        assert len(answered) <= COUNT / 95 + 2 + 2 * len(deferrals)
        assert result.deferrals == len(deferrals)
        assert result.collected <= COUNT * 1.05 + 200
    simulation.assert_true()


class _Ticking(Clockwork):
    """A clock that goes on between two looks at it, as clocks do."""

    def __call__(self) -> datetime:
        """Return the time."""
        self.advance(milliseconds=1)
        return self.now


def single_runs(simulation: Simulation) -> Counter[str]:
    """Count the requests for one run, or for the jobs of one."""
    paths = (request.path for request in simulation.github.log if request.limited is None)
    return Counter(path for path in paths if re.search(r"/actions/runs/\d+", path))


@pytest.mark.parametrize(("stage", "runs"), [("verifications", 40), ("jobs", 190)])
@on_sqlite
def test_a_sync_asks_once_for_a_run_that_goes_on_however_often_the_quota_ends(
    simulate: Simulate, stage: str, runs: int
) -> None:
    """It is for the next sync to ask again: else those that go on would use up each window, and nothing else be got."""
    clock = _Ticking()
    world = World(clock=clock)
    repository = fill_with_runs(world, "acme/pool", evenly(150, days=1), jobs=1)
    # Behind the head page.
    for moment in evenly(40, days=20):
        world.add_run(repository, at=moment - timedelta(days=2), jobs=1, conclusion=None)
    simulation = simulate(world, clock, limits=Limits(core=12))
    simulation.github.spend("core", 9)
    _, deferrals = simulation.collect_through_deferrals("verifications", "acme/pool")
    assert len(deferrals) == 1
    assert not single_runs(simulation)

    for _ in range(2):
        clock.advance(hours=1)
        simulation.github.clear_log()
        _, deferrals = simulation.collect_through_deferrals(stage, "acme/pool", detail="full")
        asked = single_runs(simulation)
        assert (len(asked), set(asked.values())) == (runs, {1})
        assert len(deferrals) >= 3
        # The second time, only those that go on.
        runs = 40
    simulation.assert_true("verifications")


@on_sqlite
def test_a_listing_of_the_horizon_cut_by_the_quota_goes_on_where_it_was(simulate: Simulate) -> None:
    """The daily look at what may have been run again survives deferrals like everything else."""
    simulation = cut_short(simulate)
    simulation.collect("verifications", "acme/huge")
    repository = simulation.world.repository("acme/huge")
    simulation.clock.advance(hours=30)
    for run in repository.runs[-290:-100:10]:
        simulation.world.rerun(run)
    simulation.collect("verifications", "acme/huge", history_days=150)
    simulation.assert_true("verifications")


@on_sqlite
def test_a_gap_that_was_not_closed_is_closed_although_the_head_page_is_unchanged(simulate: Simulate) -> None:
    """That nothing is new since the last look doesn't mean that all of it was collected then."""
    clock = Clockwork()
    world = World(clock=clock)
    repository = fill_with_runs(world, "acme/pool", evenly(150, days=10))
    simulation = simulate(world, clock, limits=Limits(core=10))
    simulation.collect("verifications", "acme/pool")
    clock.advance(hours=3)
    for index in range(500):
        world.add_run(repository, at=clock.now - timedelta(seconds=300 + 10 * index), jobs=0)
    simulation.github.spend("core", 6)
    result, deferrals = simulation.collect_through_deferrals("verifications", "acme/pool")
    simulation.assert_true("verifications")
    assert len(deferrals) == 1
    assert result.collected >= 500
