"""Schedules: what a tick launches, and what it leaves out. Sensors: which partitions are removed."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteRepositoryOrigin
from dagster._core.test_utils import create_run_for_test
from dagster._core.utils import make_new_run_id

from bandsync_dagster.automation import (
    collection_requests,
    hourly_activity,
    hourly_collection,
    partitions_to_retire,
    retirement,
    schedules,
)
from bandsync_dagster.collection.activity import FRESH
from bandsync_dagster.resources import Services
from bandsync_dagster.simulator import SimulatedGitHub, generate
from bandsync_dagster.store.activity import record_activity
from bandsync_dagster.store.queries import find_repository
from bandsync_dagster.store.repositories import mark_repository
from bandsync_dagster.store.syncs import cancel_sync, defer_sync, fail_sync, start_sync
from bandsync_dagster.tags import ACTIVITY_JOB, COLLECTION_JOB, DISCOVERY_JOB, PARTITION, PRIORITY
from bandsync_dagster_tests.asset_runs import PLENTY, collect, materialize, services_for
from bandsync_dagster_tests.collection.organisations import multiplied
from bandsync_dagster_tests.collection.simulated import START, Clockwork, Simulation, on_sqlite
from bandsync_dagster_tests.scheduling import Scheduler, code_server

TICK = datetime(2026, 3, 1, 12, 15, tzinfo=timezone.utc)
KEYS = ["acme/Alto", "acme/bass", "acme/cello"]
EVERYTHING = ["acme/alto", "acme/bass", "acme/cello"]
ORIGIN = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("bandsync"), "__repository__").get_job_origin("collection")


def requested(**known: Any) -> list[str | None]:
    """Return the partitions that a tick requests."""
    given: dict[str, Any] = {"busy": set(), "up_to_date": set(), **known}
    return [request.partition_key for request in collection_requests(KEYS, tick=TICK, **given)]


def test_a_tick_requests_every_partition_once() -> None:
    """Run keys are of the tick and the partition: the same tick twice requests nothing new."""
    first, second = (list(collection_requests(KEYS, busy=set(), up_to_date=set(), tick=TICK)) for _ in range(2))
    assert [request.partition_key for request in first] == KEYS
    assert len({request.run_key for request in first}) == len(KEYS)
    assert [request.run_key for request in first] == [request.run_key for request in second]
    later = collection_requests(KEYS, busy=set(), up_to_date=set(), tick=TICK + timedelta(hours=1))
    assert not {request.run_key for request in first} & {request.run_key for request in later}


def test_a_partition_with_an_unfinished_run_is_not_requested_again() -> None:
    """Whoever asked for that run: a tick before, a backfill or a person."""
    assert requested(busy={"acme/bass"}) == ["acme/Alto", "acme/cello"]


def test_a_repository_that_is_up_to_date_is_left_out_however_its_name_is_spelled() -> None:
    """The store compares names without regard to case, as GitHub does."""
    assert requested(up_to_date={"acme/alto"}) == ["acme/bass", "acme/cello"]


def test_a_look_goes_ahead_of_the_collections_in_the_queue(instance: dg.DagsterInstance) -> None:
    """Behind a thousand of them it would come too late to save any; and there is one for each tick."""
    with dg.build_schedule_context(instance=instance, scheduled_execution_time=TICK) as context:
        request = hourly_activity(context)
    assert isinstance(request, dg.RunRequest)
    assert int(request.tags[PRIORITY]) > 0
    assert request.run_key == "activity/2026-03-01T12:15"


class Organisation:
    """Three repositories, discovered, on a clock that moves when a test says so."""

    def __init__(
        self, github: SimulatedGitHub, services: Services, clock: Clockwork, dagster: dg.DagsterInstance
    ) -> None:
        self.github = github
        self.services = services
        self.clock = clock
        self.instance = dagster
        materialize(services, dagster, DISCOVERY_JOB)

    def look(self) -> dict[str, Any]:
        """Look at the activity; return the metadata."""
        return materialize(self.services, self.instance, ACTIVITY_JOB)

    def tick(self) -> list[str]:
        """Return the partitions that the schedule requests now."""
        now = self.clock()
        with dg.build_schedule_context(
            instance=self.instance, scheduled_execution_time=now, resources={"services": self.services}
        ) as context:
            requests: Iterator[dg.RunRequest] = hourly_collection(context)  # pyright: ignore[reportAssignmentType]
            return [request.partition_key or "" for request in requests]

    def id_of(self, name: str) -> int:
        """Return a repository's id."""
        return self.github.world.repository(name).id


