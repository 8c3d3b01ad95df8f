"""Finding out which repositories have anything new, and what that costs."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta

import pytest
import sqlalchemy as sa

from bandsync_dagster.collection.activity import find_active
from bandsync_dagster.github.errors import RateLimited, ServerError
from bandsync_dagster.simulator import Limits, World, generate
from bandsync_dagster.store.repositories import mark_repository, upsert_repositories
from bandsync_dagster.store.standing import standings
from bandsync_dagster_tests.collection.organisations import multiplied
from bandsync_dagster_tests.collection.simulated import START, Clockwork, Simulate, Simulation, on_sqlite

pytestmark = on_sqlite


def look(simulation: Simulation) -> dict[str, str]:
    """Find the active repositories among those in the store; return why each is, by name."""
    recorded: dict[str, tuple[str, ...]] = {}
    look_into(recorded, simulation)
    return {name: "; ".join(reasons) for name, reasons in recorded.items() if reasons}


def look_into(recorded: dict[str, tuple[str, ...]], simulation: Simulation) -> None:
    """Look at all repositories in the store of which nothing is recorded yet, and record what is found of each."""
    known = standings(simulation.engine, now=simulation.clock())
    names = {standing.repository.id: standing.repository.full_name for standing in known}
    left = [standing for standing in known if standing.repository.full_name not in recorded]

    async def record(found: Mapping[int, tuple[str, ...]], checked_at: datetime) -> None:
        assert START <= checked_at <= simulation.clock()
        recorded.update({names[id_]: reasons for id_, reasons in found.items()})

    async def ask() -> None:
        async with simulation.client() as client:
            await find_active(client, left, clock=simulation.clock, record=record)

    simulation.github.clear_log()
    asyncio.run(ask())


@pytest.fixture
def organisation(simulate: Simulate) -> Simulation:
    """Five repositories, collected completely a quarter of an hour ago."""
    clock = Clockwork()
    world = generate(repositories=5, changes=12, runs=6, awkward=False, now=START, clock=clock)
    simulation = simulate(world, clock)
    simulation.collect_all()
    clock.advance(minutes=15)
    return simulation


def test_an_unchanged_organisation_costs_one_point_and_free_requests(organisation: Simulation) -> None:
    """One point for up to 100 repositories, one 304 for each, and nothing to collect."""
    assert look(organisation) == {}
    assert organisation.spent() == {"core": 0, "graphql": 1}
    assert organisation.github.count(status=304) == 5


def test_only_the_repositories_with_something_new_are_active(organisation: Simulation) -> None:
    """A new change, a touched one and a new run; the others are left alone, and afterwards all are."""
    world = organisation.world
    alto, bass, cello, *_ = world.repositories.values()
    world.add_change(alto)
    world.touch_change(bass.changes[0], title="better")
    world.add_run(cello)
    organisation.clock.advance(minutes=5)
    assert look(organisation) == {
        "acme/alto": "new or changed pull requests",
        "acme/bass": "new or changed pull requests",
        "acme/cello": "new workflow runs",
    }
    organisation.collect_all("acme/alto", "acme/bass", "acme/cello")
    assert look(organisation) == {}


def test_a_repository_known_to_be_active_is_not_asked_about(organisation: Simulation) -> None:
    """What the store knows costs nothing: an unfinished run, jobs to be collected, a stage never completed."""
    world = organisation.world
    alto, bass, *_ = world.repositories.values()
    world.add_run(alto, conclusion=None)
    world.add_run(bass)
    organisation.clock.advance(minutes=5)
    organisation.collect("verifications", "acme/alto")
    organisation.collect("verifications", "acme/bass")
    world.add_repository("acme/new")
    organisation.collect("changes", "acme/new")
    found = look(organisation)
    assert found["acme/alto"] == "1 runs whose jobs are to be collected; 1 runs that had not finished"
    assert found["acme/bass"] == "1 runs whose jobs are to be collected"
    assert found["acme/new"] == "not collected completely"
    assert organisation.github.count(path="/actions/runs") == 3


def test_a_change_too_young_to_be_settled_makes_a_repository_active_once_more(organisation: Simulation) -> None:
    """It might have been touched again within the second it was seen in."""
    world = organisation.world
    alto, *_ = world.repositories.values()
    world.add_change(alto)
    organisation.collect_all("acme/alto")
    assert look(organisation) == {"acme/alto": "pull requests that were too young to be settled"}
    organisation.clock.advance(minutes=5)
    organisation.collect_all("acme/alto")
    assert look(organisation) == {}


def test_the_daily_look_is_due_only_where_there_is_something_to_look_at(simulate: Simulate) -> None:
    """A repository whose runs all fit the head page has its re-runs seen there."""
    clock = Clockwork()
    world = World(clock=clock)
    for name, count in (("acme/busy", 150), ("acme/calm", 50)):
        repository = world.add_repository(name, at=START - timedelta(days=9))
        for index in range(count):
            world.add_run(repository, at=START - timedelta(hours=index + 1), jobs=0)
    simulation = simulate(world, clock)
    simulation.collect_all()
    clock.advance(hours=25)
    assert look(simulation) == {"acme/busy": "daily look at runs that may have been run again"}
    assert look(simulation)
    simulation.collect_all("acme/busy")
    assert look(simulation) == {}


def test_an_archived_repository_is_asked_about_no_more(organisation: Simulation) -> None:
    """Once it is collected completely, it costs nothing at all."""
    for repository in organisation.world.repositories.values():
        organisation.world.update_repository(repository, archived=True)
    organisation.clock.advance(days=2)
    organisation.collect_all()
    assert look(organisation) == {}
    assert organisation.github.log == []


def test_a_repository_github_says_nothing_about_is_active(organisation: Simulation) -> None:
    """Deleted or blocked meanwhile: why it can't be read is for the collection to find out and to note."""
    alto, bass, *_ = organisation.world.repositories.values()
    organisation.world.delete_repository(alto)
    organisation.world.block_repository(bass)
    assert set(look(organisation)) == {"acme/alto", "acme/bass"}
    mark_repository(organisation.engine, alto.id, "gone", "404", now=organisation.clock())
    mark_repository(organisation.engine, bass.id, "blocked", "dmca", now=organisation.clock())
    assert look(organisation) == {}


