"""What assets, checks and sensors are given. The only module that reads the environment; what it builds is plain."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import dagster as dg
import sqlalchemy as sa

from bandsync_dagster.clock import Clock, utc_now
from bandsync_dagster.collection.collector import Collector
from bandsync_dagster.collection.ledger import StoreLedger
from bandsync_dagster.collection.outage import BACKOFF, persist_here
from bandsync_dagster.collection.pipeline import PipelineOptions
from bandsync_dagster.github.auth import AppInstallation, Credential, PersonalToken
from bandsync_dagster.github.client import GitHubClient
from bandsync_dagster.run_log import shown_in_run
from bandsync_dagster.settings import AppSettings, Settings, SettingsError
from bandsync_dagster.store.engine import create_store_engine, upgrade
from bandsync_dagster.store.errors import StoreError, StoreMisconfigured
from bandsync_dagster.store.spool import Spool

SPOOL_BYTES = 1 << 30

Params = ParamSpec("Params")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Services:
    """The database and the way to GitHub, as the settings describe them. One per process."""

    settings: Settings
    engine: sa.Engine
    clock: Clock = utc_now

    @cached_property
    def credentials(self) -> tuple[Credential, ...]:
        """What requests are authenticated with."""
        return make_credentials(self.settings, self.clock)

    def patiently(
        self, function: Callable[Concatenate[sa.Engine, Params], Result], *args: Params.args, **kwargs: Params.kwargs
    ) -> Result:
        """Call a function of the store; its first argument, the engine, is added here. Blocks while the store is away.

        Raises:
            StoreError: The store refuses, or stayed away.
        """
        return persist_here(partial(function, self.engine, *args, **kwargs))

    def opens_at(self, buckets: Iterable[str], now: datetime) -> datetime | None:
        """Return when the last closed one of these rate limit resources is open again, None when none is closed."""
        fingerprints = [credential.fingerprint for credential in self.credentials]
        share = self.settings.reserve
        # Asked by a sensor, every few seconds: a store that is away is not waited for.
        ledger = StoreLedger(self.engine, delays=())
        times = (ledger.opens_at(fingerprints, bucket, share=share, now=now) for bucket in buckets)
        return max((time for time in times if time), default=None)

    def client(self) -> GitHubClient:
        """Make a client; it is opened and closed by whoever uses it."""
        # Calls to the ledger wait in threads, which a process that is to end would otherwise have to wait for.
        closed = threading.Event()
        return GitHubClient(
            base_url=self.settings.github_url,
            credentials=self.credentials,
            ledger=StoreLedger(self.engine, pause=closed.wait),
            clock=self.clock,
            share=self.settings.reserve,
            on_close=closed.set,
        )

    def collector(self) -> Collector:
        """Make what collects one stage of one repository."""
        settings = self.settings
        return Collector(
            engine=self.engine,
            make_client=self.client,
            clock=self.clock,
            pipeline=PipelineOptions(
                max_size=settings.batch_size, max_age=settings.batch_age, queue_size=settings.queue_size
            ),
            spool=Spool(settings.spool, SPOOL_BYTES) if settings.spool else None,
        )


class ServicesResource(dg.ConfigurableResource[Services]):
    """Opens the services that the environment describes. It has no settings of its own, so the UI shows no secret."""

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[Services]:
        """Give the process's services; the database is upgraded first where it has to be.

        A run waits for a database that is away, as it would a moment later; a sensor is asked again in a few seconds.
        """
        settings = Settings.from_mapping(os.environ)  # noqa: TID251  (the one place)
        with shown_in_run(context):
            opening = partial(open_services, settings)
            yield persist_here(opening, delays=BACKOFF if context.run else ())


@lru_cache(maxsize=1)
def open_services(settings: Settings) -> Services:
    """Open the database and bring its schema up to date, once per process: sensors ask every few seconds.

    Raises:
        StoreError: The database cannot be reached, or was written by a newer bandsync.
    """
    engine = create_store_engine(settings.database_url)
    if engine.dialect.name == "sqlite":
        _make_folder(Path(engine.url.database or ""))
    try:
        upgrade(engine)
    except StoreError:
        # Nobody gets to close its connections, and the next sensor tries again in a few seconds.
        engine.dispose()
        raise
    return Services(settings, engine)


def _make_folder(file: Path) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreMisconfigured(
            f"the folder of the SQLite database {file} cannot be made: {error.strerror}; check the database URL"
        ) from error


def make_credentials(settings: Settings, clock: Clock = utc_now) -> tuple[Credential, ...]:
    """Make what requests are authenticated with, in the order they are tried when equally good.

    Raises:
        SettingsError: The GitHub App's key cannot be read, or is none.
    """
    tokens: list[Credential] = [PersonalToken(token) for token in settings.tokens]
    if settings.app:
        tokens.append(_app_installation(settings.app, settings.github_url, clock))
    return tuple(tokens)


def _app_installation(app: AppSettings, github_url: str, clock: Clock) -> AppInstallation:
    try:
        key = app.private_key or (app.private_key_file.read_text() if app.private_key_file else "")
        return AppInstallation(app.app_id, key, app.installation_id, base_url=github_url, clock=clock)
    except OSError as error:
        problem = f"GITHUB_APP_PRIVATE_KEY_FILE: {app.private_key_file} cannot be read: {error.strerror}"
    except UnicodeDecodeError:
        problem = f"GITHUB_APP_PRIVATE_KEY_FILE: {app.private_key_file} is no RSA key in PEM format"
    except ValueError as error:
        problem = f"GITHUB_APP_ID, GITHUB_APP_INSTALLATION_ID, GITHUB_APP_PRIVATE_KEY: {error}"
    raise SettingsError((problem,))