@pytest.fixture
def organisation(engine: sa.Engine, instance: dg.DagsterInstance, tmp_path: Path) -> Iterator[Organisation]:
    """Three repositories that nothing was collected of yet."""
    clock = Clockwork()
    world = generate(11, repositories=3, changes=4, runs=4, awkward=False, now=START, clock=clock)
    with SimulatedGitHub(world, limits=PLENTY, clock=clock) as github:
        yield Organisation(github, services_for(github, engine, tmp_path, clock=clock), clock, instance)


@pytest.fixture
def settled(organisation: Organisation) -> Organisation:
    """The three, collected completely, and found unchanged a quarter of an hour later."""
    collect(organisation.services, *EVERYTHING)
    organisation.clock.advance(minutes=15)
    assert organisation.look()["active"] == 0
    return organisation


def test_without_a_look_everything_is_collected(organisation: Organisation) -> None:
    """Never collected, or collected and not looked at since: nobody knows that there is nothing new."""
    assert organisation.tick() == EVERYTHING
    collect(organisation.services, *EVERYTHING)
    organisation.clock.advance(minutes=15)
    assert organisation.tick() == EVERYTHING
    assert organisation.look()["active"] == 0
    assert organisation.tick() == []


def test_an_old_look_says_nothing(settled: Organisation) -> None:
    """It is good for an hour, and not a second longer."""
    settled.clock.now += FRESH - timedelta(seconds=1)
    assert settled.tick() == []
    settled.clock.advance(seconds=1)
    assert settled.tick() == EVERYTHING


def test_what_github_shows_to_be_new_is_collected_once(settled: Organisation) -> None:
    """A touched pull request, a new run and a run again. After its collection a repository is left alone."""
    world = settled.github.world
    alto, bass, cello = (world.repository(name) for name in EVERYTHING)
    settled.clock.advance(minutes=30)
    world.touch_change(alto.changes[0], title="better")
    assert settled.tick() == []
    settled.clock.advance(minutes=10)
    assert settled.look()["active"] == 1
    assert settled.tick() == ["acme/alto"]
    world.add_run(bass)
    world.rerun(cello.runs[-1])
    settled.clock.advance(minutes=5)
    assert settled.look()["why"] == {
        "acme/alto": ["new or changed pull requests"],
        "acme/bass": ["new workflow runs"],
        "acme/cello": ["new workflow runs"],
    }
    assert settled.tick() == EVERYTHING
    settled.clock.advance(minutes=5)
    collect(settled.services, "acme/alto", "acme/cello")
    assert settled.tick() == ["acme/bass"]
    collect(settled.services, "acme/bass")
    assert settled.tick() == []


def test_a_collection_that_began_before_the_look_has_not_collected_what_it_found(settled: Organisation) -> None:
    """It may have asked GitHub before the change was made."""
    settled.clock.advance(minutes=30)
    collect(settled.services, "acme/bass")
    settled.clock.advance(minutes=5)
    record_activity(settled.services.engine, {settled.id_of("acme/bass"): "new workflow runs"}, now=settled.clock())
    assert "acme/bass" in settled.tick()


def test_a_run_that_is_still_going_is_asked_about_again(settled: Organisation) -> None:
    """The look before knew nothing of it; the collection since then does."""
    bass = settled.github.world.repository("acme/bass")
    settled.github.world.add_run(bass, conclusion=None)
    settled.clock.advance(minutes=5)
    collect(settled.services, "acme/bass")
    assert settled.tick() == ["acme/bass"]


