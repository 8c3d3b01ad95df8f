"""The `activity` asset: what it says, what it costs, and what it does when GitHub's quota is used up."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import dagster as dg
import pytest
import sqlalchemy as sa
from dagster._core.definitions.reconstruct import ReconstructableRepository
from dagster._core.execution.api import execute_run
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteRepositoryOrigin

from bandsync_dagster.assets.activity import FORECAST_SAMPLE
from bandsync_dagster.deferral import find_successor
from bandsync_dagster.gate import ensure_pool_limit, pool_limit
from bandsync_dagster.resources import Services, open_services
from bandsync_dagster.settings import Settings
from bandsync_dagster.simulator import Limits, SimulatedGitHub, generate
from bandsync_dagster.store.activity import latest_looks
from bandsync_dagster.tags import (
    ACTIVITY_JOB,
    ACTIVITY_SO_FAR,
    DEFERRED_BUCKET,
    DISCOVERY_JOB,
    POOL_LIMIT,
    PRIORITY,
    SUCCESSOR_OF,
)
from bandsync_dagster_tests.asset_runs import PLENTY, collect, materialize, run_job, services_for
from bandsync_dagster_tests.collection.organisations import multiplied
from bandsync_dagster_tests.collection.simulated import Clockwork, Simulation, on_sqlite

NAMES = ("acme/alto", "acme/bass", "acme/cello")
CODE = ReconstructableRepository.for_module("bandsync_dagster.definitions", "defs")
ORIGIN = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("bandsync"), "__repository__").get_job_origin(ACTIVITY_JOB)


@contextmanager
def organisation(limits: Limits = PLENTY, **sizes: Any) -> Iterator[SimulatedGitHub]:
    """Serve an organisation, of three small repositories unless told otherwise."""
    given = {"repositories": 3, "changes": 4, "runs": 4, **sizes}
    with SimulatedGitHub(generate(11, awkward=False, **given), limits=limits) as github:
        yield github


@pytest.fixture
def github() -> Iterator[SimulatedGitHub]:
    """Three small repositories."""
    with organisation() as github:
        yield github


def use_up(github: SimulatedGitHub, services: Services, *buckets: Literal["core", "graphql"]) -> None:
    """Let somebody else use up the quota, without this side having noticed."""
    for bucket in buckets:
        github.spend(bucket, 10**6)
    forget_quotas(services)


def forget_quotas(services: Services) -> None:
    """Know nothing of what is left."""
    with services.engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM quotas"))


def test_it_says_what_it_found_and_what_that_will_cost(
    github: SimulatedGitHub, engine: sa.Engine, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    """Before a first load, after it, and before an update: the forecast holds each time."""
    services = services_for(github, engine, tmp_path)
    materialize(services, instance, DISCOVERY_JOB)
    for active, points in ((3, 0), (0, 1), (1, 1)):
        told = materialize(services, instance, ACTIVITY_JOB)
        assert (told["repositories"], told["active"], told["points"]) == (3, active, points)
        assert len(told["why"]) == active
        assert (told["forecast_windows"], told["forecast_exact"]) == (1, True)
        github.clear_log()
        collect(services, *told["why"])
        spent = {bucket: github.spent(bucket) for bucket in ("core", "graphql")}
        assert spent["core"] <= told["forecast_core"] <= spent["core"] + active
        assert spent["graphql"] <= told["forecast_graphql"] <= spent["graphql"] + active
        if active == 0:
            github.world.add_run(github.world.repository("acme/bass"))


@on_sqlite
def test_forecasting_many_repositories_costs_little(
    engine: sa.Engine, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    """Nothing was collected of any of 240: a point for each hundred, and the runs of some."""
    with organisation(repositories=240, changes=1, runs=1, jobs_per_run=0) as github:
        services = services_for(github, engine, tmp_path)
        materialize(services, instance, DISCOVERY_JOB)
        github.clear_log()
        told = materialize(services, instance, ACTIVITY_JOB)
        assert (github.spent("core"), github.spent("graphql")) == (FORECAST_SAMPLE, 3)
    assert (told["active"], told["forecast_exact"]) == (240, False)
    # One request for the runs of each; for their jobs a point, and for the pull requests one and a page of three.
    assert (told["forecast_core"], told["forecast_graphql"]) == (240, 240 * 5)


@on_sqlite
def test_a_forecast_tells_how_many_windows_of_quota_it_takes(
    engine: sa.Engine, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    """Of all tokens together, without what is kept back for others."""
    tokens = ("one", "two")
    limits = Limits(core=5000, graphql=20, rest_points_per_minute=10**6, graphql_points_per_minute=10**6)
    world = generate(11, awkward=False, repositories=24, changes=1, runs=1)
    with SimulatedGitHub(world, limits=limits, tokens=tokens) as github:
        services = services_for(github, engine, tmp_path, tokens=tokens)
        materialize(services, instance, DISCOVERY_JOB)
        assert materialize(services, instance, ACTIVITY_JOB)["forecast_windows"] == 4
        one_token = services_for(github, engine, tmp_path, tokens=tokens[:1])
        told = materialize(one_token, instance, ACTIVITY_JOB)
    # Besides what is left of the present window, 38 points of both tokens or 19 of one in each.
    assert (told["forecast_graphql"], told["forecast_windows"]) == (120, 7)


def test_without_quota_for_the_forecast_it_is_left_out(
    github: SimulatedGitHub, engine: sa.Engine, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    """The look itself needed none, so it is complete: nothing is deferred and the gate stays open."""
    services = services_for(github, engine, tmp_path)
    materialize(services, instance, DISCOVERY_JOB)
    ensure_pool_limit(instance)
    use_up(github, services, "graphql")
    told = materialize(services, instance, ACTIVITY_JOB)
    assert told["active"] == 3
    assert not any(name.startswith("forecast") for name in told)
    assert len(latest_looks(engine)) == 3
    assert pool_limit(instance) == POOL_LIMIT


def test_a_refusal_of_the_forecast_leaves_it_out(
    github: SimulatedGitHub, engine: sa.Engine, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    """Whatever GitHub has against the question: which repositories are to be collected is known."""
    services = services_for(github, engine, tmp_path)
    materialize(services, instance, DISCOVERY_JOB)
    github.faults.add("forbidden", bucket="graphql", times=None)
    told = materialize(services, instance, ACTIVITY_JOB)
    assert told["active"] == 3
    assert "forecast_core" not in told


@pytest.mark.parametrize("bucket", ["core", "graphql"])
def test_a_look_without_quota_is_deferred_and_leaves_the_last_one_as_it_is(
    github: SimulatedGitHub,
    engine: sa.Engine,
    instance: dg.DagsterInstance,
    tmp_path: Path,
    bucket: Literal["core", "graphql"],
) -> None:
    """It is green, materializes nothing, and the gate is closed until that quota is back."""
    services = services_for(github, engine, tmp_path)
    materialize(services, instance, DISCOVERY_JOB)
    collect(services, *NAMES)
    materialize(services, instance, ACTIVITY_JOB)
    before = latest_looks(engine)
    use_up(github, services, bucket)
    result = run_job(services, instance, ACTIVITY_JOB)
    assert result.success
    assert result.get_asset_materialization_events() == []
    assert latest_looks(engine) == before
    assert pool_limit(instance) == 0
    run = instance.get_run_by_id(result.run_id)
    assert run is not None
    assert run.tags[DEFERRED_BUCKET] == bucket


def test_a_token_that_is_no_good_is_not_tried_again(
    github: SimulatedGitHub, engine: sa.Engine, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    """No attempt cures it; what the last look found is left as it is."""
    services = services_for(github, engine, tmp_path)
    materialize(services, instance, DISCOVERY_JOB)
    collect(services, *NAMES)
    github.revoke(services.settings.tokens[0])
    result = run_job(services, instance, ACTIVITY_JOB)
    assert not result.success
    assert not any(event.is_step_up_for_retry for event in result.all_events)
    assert latest_looks(engine) == {}


@contextmanager
def environment_of(
    github: SimulatedGitHub, engine: sa.Engine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Services]:
    """Give the services that the environment describes, as a run from the queue has them."""
    monkeypatch.setenv("BANDSYNC_DATABASE_URL", engine.url.render_as_string(hide_password=False))
    monkeypatch.setenv("BANDSYNC_HOME", str(folder))
    monkeypatch.setenv("BANDSYNC_GITHUB_URL", github.url)
    monkeypatch.setenv("BANDSYNC_SOURCES", "org:acme")
    monkeypatch.setenv("BANDSYNC_RESERVE", "0")
    monkeypatch.setenv("GITHUB_TOKEN", "simulated-token")
    services = open_services(Settings.from_mapping(os.environ))  # noqa: TID251  (what the run is given)
    yield services
    services.engine.dispose()
    open_services.cache_clear()


@pytest.fixture
def environment(
    github: SimulatedGitHub, engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Services]:
    """The services for the three repositories."""
    with environment_of(github, engine, tmp_path, monkeypatch) as services:
        yield services


def execute(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Execute a run as a worker does that the queue launched; return whether it ended well."""
    return execute_run(CODE.get_reconstructable_job(ACTIVITY_JOB), run, instance).success


