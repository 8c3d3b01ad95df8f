"""A GitHub to run against: a real HTTP server over a seeded world that knows its own truth."""

from bandsync_dagster.simulator.generation import generate
from bandsync_dagster.simulator.recorded import recorded
from bandsync_dagster.simulator.world import World

__all__ = ["World", "generate", "recorded"]
