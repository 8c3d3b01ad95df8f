"""Listing windows of runs, against a GitHub made of nothing but creation times: no hole, whatever lies where."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, cast

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bandsync_dagster.collection.listing import Listing, Slice
from bandsync_dagster.collection.pages import PageSize
from bandsync_dagster.collection.scan import Scan, StageOptions
from bandsync_dagster.collection.windows import CAP, Window
from bandsync_dagster.github.client import GitHubClient
from bandsync_dagster.github.models import Repository
from bandsync_dagster.github.quota import MemoryLedger
from bandsync_dagster_tests.collection.rows import NOON, after

POOL = Repository(1, "R_1", "acme/pool", False, None, False, False, False, None, None, None)
RUN = {
    "node_id": "WFR",
    "run_number": 1,
    "event": "push",
    "workflow_id": 1,
    "head_sha": "0",
    "html_url": "",
    "status": "completed",
}


class Listed:
    """A GitHub whose runs have an id and a creation time, listed as GitHub lists: newest first, 1,000 at most."""

    def __init__(self, moments: Sequence[datetime], *, before_answer: Callable[["Listed"], None] | None = None) -> None:
        self.runs = dict(enumerate(sorted(moments), 1))
        self.requests = 0
        self._before_answer = before_answer

    def answer(self, request: httpx.Request) -> httpx.Response:
        """Return one page."""
        self.requests += 1
        if self._before_answer is not None:
            self._before_answer(self)
        query = request.url.params
        since, until = (None if end == "*" else parse(end) for end in query["created"].split(".."))
        found = sorted((moment, number) for number, moment in self.runs.items() if inside(moment, since, until))[::-1]
        size, page = int(query["per_page"]), int(query["page"])
        shown = found[:CAP][(page - 1) * size : page * size]
        more = page * size < min(len(found), CAP)
        links = {"link": f'<{request.url.copy_set_param("page", page + 1)}>; rel="next"'} if more else {}
        return httpx.Response(
            200, headers=links, json={"total_count": min(len(found), 2500), "workflow_runs": [*map(payload, shown)]}
        )


def parse(text: str) -> datetime:
    """Read a time as GitHub takes it."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def inside(moment: datetime, since: datetime | None, until: datetime | None) -> bool:
    """Whether a moment is in a range that includes both ends."""
    return (since is None or since <= moment) and (until is None or moment <= until)


def payload(run: tuple[datetime, int]) -> dict[str, Any]:
    """Return a run as REST has it."""
    moment, number = run
    time = moment.isoformat().replace("+00:00", "Z")
    return {**RUN, "id": number, "created_at": time, "updated_at": time}


def walk(github: Listed, window: Window, *, oldest_first: bool = False, size: int = 100) -> tuple[list[Slice], Listing]:
    """List a window and return what came."""

    async def go() -> tuple[list[Slice], Listing]:
        transport = httpx.MockTransport(github.answer)
        async with GitHubClient(
            credentials=[], ledger=MemoryLedger(), transport=transport, clock=lambda: NOON
        ) as client:
            # Listing needs nothing of the scan but the client and the repository.
            nothing = cast("Any", None)
            scan = Scan(client, nothing, POOL, None, StageOptions(), lambda: NOON, nothing, nothing)
            listing = Listing(scan, PageSize(size))
            return [piece async for piece in listing.walk(window, oldest_first=oldest_first)], listing

    return asyncio.run(go())


clusters = st.lists(
    st.tuples(st.integers(0, 400_000), st.integers(1, 900), st.sampled_from([1, 2, 10, 600, 100_000])),
    max_size=6,
)


def moments_of(clustered: Sequence[tuple[int, int, int]]) -> list[datetime]:
    """Return `count` moments, evenly over so many seconds, before each of some moments."""
    return [after(seconds=-end - index * span // count) for end, count, span in clustered for index in range(count)]


def assert_vouched(github: Listed, pieces: Sequence[Slice], window: Window, overfull: set[datetime]) -> None:
    """Assert that all runs came, and that what each slice says is complete is complete by then."""
    seen: set[int] = set()
    for piece in pieces:
        seen.update(run.id for run in piece.runs)
        if piece.down_to is not None or piece.done:
            claimed = {
                number
                for number, moment in github.runs.items()
                if inside(moment, piece.down_to, piece.window.until) and moment not in overfull
            }
            assert claimed <= seen
    wanted = {number for number, moment in github.runs.items() if inside(moment, window.since, window.until)}
    assert {number for number in wanted - seen if github.runs[number] not in overfull} == set()
    assert seen <= wanted


@settings(max_examples=40, deadline=None)
@given(clusters, st.sampled_from([None, 1, 250_000, -250_000, -(10**7)]), st.sampled_from([10, 100]))
def test_every_run_is_listed_and_no_claim_is_made_too_early(
    clustered: list[tuple[int, int, int]], bound: int | None, size: int
) -> None:
    """Newest or oldest first, open or bounded, wherever runs are dense: complete, at a reasonable cost."""
    github = Listed(moments_of(clustered))
    window = Window(None if bound is None else after(seconds=-abs(bound)), NOON)
    pieces, listing = walk(github, window, oldest_first=bound is not None and bound < 0, size=size)
    assert_vouched(github, pieces, window, listing.overfull)
    crowded = [moment for moment in set(github.runs.values()) if [*github.runs.values()].count(moment) >= CAP]
    assert listing.overfull == {moment for moment in crowded if inside(moment, window.since, window.until)}
    assert github.requests <= 60 + 3 * len(github.runs) / size + 40 * len(clustered)


@settings(max_examples=40, deadline=None)
@given(clusters, st.lists(st.integers(0, 5000), max_size=40), st.booleans())
def test_runs_deleted_while_they_are_listed_hide_no_others(
    clustered: list[tuple[int, int, int]], picks: list[int], oldest_first: bool
) -> None:
    """One disappears before every answer: what is still there at the end has been listed."""
    left = list(picks)

    def delete(github: Listed) -> None:
        if left and github.runs:
            numbers = sorted(github.runs)
            del github.runs[numbers[left.pop() % len(numbers)]]

    github = Listed(moments_of(clustered), before_answer=delete)
    window = Window(after(days=-30) if oldest_first else None, NOON)
    pieces, listing = walk(github, window, oldest_first=oldest_first)
    seen = {run.id for piece in pieces for run in piece.runs}
    assert {number for number in github.runs.keys() - seen if github.runs[number] not in listing.overfull} == set()


@pytest.mark.parametrize("count", [101, 350, 999])
def test_a_second_that_fills_pages_is_paged_by_number(count: int) -> None:
    """Time can't tell its runs apart."""
    github = Listed([NOON] * count + [after(seconds=-5)])
    pieces, listing = walk(github, Window(None, NOON))
    assert {run.id for piece in pieces for run in piece.runs} == set(github.runs)
    assert listing.overfull == set()


def test_a_second_whose_runs_change_while_it_is_paged_is_paged_again() -> None:
    """A run that was deleted between two pages would have hidden another."""

    def delete(github: Listed) -> None:
        if github.requests in (3, 4):
            del github.runs[max(github.runs)]

    github = Listed([NOON] * 350, before_answer=delete)
    pieces, _ = walk(github, Window(None, NOON))
    assert set(github.runs) <= {run.id for piece in pieces for run in piece.runs}
