"""The `verifications` asset: a repository's workflow runs."""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from bandsync_dagster.assets.stage import CollectConfig, collect_stage, stage_asset
from bandsync_dagster.resources import Services


@stage_asset(deps=["repositories"], kinds={"github", "sql"})
def verifications(
    context: dg.AssetExecutionContext, config: CollectConfig, services: dg.ResourceParam[Services]
) -> Iterator[dg.MaterializeResult[Any]]:
    """GitHub Actions workflow runs of one repository, each at its latest attempt: event, commit, status, conclusion.

    Runs that were still going are asked again until they end, and re-runs of the last 30 days are noticed.
    """
    yield from collect_stage(context, "verifications", config, services)