def test_a_stage_that_was_not_completed_since_the_look_is_collected(settled: Organisation) -> None:
    """Running, deferred, failed or cancelled: however good the news from GitHub, it is to be completed."""
    engine, now, name = settled.services.engine, settled.clock(), "acme/bass"

    def start() -> int:
        known = {"repository_id": settled.id_of(name), "full_name": name, "stage": "jobs"}
        return start_sync(engine, **known, root_run_id="run", run_id="run", now=now).id

    fates: list[Callable[[int], object]] = [
        lambda _: None,
        lambda sync: defer_sync(engine, sync, resume_at=now, bucket="core", now=now),
        lambda sync: fail_sync(engine, sync, outcome="failed", error="a bug", now=now),
        lambda sync: cancel_sync(engine, sync, reason="stopped", now=now),
    ]
    for meet_fate in fates:
        meet_fate(start())
        assert settled.tick() == [name]


def test_more_detail_wanted_than_stored_is_a_reason_to_collect(settled: Organisation) -> None:
    """Asking for `full` detail reaches repositories in which nothing happens, too."""
    settings = {"detail": "full", "database_url": settled.services.settings.database_url}
    settled.services = services_for(
        settled.github, settled.services.engine, settled.services.settings.home, clock=settled.clock, **settings
    )
    assert settled.tick() == EVERYTHING


@on_sqlite
def test_an_unchanged_organisation_of_800_repositories_costs_16_points_and_no_run(
    engine: sa.Engine, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    """In an hour: 8 requests to list them and 8 points to look at them, each 100 at a time; all else is free."""
    clock = Clockwork()
    world = generate(repositories=800, changes=0, runs=0, awkward=False, now=START, clock=clock)
    with SimulatedGitHub(world, limits=PLENTY, clock=clock) as github:
        organisation = Organisation(github, services_for(github, engine, tmp_path, clock=clock), clock, instance)
        simulation = Simulation(github, engine, clock)
        simulation.collect_all("acme/alto")
        multiplied(simulation, engine)
        clock.advance(hours=1)
        github.clear_log()

        assert materialize(organisation.services, instance, DISCOVERY_JOB)["dagster/row_count"] == 800
        told = organisation.look()
        assert (told["repositories"], told["active"], told["points"], told["requests"]) == (800, 0, 8, 808)
        clock.advance(minutes=10)
        assert organisation.tick() == []
        assert simulation.spent() == {"core": 8, "graphql": 8}
        assert github.count(status=304) == 800

        world.add_run(world.repository("acme/bass"))
        organisation.look()
        assert organisation.tick() == ["acme/bass"]


@pytest.fixture
def served(organisation: Organisation, monkeypatch: pytest.MonkeyPatch) -> Organisation:
    """The three, for a code server: a process of its own that reads the environment."""
    settings = organisation.services.settings
    monkeypatch.setenv("BANDSYNC_DATABASE_URL", settings.database_url)
    monkeypatch.setenv("BANDSYNC_HOME", str(settings.home))
    monkeypatch.setenv("BANDSYNC_GITHUB_URL", settings.github_url)
    monkeypatch.setenv("BANDSYNC_SOURCES", "org:acme")
    monkeypatch.setenv("GITHUB_TOKEN", settings.tokens[0])
    return organisation


def queued(instance: dg.DagsterInstance) -> list[str]:
    """Return the partitions whose runs wait in the queue."""
    records = instance.get_run_records(dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED]))
    assert all(record.dagster_run.job_name == COLLECTION_JOB for record in records)
    return sorted(record.dagster_run.tags[PARTITION] for record in records)


def test_the_next_tick_launches_nothing_while_the_runs_of_the_last_one_wait(served: Organisation) -> None:
    """Dagster's scheduler queues a run for each partition, then skips; only whoever has none is requested again."""
    with code_server(served.instance) as workspace:
        scheduler = Scheduler(workspace, "hourly_collection")
        scheduler.run_until(hours=1)
        assert queued(served.instance) == EVERYTHING
        scheduler.run_until(hours=2)
        assert queued(served.instance) == EVERYTHING
        assert [tick.status.value for tick in scheduler.ticks()] == ["SKIPPED", "SUCCESS"]

        waiting = served.instance.get_runs(dg.RunsFilter(tags={PARTITION: "acme/bass"}))
        served.instance.report_run_canceled(waiting[0])
        scheduler.run_until(hours=3)
        assert queued(served.instance) == EVERYTHING
        assert scheduler.ticks()[0].status.value == "SUCCESS"
        assert len(scheduler.ticks()[0].run_ids) == 1


