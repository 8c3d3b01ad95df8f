"""A client whose network, clock and sleep are in the test's hands. What GitHub answers is the test's own business."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, TypeVar

import httpx

from bandsync_dagster.github.auth import Credential, PersonalToken
from bandsync_dagster.github.client import GitHubClient, RestAnswer
from bandsync_dagster.github.quota import MemoryLedger

NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
RECORDED = Path(__file__).parent.parent / "data" / "recorded"
Result = TypeVar("Result")
Handler = Callable[[httpx.Request], httpx.Response]


@dataclass
class Stage:
    """A client's surroundings: a clock that only sleeping moves, and every request that left."""

    now: datetime = NOON
    naps: list[float] = field(default_factory=list)
    requests: list[httpx.Request] = field(default_factory=list)
    ledger: MemoryLedger = field(default_factory=MemoryLedger)

    def clock(self) -> datetime:
        """Return the time."""
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Let the time pass at once."""
        self.naps.append(seconds)
        self.now += timedelta(seconds=seconds)

    def client(
        self,
        answers: Handler | Sequence[httpx.Response | Exception],
        tokens: Sequence[str] = ("ghp_one",),
        **settings: object,
    ) -> GitHubClient:
        """Return a client that gets these answers, in turn or from a function."""
        queue = None if callable(answers) else list(answers)

        def handle(request: httpx.Request) -> httpx.Response:
            self.requests.append(request)
            answer = answers(request) if queue is None else queue.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        settings.setdefault("credentials", [PersonalToken(token) for token in tokens])
        settings.setdefault("jitter", lambda: 0.0)
        return GitHubClient(
            ledger=self.ledger, clock=self.clock, sleep=self.sleep, transport=httpx.MockTransport(handle), **settings
        )

    def run(self, client: GitHubClient, use: Callable[[GitHubClient], Awaitable[Result]]) -> Result:
        """Use a client in an event loop of its own."""

        async def inside() -> Result:
            async with client:
                return await use(client)

        return asyncio.run(inside())

    def get(self, answers: Handler | Sequence[httpx.Response | Exception], **settings: object) -> RestAnswer:
        """Ask for `/x` of a client with these answers."""
        return self.run(self.client(answers, **settings), lambda client: client.get("/x"))


def quota_headers(
    remaining: int, *, limit: int = 5000, resets_in: float = 1800, bucket: str = "core", now: datetime = NOON
) -> dict[str, str]:
    """Return the headers GitHub sends with each answer."""
    return {
        "x-ratelimit-limit": str(limit),
        "x-ratelimit-remaining": str(remaining),
        "x-ratelimit-reset": str(int(now.timestamp() + resets_in)),
        "x-ratelimit-resource": bucket,
    }


def recorded(name: str) -> list[dict[str, Any]]:
    """Return recorded items of the real API."""
    return json.loads((RECORDED / f"{name}.json").read_text())


def answer(data: object, headers: Mapping[str, str] | None = None, status: int = 200) -> httpx.Response:
    """Return a JSON response."""
    return httpx.Response(status, json=data, headers=dict(headers or {}))


def credentials(*tokens: str) -> list[Credential]:
    """Return personal tokens."""
    return [PersonalToken(token) for token in tokens]
