"""The `jobs` asset: the jobs of a repository's workflow runs. Dagster's own jobs are in `definitions`."""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from bandsync_dagster.assets.stage import CollectConfig, collect_stage, stage_asset
from bandsync_dagster.resources import Services


@stage_asset(deps=["verifications"], kinds={"github", "graphql", "sql"})
def jobs(
    context: dg.AssetExecutionContext, config: CollectConfig, services: dg.ResourceParam[Services]
) -> Iterator[dg.MaterializeResult[Any]]:
    """Jobs of every finished workflow run of one repository, of all attempts: name, conclusion, start and end.

    A workflow run whose jobs are stored is never asked for them again, unless it is run again.
    """
    yield from collect_stage(context, "jobs", config, services)
