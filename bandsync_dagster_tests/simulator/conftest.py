"""Simulated GitHubs on real ports, and clients that know their tokens."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from bandsync_dagster.simulator import DEFAULT_TOKEN, SimulatedGitHub, World

Serve = Callable[..., SimulatedGitHub]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return a function that serves a world until the test ends."""
    with ExitStack() as stack:

        def start(world: World, **options: Any) -> SimulatedGitHub:
            return stack.enter_context(SimulatedGitHub(world, **options))

        yield start


@pytest.fixture
def connect() -> Iterator[Callable[..., httpx.Client]]:
    """Return a function that opens a client of a server, with a token if not told otherwise."""
    with ExitStack() as stack:

        def open_client(github: SimulatedGitHub, token: str | None = DEFAULT_TOKEN, **headers: str) -> httpx.Client:
            authorization = {"authorization": f"Bearer {token}"} if token else {}
            client = httpx.Client(base_url=github.url, headers={**authorization, **headers})
            return stack.enter_context(client)

        yield open_client