def test_runs_that_can_not_be_read_make_a_repository_active(organisation: Simulation) -> None:
    """A permission that was taken away is found out by collecting."""
    organisation.github.faults.add("forbidden", path="bass/actions", times=None)
    assert look(organisation) == {"acme/bass": "new workflow runs"}


def test_a_rate_limit_ends_the_look(simulate: Simulate) -> None:
    """Nothing is known then, which is not the same as nothing new."""
    clock = Clockwork()
    world = generate(repositories=5, changes=1, runs=1, awkward=False, now=START, clock=clock)
    simulation = simulate(world, clock, limits=Limits(graphql=40))
    simulation.collect_all()
    simulation.github.spend("graphql", 40)
    with pytest.raises(RateLimited):
        look(simulation)


@pytest.fixture
def many(simulate: Simulate, engine: sa.Engine) -> Simulation:
    """150 repositories, collected completely a quarter of an hour ago; since then each has a new run."""
    clock = Clockwork()
    world = generate(repositories=150, changes=0, runs=0, awkward=False, now=START, clock=clock)
    simulation = simulate(world, clock)
    upsert_repositories(engine, world.truth()["repositories"], now=START)
    simulation.collect_all("acme/alto")
    multiplied(simulation, engine)
    clock.advance(minutes=15)
    for repository in world.repositories.values():
        world.add_run(repository)
    return simulation


def test_a_look_cut_by_the_quota_asks_for_nothing_again(many: Simulation) -> None:
    """Whatever was answered is recorded, in the middle of a hundred too, with requests still on their way."""
    recorded: dict[str, tuple[str, ...]] = {}
    asked, parts = Counter[str](), 0
    while len(recorded) < 150:
        many.github.reset_limits()
        many.github.spend("core", 5000 - 41)
        before, parts = len(recorded), parts + 1
        with suppress(RateLimited):
            look_into(recorded, many)
        asked.update(each.path for each in many.github.log if each.bucket == "core")
        assert len(recorded) - before == many.spent()["core"]
        many.clock.advance(hours=1)
    assert parts == 4
    assert set(recorded.values()) == {("new workflow runs",)}
    assert (len(asked), set(asked.values())) == (150, {1})


def test_a_look_cut_by_an_error_keeps_what_was_answered(many: Simulation) -> None:
    """Whoever goes on afterwards asks about the others only."""
    recorded: dict[str, tuple[str, ...]] = {}
    name = sorted(each.full_name for each in many.world.repositories.values())[120]
    fault = many.github.faults.add("server_error", path=f"/repos/{name}/actions", times=None)
    with pytest.raises(ServerError):
        look_into(recorded, many)
    assert len(recorded) >= 100
    answered = set(recorded)
    many.github.faults.remove(fault)
    look_into(recorded, many)
    assert len(recorded) == 150
    assert many.github.count(bucket="core") == 150 - len(answered)


def test_an_unchanged_organisation_of_800_repositories_costs_8_points(simulate: Simulate, engine: sa.Engine) -> None:
    """100 repositories for each point, and a free request for each."""
    clock = Clockwork()
    world = generate(repositories=800, changes=0, runs=0, awkward=False, now=START, clock=clock)
    simulation = simulate(world, clock, limits=None)
    upsert_repositories(engine, world.truth()["repositories"], now=START)
    simulation.collect_all("acme/alto")
    multiplied(simulation, engine)
    clock.advance(minutes=15)
    assert look(simulation) == {}
    assert simulation.spent() == {"core": 0, "graphql": 8}
    assert simulation.github.count(status=304) == 800
