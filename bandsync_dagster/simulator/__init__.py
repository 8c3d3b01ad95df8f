"""A GitHub to run against: a real HTTP server over a seeded world that knows its own truth."""

from bandsync_dagster.simulator.application import DEFAULT_TOKEN
from bandsync_dagster.simulator.faults import Fault
from bandsync_dagster.simulator.generation import generate
from bandsync_dagster.simulator.limits import Limits
from bandsync_dagster.simulator.recorded import recorded
from bandsync_dagster.simulator.server import SimulatedGitHub
from bandsync_dagster.simulator.tokens import App
from bandsync_dagster.simulator.world import World

__all__ = ["DEFAULT_TOKEN", "App", "Fault", "Limits", "SimulatedGitHub", "World", "generate", "recorded"]