def test_every_schedule_is_off_until_somebody_switches_it_on_and_then_launches_its_job(served: Organisation) -> None:
    """Whoever installs this decides when GitHub's quota is spent; nothing is launched again while it waits."""
    jobs = {
        "hourly_discovery": DISCOVERY_JOB,
        "hourly_activity": ACTIVITY_JOB,
        "hourly_collection": COLLECTION_JOB,
    }
    assert {each.name for each in schedules} == jobs.keys()
    assert {each.default_status.value for each in schedules} == {"STOPPED"}
    with code_server(served.instance) as workspace:
        for name in jobs:
            Scheduler(workspace, name).run_until(hours=2)
    queued = served.instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED]))
    assert sorted(run.job_name for run in queued) == sorted([*jobs.values(), COLLECTION_JOB, COLLECTION_JOB])


def queue(instance: dg.DagsterInstance, key: str) -> None:
    """Put a run of a partition into the queue."""
    create_run_for_test(
        instance,
        run_id=make_new_run_id(),
        status=dg.DagsterRunStatus.QUEUED,
        tags={PARTITION: key},
        remote_job_origin=ORIGIN,
    )


def retired(organisation: Organisation) -> list[str]:
    """Return the partitions that the retirement sensor asks to remove."""
    resources = {"services": organisation.services}
    with dg.build_sensor_context(instance=organisation.instance, resources=resources) as context:
        result = retirement(context)
    if isinstance(result, dg.SkipReason):
        return []
    assert isinstance(result, dg.SensorResult)
    return [key for request in result.dynamic_partitions_requests or [] for key in request.partition_keys]


def test_a_partition_is_removed_when_its_repository_is_gone_and_nothing_targets_it(organisation: Organisation) -> None:
    """Not while it has an unfinished run: that would fail."""
    assert retired(organisation) == []
    engine, now = organisation.services.engine, organisation.clock()
    gone = find_repository(engine, "acme/bass")
    assert gone is not None
    mark_repository(engine, gone.id, "gone", "deleted", now=now)
    assert retired(organisation) == ["acme/bass"]
    queue(organisation.instance, "acme/bass")
    assert retired(organisation) == []


def test_a_renamed_repository_leaves_its_former_partition(settled: Organisation) -> None:
    """Once the present name has one: until then the former is all there is. What was collected stays, and is enough."""
    settled.github.world.rename_repository(settled.github.world.repository("acme/bass"), "double-bass")
    collect(settled.services, "acme/bass")
    assert retired(settled) == []
    materialize(settled.services, settled.instance, DISCOVERY_JOB)
    assert retired(settled) == ["acme/bass"]


def test_a_name_that_was_given_to_another_repository_keeps_its_partition(settled: Organisation) -> None:
    """The former holder is gone; the partition is the new one's."""
    world = settled.github.world
    world.delete_repository(world.repository("acme/bass"))
    world.add_repository("acme/bass")
    materialize(settled.services, settled.instance, DISCOVERY_JOB)
    assert retired(settled) == []
    assert settled.tick() == ["acme/bass"]


@pytest.mark.parametrize(
    ("gone", "former", "expected"),
    [
        ([], {}, set()),
        (["acme/alto"], {}, {"acme/Alto"}),
        (["acme/other"], {}, set()),
        ([], {"acme/bass": "acme/cello"}, {"acme/bass"}),
        ([], {"acme/bass": "acme/other"}, set()),
        ([], {"acme/other": "acme/bass"}, set()),
    ],
)
def test_partitions_are_removed_by_name_without_regard_to_case(
    gone: list[str], former: dict[str, str], expected: set[str]
) -> None:
    """Keys are spelled as when they were first seen."""
    assert partitions_to_retire(KEYS, gone=gone, former=former) == expected
