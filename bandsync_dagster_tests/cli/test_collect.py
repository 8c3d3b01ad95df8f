"""`bandsync collect` as people run it: a process of its own, a real Dagster, and what it leaves behind at its end."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa

from bandsync_dagster.cli.processes import listens
from bandsync_dagster.simulator import DEFAULT_TOKEN, Limits, SimulatedGitHub, World, generate, recorded
from bandsync_dagster.store.engine import create_store_engine
from bandsync_dagster.store.schema import STAGE_TABLES, STAGES
from bandsync_dagster_tests.collection.simulated import assert_same_rows

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "bandsync_dagster_tests" / "data" / "recorded"
# Three processes start for each test, on machines that are slow and busy.
PATIENCE = 600
OWN_COLUMNS = {"first_sync_id", "last_sync_id"}

pytestmark = pytest.mark.timeout(2 * PATIENCE)


class Collect:
    """A running `bandsync collect`, and the lines it has printed so far."""

    def __init__(self, home: Path, github_url: str, arguments: Sequence[str]) -> None:
        environment = {
            **os.environ,  # noqa: TID251  (for the child)
            "PYTHONPATH": str(ROOT),
            "BANDSYNC_HOME": str(home),
            "BANDSYNC_GITHUB_URL": github_url,
            "GITHUB_TOKEN": DEFAULT_TOKEN,
        }
        self.home = home
        self.lines: list[str] = []
        self.process = subprocess.Popen(  # noqa: S603  (our own interpreter and module)
            [sys.executable, "-m", "bandsync_dagster.cli", "collect", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            cwd=home.parent,
        )

    def read_until(self, pattern: str) -> None:
        """Read what is printed until a line matches."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if re.search(pattern, line):
                return
        raise AssertionError(f"{pattern!r} was never printed:\n{''.join(self.lines)}")

    def end(self) -> tuple[int, str]:
        """Wait for the end; return the exit code and everything that was printed."""
        rest, _ = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, "".join([*self.lines, rest])

    def assert_nothing_runs(self) -> None:
        """Make sure that Dagster's processes are gone: nobody listens where they did."""
        ports = [*re.findall(r"port: (\d+)", (self.home / "workspace.yaml").read_text())]
        log = (self.home / "logs" / "webserver.log").read_text()
        ports += re.findall(r"127\.0\.0\.1:(\d+)", log)
        assert len(set(ports)) >= 2
        for _ in range(PATIENCE * 2):
            if not any(listens(int(port)) for port in ports):
                return
            threading.Event().wait(0.5)
        raise AssertionError(f"somebody still listens on one of {ports}")


def collect(home: Path, github: SimulatedGitHub, *arguments: str) -> Collect:
    """Start collecting."""
    return Collect(home, github.url, arguments)


def wait_until_collecting(github: SimulatedGitHub) -> None:
    """Wait until workflow runs are asked for: some repository is in the middle of its work."""
    for _ in range(PATIENCE * 20):
        if github.count(path=".*/actions/runs"):
            return
        threading.Event().wait(0.05)
    raise AssertionError("no repository was ever collected")


def stored(database_url: str, stage: str) -> list[dict[str, Any]]:
    """Return a stage's rows without the columns that GitHub knows nothing of."""
    table = STAGE_TABLES[stage]
    columns = [column for column in table.c if column.name not in OWN_COLUMNS]
    engine = create_store_engine(database_url)
    with engine.connect() as connection:
        rows = [dict(row) for row in connection.execute(sa.select(*columns)).mappings()]
    engine.dispose()
    return rows


def assert_equals_truth(database_url: str, world: World) -> None:
    """Make sure that every row of every stage is what the world holds."""
    truth = world.truth()
    for stage in STAGES:
        assert_same_rows(stored(database_url, stage), truth[stage])


