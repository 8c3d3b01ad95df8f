"""The `repositories` asset: which repositories there are. It adds partitions; retiring them is a sensor's work."""

from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg

from bandsync_dagster.assets.unpartitioned import ask_github
from bandsync_dagster.collection.discovery import (
    Discovery,
    DiscoveryError,
    SourceFilter,
    discover,
    parse_sources,
    record_discovery,
)
from bandsync_dagster.github.client import GitHubClient
from bandsync_dagster.partitions import repositories_partitions
from bandsync_dagster.resources import Services
from bandsync_dagster.settings import Settings
from bandsync_dagster.step_retries import StepRetries
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
            answer = ask_github(context, services, lambda client: _discover(client, services.settings))
        except DiscoveryError as error:
            raise dg.Failure(str(error), allow_retries=False) from error
        if answer is None:
            return
        found, requests = answer
        gone = record_discovery(services.engine, found, now=services.clock())
        keys, added = _add_partitions(context.instance, found.keys)
        if found.problems:
            raise dg.Failure("\n".join(found.problems), allow_retries=False)
        yield dg.MaterializeResult(metadata={"requests": requests, **_metadata(keys, added, gone)})


async def _discover(client: GitHubClient, settings: Settings) -> tuple[Discovery, int]:
    """List the sources; return what they hold, and how many requests that took."""
    wanted = SourceFilter(
        include=settings.include, exclude=settings.exclude, archived=settings.archived, forks=settings.forks
    )
    return await discover(client, parse_sources(settings.sources), wanted), client.spent.requests


def _add_partitions(instance: dg.DagsterInstance, names: Sequence[str]) -> tuple[list[str], int]:
    """Add the partitions that are not there yet.

    Returns:
        The partition of each name, in whatever case it was first spelled, and how many are new.
    """
    definition = repositories_partitions.name or ""
    known = {key.lower(): key for key in instance.get_dynamic_partitions(definition)}
    new = [name for name in names if name.lower() not in known]
    instance.add_dynamic_partitions(definition, new)
    return [known.get(name.lower(), name) for name in names], len(new)


def _metadata(keys: Sequence[str], added: int, gone: Sequence[str]) -> dict[str, Any]:
    return {
        "dagster/row_count": len(keys),
        "added": added,
        "gone": dg.MetadataValue.json(list(gone)),
        "keys": dg.MetadataValue.json(list(keys)),
    }
