"""What most tests of this folder start with."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import sqlalchemy as sa

from bandsync_dagster.simulator import SimulatedGitHub, World
from bandsync_dagster_tests.collection.collecting import Collecting
from bandsync_dagster_tests.collection.simulated import Clockwork, Simulate, Simulation
from bandsync_dagster_tests.collection.small_github import SmallGitHub


@pytest.fixture
def github() -> SmallGitHub:
    """A GitHub with one repository."""
    return SmallGitHub()


@pytest.fixture
def collect(engine: sa.Engine, github: SmallGitHub) -> Collecting:
    """Collects from the small GitHub into the test's database."""
    return Collecting(engine, github)


@pytest.fixture
def simulate(engine: sa.Engine) -> Iterator[Simulate]:
    """Serves a world, and collects from it into the test's database."""
    with ExitStack() as servers:

        def start(world: World, clock: Clockwork, **options: Any) -> Simulation:
            github = servers.enter_context(SimulatedGitHub(world, clock=clock, **options))
            return Simulation(github, engine, clock)

        yield start
