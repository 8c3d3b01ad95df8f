"""The three Dagster processes of a local deployment, as children: started in order, watched, and stopped for good."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from bandsync_dagster.cli.errors import BrokenOffError
from bandsync_dagster.cli.home import LOCATION, Home
from bandsync_dagster.cli.interrupts import Interrupts
from bandsync_dagster.cli.webserver import Webserver

DEFINITIONS: Final = "bandsync_dagster.definitions"
LOOPBACK: Final = "127.0.0.1"
# Generous: on a machine short of processors, importing Dagster three times can take most of a minute.
START_SECONDS: Final = 120.0
# Once no run is left, Dagster's processes end within a second or two.
STOP_SECONDS: Final = 10.0
POLL_SECONDS: Final = 0.1
LOG_TAIL_LINES: Final = 15


class Child:
    """A running child process, the leader of a process group of its own."""

    def __init__(
        self, title: str, module: str, arguments: list[str], log: Path, environment: Mapping[str, str]
    ) -> None:
        self.title = title
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603  (our own interpreter and modules)
                [sys.executable, "-m", "bandsync_dagster.cli.child", module, *arguments],
                # Never written to: the child ends when it closes (see `child`).
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                # Ctrl-C in the terminal is ours to handle; the child is told in an orderly way.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process id, which is also its group's."""
        return self._process.pid

    def ensure_alive(self) -> None:
        """Raise BrokenOffError with the end of the log when the process has ended."""
        if self._process.poll() is not None:
            raise BrokenOffError(
                f"{self.title} ended unexpectedly (exit code {self._process.returncode}).\n{self.tail()}"
            )

    def tail(self) -> str:
        """Return the end of the log, for a message."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_TAIL_LINES:]
        return "\n".join([f"The end of {self.log}:", *(f"  {line}" for line in lines)])

    def ask_to_stop(self) -> None:
        """Send the process the signal to end."""
        if self._process.poll() is None:
            self._process.terminate()

    def has_stopped(self, seconds: float) -> bool:
        """Wait for the process to end; tell whether it did."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """End the process and all it started that is still there."""
        if sys.platform == "win32":
            self._process.kill()
        else:
            # Usually the whole group has ended already.
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdin:
            self._process.stdin.close()


class Deployment:
    """Dagster's processes in a home folder. Made by `deployment`, which also stops them."""

    def __init__(
        self,
        home: Home,
        environment: Mapping[str, str],
        interrupts: Interrupts,
        while_waiting: Callable[[], None],
    ) -> None:
        self._home = home
        self._environment = {**environment, "PYTHONUNBUFFERED": "1"}
        self._interrupts = interrupts
        self._while_waiting = while_waiting
        self._children: list[Child] = []
        self._daemon: Child | None = None
        self._code_server_port = free_port()

    def ensure_alive(self) -> None:
        """Raise BrokenOffError when one of the processes has ended."""
        for child in self._children:
            child.ensure_alive()

    def start_code_server(self) -> None:
        """Start the process that holds our definitions and starts the runs."""
        self._home.write_workspace(self._code_server_port)
        address = ["--host", LOOPBACK, "--port", str(self._code_server_port)]
        code = ["--module-name", DEFINITIONS, "--location-name", LOCATION]
        self._start("Dagster's code server", "code-server", "dagster", ["api", "grpc", *address, *code])

    def start_rest(self, port: int) -> Webserver:
        """Wait for the code server, start webserver and daemon, and wait until the webserver has our definitions."""
        self._wait("Dagster's code server", lambda: listens(self._code_server_port))
        workspace = ["--workspace", str(self._home.workspace)]
        self._start(
            "Dagster's webserver",
            "webserver",
            "dagster_webserver",
            ["--host", LOOPBACK, "--port", str(port), *workspace],
        )
        self._daemon = self._start("Dagster's daemon", "daemon", "dagster._daemon", ["run", *workspace])
        webserver = Webserver(f"http://{LOOPBACK}:{port}")
        self._wait("Dagster's webserver", webserver.is_up)
        return webserver

    def stop(self) -> None:
        """End all processes, those that do not want to by force."""
        self._end(self._children)

    def stop_daemon(self) -> None:
        """End the process that launches queued runs; the others go on."""
        if self._daemon:
            self._end([self._daemon])

    def _end(self, children: Sequence[Child]) -> None:
        for child in children:
            child.ask_to_stop()
        deadline = time.monotonic() + STOP_SECONDS
        for child in children:
            while time.monotonic() < deadline and not self._interrupts.hurried and not child.has_stopped(POLL_SECONDS):
                pass
            child.kill()

    def _start(self, title: str, log_name: str, module: str, arguments: list[str]) -> Child:
        log = self._home.logs / f"{log_name}.log"
        child = Child(title, module, arguments, log, self._environment)
        self._children.append(child)
        return child

    def _wait(self, title: str, is_up: Callable[[], bool]) -> None:
        """Wait until `is_up`, a process ends, or patience does."""
        deadline = time.monotonic() + START_SECONDS
        while not is_up():
            self.ensure_alive()
            if time.monotonic() > deadline:
                raise BrokenOffError(
                    f"{title} did not start within {START_SECONDS:.0f} s.\n{self._children[-1].tail()}"
                )
            self._while_waiting()
            self._interrupts.pause(POLL_SECONDS)


@contextmanager
def deployment(
    home: Home, environment: Mapping[str, str], interrupts: Interrupts, while_waiting: Callable[[], None]
) -> Iterator[Deployment]:
    """Give a deployment to start; whatever was started is stopped at the end."""
    started = Deployment(home, environment, interrupts, while_waiting)
    try:
        yield started
    finally:
        started.stop()


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return probe.getsockname()[1]


def listens(port: int) -> bool:
    """Tell whether somebody accepts connections on a port of the loopback interface."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0
