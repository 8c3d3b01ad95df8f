"""The `activity` asset: which repositories have anything to collect, and at what cost. It collects nothing itself."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import dagster as dg
import sqlalchemy as sa

from bandsync_dagster.assets.stage import CollectConfig
from bandsync_dagster.assets.unpartitioned import ask_github
from bandsync_dagster.collection.activity import Record, find_active
from bandsync_dagster.collection.forecast import Cost, Forecast, forecast, windows
from bandsync_dagster.collection.interruptible import run_interruptibly
from bandsync_dagster.collection.outage import Store
from bandsync_dagster.deferral import identity
from bandsync_dagster.github.client import GitHubClient
from bandsync_dagster.github.errors import GitHubError
from bandsync_dagster.github.exchange import Spent
from bandsync_dagster.resources import Services
from bandsync_dagster.step_retries import StepRetries
from bandsync_dagster.store.activity import Look, latest_looks, record_activity
from bandsync_dagster.store.standing import Standing, standings
from bandsync_dagster.store.status import quota_states
from bandsync_dagster.tags import ACTIVITY_SO_FAR, POOL, STAGE_BUCKETS

# Of how many repositories a forecast counts the runs, at a request each.
FORECAST_SAMPLE = 20
# Between the reasons of one repository in the store.
_SEPARATOR = "; "


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
    where they are many, the workflow runs of some. Deferred, it goes on with the repositories it had not come to.
    """
    with StepRetries():
        now = services.clock()
        known = services.patiently(standings, now=now, detail=services.settings.detail)
        scan = _Scan.of(context.run, now)
        left = scan.left(known, services)

        async def look(client: GitHubClient) -> Spent:
            scan.spent = client.spent
            await find_active(client, left, clock=services.clock, record=_recorder(services.engine))
            return client.spent

        if ask_github(context, services, look, so_far=scan.so_far) is None:
            return
        active = _active(known, services.patiently(latest_looks))
        context.log.info("%d of %d repositories have something to collect.", len(active), len(known))
        yield dg.MaterializeResult(metadata=_metadata(known, active, scan) | _forecast(context, services, active))


@dataclass
class _Scan:
    """One look at all repositories, across its deferrals.

    Attributes:
        began: What was looked at since then was looked at by it.
        requests: Requests sent before the last deferral.
        points: GraphQL points spent before it.
        deferrals: How often it waited for the quota.
        spent: What was sent and spent since.
    """

    began: datetime
    requests: int = 0
    points: int = 0
    deferrals: int = 0
    spent: Spent = field(default_factory=Spent)

    @classmethod
    def of(cls, run: dg.DagsterRun, now: datetime) -> "_Scan":
        """Go on where the predecessor was deferred; a run that takes over from none begins anew."""
        if identity(run).predecessor is None or ACTIVITY_SO_FAR not in run.tags:
            return cls(now)
        told = json.loads(run.tags[ACTIVITY_SO_FAR])
        return cls(**{**told, "began": datetime.fromisoformat(told["began"])})

    def so_far(self) -> dict[str, str]:
        """Return what the run that takes over is to know, as a tag."""
        told = {"began": self.began.isoformat(), "deferrals": self.deferrals + 1, **self.costs()}
        return {ACTIVITY_SO_FAR: json.dumps(told)}

    def costs(self) -> dict[str, int]:
        """Return what it has cost, all parts together."""
        return {"requests": self.requests + self.spent.requests, "points": self.points + self.spent.points}

    def left(self, known: Sequence[Standing], services: Services) -> Sequence[Standing]:
        """Return the repositories that were not looked at yet."""
        if not self.deferrals:
            return known
        looks = services.patiently(latest_looks)
        seen = {repository_id for repository_id, look in looks.items() if look.checked_at >= self.began}
        return [standing for standing in known if standing.repository.id not in seen]


def _recorder(engine: sa.Engine) -> Record:
    async def record(found: Mapping[int, tuple[str, ...]], checked_at: datetime) -> None:
        verdicts = {repository_id: _SEPARATOR.join(reasons) or None for repository_id, reasons in found.items()}
        await Store(engine).call(record_activity, verdicts, now=checked_at)

    return record


def _active(known: Sequence[Standing], looks: Mapping[int, Look]) -> list[tuple[Standing, list[str]]]:
    """Return the repositories in which the latest look found something to collect, and what."""
    found = ((standing, looks.get(standing.repository.id)) for standing in known)
    return [(standing, look.reasons.split(_SEPARATOR)) for standing, look in found if look and look.reasons]


def _metadata(known: Sequence[Standing], active: Sequence[tuple[Standing, list[str]]], scan: _Scan) -> dict[str, Any]:
    return {
        "repositories": len(known),
        "active": len(active),
        "why": dg.MetadataValue.json({standing.repository.full_name: reasons for standing, reasons in active}),
        "deferrals": scan.deferrals,
        **scan.costs(),
    }


def _forecast(
    context: dg.AssetExecutionContext, services: Services, active: Sequence[tuple[Standing, list[str]]]
) -> dict[str, Any]:
    """Say what collecting the active ones will cost. Nothing where GitHub does not tell: the look is complete without.

    A quota that is used up here is met by the collection, and deferred there.
    """

    async def ask() -> Forecast:
        async with services.client() as client:
            chosen = [standing for standing, _ in active]
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
    known_states = [state for state in services.patiently(quota_states) if state.fingerprint in mine]
    now = services.clock()
    limits: dict[str, int] = {}
    left: dict[str, int] = {}
    for bucket in STAGE_BUCKETS["activity"]:
        quotas = [state for state in known_states if state.bucket == bucket]
        if known := [quota.limit for quota in quotas if quota.limit]:
            unused = (len(mine) - len(known)) * known[0]
            limits[bucket] = sum(known) + unused
            left[bucket] = sum(quota.left(now) for quota in quotas) + unused
    return windows(cost, limits, left, share=services.settings.reserve)
