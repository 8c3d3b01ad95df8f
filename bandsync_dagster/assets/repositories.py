"""The `repositories` asset: which repositories there are. It adds partitions; retiring them is a sensor's work."""

import asyncio
from collections.abc import Iterator
from typing import Any

import dagster as dg

from bandsync_dagster.assets.stage import StepRetries
from bandsync_dagster.collection.collector import Deferred
from bandsync_dagster.collection.discovery import Discovery, DiscoveryError, discover_into_store
from bandsync_dagster.deferral import defer
from bandsync_dagster.github.errors import AccessError, RateLimited
from bandsync_dagster.partitions import repositories_partitions
from bandsync_dagster.resources import Services
from bandsync_dagster.tags import POOL


@dg.asset(
    pool=POOL,
    group_name="sources",
    owners=["team:delivery"],
    kinds={"github", "sql"},
    output_required=False,
)
def repositories(
    context: dg.AssetExecutionContext, services: dg.ResourceParam[Services]
) -> Iterator[dg.MaterializeResult[Any]]:
    """The repositories of all sources (`org:`, `user:`, `repo:`): each becomes a partition of the other assets.

    A repository that is no longer listed is marked as gone; what was collected of it stays.
    """
    with StepRetries():
        try:
            found = asyncio.run(_discover(services))
        except RateLimited as limit:
            defer(context, services, Deferred(stage="repositories", limit=limit))
            return
        except (AccessError, DiscoveryError, ValueError) as error:
            raise dg.Failure(str(error), allow_retries=False) from error
        added = _add_partitions(context.instance, found.keys)
        yield dg.MaterializeResult(metadata=_metadata(found, added))
