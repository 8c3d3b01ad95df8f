"""What happens between collections: re-runs, late ends, deletions, touched changes, changed names and states."""

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from bandsync_dagster.collection.jobs import RETRY_AFTER
from bandsync_dagster.github.errors import Forbidden
from bandsync_dagster.simulator import World
from bandsync_dagster.simulator.records import Repository
from bandsync_dagster.store.schema import checkpoints, job_totals
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


def collected(
    simulate: Simulate, *, runs: int = 300, changes: int = 0, days: float = 60
) -> tuple[Simulation, Repository]:
    """Return a GitHub with a repository that is collected completely."""
    clock = Clockwork()
    world = World(clock=clock)
    repository = fill_with_runs(world, "acme/pool", evenly(runs, days=days), jobs=1)
    for moment in sorted(evenly(changes, days=days)):
        world.add_change(repository, at=moment)
    simulation = simulate(world, clock)
    simulation.collect_all()
    simulation.assert_true()
    clock.advance(hours=1)
    return simulation, repository


def spoil_position(simulation: Simulation, stage: str, **values: Any) -> None:
    """Change something in the stored checkpoint."""
    name = next(iter(simulation.world.repositories.values())).full_name
    position = {**simulation.position(stage, name), **values}
    with simulation.engine.begin() as connection:
        connection.execute(sa.update(checkpoints).where(checkpoints.c.stage == stage).values(position=position))


def test_a_re_run_below_the_head_page_is_found_within_a_day(simulate: Simulate) -> None:
    """A re-run keeps its id and creation time; it is seen when the last 30 days are listed again."""
    simulation, repository = collected(simulate)
    run = repository.runs[-140]
    simulation.world.rerun(run)
    simulation.collect_all()
    assert {row["id"]: row["run_attempt"] for row in simulation.rows("verifications")}[run.id] == 1
    simulation.clock.advance(hours=24)
    simulation.collect_all()
    simulation.assert_true()


def test_a_re_run_at_the_end_of_the_horizon_is_found_however_late_the_collection(simulate: Simulate) -> None:
    """What is listed again reaches 30 days back from the last listing, not from now."""
    simulation, repository = collected(simulate)
    oldest = next(run for run in repository.runs if run.created_at > simulation.clock.now - timedelta(days=30))
    simulation.world.rerun(oldest)
    simulation.clock.advance(days=20)
    simulation.collect_all()
    simulation.assert_true()


def test_unfinished_runs_are_asked_until_they_have_finished(simulate: Simulate) -> None:
    """Wherever they are, one by one, and not once more than needed."""
    simulation, repository = collected(simulate)
    runs = [simulation.world.add_run(repository, conclusion=None) for _ in range(3)]
    for moment in evenly(150, days=0.01):
        simulation.world.add_run(repository, at=moment + timedelta(hours=3), jobs=0)
    simulation.clock.advance(hours=2)
    simulation.collect_all()
    simulation.assert_true()
    simulation.world.finish_run(runs[0])
    simulation.world.finish_run(runs[1], "failure")
    simulation.github.clear_log()
    simulation.collect_all()
    simulation.assert_true()
    assert simulation.github.count(path=r"/actions/runs/\d+$") == 3
    simulation.world.finish_run(runs[2])
    simulation.github.clear_log()
    simulation.collect_all()
    simulation.assert_true()
    assert simulation.github.count(path=r"/actions/runs/\d+$") == 1


def test_an_unfinished_run_that_was_deleted_is_asked_for_once(simulate: Simulate) -> None:
    """Its row stays as it was, and the next collection knows."""
    simulation, repository = collected(simulate)
    run = simulation.world.add_run(repository, conclusion=None)
    for moment in evenly(150, days=0.01):
        simulation.world.add_run(repository, at=moment + timedelta(hours=3), jobs=0)
    simulation.clock.advance(hours=2)
    simulation.collect_all()
    simulation.world.delete_run(run)
    for expected in (1, 0):
        simulation.github.clear_log()
        simulation.collect("verifications", "acme/pool")
        assert simulation.github.count(path=f"/actions/runs/{run.id}$") == expected
    assert run.id in {row["id"] for row in simulation.rows("verifications")}


def test_deleted_runs_stay_in_the_store(simulate: Simulate) -> None:
    """GitHub's retention deletes runs; the store keeps them."""
    simulation, repository = collected(simulate)
    kept = len(repository.runs)
    for run in list(repository.runs)[:100]:
        simulation.world.delete_run(run)
    simulation.clock.advance(hours=25)
    simulation.collect_all()
    assert len(simulation.rows("verifications")) == kept
    assert len(simulation.rows("jobs")) == kept


