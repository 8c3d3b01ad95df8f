"""What collecting costs, counted by the simulated GitHub."""

from datetime import timedelta

from bandsync_dagster.simulator import World, generate
from bandsync_dagster.simulator.records import Repository
from bandsync_dagster_tests.collection.simulated import START, Clockwork, Simulate, Simulation, on_sqlite

pytestmark = on_sqlite


def reference(simulate: Simulate, **sizes: float) -> tuple[Simulation, Repository]:
    """Return the reference repository: 1,000 reviewed pull requests and 1,000 runs of three jobs."""
    clock = Clockwork()
    sizes = {"changes": 1000, "runs": 1000, **sizes}
    world: World = generate(repositories=1, awkward=False, now=START, clock=clock, **sizes)  # pyright: ignore[reportArgumentType]
    [repository] = world.repositories.values()
    return simulate(world, clock), repository


def test_the_reference_repository_costs_no_more_than_60_requests_and_80_points(simulate: Simulate) -> None:
    """The floor is about 30 requests; its cost is asserted as numbers, so that nobody adds to it unnoticed."""
    simulation, _ = reference(simulate)
    simulation.collect_all()
    simulation.assert_true()
    assert len(simulation.github.log) == 32
    assert simulation.spent() == {"core": 12, "graphql": 40}


def test_an_unchanged_repository_costs_a_304_and_one_point(simulate: Simulate) -> None:
    """Asked again, whenever within the day, there is nothing to ask but whether there is anything."""
    simulation, _ = reference(simulate)
    simulation.collect_all()
    for _ in range(3):
        simulation.clock.advance(hours=1)
        simulation.github.clear_log()
        simulation.collect_all()
        assert [(each.bucket, each.status, each.cost) for each in simulation.github.log] == [
            ("graphql", 200, 1),
            ("core", 304, 0),
        ]


def test_the_daily_look_at_runs_that_may_have_been_run_again_costs_their_pages(simulate: Simulate) -> None:
    """1,000 runs in 120 days are 250 in the horizon, of which the head page shows 100; the head itself is unchanged."""
    simulation, _ = reference(simulate)
    simulation.collect_all()
    simulation.clock.advance(hours=25)
    simulation.github.clear_log()
    simulation.collect("verifications", "acme/alto")
    assert simulation.github.count(path="/actions/runs", status=304) == 1
    assert simulation.github.count(path="/actions/runs", status=200) == 2
    simulation.clock.advance(hours=2)
    simulation.github.clear_log()
    simulation.collect("verifications", "acme/alto")
    assert simulation.spent()["core"] == 0


def test_each_run_that_was_run_again_adds_one_request(simulate: Simulate) -> None:
    """Its jobs are asked for by REST, which alone knows their attempts."""
    simulation, _ = reference(simulate, changes=0, runs=200, rerun_share=0.1)
    simulation.collect_all(stages=["changes", "verifications"])
    simulation.github.clear_log()
    simulation.collect("jobs", "acme/alto")
    simulation.assert_true("jobs")
    assert simulation.spent() == {"core": 20, "graphql": 2}


def test_a_few_new_changes_cost_one_point(simulate: Simulate) -> None:
    """A third of a page is what one point can read, and what an hour brings."""
    simulation, repository = reference(simulate, runs=0)
    simulation.collect_all()
    simulation.clock.advance(hours=1)
    for _ in range(30):
        simulation.world.add_change(repository)
    simulation.github.clear_log()
    simulation.collect("changes", repository.full_name)
    assert simulation.spent()["graphql"] == 1
    simulation.assert_true("changes")


def test_a_run_that_takes_days_costs_nothing_while_the_head_page_shows_it_unchanged(simulate: Simulate) -> None:
    """The 304 that says that nothing is new says so of the unfinished runs on that page as well."""
    simulation, repository = reference(simulate, changes=0, runs=50)
    simulation.world.add_run(repository, conclusion=None)
    simulation.clock.advance(minutes=10)
    simulation.collect_all()
    simulation.github.clear_log()
    simulation.clock.advance(minutes=10)
    simulation.collect("verifications", repository.full_name)
    assert simulation.spent()["core"] == 0


def test_etags_are_kept_for_each_token(simulate: Simulate) -> None:
    """Two tokens in turn are both answered 304 once each has seen the page: ETags are token specific."""
    clock = Clockwork()
    world = generate(repositories=1, changes=0, runs=20, now=START, clock=clock)
    simulation = simulate(world, clock, tokens=("one", "two"))
    statuses = []
    for token in ("one", "two", "one", "two"):
        simulation.tokens = (token,)
        simulation.collect("verifications", "acme/alto")
        statuses.append(simulation.github.log[-1].status)
    assert statuses == [200, 200, 304, 304]
    clock.advance(minutes=5)
    world.add_run(world.repository("acme/alto"), at=clock.now - timedelta(minutes=3))
    simulation.collect("verifications", "acme/alto")
    simulation.tokens = ("one",)
    simulation.collect("verifications", "acme/alto")
    assert [each.status for each in simulation.github.log[-2:]] == [200, 200]
    simulation.assert_true("verifications")
