"""Dagster's own scheduler, and the code server it asks, made to do now what is due later."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

import dagster as dg
from dagster._core.scheduler.instigation import InstigatorTick
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import ModuleTarget
from dagster._daemon.controller import create_daemon_grpc_server_registry
from dagster._scheduler.scheduler import launch_scheduled_runs

import bandsync_dagster


@contextmanager
def code_server(instance: dg.DagsterInstance) -> Iterator[WorkspaceProcessContext]:
    """Start a code server with the project's definitions, as a daemon does, and see it end."""
    folder = Path(bandsync_dagster.__file__).parents[1]
    target = ModuleTarget("bandsync_dagster.definitions", None, str(folder), "bandsync")
    with (
        create_daemon_grpc_server_registry(instance) as registry,
        WorkspaceProcessContext(instance, target, grpc_server_registry=registry) as workspace,
    ):
        yield workspace
    registry.wait_for_processes()


class Scheduler:
    """Dagster's own scheduler with one schedule switched on, and the code server it asks."""

    def __init__(self, workspace: WorkspaceProcessContext, name: str) -> None:
        self.workspace = workspace
        (location,) = workspace.create_request_context().code_locations
        (repository,) = location.get_repositories().values()
        self.schedule = repository.get_schedule(name)
        self.started = datetime.now(timezone.utc)
        workspace.instance.start_schedule(self.schedule)

    def run_until(self, **later: float) -> None:
        """Let it do what is due until then, and no more."""
        end = self.started + timedelta(**later)
        list(launch_scheduled_runs(self.workspace, logging.getLogger("test"), end, {}))

    def ticks(self) -> Sequence[InstigatorTick]:
        """Return the ticks, newest first."""
        return self.workspace.instance.get_ticks(self.schedule.get_remote_origin_id(), self.schedule.selector_id)