def test_a_run_deleted_before_its_jobs_were_collected_is_done_in_the_end(simulate: Simulate) -> None:
    """It is asked for a few times, because disabled Actions look the same, and then no more."""
    simulation, repository = collected(simulate)
    run = simulation.world.add_run(repository)
    simulation.clock.advance(minutes=5)
    simulation.collect("verifications", "acme/pool")
    simulation.world.delete_run(run)
    for _ in range(len(RETRY_AFTER) + 1):
        simulation.collect("jobs", "acme/pool")
        simulation.clock.advance(days=3, minutes=1)
    simulation.github.clear_log()
    simulation.collect("jobs", "acme/pool")
    assert simulation.github.count(document="Suites") == 0
    assert simulation.github.count(path="/jobs") == 0


def test_unfinished_jobs_of_a_finished_run_are_asked_for_again(simulate: Simulate) -> None:
    """GitHub may be late with them; when it has them, so has the store."""
    simulation, repository = collected(simulate, runs=5)
    run = simulation.world.add_run(repository, jobs=[{"name": "late"}, {"name": "done"}])
    late = run.jobs[0]
    end, late.status, late.conclusion, late.completed_at = late.completed_at, "in_progress", None, None
    simulation.clock.advance(minutes=5)
    simulation.collect_all()
    simulation.assert_true()
    late.status, late.conclusion, late.completed_at = "completed", "success", end
    simulation.collect_all()
    simulation.assert_true()


def test_two_runs_that_claim_one_check_suite_keep_their_own_jobs(simulate: Simulate) -> None:
    """GraphQL can't tell whose its jobs are then; REST can."""
    simulation, repository = collected(simulate, runs=5)
    one = simulation.world.add_run(repository, jobs=2)
    simulation.world.add_run(repository, jobs=3, suite_node_id=one.suite_node_id)
    simulation.clock.advance(minutes=5)
    simulation.collect_all()
    simulation.assert_true()


def test_touched_changes_are_collected_again_and_no_others(simulate: Simulate) -> None:
    """Whatever their age, they are at the end of the feed."""
    simulation, repository = collected(simulate, runs=0, changes=250)
    for change in repository.changes[::50]:
        simulation.world.touch_change(change, title="better", additions=7)
    simulation.clock.advance(minutes=5)
    result = simulation.collect("changes", "acme/pool")
    simulation.assert_true("changes")
    assert (result.updated, result.created) == (5, 0)


def test_the_upper_end_never_passes_a_change_younger_than_two_minutes(simulate: Simulate) -> None:
    """One that becomes visible late, with an earlier time than one already seen, is not skipped."""
    simulation, repository = collected(simulate, runs=0, changes=10)
    simulation.world.add_change(repository, at=simulation.clock.now - timedelta(seconds=30))
    simulation.collect("changes", "acme/pool")
    simulation.world.add_change(repository, at=simulation.clock.now - timedelta(seconds=60))
    simulation.clock.advance(seconds=30)
    simulation.collect("changes", "acme/pool")
    simulation.assert_true("changes")


@pytest.mark.parametrize("minutes", [10, -10])
def test_two_minutes_are_counted_by_the_clock_of_github(simulate: Simulate, minutes: int) -> None:
    """A machine whose clock is wrong misses nothing that becomes visible late, and vouches for no less."""
    simulation, repository = collected(simulate, runs=120, changes=120)
    simulation.ahead = timedelta(minutes=minutes)
    world, clock = simulation.world, simulation.clock
    world.add_change(repository, at=clock.now - timedelta(seconds=30))
    for _ in range(110):
        world.add_run(repository, at=clock.now - timedelta(seconds=30), jobs=0)
    simulation.collect_all(stages=["changes", "verifications"])
    world.add_change(repository, at=clock.now - timedelta(seconds=60))
    world.add_run(repository, at=clock.now - timedelta(seconds=60), jobs=0)
    clock.advance(seconds=30)
    world.add_run(repository, jobs=0)
    simulation.collect_all(stages=["changes", "verifications"])
    simulation.assert_true("changes", "verifications")
    clock.advance(minutes=3)
    simulation.collect_all(stages=["changes", "verifications"])
    newest = repository.changes_by_update[-1].updated_at
    assert simulation.position("changes", "acme/pool")["upper_at"] == newest.isoformat()


def test_a_repository_in_which_everything_is_new_is_covered_from_its_beginning(simulate: Simulate) -> None:
    """Nothing is settled, so nothing is vouched for, and the next collection starts over."""
    clock = Clockwork()
    world = World(clock=clock)
    repository = world.add_repository("acme/new")
    for _ in range(150):
        world.add_change(repository)
    simulation = simulate(world, clock)
    for _ in range(2):
        simulation.collect("changes", "acme/new")
        simulation.assert_true("changes")
        clock.advance(minutes=10)
        world.add_change(repository)
    simulation.collect("changes", "acme/new")
    simulation.assert_true("changes")


