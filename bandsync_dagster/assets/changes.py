"""The `changes` asset: a repository's pull requests."""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from bandsync_dagster.assets.stage import CollectConfig, collect_stage, stage_asset
from bandsync_dagster.resources import Services


@stage_asset(deps=["repositories"], kinds={"github", "graphql", "sql"})
def changes(
    context: dg.AssetExecutionContext, config: CollectConfig, services: dg.ResourceParam[Services]
) -> Iterator[dg.MaterializeResult[Any]]:
    """Pull requests of one repository: size, author, reviews, and when each was opened, reviewed and merged.

    Each run brings the newest first and goes on into history until everything is stored. When GitHub's quota is used
    up the run ends early, keeps what it has, and a successor goes on once the quota is back.
    """
    yield from collect_stage(context, "changes", config, services)
