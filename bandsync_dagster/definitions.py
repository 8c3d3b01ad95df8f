"""Where everything meets: assets, checks, jobs, schedules, sensors and resources become one set of definitions."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from bandsync_dagster.asset_checks import build_asset_checks
from bandsync_dagster.assets.activity import activity
from bandsync_dagster.assets.changes import changes
from bandsync_dagster.assets.coverage import coverage
from bandsync_dagster.assets.jobs import jobs
from bandsync_dagster.assets.repositories import repositories
from bandsync_dagster.assets.verifications import verifications
from bandsync_dagster.automation import schedules, sensors
from bandsync_dagster.resources import ServicesResource
from bandsync_dagster.tags import ACTIVITY_JOB, COLLECTION_JOB, COVERAGE_JOB, DISCOVERY_JOB

discovery_job = dg.define_asset_job(
    DISCOVERY_JOB, selection=[repositories], description="List the repositories of all sources and add partitions."
)
activity_job = dg.define_asset_job(
    ACTIVITY_JOB, selection=[activity], description="Find out which repositories have anything to collect."
)
collection_job = dg.define_asset_job(
    COLLECTION_JOB,
    selection=[changes, verifications, jobs],
    description="Collect the pull requests, workflow runs and jobs of one repository.",
)
coverage_job = dg.define_asset_job(
    COVERAGE_JOB, selection=[coverage], description="Say which repositories were reached, and check that all were."
)


def build_defs(*, resource_overrides: Mapping[str, Any] | None = None) -> dg.Definitions:
    """Put the definitions together.

    Args:
        resource_overrides: Resources to use in place of the real ones, by name; tests hand in `services`.
    """
    return dg.Definitions(
        assets=[repositories, activity, changes, verifications, jobs, coverage],
        asset_checks=build_asset_checks(),
        jobs=[discovery_job, activity_job, collection_job, coverage_job],
        schedules=schedules,
        sensors=sensors,
        resources={"services": ServicesResource(), **(resource_overrides or {})},
        # One process a run: a process for each step would add seconds and let a run talk to GitHub twice at once.
        executor=dg.in_process_executor,
    )


defs = build_defs()