def unfinished_runs(home: Path) -> list[str]:
    """Return the statuses of Dagster's runs that have not ended."""
    with dg.DagsterInstance.from_config(str(home / "dagster")) as instance:
        statuses = [record.dagster_run.status.value for record in instance.get_run_records()]
    return [status for status in statuses if status not in {"SUCCESS", "FAILURE", "CANCELED"}]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder that is not there yet."""
    return tmp_path / "home"


@pytest.fixture
def url(home: Path) -> str:
    """The database in the home folder."""
    return f"sqlite:///{home / 'bandsync.db'}"


@pytest.fixture
def small_world() -> Iterator[SimulatedGitHub]:
    """Three plain repositories, answered slowly enough to be interrupted."""
    world = generate(repositories=3, changes=10, runs=10, awkward=False)
    with SimulatedGitHub(world, latency=(0.1, 0.3)) as github:
        yield github


def test_the_recorded_repository_is_collected_as_it_was_recorded(home: Path, database_url: str) -> None:
    """The main job on real payloads, in either database; and the token is nowhere to be found afterwards."""
    with SimulatedGitHub(recorded(RECORDED)) as github:
        code, text = collect(home, github, "repo:acme/pool", "--forecast", "--database-url", database_url).end()
        assert code == 0, text
        assert_equals_truth(database_url, github.world)
    assert "Complete in" in text
    assert "Forecast: 1 core request, 5 graphql points." in text
    assert not [path for path in home.rglob("*") if path.is_file() and DEFAULT_TOKEN.encode() in path.read_bytes()]


def test_a_quota_that_runs_out_is_waited_for(home: Path, url: str) -> None:
    """The command says so in plain words, goes on by itself, and ends well."""
    world = generate(repositories=3, changes=10, runs=10, awkward=False)
    # Less than one repository needs, so that however slow the machine is, the quota ends in the middle of one.
    with SimulatedGitHub(world, limits=Limits(core=4, graphql=4, window=20)) as github:
        command = collect(home, github, "org:acme")
        command.read_until("Gate closed, GitHub's .* limit is reached; goes on at")
        code, text = command.end()
        assert code == 0, text
        assert_equals_truth(url, world)
    assert "waited for the quota" in " ".join(text.split())
    assert not any(word in text.lower() for word in ("fail", "error"))


def test_one_repository_that_fails_is_named_and_the_others_are_complete(
    home: Path, small_world: SimulatedGitHub
) -> None:
    """The exit code says that something is missing, the report says what and why."""
    small_world.faults.add("forbidden", path="/repos/acme/alto/actions.*", times=None)
    code, text = collect(home, small_world, "org:acme").end()
    assert code == 1, text
    assert "acme/alto: " in text
    assert "1 of 3 repositories is missing something" in " ".join(text.split())
    assert len(re.findall(r"^acme/\S+ .*complete\s*$", text, re.MULTILINE)) == 2


def test_an_unknown_organisation_is_one_clear_line(home: Path, small_world: SimulatedGitHub) -> None:
    """Without a traceback, and with an exit code of its own."""
    command = collect(home, small_world, "org:nobody")
    code, text = command.end()
    assert code == 2, text
    assert re.search(r"^Error: org:nobody: GitHub knows no organisation of this name", text, re.MULTILINE)
    assert "Traceback" not in text
    command.assert_nothing_runs()


def test_ctrl_c_ends_everything_and_the_next_collection_goes_on(
    home: Path, url: str, small_world: SimulatedGitHub
) -> None:
    """Nothing is left running, in the queue or half-written, and what was fetched is not fetched again."""
    command = collect(home, small_world, "org:acme")
    wait_until_collecting(small_world)
    command.process.send_signal(signal.SIGINT)
    code, text = command.end()
    assert code == 130, text
    assert "the same command goes on where" in " ".join(text.split())
    command.assert_nothing_runs()
    assert unfinished_runs(home) == []
    code, text = collect(home, small_world, "org:acme").end()
    assert code == 0, text
    assert_equals_truth(url, small_world.world)


def test_a_killed_command_leaves_nothing_running_and_the_next_one_works(
    home: Path, url: str, small_world: SimulatedGitHub
) -> None:
    """A SIGKILL can't be answered; its children notice, and its runs are settled by the next command."""
    command = collect(home, small_world, "org:acme")
    wait_until_collecting(small_world)
    command.process.kill()
    command.end()
    command.assert_nothing_runs()
    code, text = collect(home, small_world, "org:acme").end()
    assert code == 0, text
    assert unfinished_runs(home) == []
    assert_equals_truth(url, small_world.world)
