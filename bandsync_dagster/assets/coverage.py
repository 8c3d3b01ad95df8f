"""The `coverage` asset: how much of what was asked for is in the database. It sends nothing to GitHub."""

from typing import Any

import dagster as dg

from bandsync_dagster.partitions import repositories_partitions
from bandsync_dagster.resources import Services
from bandsync_dagster.store import status
from bandsync_dagster.store.schema import STAGES


@dg.asset(
    deps=[dg.AssetDep(stage, partition_mapping=dg.AllPartitionMapping()) for stage in STAGES],
    group_name="delivery",
    owners=["team:delivery"],
    kinds={"sql"},
)
def coverage(context: dg.AssetExecutionContext, services: dg.ResourceParam[Services]) -> dg.MaterializeResult[Any]:
    """Which repositories are completely collected, which are deferred, failed or missing, stage by stage.

    Its check fails as long as a repository that is in the partitions was not reached.
    """
    keys = context.instance.get_dynamic_partitions(repositories_partitions.name or "")
    counts = services.patiently(status.coverage, keys)
    return dg.MaterializeResult(metadata={state: dg.MetadataValue.int(n) for state, n in counts.items()})
