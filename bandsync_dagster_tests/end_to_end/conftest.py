"""Starts whole deployments for tests, on both kinds of database, and nothing of them is left afterwards."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from bandsync_dagster.cli.interrupts import Interrupts
from bandsync_dagster.cli.local import Local, local_dagster
from bandsync_dagster.settings import Settings
from bandsync_dagster.simulator import SimulatedGitHub, World
from bandsync_dagster_tests.conftest import PostgresDatabases
from bandsync_dagster_tests.end_to_end.deployed import Deployed

# Seconds. Three processes start for each test, and Dagster looks at a backfill every 30 s only.
LONGEST_TEST = 900


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give whole deployments more time than other tests have."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(LONGEST_TEST))


class Deploy:
    """Serves worlds and runs bandsync on them; at its end nothing of that is left."""

    def __init__(self, environment: dict[str, str], stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
        self._environment = environment
        self._stack = stack
        self._monkeypatch = monkeypatch
        self._local = stack.enter_context(ExitStack())

    def __call__(self, world: World, *, settings: dict[str, str] | None = None, **options: Any) -> Deployed:
        """Serve a world and start bandsync on it; keyword arguments are the simulated GitHub's options."""
        github = self._stack.enter_context(SimulatedGitHub(world, **options))
        self._environment.update(
            BANDSYNC_GITHUB_URL=github.url,
            BANDSYNC_SOURCES="org:acme",
            BANDSYNC_FORKS="true",
            GITHUB_TOKENS=",".join(github.application.options.tokens),
            **(settings or {}),
        )
        for name, value in self._environment.items():
            self._monkeypatch.setenv(name, value)
        return Deployed(self._start(), github)

    def kill_and_start_again(self, dagster: Deployed) -> Deployed:
        """Kill everything at once, as when the machine goes down, and start it on the same folder."""
        for child in dagster.local.processes._children:
            child.kill()
        self._local.close()
        return Deployed(self._start(), dagster.github)

    def _start(self) -> Local:
        settings = Settings.from_mapping(self._environment)
        return self._local.enter_context(local_dagster(settings, dict(os.environ), Interrupts()))  # noqa: TID251


@pytest.fixture
def deploy(
    backend: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Deploy]:
    """Starts deployments on one kind of database."""
    with ExitStack() as stack:
        environment = _databases(backend, request, tmp_path, stack)
        yield Deploy({"BANDSYNC_HOME": str(tmp_path / "home"), **environment}, stack, monkeypatch)


def _databases(backend: str, request: pytest.FixtureRequest, tmp_path: Path, stack: ExitStack) -> dict[str, str]:
    """Return settings for the kind of database: one for the data, one for Dagster's own records."""
    if backend == "sqlite":
        return {}
    postgres: PostgresDatabases = request.getfixturevalue("postgres")
    urls = [postgres.create(), postgres.create()]
    for url in urls:
        stack.callback(postgres.drop, url)
    dagster_home = tmp_path / "home" / "dagster"
    dagster_home.mkdir(parents=True)
    template = resources.files("bandsync_dagster").joinpath("deployment", "dagster-postgresql.yaml")
    (dagster_home / "dagster.yaml").write_text(template.read_text())
    return {"BANDSYNC_DATABASE_URL": urls[0], "DAGSTER_POSTGRES_URL": urls[1]}
