"""Organisations too large to be collected in a test, collected all the same."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from bandsync_dagster.github.rest import fetch_runs
from bandsync_dagster.simulator.records import Repository
from bandsync_dagster.store.schema import checkpoints, syncs
from bandsync_dagster_tests.collection.simulated import Simulation


def multiplied(simulation: Simulation, engine: sa.Engine) -> None:
    """Give the other repositories of an organisation what collecting the first has left in the store.

    Collecting 800 takes minutes; only the ETags of their empty head pages need GitHub.
    """
    first, *others = simulation.world.repositories.values()
    etags = asyncio.run(head_etags(simulation, others))
    with engine.begin() as connection:
        for table in (syncs, checkpoints):
            rows = connection.execute(sa.select(table).where(table.c.repository_id == first.id)).mappings().all()
            connection.execute(table.insert(), [row for each in others for row in copies(rows, each, etags[each.id])])


async def head_etags(simulation: Simulation, repositories: Sequence[Repository]) -> dict[int, dict[str, str]]:
    """Return the ETag of each repository's head page."""
    etags: dict[int, dict[str, str]] = {}
    async with simulation.client() as client:
        for each in repositories:
            page = await fetch_runs(client, each.full_name, repository_id=each.id)
            assert page.etag is not None
            etags[each.id] = {page.fingerprint: page.etag}
    return etags


def copies(rows: Sequence[sa.RowMapping], repository: Repository, etags: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Return rows of one repository as another's."""
    for row in rows:
        own: dict[str, Any] = {"repository_id": repository.id}
        if "position" in row and "etags" in row["position"]:
            own["position"] = {**row["position"], "etags": etags}
        yield {name: value for name, value in {**row, **own}.items() if name != "id"}
