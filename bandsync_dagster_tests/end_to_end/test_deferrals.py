"""Rate limits in a whole deployment: a backfill over several windows of quota, and what people do meanwhile."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from bandsync_dagster.cli.webserver import Run
from bandsync_dagster.collection.collector import Collector, RunIdentity, StageOptions
from bandsync_dagster.gate import pool_limit
from bandsync_dagster.github.auth import PersonalToken
from bandsync_dagster.github.client import GitHubClient
from bandsync_dagster.github.quota import MemoryLedger
from bandsync_dagster.simulator import DEFAULT_TOKEN, Limits, SimulatedGitHub, World, generate
from bandsync_dagster.store.engine import create_store_engine, upgrade
from bandsync_dagster.store.gate import read_gate
from bandsync_dagster.store.schema import STAGES
from bandsync_dagster.tags import DEFERRED_BUCKET, DEFERRED_UNTIL, PARTITION, POOL, POOL_LIMIT, SUCCESSOR_OF
from bandsync_dagster_tests.end_to_end.conftest import Deploy
from bandsync_dagster_tests.end_to_end.deployed import UNFINISHED, Deployed, wait_for
from bandsync_dagster_tests.scheduling import Scheduler, code_server

ACTIVE = ("STARTING", "STARTED", "CANCELING")
# A number of errors ("0 errors", say) would be a false alarm; there is none today.
UNHAPPY = re.compile(r"fail|error", re.IGNORECASE)


@dataclass
class Watch:
    """What was seen while the gate was closed and the last run that had begun before had ended."""

    looks: int = 0
    sent: list[int] = field(default_factory=list)
    begun: list[Run] = field(default_factory=list)
    queued: list[int] = field(default_factory=list)


@contextmanager
def watching(dagster: Deployed) -> Iterator[Watch]:
    """Look again and again at gate, queue and request log, from a thread."""
    watch, done = Watch(), threading.Event()

    def look() -> None:
        quiet_since: int | None = None
        while not done.wait(0.5):
            before = len(dagster.github.log)
            begun = dagster.runs(ACTIVE)
            gate = read_gate(dagster.engine, POOL)
            if gate is None or gate.state != "closed" or pool_limit(dagster.instance) != 0 or begun:
                quiet_since = None
                continue
            if quiet_since is not None:
                watch.looks += 1
                watch.sent.append(before - quiet_since)
                watch.queued.append(len(dagster.runs(["QUEUED"])))
            quiet_since = before

    thread = threading.Thread(target=look)
    thread.start()
    yield watch
    done.set()
    thread.join()


def requests_without_limits(world: World, folder: Path) -> int:
    """Count the requests that a collection of the whole world costs when nothing interrupts it."""
    engine = create_store_engine(f"sqlite:///{folder / 'unlimited.db'}")
    upgrade(engine)
    with SimulatedGitHub(world, limits=Limits(rest_points_per_minute=10**6, graphql_points_per_minute=10**6)) as github:

        def client() -> GitHubClient:
            credentials = [PersonalToken(DEFAULT_TOKEN)]
            return GitHubClient(base_url=github.url, credentials=credentials, ledger=MemoryLedger())

        for number, repository in enumerate(world.repositories.values()):
            run = RunIdentity(f"run-{number}", f"run-{number}")
            for stage in STAGES:
                collector = Collector(engine=engine, make_client=client)
                collector.collect(stage, repository.full_name, run, StageOptions())
        engine.dispose()
        return len(github.log)


def words_a_user_sees(dagster: Deployed) -> Iterator[str]:
    """Yield the messages, event types, tags and states that the Dagster UI and the store show of all runs and syncs."""
    for run in dagster.runs():
        yield run.status
        yield from (f"{key}={value}" for key, value in run.tags.items())
        for entry in dagster.instance.all_logs(run.id):
            yield f"{entry.dagster_event_type} {entry.message}"
    for sync in dagster.syncs():
        yield f"{sync.state} {sync.outcome} {sync.error}"


def one_large_and_eleven_small() -> World:
    """A world with one repository that takes more than three windows of quota by itself, however slow its runs are."""
    world = generate(4, repositories=12, changes=10, runs=10)
    large, start = next(iter(world.repositories.values())), world.now() - timedelta(days=100)
    for minute in range(3_500):
        world.add_change(large, at=start + timedelta(minutes=minute))
    return world


def test_a_backfill_over_four_windows_of_quota_ends_well(deploy: Deploy, tmp_path: Path) -> None:
    """It never fails, sends nothing while the gate is closed, costs a request a deferral more, and gets every row."""
    world = one_large_and_eleven_small()
    floor = requests_without_limits(world, tmp_path)
    dagster = deploy(world, limits=Limits(core=1000, graphql=36, window=45.0), settings={"BANDSYNC_RESERVE": "0"})
    dagster.discover()
    discovery = len(dagster.github.log)
    with watching(dagster) as watch:
        assert dagster.finish_backfill(dagster.backfill(dagster.names)) == "COMPLETED_SUCCESS"
    dagster.assert_true()
    assert dagster.failed_checks() == {}

    assert {run.status for run in dagster.runs()} == {"SUCCESS"}
    deferrals = sum(sync.deferrals for sync in dagster.syncs())
    assert deferrals >= 3
    assert len(dagster.github.log) - discovery <= floor + deferrals
    assert [request for request in dagster.github.log if request.limited] == []

    assert watch.looks > 0
    assert set(watch.sent) == {0}
    assert min(watch.queued) > 0
    gate = read_gate(dagster.engine, POOL)
    assert gate is not None
    assert gate.state == "open"
    assert pool_limit(dagster.instance) == POOL_LIMIT
    assert [words for words in words_a_user_sees(dagster) if UNHAPPY.search(words)] == []


def defer_one(dagster: Deployed, name: str) -> Run:
    """Use up the core quota and start a run that meets it; return the successor that waits."""
    dagster.discover()
    dagster.use_up("core")
    first = dagster.collect(name)
    assert first.status == "SUCCESS"
    assert first.tags[DEFERRED_BUCKET] == "core"
    return successor_of(dagster, first)


def successor_of(dagster: Deployed, run: Run) -> Run:
    """Return the run that waits to take over."""
    (successor,) = dagster.runs(**{SUCCESSOR_OF: run.id})
    assert successor.parent == run.id
    assert successor.tags[DEFERRED_UNTIL] == run.tags[DEFERRED_UNTIL]
    return successor


def small_world() -> World:
    """A world that is quickly collected."""
    return generate(5, repositories=3, changes=5, runs=5)


LONG = Limits(core=1000, graphql=1000, window=3600.0)


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_cancelled_deferral_stays_cancelled(deploy: Deploy) -> None:
    """Cancelling the waiting run ends it, no other takes its place, and its syncs say who ended them."""
    dagster = deploy(small_world(), limits=LONG)
    successor = defer_one(dagster, dagster.names[0])
    dagster.local.webserver.terminate([successor.id])
    cancelled = wait_for("the sync to be cancelled", lambda: [s for s in dagster.syncs() if s.state == "cancelled"])
    assert all(successor.id in (sync.error or "") for sync in cancelled)
    assert dagster.runs(UNFINISHED) == []
    assert [run.status for run in dagster.runs() if run.id == successor.id] == ["CANCELED"]


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_backfill_cancelled_while_deferred_stays_cancelled(deploy: Deploy) -> None:
    """All its waiting runs end, and so do their syncs."""
    dagster = deploy(small_world(), limits=LONG)
    dagster.discover()
    dagster.use_up("core")
    backfill = dagster.backfill(dagster.names)
    wait_for("a deferred run of the backfill", lambda: [run for run in dagster.runs() if SUCCESSOR_OF in run.tags])
    wait_for("all runs to wait", lambda: not dagster.runs(ACTIVE))
    dagster.cancel_backfill(backfill)
    assert dagster.finish_backfill(backfill) == "CANCELED"
    wait_for("no sync to be deferred", lambda: not [sync for sync in dagster.syncs() if sync.state == "deferred"])
    assert dagster.runs(UNFINISHED) == []
    assert "cancelled" in {sync.state for sync in dagster.syncs()}


@pytest.mark.parametrize("backend", ["sqlite"])
def test_many_requests_for_one_partition_end_in_one_run_at_a_time(deploy: Deploy) -> None:
    """Two backfills, two runs by hand and a schedule during one closed window: no two runs of a partition overlap."""
    dagster = deploy(small_world(), limits=Limits(core=1000, graphql=1000, window=45.0))
    name = dagster.names[0]
    defer_one(dagster, name)
    backfills = [dagster.backfill([name]) for _ in range(2)]
    by_hand = [dagster.launch("collection", **{PARTITION: name}) for _ in range(2)]
    scheduled = tick(dagster, "hourly_collection")
    assert {run.tags[PARTITION] for run in scheduled} == {other for other in dagster.names if other != name}
    assert [dagster.finish_backfill(backfill) for backfill in backfills] == ["COMPLETED_SUCCESS"] * 2
    assert [dagster.finish(run).status for run in by_hand] == ["SUCCESS"] * 2
    wait_for("every run to end", lambda: not dagster.runs(UNFINISHED))
    spans = sorted((run.started or 0, run.ended or 0) for run in dagster.runs() if run.tags.get(PARTITION) == name)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    dagster.assert_true()
    created = sum(sync.records_created for sync in dagster.syncs())
    assert created == sum(len(dagster.table(stage)) for stage in STAGES)


def tick(dagster: Deployed, schedule: str) -> list[Run]:
    """Let Dagster's scheduler do what is due within an hour; return the runs that it launched."""
    with code_server(dagster.instance) as workspace:
        Scheduler(workspace, schedule).run_until(hours=1)
    return [run for run in dagster.runs() if run.tags.get("dagster/schedule_name") == schedule]


