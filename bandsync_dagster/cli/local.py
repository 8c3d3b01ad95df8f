"""A local Dagster deployment, up and running in a home folder: what `collect`, `demo` and `up` have in common."""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import dagster as dg

from bandsync_dagster.cli.errors import BrokenOffError, CommandError
from bandsync_dagster.cli.home import Home
from bandsync_dagster.cli.interrupts import Interrupts
from bandsync_dagster.cli.leftovers import settle_leftovers
from bandsync_dagster.cli.processes import LOOPBACK, Deployment, deployment, free_port, listens
from bandsync_dagster.cli.webserver import Webserver
from bandsync_dagster.gate import ensure_pool_limit
from bandsync_dagster.reconciliation import reconcile
from bandsync_dagster.resources import Services, open_services
from bandsync_dagster.settings import Settings
from bandsync_dagster.store.errors import StoreUnavailable

DEFAULT_UI_PORT: Final = 3000

BEGUN: Final = ("STARTING", "STARTED", "CANCELING")
UNFINISHED: Final = ("NOT_STARTED", "QUEUED", *BEGUN)

POLL_SECONDS: Final = 1.0
# Bytes. With less than that on the disk, neither database can write.
_ROOM: Final = 1 << 20
# For workers to write what they have fetched.
END_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Local:
    """What is running, and the ways to it."""

    services: Services
    instance: dg.DagsterInstance
    processes: Deployment
    webserver: Webserver

    def end_runs(
        self,
        interrupts: Interrupts,
        *,
        tags: Mapping[str, str],
        statuses: Sequence[str],
        show: Callable[[int], None],
    ) -> int:
        """End runs, and wait until their workers have written what they fetched. No run starts any more.

        Args:
            interrupts: Ends the wait when somebody asks a second time.
            tags: Which runs: those that carry all of these
            statuses: and are in one of these.
            show: Called with the number of runs that have not ended yet.

        Returns:
            How many runs were ended.
        """
        # Each run that ends makes room in the pool: the daemon would go on launching queued ones meanwhile.
        self.processes.stop_daemon()
        ending: set[str] = set()
        deadline = time.monotonic() + END_SECONDS
        # Looked up again each time: a run that was just being deferred leaves a successor in the queue.
        while (alive := self.webserver.runs(tags, statuses)) and time.monotonic() < deadline:
            if new := [run.id for run in alive if run.id not in ending]:
                ending.update(self.webserver.terminate(new))
            show(len(alive))
            if not interrupts.pause_stopping(POLL_SECONDS):
                break
        self._settle()
        return len(ending)

    def _settle(self) -> None:
        """Give syncs whose runs were ended their final state now, instead of at the next start.

        While the database is away that has to wait.
        """
        with suppress(StoreUnavailable):
            reconcile(self.instance, self.services.engine, suspects=frozenset(), now=self.services.clock())


@contextmanager
def local_dagster(
    settings: Settings,
    environment: Mapping[str, str],
    interrupts: Interrupts,
    *,
    port: int | None = None,
    while_waiting: Callable[[], None] = lambda: None,
) -> Iterator[Local]:
    """Start Dagster in the settings' home folder; at the end of the block nothing of it is left running.

    Args:
        settings: What the environment says, checked.
        environment: What the child processes get. The only way a token takes to them.
        interrupts: Ends every wait.
        port: Where the webserver listens; None is any free port.
        while_waiting: Called again and again until everything is up.

    Raises:
        CommandError: The folder is in use, or a process does not come up.
        Interrupted: Somebody asked to stop meanwhile.
        StoreError: The database cannot be used.
    """
    home = Home(settings.home.absolute())
    home.prepare()
    own = {**environment, "BANDSYNC_HOME": str(home.folder), "DAGSTER_HOME": str(home.dagster)}
    while_waiting()
    with home.occupied():
        # Both create what is missing: here and now, before any child process would do so at the same time.
        services = open_services(settings)
        with (
            dg.DagsterInstance.from_config(str(home.dagster)) as instance,
            deployment(home, own, interrupts, while_waiting) as processes,
        ):
            ensure_pool_limit(instance)
            settle_leftovers(instance)
            processes.start_code_server()
            webserver = processes.start_rest(port or free_port())
            try:
                yield Local(services, instance, processes, webserver)
            except BrokenOffError as error:
                raise told_with_the_disk(error, shutil.disk_usage(home.folder).free, home.folder) from error
            finally:
                webserver.close()


def told_with_the_disk(error: BrokenOffError, free: int, folder: Path) -> BrokenOffError:
    """Return the error, or what is behind it when the disk has no room: Dagster fails in ways that don't say so."""
    if free >= _ROOM:
        return error
    return BrokenOffError(
        f"The disk that {folder} is on is full. Free space, and give the same command again: it goes on where this one"
        f" stopped. ({error})"
    )


def choose_port(wanted: int | None) -> int:
    """Return the port for the UI: the wanted one, else Dagster's usual one, else any.

    Raises:
        CommandError: The wanted one is taken.
    """
    if wanted is not None:
        if listens(wanted):
            raise CommandError(f"Port {wanted} of {LOOPBACK} is in use. Give another with --port, or leave it out.")
        return wanted
    return free_port() if listens(DEFAULT_UI_PORT) else DEFAULT_UI_PORT
