"""Payloads that are wrong in every way: each gives rows or an error of the tree, never anything else."""

import copy
import json
import random
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from bandsync_dagster.github.client import GitHubClient
from bandsync_dagster.github.errors import GitHubError
from bandsync_dagster.github.graphql import fetch_activity, fetch_changes, fetch_suites
from bandsync_dagster.github.rest import (
    fetch_jobs,
    fetch_rate_limit,
    fetch_repository,
    fetch_runs,
    iterate_repositories,
)
from bandsync_dagster_tests.github.payloads import activity_node, change_node, changes_data, check_run, suite
from bandsync_dagster_tests.github.surroundings import Stage, recorded

ROUNDS = 250
JUNK: list[Any] = [
    None,
    True,
    0,
    -1,
    2**31,
    2**63,
    10**400,
    1e400,
    float("nan"),
    "",
    "\u0000",
    "\ud800",
    "x" * 100_000,
    "2026-02-30T00:00:00Z",
    "0001-01-01T00:00:00+14:00",
    "9" * 5_000,
    [],
    [None],
    [[[]]],
    {},
    {"": {}},
    {"__typename": "Bot"},
]
HEADERS = [
    ("link", '<https://evil.example/>; rel="next"'),
    ("link", "<>; rel=next, <<<>>>"),
    ("etag", "\u00e9"),
    ("date", "yesterday"),
    ("x-ratelimit-reset", "99999999999999999999"),
    ("x-ratelimit-limit", "-1"),
    ("retry-after", "NaN"),
    ("content-encoding", "gzip"),
    ("content-type", "text/html; charset=klingon"),
    ("location", "::::"),
    ("set-cookie", "=;=;\u00e9"),
]

Ask = Callable[[GitHubClient], Awaitable[object]]


async def _list(client: GitHubClient) -> object:
    return [page async for page in iterate_repositories(client, "org", "acme")]


_JOBS = [job for job in recorded("jobs") if job["run_id"] == recorded("jobs")[0]["run_id"]]
_REPOSITORY = {"id": 1, "node_id": "R", "full_name": "a/b", "private": False, "fork": False, "created_at": None}
_BUCKET = {"limit": 5000, "remaining": 1, "reset": 1_772_368_200}
CASES: dict[str, tuple[object, Ask]] = {
    "changes": (
        {
            "data": changes_data([change_node(1), None]),
            "errors": [{"type": "X", "path": ["repository"], "message": "m"}],
        },
        lambda client: fetch_changes(client, "acme/pool", first=2),
    ),
    "suites": (
        {"data": {"nodes": [suite(1, [check_run(1)]), suite(2, [], more=True)]}},
        lambda client: fetch_suites(client, {"CS_1": 1, "CS_2": 2}, repository_id=9),
    ),
    "activity": ({"data": {"nodes": [activity_node(1)]}}, lambda client: fetch_activity(client, ["R_1"])),
    "runs": (
        {"total_count": 2, "workflow_runs": recorded("workflow_runs")[:2]},
        lambda client: fetch_runs(client, "acme/pool", repository_id=9),
    ),
    "jobs": (
        {"total_count": len(_JOBS), "jobs": _JOBS},
        lambda client: fetch_jobs(client, "acme/pool", _JOBS[0]["run_id"], repository_id=9, full=True),
    ),
    "repository": (_REPOSITORY, lambda client: fetch_repository(client, "acme/pool")),
    "repositories": ([_REPOSITORY, _REPOSITORY], _list),
    "rate limit": ({"resources": {"core": _BUCKET, "graphql": _BUCKET}}, fetch_rate_limit),
}


def places(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return the path of everything in a payload."""
    inner: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    return [path, *(place for key, part in inner for place in places(part, (*path, key)))]


def spoilt(payload: object, chance: random.Random) -> object:
    """Return a payload with up to three places replaced by junk, or taken out."""
    whole: Any = {"payload": copy.deepcopy(payload)}
    for _ in range(chance.choice([0, 1, 1, 1, 1, 2, 3])):
        *above, last = chance.choice(places(whole)[1:])
        part = whole
        for key in above:
            part = part[key]
        if above and chance.random() < 0.2:
            del part[last]
        else:
            part[last] = copy.deepcopy(chance.choice(JUNK))
    return whole["payload"]


def damaged(body: bytes, chance: random.Random) -> bytes:
    """Return a body as a bad connection or a broken server would send it, or as it is."""
    place = chance.randrange(len(body) or 1)
    ways = [
        body[:place],
        body[:place] + b"\xff\x00" + body[place:],
        body.decode("utf-8", "surrogatepass").encode("utf-16", "surrogatepass"),
        b"[" * 50_000 + body,
        b"<html>" + body,
    ]
    return chance.choice([*ways, *[body] * 20])


def response(payload: object, chance: random.Random) -> httpx.Response:
    """Return a response with a spoilt payload, sometimes with a status and headers that do not belong to it."""
    body = damaged(json.dumps(spoilt(payload, chance)).encode(), chance)
    status = chance.choice([200] * 60 + [201, 204, 206, 301, 304, 403, 404, 422, 429, 451, 500, 502, 599])
    odd = chance.sample(HEADERS, chance.choice([0, 0, 0, 0, 0, 1, 2]))
    headers = [(name.encode(), value.encode()) for name, value in odd]
    return httpx.Response(status, headers=headers, stream=httpx.ByteStream(body))


@pytest.mark.parametrize("name", CASES)
def test_a_mutated_payload_gives_rows_or_an_error_of_the_tree(name: str) -> None:
    """Types changed, fields missing, huge, nested, wrong encodings, statuses and headers: nothing else is raised."""
    payload, ask = CASES[name]
    chance = random.Random(f"mutations of {name}")  # noqa: S311 - repeatable, not secret
    outcomes = {"rows": 0, "errors": 0}

    async def many(client: GitHubClient) -> None:
        for _ in range(ROUNDS):
            try:
                await ask(client)
                outcomes["rows"] += 1
            except GitHubError as error:
                assert str(error)  # noqa: PT017 - every error has something to say
                outcomes["errors"] += 1
            # A limit or a broken reading must not end the test: each round meets a ledger that has forgotten.
            stage.ledger._buckets.clear()

    stage = Stage()
    stage.run(stage.client(lambda _: response(payload, chance), patience=0), many)
    assert sum(outcomes.values()) == ROUNDS
    assert min(outcomes.values()) > ROUNDS // 20, outcomes


@pytest.mark.parametrize("name", CASES)
def test_the_payloads_to_be_mutated_are_good_ones(name: str) -> None:
    """Else the mutations would prove nothing."""
    payload, ask = CASES[name]
    stage = Stage()
    assert stage.run(stage.client([httpx.Response(200, json=payload)]), ask)