def start(instance: dg.DagsterInstance, tags: Mapping[str, str] | None = None) -> dg.DagsterRun:
    """Create a run of the look as the queue leaves it."""
    return instance.create_run_for_job(
        CODE.get_definition().get_job(ACTIVITY_JOB),
        tags={PRIORITY: "10", **(tags or {})},
        status=dg.DagsterRunStatus.STARTING,
        remote_job_origin=ORIGIN,
    )


def launch_successor(instance: dg.DagsterInstance, run: dg.DagsterRun) -> dg.DagsterRun:
    """Take the run that waits to take over out of the queue, as the daemon does."""
    successor = find_successor(instance, run.run_id)
    assert successor is not None
    assert successor.status == dg.DagsterRunStatus.QUEUED
    instance.report_dagster_event(dg.DagsterEvent("PIPELINE_STARTING", successor.job_name), successor.run_id)
    launched = instance.get_run_by_id(successor.run_id)
    assert launched is not None
    return launched


def latest_metadata(instance: dg.DagsterInstance) -> dict[str, Any]:
    """Return what the latest materialization says."""
    event = instance.get_latest_materialization_event(dg.AssetKey("activity"))
    assert event is not None
    assert event.asset_materialization is not None
    return {name: value.value for name, value in event.asset_materialization.metadata.items()}


