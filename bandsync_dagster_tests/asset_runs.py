"""Runs of whole asset jobs in the test's process, against a simulated GitHub and a real Dagster instance."""

from pathlib import Path
from typing import Any

import dagster as dg
import sqlalchemy as sa

from bandsync_dagster.clock import Clock, utc_now
from bandsync_dagster.collection.collector import RunIdentity, StageOptions
from bandsync_dagster.definitions import build_defs
from bandsync_dagster.resources import Services
from bandsync_dagster.settings import Settings
from bandsync_dagster.simulator import DEFAULT_TOKEN, Limits, SimulatedGitHub
from bandsync_dagster.store.schema import STAGES

# For tests in which the secondary limits are not the point.
PLENTY = Limits(rest_points_per_minute=10**6, graphql_points_per_minute=10**6)


def services_for(
    github: SimulatedGitHub, engine: sa.Engine, folder: Path, *, clock: Clock = utc_now, **settings: Any
) -> Services:
    """Return services that collect the organisation `acme` from a simulated GitHub."""
    given: dict[str, Any] = {
        "home": folder,
        "database_url": engine.url.render_as_string(hide_password=False),
        "github_url": github.url,
        "tokens": (DEFAULT_TOKEN,),
        "sources": ("org:acme",),
        **settings,
    }
    return Services(Settings(**given), engine, clock)


def run_job(services: Services, instance: dg.DagsterInstance, job: str) -> dg.ExecuteInProcessResult:
    """Run an unpartitioned asset job to its end."""
    defs = build_defs(resource_overrides={"services": services})
    return defs.resolve_job_def(job).execute_in_process(instance=instance, raise_on_error=False)


def materialize(services: Services, instance: dg.DagsterInstance, job: str) -> dict[str, Any]:
    """Run a job that materializes one asset; return the metadata."""
    result = run_job(services, instance, job)
    assert result.success
    (event,) = result.get_asset_materialization_events()
    return {name: value.value for name, value in event.step_materialization_data.materialization.metadata.items()}


def collect(services: Services, *names: str) -> None:
    """Collect all stages of repositories."""
    for name in names:
        run = f"run of {name} at {services.clock()}"
        for stage in STAGES:
            services.collector().collect(stage, name, RunIdentity(run, run), StageOptions())
