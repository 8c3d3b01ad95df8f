"""What collecting repositories will cost, before it is spent: from GitHub's totals and what is stored already.

The totals cost one point per 100 repositories for pull requests and one request per repository for runs. A forecast is
an upper estimate where GitHub tells less than needed: how many pull requests a history of some days has, how many
runs were run again before any was seen.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from bandsync_dagster.collection.activity import ask_head, fetch_activities
from bandsync_dagster.collection.moments import days_before
from bandsync_dagster.collection.run_progress import Progress
from bandsync_dagster.collection.scan import StageOptions
from bandsync_dagster.github.client import GitHubClient
from bandsync_dagster.github.errors import AccessError
from bandsync_dagster.github.rest import fetch_runs
from bandsync_dagster.store.standing import Standing

PER_PAGE = 100
# A page of pull requests reads three connections of each (GitHub docs: rate limits for the GraphQL API).
POINTS_PER_PAGE = 3
# Following pages of a listing by time share a run with the page before.
RUNS_PER_PAGE = 99


@dataclass(frozen=True, slots=True)
class Cost:
    """What something costs in each bucket: `core` in requests, `graphql` in points."""

    core: int = 0
    graphql: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        """Return the cost of both."""
        return Cost(self.core + other.core, self.graphql + other.graphql)


@dataclass(frozen=True, slots=True)
class Totals:
    """How many changes and runs GitHub counts in a repository, and whether the runs are no more than that."""

    changes: int
    runs: int
    exact: bool = True


@dataclass(frozen=True, slots=True)
class RepositoryForecast:
    """What collecting one repository will cost, by stage.

    `exact` is False where GitHub gave a lower bound only, or where its runs were not counted.
    """

    full_name: str
    stages: Mapping[str, Cost]
    exact: bool

    @property
    def cost(self) -> Cost:
        """The cost of all stages."""
        return sum(self.stages.values(), Cost())


@dataclass(frozen=True, slots=True)
class Forecast:
    """What collecting all of them will cost.

    Attributes:
        repositories: One by one.
        unreadable: Names of those GitHub tells nothing about.
        spent: What the forecast itself has cost.
    """

    repositories: Sequence[RepositoryForecast]
    unreadable: Sequence[str]
    spent: Cost

    @property
    def cost(self) -> Cost:
        """The cost of all repositories."""
        return sum((each.cost for each in self.repositories), Cost())

    @property
    def exact(self) -> bool:
        """Whether every total was counted, and none was a lower bound."""
        return all(each.exact for each in self.repositories)


def windows(cost: Cost, limits: Mapping[str, int], remaining: Mapping[str, int], *, share: float) -> int:
    """Return how many quota windows a cost needs, the present one included.

    Args:
        cost: What is to be spent.
        limits: The limit of each bucket that has one, all tokens together.
        remaining: What is left of each now; a bucket that isn't there is full.
        share: The part of each limit that is left to others.
    """
    return max(
        (
            _windows(needed, limits[bucket], remaining.get(bucket, limits[bucket]), share)
            for bucket, needed in (("core", cost.core), ("graphql", cost.graphql))
            if bucket in limits and needed
        ),
        default=1,
    )


def _windows(needed: int, limit: int, remaining: int, share: float) -> int:
    reserve = math.floor(share * limit)
    beyond = max(needed - max(remaining - reserve, 0), 0)
    return 1 + math.ceil(beyond / max(limit - reserve, 1))


async def forecast(
    client: GitHubClient,
    standings: Sequence[Standing],
    options: StageOptions,
    *,
    now: datetime,
    sample: int | None = None,
) -> Forecast:
    """Ask GitHub for the totals of repositories and estimate what collecting them costs from where they stand.

    Args:
        client: The way to GitHub.
        standings: The repositories.
        options: How they are to be collected.
        now: The present moment.
        sample: Of how many of them the runs are counted, at a request each: the others are taken to have as many new
            ones as these on average. None is all.
    """
    points, since = client.spent.points, days_before(now, options.history_days)
    activities = await fetch_activities(client, standings)
    counted = {each.repository.id: await _count_runs(client, each, since) for each in _spread(standings, sample)}
    new_runs = _average_missing(standings, counted)
    forecasts: list[RepositoryForecast] = []
    unreadable: list[str] = []
    for standing, activity in activities:
        guess = _RunCount(standing.verifications + new_runs, exact=False)
        runs = counted.get(standing.repository.id, guess)
        if activity is None or runs is None:
            unreadable.append(standing.repository.full_name)
        else:
            forecasts.append(estimate(standing, Totals(activity.changes, runs.total, runs.exact), options))
    asked = sum(runs is None or not runs.free for runs in counted.values())
    return Forecast(forecasts, unreadable, Cost(asked, client.spent.points - points))


@dataclass(frozen=True, slots=True)
class _RunCount:
    total: int
    exact: bool
    free: bool = False


def _spread(standings: Sequence[Standing], sample: int | None) -> Sequence[Standing]:
    """Return as many of them as the sample is large, evenly over the whole list; all of them without a sample."""
    if sample is None or len(standings) <= sample:
        return standings
    return [standings[number * len(standings) // sample] for number in range(sample)]


def _average_missing(standings: Sequence[Standing], counted: Mapping[int, _RunCount | None]) -> int:
    """Return how many runs those that were counted have on average that are not stored, rounded up."""
    totals = ((each.verifications, counted.get(each.repository.id)) for each in standings)
    missing = [max(runs.total - stored, 0) for stored, runs in totals if runs is not None]
    return math.ceil(sum(missing) / len(missing)) if missing else 0


async def _count_runs(client: GitHubClient, standing: Standing, since: datetime | None) -> _RunCount | None:
    """Return how many runs GitHub counts since then; None if it may not be asked.

    Where all runs are stored already, the question whether there are more is free if there aren't.
    """
    repository = standing.repository
    position = standing.positions.get("verifications")
    progress = Progress.load(position) if position else Progress()
    try:
        if since is not None or not progress.bottom:
            created = None if since is None else (since, None)
            page = await fetch_runs(
                client, repository.full_name, repository_id=repository.id, created=created, per_page=1
            )
        else:
            page = await ask_head(client, repository, progress)
    except AccessError:
        return None
    if not page.modified:
        return _RunCount(standing.verifications, exact=True, free=True)
    return _RunCount(page.total, page.exact)


def estimate(standing: Standing, totals: Totals, options: StageOptions) -> RepositoryForecast:
    """Return what collecting a repository costs that stands so, and of which GitHub counts so much."""
    new_runs = _missing(totals.runs, standing.verifications, options)
    stages = {
        "changes": _changes(_missing(totals.changes, standing.changes, options)),
        "verifications": Cost(core=1 + math.ceil(max(new_runs - PER_PAGE, 0) / RUNS_PER_PAGE) + standing.unfinished),
        "jobs": _jobs(standing, new_runs, options),
    }
    return RepositoryForecast(standing.repository.full_name, stages, totals.exact)


def _missing(total: int, stored: int, options: StageOptions) -> int:
    return total if options.full_refresh else max(total - stored, 0)


def _changes(missing: int) -> Cost:
    """One point for the look at the end of the feed, and the pages."""
    return Cost(graphql=1 + POINTS_PER_PAGE * math.ceil(missing / PER_PAGE))


def _jobs(standing: Standing, new_runs: int, options: StageOptions) -> Cost:
    """In bulk but for re-runs, of which as many are expected among the new as there were among the stored."""
    runs = new_runs + standing.pending
    if options.detail == "full":
        return Cost(core=runs)
    reruns = math.ceil(runs * standing.reruns / standing.verifications) if standing.verifications else 0
    return Cost(core=reruns, graphql=math.ceil((runs - reruns) / PER_PAGE))