def test_the_successor_of_a_deferred_look_waits_in_the_queue_and_looks(
    environment: Services, github: SimulatedGitHub, instance: dg.DagsterInstance
) -> None:
    """One successor, as urgent as its predecessor; when the quota is back it materializes the asset."""
    materialize(environment, instance, DISCOVERY_JOB)
    collect(environment, *NAMES)
    use_up(github, environment, "core", "graphql")
    run = start(instance)
    assert execute(instance, run)
    assert latest_looks(environment.engine) == {}

    github.reset_limits()
    forget_quotas(environment)
    successor = launch_successor(instance, run)
    assert successor.tags.items() >= {PRIORITY: "10", SUCCESSOR_OF: run.run_id}.items()
    assert execute(instance, successor)
    assert [look.reasons for look in latest_looks(environment.engine).values()] == [None] * 3
    assert latest_metadata(instance)["deferrals"] == 1


def leave(github: SimulatedGitHub, services: Services, core: int) -> None:
    """Begin a new window of quota, of which somebody else uses all but this much."""
    github.reset_limits()
    github.spend("core", PLENTY.core - core)
    forget_quotas(services)


@on_sqlite
def test_a_look_that_the_quota_cuts_twice_asks_about_each_repository_once(
    engine: sa.Engine, instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it says in the end, and what that has cost, is of all three parts; it is what one look would have said."""
    with (
        organisation(repositories=30, changes=0, runs=0) as github,
        environment_of(github, engine, tmp_path, monkeypatch) as services,
    ):
        materialize(services, instance, DISCOVERY_JOB)
        simulation = Simulation(github, engine, Clockwork(services.clock()))
        simulation.collect_all("acme/alto")
        multiplied(simulation, engine)
        _, _, _, talked_about, forked, *busy = github.world.repositories.values()
        for repository in (talked_about, forked):
            github.world.add_change(repository)
        for repository in busy:
            github.world.add_run(repository)

        github.clear_log()
        leave(github, services, 12)
        run = start(instance)
        assert execute(instance, run)
        first = len(latest_looks(engine))
        leave(github, services, 12)
        run = launch_successor(instance, run)
        assert execute(instance, run)
        assert 0 < first < len(latest_looks(engine)) < 30
        assert instance.get_latest_materialization_event(dg.AssetKey("activity")) is None
        leave(github, services, PLENTY.core)
        assert execute(instance, launch_successor(instance, run))

        told, log = latest_metadata(instance), github.log
        # Behind the last query for activity is the forecast.
        looked = log[: max(number for number, each in enumerate(log) if each.bucket == "graphql")]
        asked = Counter(each.path for each in looked if each.bucket == "core")
        assert (len(asked), set(asked.values())) == (28, {1})
        assert (told["requests"], told["points"], told["deferrals"]) == (len(looked), 3, 2)
        at_once = materialize(services, instance, ACTIVITY_JOB)
        assert (at_once["requests"], at_once["points"], at_once["deferrals"]) == (29, 1, 0)
        said = ("repositories", "active", "why", "forecast_core", "forecast_graphql")
        assert {name: told[name] for name in said} == {name: at_once[name] for name in said}
        assert told["active"] == 27


def test_a_deferred_look_that_is_run_again_by_hand_begins_anew(
    environment: Services, github: SimulatedGitHub, instance: dg.DagsterInstance
) -> None:
    """It may be days later: its tags are copied, and what was seen then counts no more."""
    materialize(environment, instance, DISCOVERY_JOB)
    collect(environment, *NAMES)
    use_up(github, environment, "core")
    run = start(instance)
    assert execute(instance, run)
    github.reset_limits()
    forget_quotas(environment)
    materialize(environment, instance, ACTIVITY_JOB)
    deferred = instance.get_run_by_id(run.run_id)
    assert deferred is not None
    assert ACTIVITY_SO_FAR in deferred.tags
    github.clear_log()
    assert execute(instance, start(instance, {**deferred.tags, SUCCESSOR_OF: run.run_id}))
    assert github.count(path="/actions/runs") == 3
    assert latest_metadata(instance)["deferrals"] == 0
