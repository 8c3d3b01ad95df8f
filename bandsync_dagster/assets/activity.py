"""The `activity` asset: which repositories have anything new. It collects nothing itself."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg

from bandsync_dagster.assets.stage import CollectConfig, StepRetries
from bandsync_dagster.assets.unpartitioned import ask_github
from bandsync_dagster.collection.activity import Active, find_active
from bandsync_dagster.collection.forecast import Cost, Forecast, forecast, windows
from bandsync_dagster.collection.interruptible import run_interruptibly
from bandsync_dagster.github.errors import RateLimited
from bandsync_dagster.resources import Services
from bandsync_dagster.store.activity import record_activity
from bandsync_dagster.store.standing import standings
from bandsync_dagster.store.status import quota_states
from bandsync_dagster.tags import POOL


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
    new. For those that have something it says what collecting it will cost.
    """
    now = services.clock()
    known = standings(services.engine, now=now)
    with StepRetries():
        active = ask_github(context, services, lambda client: find_active(client, known, now=now))
        if active is None:
            return
        reasons = {each.standing.repository.id: "; ".join(each.reasons) for each in active}
        verdicts = {standing.repository.id: reasons.get(standing.repository.id) for standing in known}
        record_activity(services.engine, verdicts, now=now)
        yield dg.MaterializeResult(metadata={**_metadata(len(known), active), **_forecast(services, active)})


def _forecast(services: Services, active: Sequence[Active]) -> dict[str, int]:
    """Say what collecting the active ones will cost; nothing where the quota does not even allow to ask."""

    async def ask() -> Forecast:
        async with services.client() as client:
            chosen = [each.standing for each in active]
            options = CollectConfig().options(services.settings)
            return await forecast(client, chosen, options, now=services.clock())

    try:
        cost = run_interruptibly(ask()).cost
    except RateLimited:
        return {}
    return {
        "forecast_core": cost.core,
        "forecast_graphql": cost.graphql,
        "forecast_windows": _windows(services, cost),
    }


def _windows(services: Services, cost: Cost) -> int:
    """Return how many windows of quota the cost takes, all tokens together."""
    mine = {credential.fingerprint for credential in services.credentials}
    quotas = [quota for quota in quota_states(services.engine) if quota.fingerprint in mine and not quota.unlimited]
    limits, remaining = Counter[str](), Counter[str]()
    for quota in quotas:
        limits[quota.bucket] += quota.limit or 0
        remaining[quota.bucket] += quota.remaining or 0
    return windows(cost, limits, remaining, share=services.settings.reserve)


def _metadata(repositories: int, active: Sequence[Active]) -> dict[str, Any]:
    return {
        "repositories": repositories,
        "active": len(active),
        "why": dg.MetadataValue.json({each.standing.repository.full_name: list(each.reasons) for each in active}),
    }