@pytest.mark.parametrize("backend", ["sqlite"])
def test_after_the_first_limit_answer_each_running_process_sends_one_request_at_most(deploy: Deploy) -> None:
    """Somebody else uses up the token in the middle of the work: nobody goes on asking."""
    world = generate(6, repositories=8, changes=150, runs=150)
    dagster = deploy(world, limits=Limits(core=2000, graphql=2000, window=3600.0), latency=(0.3, 0.6))
    dagster.discover()
    for name in dagster.names:
        dagster.launch("collection", **{PARTITION: name})
    wait_for("several runs to ask GitHub", lambda: dagster.github.count(bucket="graphql") >= 8)
    dagster.use_up("core", "graphql")
    wait_for("the gate to close", lambda: pool_limit(dagster.instance) == 0)
    wait_for("all runs to wait", lambda: not dagster.runs(ACTIVE))
    log = dagster.github.log
    first = next(request for request in log if request.limited)
    afterwards = [request for request in log if request.number > first.number]
    assert len(afterwards) <= POOL_LIMIT
    assert {run.status for run in dagster.runs()} <= {"SUCCESS", "QUEUED"}


@pytest.mark.parametrize("backend", ["sqlite"])
def test_everything_killed_while_deferred_goes_on_after_a_restart(deploy: Deploy) -> None:
    """Daemon, webserver, code server and a worker end at once; on the same folder the work resumes and completes."""
    world = generate(8, repositories=3, changes=40, runs=40)
    dagster = deploy(world, limits=Limits(core=1000, graphql=1000, window=60.0), latency=(0.2, 0.3))
    dagster.discover()
    backfill = dagster.backfill(dagster.names)
    wait_for("a worker in the middle of its work", lambda: dagster.runs(["STARTED"]) and dagster.table("changes"))
    dagster.use_up("core")
    wait_for("a deferral", lambda: [run for run in dagster.runs() if SUCCESSOR_OF in run.tags])
    dagster = deploy.kill_and_start_again(dagster)
    wait_for("every run to end", lambda: dagster.backfill_status(backfill) != "REQUESTED" or None)
    assert dagster.finish_backfill(backfill) == "COMPLETED_SUCCESS"
    wait_for("every run to end", lambda: not dagster.runs(UNFINISHED))
    dagster.assert_true()
    assert dagster.failed_checks() == {}
