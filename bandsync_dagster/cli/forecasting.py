"""`forecast`: what a collection will cost, before it is spent."""

import asyncio
from collections.abc import Iterable, Mapping

from rich import box
from rich.console import Console
from rich.table import Table

from bandsync_dagster.cli.facts import bucket_quotas
from bandsync_dagster.cli.progress import quota_text
from bandsync_dagster.collection.discovery import Discovery, SourceFilter, discover, parse_sources, record_discovery
from bandsync_dagster.collection.forecast import Cost, Forecast, forecast, windows
from bandsync_dagster.collection.scan import StageOptions
from bandsync_dagster.github.client import GitHubClient
from bandsync_dagster.github.errors import RateLimited
from bandsync_dagster.resources import Services
from bandsync_dagster.settings import Settings
from bandsync_dagster.store.standing import standings
from bandsync_dagster.wording import counted

_ROWS_SHOWN = 40


def print_forecast(services: Services, options: StageOptions, console: Console) -> None:
    """Ask GitHub for its totals and say what collecting the settings' sources costs.

    Raises:
        DiscoveryError: A source cannot be read.
        GitHubError: GitHub does not answer; among them RateLimited, when not even the totals can be asked for.
        StoreError: The database cannot be used.
    """
    found, told = asyncio.run(_forecast(services, options))
    for problem in found.problems:
        console.print(problem, style="yellow", highlight=False)
    console.print(_table(told))
    if told.unreadable:
        console.print(f"GitHub tells nothing about {', '.join(told.unreadable)}.", style="yellow", highlight=False)
    console.print()
    console.print(_conclusion(services, told), highlight=False)


def forecast_cost(services: Services, options: StageOptions, keys: Iterable[str]) -> Cost | None:
    """Say what collecting repositories costs that discovery has stored; None when the quota does not allow to ask.

    Raises:
        GitHubError: GitHub does not answer.
        StoreError: The database cannot be used.
    """

    async def ask() -> Forecast:
        async with services.client() as client:
            return await _forecast_known(services, client, options, keys)

    try:
        return asyncio.run(ask()).cost
    except RateLimited:
        return None


async def _forecast(services: Services, options: StageOptions) -> tuple[Discovery, Forecast]:
    async with services.client() as client:
        settings = services.settings
        found = await discover(client, parse_sources(settings.sources), _wanted(settings))
        await asyncio.to_thread(record_discovery, services.engine, found, now=services.clock())
        return found, await _forecast_known(services, client, options, found.keys)


async def _forecast_known(
    services: Services, client: GitHubClient, options: StageOptions, keys: Iterable[str]
) -> Forecast:
    now = services.clock()
    names = {key.lower() for key in keys}
    known = await asyncio.to_thread(standings, services.engine, now=now)
    chosen = [standing for standing in known if standing.repository.full_name.lower() in names]
    return await forecast(client, chosen, options, now=now)


def _wanted(settings: Settings) -> SourceFilter:
    return SourceFilter(
        include=settings.include, exclude=settings.exclude, archived=settings.archived, forks=settings.forks
    )


def _table(told: Forecast) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    table.add_column("repository", overflow="fold")
    table.add_column("core requests", justify="right")
    table.add_column("graphql points", justify="right")
    ranked = sorted(told.repositories, key=lambda each: -(each.cost.core + each.cost.graphql))
    for each in ranked[:_ROWS_SHOWN]:
        least = "" if each.exact else "at least "
        table.add_row(each.full_name, f"{least}{each.cost.core:,}", f"{least}{each.cost.graphql:,}")
    if len(ranked) > _ROWS_SHOWN:
        table.add_row(f"… and {len(ranked) - _ROWS_SHOWN:,} more, which cost less", "", "")
    table.add_section()
    total = f"{len(ranked):,} repositories"
    table.add_row(total, f"{told.cost.core:,}", f"{told.cost.graphql:,}", style="bold")
    return table


def _conclusion(services: Services, told: Forecast) -> str:
    quotas = bucket_quotas(services.engine, services.clock())
    limits: Mapping[str, int] = {quota.bucket: quota.limit for quota in quotas if quota.limit is not None}
    remaining = {quota.bucket: quota.remaining for quota in quotas if quota.limit is not None}
    needed = windows(told.cost, limits, remaining, share=services.settings.reserve)
    fits = "It fits into the present window of quota" if needed == 1 else f"It takes {needed:,} windows of quota"
    left = " · ".join(map(quota_text, quotas))
    requests = counted(told.spent.core, "core request", "core requests")
    asking = f"Asking has cost {requests} and {counted(told.spent.graphql, 'graphql point', 'graphql points')}."
    return f"{fits}: {left}.\n{asking}"
