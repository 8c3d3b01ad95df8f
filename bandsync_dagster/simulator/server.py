"""A world behind a real HTTP server, in a thread of this process."""

import socket
import threading
from dataclasses import replace
from types import TracebackType
from typing import Any, Literal

import uvicorn

from bandsync_dagster.simulator.application import Application, Options
from bandsync_dagster.simulator.faults import Faults
from bandsync_dagster.simulator.request_log import LoggedRequest
from bandsync_dagster.simulator.tokens import fingerprint
from bandsync_dagster.simulator.world import World

# A client that hangs must not keep a test from ending.
LONGEST_GOODBYE = 1


class SimulatedGitHub:
    """A simulated GitHub on a free port of this machine; a context manager.

    `world` may change while it is served. Keyword arguments are the fields of `Options`.
    """

    def __init__(self, world: World, *, host: str = "127.0.0.1", port: int = 0, **options: Any) -> None:  # noqa: ANN401  (the fields of Options)
        self.world = world
        self.application = Application(world, replace(Options(), **options))
        self._address = (host, port)
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> "SimulatedGitHub":  # noqa: PYI034  (Self is new in Python 3.11)
        """Start serving."""
        # Clients may connect from here on: they are queued until the server accepts.
        listener = socket.create_server(self._address, backlog=2048)
        self._address = listener.getsockname()[:2]
        self._server = uvicorn.Server(_config(self.application))
        self._thread = threading.Thread(
            target=self._server.run, args=([listener],), name="simulated GitHub", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop serving; requests on their way are given a second."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join()

    @property
    def url(self) -> str:
        """The API's address, as `https://api.github.com` is one."""
        return f"http://{self._address[0]}:{self._address[1]}"

    @property
    def enterprise_url(self) -> str:
        """The same API's address in the style of GitHub Enterprise Server."""
        return f"{self.url}/api/v3"

    @property
    def faults(self) -> Faults:
        """The faults that are switched on."""
        return self.application.faults

    @property
    def log(self) -> list[LoggedRequest]:
        """The requests that arrived so far, oldest first."""
        return self.application.log.requests()

    def clear_log(self) -> None:
        """Forget the requests that arrived so far."""
        self.application.log.clear()

    def count(self, *, path: str | None = None, **fields: object) -> int:
        """Count the requests whose path matches a regular expression and whose other fields have these values."""
        return self.application.log.count(path=path, **fields)

    def spent(self, bucket: Literal["core", "graphql"]) -> int:
        """Return what was taken from a bucket by what is in the log."""
        return self.application.log.spent(bucket)

    def spend(self, bucket: Literal["core", "graphql"], points: int, *, token: str | None = None) -> None:
        """Take up to this much from a token's bucket, as somebody else who has the token."""
        if self.application.limiter is not None:
            identity = fingerprint(token or self.application.options.tokens[0])
            self.application.limiter.spend(identity, bucket, points, self.application.clock())

    def reset_limits(self) -> None:
        """Start all windows anew, as if their time had passed."""
        if self.application.limiter is not None:
            self.application.limiter.reset()

    def revoke(self, token: str) -> None:
        """Make a token bad from now on."""
        self.application.tokens.revoke(token)


def _config(application: Application) -> uvicorn.Config:
    """Return settings that leave headers to the application, and say nothing about connections cut on purpose."""
    return uvicorn.Config(
        application,
        lifespan="off",
        ws="none",
        log_level="critical",
        access_log=False,
        date_header=False,
        server_header=False,
        timeout_graceful_shutdown=LONGEST_GOODBYE,
    )
