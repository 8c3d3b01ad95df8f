"""Starts whole deployments for tests, on both kinds of database, and nothing of them is left afterwards."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from bandsync_dagster.cli.interrupts import Interrupts
from bandsync_dagster.cli.local import local_dagster
from bandsync_dagster.settings import Settings
from bandsync_dagster.simulator import SimulatedGitHub, World
from bandsync_dagster_tests.conftest import PostgresDatabases
from bandsync_dagster_tests.end_to_end.deployed import Deployed

Deploy = Callable[..., Deployed]

# Seconds. Three processes start for each test, and Dagster looks at a backfill every 30 s only.
LONGEST_TEST = 900


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give whole deployments more time than other tests have."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(LONGEST_TEST))


@pytest.fixture
def deploy(
    backend: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Deploy]:
    """Serve a world and start bandsync on it; keyword arguments are the simulated GitHub's options."""
    with ExitStack() as stack:
        environment = _databases(backend, request, tmp_path, stack)

        def start(world: World, *, settings: dict[str, str] | None = None, **options: Any) -> Deployed:
            github = stack.enter_context(SimulatedGitHub(world, **options))
            environment.update(
                BANDSYNC_HOME=str(tmp_path / "home"),
                BANDSYNC_GITHUB_URL=github.url,
                BANDSYNC_SOURCES="org:acme",
                BANDSYNC_FORKS="true",
                GITHUB_TOKENS=",".join(github.application.options.tokens),
                **(settings or {}),
            )
            for name, value in environment.items():
                monkeypatch.setenv(name, value)
            local = stack.enter_context(
                local_dagster(Settings.from_mapping(environment), dict(os.environ), Interrupts())  # noqa: TID251
            )
            return Deployed(local, github)

        yield start
    assert [thread.name for thread in threading.enumerate() if thread.name == "simulated GitHub"] == []


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
