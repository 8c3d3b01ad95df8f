"""The `activity` asset: which repositories have anything to collect, and at what cost. It collects nothing itself."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from bandsync_dagster.assets.stage import CollectConfig, StepRetries
from bandsync_dagster.assets.unpartitioned import ask_github
from bandsync_dagster.collection.activity import Active, find_active
from bandsync_dagster.collection.forecast import Cost, Forecast, forecast, windows
from bandsync_dagster.collection.interruptible import run_interruptibly
from bandsync_dagster.github.client import GitHubClient
from bandsync_dagster.github.errors import GitHubError
from bandsync_dagster.github.exchange import Spent
from bandsync_dagster.resources import Services
from bandsync_dagster.store.activity import record_activity
from bandsync_dagster.store.standing import Standing, standings
from bandsync_dagster.store.status import quota_states
from bandsync_dagster.tags import POOL, STAGE_BUCKETS

# Of how many repositories a forecast counts the runs, at a request each.
FORECAST_SAMPLE = 20


@dg.asset(
    deps=["repositories"],
    pool=POOL,
    group_name="sources",
    owners=["team:delivery"],
    kinds={"github", "graphql", "sql"},
    output_required=False,
)
def activity(
    context: dg.AssetExecutionContext, services: dg.ResourceParam[Services]
) -> Iterator[dg.MaterializeResult[Any]]:
    """Which repositories have anything to collect. The hourly collection leaves out those that have not.

    It costs one point per hundred repositories, and one request for each, which GitHub does not count where nothing is
    new. For those that have something it says what collecting them will cost: an estimate, from the totals of all and,
    where they are many, the workflow runs of some.
    """
    with StepRetries():
        now = services.clock()
        known = standings(services.engine, now=now, detail=services.settings.detail)

        async def look(client: GitHubClient) -> tuple[list[Active], Spent]:
            return await find_active(client, known, now=now), client.spent

        found = ask_github(context, services, look)
        if found is None:
            return
        active, spent = found
        record_activity(services.engine, _verdicts(known, active), now=now)
        context.log.info("%d of %d repositories have something to collect.", len(active), len(known))
        yield dg.MaterializeResult(metadata={**_metadata(known, active, spent), **_forecast(context, services, active)})


def _verdicts(known: Sequence[Standing], active: Sequence[Active]) -> dict[int, str | None]:
    """Return why each repository is to be collected, None where it is not."""
    reasons = {each.standing.repository.id: "; ".join(each.reasons) for each in active}
    return {standing.repository.id: reasons.get(standing.repository.id) for standing in known}


def _metadata(known: Sequence[Standing], active: Sequence[Active], spent: Spent) -> dict[str, Any]:
    return {
        "repositories": len(known),
        "active": len(active),
        "why": dg.MetadataValue.json({each.standing.repository.full_name: list(each.reasons) for each in active}),
        "requests": spent.requests,
        "points": spent.points,
    }


def _forecast(context: dg.AssetExecutionContext, services: Services, active: Sequence[Active]) -> Mapping[str, Any]:
    """Say what collecting the active ones will cost. Nothing where GitHub does not tell: the look is complete without.

    A quota that is used up here is met by the collection, and deferred there.
    """

    async def ask() -> Forecast:
        async with services.client() as client:
            chosen = [each.standing for each in active]
            options = CollectConfig().options(services.settings)
            return await forecast(client, chosen, options, now=services.clock(), sample=FORECAST_SAMPLE)

    try:
        told = run_interruptibly(ask())
    except GitHubError as error:
        context.log.info("No forecast this time: %s", error)
        return {}
    return {
        "forecast_core": told.cost.core,
        "forecast_graphql": told.cost.graphql,
        "forecast_windows": _windows(services, told.cost),
        "forecast_exact": told.exact,
    }


def _windows(services: Services, cost: Cost) -> int:
    """Return how many windows of quota the cost takes, all tokens together.

    A token that was not used yet is taken to have as much as another one.
    """
    mine = {credential.fingerprint for credential in services.credentials}
    now = services.clock()
    limits: dict[str, int] = {}
    left: dict[str, int] = {}
    for bucket in STAGE_BUCKETS["activity"]:
        quotas = [each for each in quota_states(services.engine) if each.bucket == bucket and each.fingerprint in mine]
        if known := [quota.limit for quota in quotas if quota.limit]:
            unused = (len(mine) - len(known)) * known[0]
            limits[bucket] = sum(known) + unused
            left[bucket] = sum(quota.left(now) for quota in quotas) + unused
    return windows(cost, limits, left, share=services.settings.reserve)
