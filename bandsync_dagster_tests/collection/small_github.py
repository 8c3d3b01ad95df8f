"""A GitHub of a few repositories and numbered pages behind a real client, and an algorithm that collects the pages.

It says exactly what was asked, in order, and can be told to refuse. What GitHub is really like, the simulator knows.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from bandsync_dagster.collection.scan import Scan
from bandsync_dagster.github.auth import PersonalToken
from bandsync_dagster.github.client import GitHubClient
from bandsync_dagster.github.models import Change
from bandsync_dagster.github.quota import MemoryLedger, QuotaLedger
from bandsync_dagster_tests.collection.time_by_hand import TimeByHand
from bandsync_dagster_tests.store.builders import REPOSITORY, change

ROWS_PER_PAGE = 3

Before = Callable[[httpx.Request], Awaitable[httpx.Response | None]]


def described(repository_id: int = REPOSITORY, full_name: str = "acme/pool", **fields: object) -> dict[str, Any]:
    """Return a repository as GitHub describes it."""
    known: dict[str, Any] = {"id": repository_id, "node_id": f"R_{repository_id}", "full_name": full_name}
    return known | {"private": False, "fork": False, "archived": False, "disabled": False} | fields


@dataclass
class SmallGitHub:
    """Answers for repositories and for `/pages/N`.

    Attributes:
        time: What its clients wait and measure by.
        repositories: By name in lower case.
        log: The paths asked for, in order.
        limited_after: How many requests are granted before the quota is used up; None grants all.
        before: Looked at before each answer: may do something, or answer instead.
        ledger: Makes what its clients keep the quota in.
    """

    time: TimeByHand = field(default_factory=TimeByHand)
    repositories: dict[str, dict[str, Any]] = field(default_factory=lambda: {"acme/pool": described()})
    log: list[str] = field(default_factory=list[str])
    limited_after: int | None = None
    before: Before | None = None
    ledger: Callable[[], QuotaLedger] = MemoryLedger

    def client(self) -> GitHubClient:
        """Return a client that asks here, as one does with a new process."""
        return GitHubClient(
            credentials=[PersonalToken("secret")],
            ledger=self.ledger(),
            clock=self.time.clock,
            transport=httpx.MockTransport(self.answer),
            sleep=self.time.sleep_briefly,
        )

    async def answer(self, request: httpx.Request) -> httpx.Response:
        """Answer a request."""
        instead = await self.before(request) if self.before else None
        if instead is not None:
            return instead
        if self.limited_after is not None and len(self.log) >= self.limited_after:
            return self._limited()
        self.log.append(request.url.path)
        return self._found(request.url.path)

    def _limited(self) -> httpx.Response:
        reset = str(int(self.time.clock().timestamp()) + 1800)
        headers = {"x-ratelimit-limit": "5000", "x-ratelimit-remaining": "0", "x-ratelimit-reset": reset}
        body = {"message": "API rate limit exceeded for user ID 1."}
        return httpx.Response(403, headers=headers | {"x-ratelimit-resource": "core"}, json=body)

    def _found(self, path: str) -> httpx.Response:
        kind, _, rest = path.strip("/").partition("/")
        if kind == "pages":
            return httpx.Response(200, json={"page": int(rest)})
        known = self.repositories.get(rest.lower())
        if kind != "repos" or known is None:
            return httpx.Response(404, json={"message": "Not Found"})
        if known["full_name"].lower() != rest.lower():
            return httpx.Response(301, headers={"location": f"/repos/{known['full_name']}"}, json={})
        return httpx.Response(200, json=known)


def rows_of(page: int) -> list[Change]:
    """Return the changes on a page."""
    first = page * ROWS_PER_PAGE
    return [Change(**change(number)) for number in range(first, first + ROWS_PER_PAGE)]


def collect_pages(pages: int) -> Callable[[Scan], Any]:
    """Return an algorithm that collects so many pages, going on behind the last one its position vouches for."""

    async def collect(scan: Scan) -> None:
        for number in range(_next_page(scan.position), pages):
            await scan.client.get(f"/pages/{number}")
            await scan.put(rows_of(number), position={"next": number + 1})
        scan.note(github_total=pages * ROWS_PER_PAGE)

    return collect


def _next_page(position: Mapping[str, Any] | None) -> int:
    return position["next"] if position else 0
