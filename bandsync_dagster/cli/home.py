"""The folder a local deployment lives in: what is where, and that only one command works in it at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from filelock import FileLock, Timeout

from bandsync_dagster.cli.errors import CommandError


@dataclass(frozen=True)
class Home:
    """Where a local deployment keeps what it needs. Everything is below one folder; deleting that removes it all."""

    folder: Path

    @property
    def dagster(self) -> Path:
        """Dagster's own folder (`DAGSTER_HOME`)."""
        return self.folder / "dagster"

    @property
    def logs(self) -> Path:
        """The logs of the child processes."""
        return self.folder / "logs"

    @property
    def workspace(self) -> Path:
        """The file that tells Dagster where the code server listens; written at each start."""
        return self.folder / "workspace.yaml"

    def own_entries(self) -> list[Path]:
        """Return everything that bandsync itself has put here."""
        names = ("dagster", "logs", "spool", "workspace.yaml", "bandsync.db", "bandsync.db-wal", "bandsync.db-shm")
        return [self.folder / name for name in names if (self.folder / name).exists()]

    def prepare(self) -> None:
        """Create the folders and Dagster's instance file; what is there already is left as it is.

        Raises:
            CommandError: The folder cannot be written.
        """
        instance_file = self.dagster / "dagster.yaml"
        try:
            # Logs and run records name private repositories: nobody else's business on a shared machine.
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.dagster.mkdir(exist_ok=True)
            self.logs.mkdir(exist_ok=True)
            if not instance_file.exists():
                template = resources.files("bandsync_dagster") / "deployment" / "dagster.yaml"
                instance_file.write_text(template.read_text(encoding="utf-8"), encoding="utf-8")
        except OSError as error:
            raise self._unusable(error) from error

    @contextmanager
    def occupied(self) -> Iterator[None]:
        """Keep other commands from starting a second daemon in this folder. Ends with the process, however it ends.

        Raises:
            CommandError: Another command works there, or the folder cannot be written.
        """
        lock = FileLock(self.folder / "lock", timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise CommandError(
                f"Another bandsync command is working in {self.folder}. Wait for it or stop it with Ctrl-C there,"
                " or use another folder with --home."
            ) from None
        except OSError as error:
            raise self._unusable(error) from error
        try:
            yield
        finally:
            lock.release()

    def _unusable(self, error: OSError) -> CommandError:
        return CommandError(
            f"The home folder {self.folder} cannot be used: {error.strerror}. Give another with --home."
        )

    def write_workspace(self, code_server_port: int) -> None:
        """Tell Dagster's webserver and daemon where the code server is."""
        self.workspace.write_text(
            "load_from:\n"
            "  - grpc_server:\n"
            "      host: 127.0.0.1\n"
            f"      port: {code_server_port}\n"
            f"      location_name: {LOCATION}\n",
            encoding="utf-8",
        )


# What Dagster calls our code. Sensors' and schedules' states are kept under this name, so it never changes.
LOCATION = "bandsync"
