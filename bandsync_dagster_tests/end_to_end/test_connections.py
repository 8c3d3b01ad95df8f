"""Connections to PostgreSQL while five workers are busy: none is refused at a limit of 20 for everything together."""

import re
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
import sqlalchemy as sa

from bandsync_dagster.simulator import generate
from bandsync_dagster.store.engine import CONNECTIONS_PER_PROCESS
from bandsync_dagster.tags import PARTITION, POOL_LIMIT
from bandsync_dagster_tests.conftest import PostgresDatabases
from bandsync_dagster_tests.end_to_end.conftest import Deploy
from bandsync_dagster_tests.end_to_end.deployed import Deployed, wait_for

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"
LIMIT = 20
LOOK_EVERY = 0.02
_REFUSAL = re.compile("too many connections for|remaining connection slots are reserved|too many clients already")


class OrdinaryUser:
    """A user of the server who is no superuser, and may hold so many connections to all databases together.

    Attributes:
        most: The most connections seen at once, by the application's name, and of all together as `together`.
    """

    def __init__(self, postgres: PostgresDatabases) -> None:
        self.name = f"user_{uuid.uuid4().hex[:12]}"
        self.most: Counter[str] = Counter()
        self._postgres = postgres
        postgres.execute(f"CREATE ROLE {self.name} LOGIN CONNECTION LIMIT {LIMIT}")

    def own(self, url: str) -> str:
        """Make a database this user's; return the URL by which this user reaches it."""
        parsed = sa.make_url(url)
        self._postgres.execute(f'ALTER DATABASE "{parsed.database}" OWNER TO {self.name}')
        return parsed.set(username=self.name).render_as_string(hide_password=False)

    def refusals(self) -> int:
        """Return how often the server has refused a connection because there were too many, by its own log."""
        with self._postgres._admin.connect() as connection:
            log = connection.exec_driver_sql("SELECT pg_read_file('log')").scalar_one()
        return len(_REFUSAL.findall(log))

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Count the user's connections again and again, until the end of the block."""
        over = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(over,))
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()

    def _watch(self, over: threading.Event) -> None:
        held = f"SELECT application_name, count(*) FROM pg_stat_activity WHERE usename = '{self.name}' GROUP BY 1"
        with self._postgres._admin.connect() as connection:
            while not over.wait(LOOK_EVERY):
                now = Counter(dict(connection.exec_driver_sql(held).tuples().all()))
                # The union of counters keeps the larger numbers.
                self.most |= now + Counter(together=now.total())

    def drop(self) -> None:
        """Remove the user, whose databases are gone already."""
        self._postgres.execute(f"DROP ROLE {self.name}")


@pytest.fixture
def user(postgres: PostgresDatabases) -> Iterator[OrdinaryUser]:
    """A user with few connections."""
    user = OrdinaryUser(postgres)
    yield user
    user.drop()


def documented(pattern: str) -> int:
    """Return a number that the documentation states."""
    section = OPERATIONS.read_text(encoding="utf-8").split("## Connections", 2)[1].split("\n## ", 1)[0]
    [found] = re.findall(pattern, " ".join(section.split()))
    return int(found)


def meet(dagster: Deployed) -> None:
    """Let GitHub answer nobody until five workers are at work at the same time."""
    with dagster.world.lock:
        wait_for("five workers at once", lambda: len(dagster.runs(("STARTED",))) == POOL_LIMIT)


@pytest.mark.parametrize("backend", ["postgresql"])
def test_five_workers_need_fewer_than_twenty_connections(user: OrdinaryUser, deploy: Deploy) -> None:
    """One user, with 20 connections to both databases, collects all and is refused none; the UI answers all along."""
    urls = {name: user.own(deploy._environment[name]) for name in ("BANDSYNC_DATABASE_URL", "DAGSTER_POSTGRES_URL")}
    refused = user.refusals()
    world = generate(4, repositories=12, changes=20, runs=16, rerun_share=0.5, awkward=False)
    with user.watched():
        dagster = deploy(world, settings=urls, latency=(0.1, 0.5))
        assert dagster.discover().status == "SUCCESS"
        backfill = dagster.backfill(dagster.names)
        meet(dagster)
        assert dagster.finish_backfill(backfill) == "COMPLETED_SUCCESS"
    assert {run.status for run in dagster.runs() if PARTITION in run.tags} == {"SUCCESS"}
    dagster.assert_true()
    print(dict(user.most))  # noqa: T201
    assert user.refusals() == refused
    assert documented(r"at most \*\*(\d+)\*\* connections") == CONNECTIONS_PER_PROCESS
    assert POOL_LIMIT <= user.most["bandsync"] <= documented(r"that is (\d+) at most")


def test_a_refused_connection_would_be_noticed(user: OrdinaryUser, postgres: PostgresDatabases) -> None:
    """The server refuses the connection after the twentieth, and says so where the test above looks."""
    url = user.own(postgres.create())
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    refused = user.refusals()
    with ExitStack() as held:
        for _ in range(LIMIT):
            held.enter_context(engine.connect())
        assert user.refusals() == refused
        with suppress(sa.exc.OperationalError):
            held.enter_context(engine.connect())
        assert user.refusals() == refused + 1
    postgres.drop(url)