@pytest.mark.parametrize("ends", [("upper",), ("lower",), ("upper", "lower")])
def test_a_cursor_github_refuses_restarts_the_walk(simulate: Simulate, ends: tuple[str, ...]) -> None:
    """The rows are collected once more, and all are there."""
    simulation, repository = collected(simulate, runs=0, changes=250)
    simulation.world.add_change(repository)
    spoil_position(simulation, "changes", bottom=False, **dict.fromkeys(ends, "bm8gY3Vyc29y"))
    simulation.collect("changes", "acme/pool")
    simulation.assert_true("changes")
    assert simulation.position("changes", "acme/pool")["bottom"] is True


def test_an_archived_repository_is_collected_once_more_and_then_skipped(simulate: Simulate) -> None:
    """One complete pass after the archiving; then no request until it is taken out of the archive again."""
    simulation, repository = collected(simulate, changes=20)
    simulation.world.add_change(repository)
    simulation.world.update_repository(repository, archived=True)
    simulation.clock.advance(days=2)
    simulation.collect_all()
    simulation.assert_true()
    simulation.github.clear_log()
    results = simulation.collect_all()
    assert {stage: result.outcome for stage, result in results.items()} == {
        "changes": "skipped",
        "verifications": "skipped",
        "jobs": "complete",
    }
    assert simulation.github.log == []
    simulation.world.update_repository(repository, archived=False)
    simulation.world.add_change(repository)
    simulation.world.add_run(repository)
    simulation.clock.advance(days=2)
    simulation.collect_all()
    simulation.assert_true()


@pytest.mark.parametrize("actions", ["missing", "refused"])
def test_a_repository_without_actions_is_no_failure(simulate: Simulate, actions: str) -> None:
    """No data and no access are told apart: the repository can be read, and says that Actions are disabled."""
    clock = Clockwork()
    world = World(clock=clock)
    world.add_repository("acme/quiet", at=START - timedelta(days=5), actions=actions)
    results = simulate(world, clock).collect_all()
    assert (results["verifications"].outcome, results["verifications"].rows) == ("disabled", 0)
    assert results["changes"].outcome == results["jobs"].outcome == "complete"


def test_a_token_that_may_not_read_actions_is_told_apart_from_disabled_actions(simulate: Simulate) -> None:
    """A permission that is missing is an error somebody has to act on."""
    simulation, _ = collected(simulate, runs=3)
    simulation.world.add_run(next(iter(simulation.world.repositories.values())))
    simulation.github.faults.add("forbidden", path="/actions/runs", times=None)
    with pytest.raises(Forbidden):
        simulation.collect("verifications", "acme/pool")


def test_disabled_actions_lose_nothing_that_was_stored(simulate: Simulate) -> None:
    """While they are disabled all runs look deleted; enabled again, everything is collected that was missed."""
    simulation, repository = collected(simulate, runs=120)
    for _ in range(3):
        simulation.world.rerun(simulation.world.add_run(repository))
    simulation.clock.advance(minutes=10)
    simulation.collect("verifications", "acme/pool")
    simulation.world.update_repository(repository, actions="missing")
    simulation.collect("verifications", "acme/pool")
    simulation.collect("jobs", "acme/pool")
    simulation.world.update_repository(repository, actions="enabled")
    simulation.world.add_run(repository)
    simulation.clock.advance(minutes=20)
    simulation.collect_all()
    simulation.assert_true()


def test_disabled_pull_requests_are_said_so(simulate: Simulate) -> None:
    """A collection of nothing, and why."""
    clock = Clockwork()
    world = World(clock=clock)
    world.add_repository("acme/mirror", at=START - timedelta(days=5), has_pull_requests=False)
    result = simulate(world, clock).collect("changes", "acme/mirror")
    assert (result.outcome, result.rows) == ("disabled", 0)


def test_runs_of_a_repository_whose_name_was_given_away_are_not_taken_for_deleted(simulate: Simulate) -> None:
    """That a run is missing means something only in the right repository."""
    clock = Clockwork()
    world = World(clock=clock)
    old = world.add_repository("acme/pool", at=START - timedelta(days=5))
    world.rerun(world.add_run(old, at=START - timedelta(days=2)))
    simulation = simulate(world, clock)
    simulation.collect("verifications", "acme/pool")
    world.delete_repository(old)
    new = world.add_repository("acme/pool")
    simulation.collect("jobs", "acme/pool")
    with simulation.engine.connect() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(job_totals)).scalar_one() == 0
    clock.advance(minutes=5)
    world.add_run(new)
    simulation.collect_all("acme/pool")
    assert {row["repository_id"] for row in simulation.rows("jobs")} == {new.id}
