"""What the assets share that belong to no single repository: asking GitHub, and deferring when the quota is used up."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import dagster as dg

from bandsync_dagster.collection.collector import Deferred
from bandsync_dagster.collection.interruptible import run_interruptibly
from bandsync_dagster.deferral import defer
from bandsync_dagster.github.client import GitHubClient
from bandsync_dagster.github.errors import GitHubError, RateLimited, TransientError
from bandsync_dagster.resources import Services

Answer = TypeVar("Answer")


def ask_github(
    context: dg.AssetExecutionContext,
    services: Services,
    ask: Callable[[GitHubClient], Awaitable[Answer]],
    *,
    so_far: Callable[[], Mapping[str, str]] = dict,
) -> Answer | None:
    """Ask GitHub with a client of the run's own; None when the quota is used up and the run's successor is queued.

    `so_far` then says how far this came, in tags for the successor.
    """

    async def ask_with_client() -> Answer:
        async with services.client() as client:
            return await ask(client)

    try:
        return run_interruptibly(ask_with_client())
    except RateLimited as limit:
        defer(context, services, Deferred(stage=context.asset_key.to_user_string(), limit=limit), so_far=so_far())
        return None
    except TransientError:
        raise
    except GitHubError as error:
        raise dg.Failure(str(error), allow_retries=False) from error
