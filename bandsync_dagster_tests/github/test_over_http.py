"""The client against a real server over real HTTP: what a transport in memory cannot show."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from bandsync_dagster.github.auth import Anonymous
from bandsync_dagster.github.client import GitHubClient
from bandsync_dagster.github.errors import BadCredentials, ConnectionLost, QueryTooLarge, RateLimited
from bandsync_dagster.github.graphql import fetch_changes
from bandsync_dagster.github.quota import MemoryLedger
from bandsync_dagster.github.rest import fetch_repository, fetch_runs
from bandsync_dagster.simulator import DEFAULT_TOKEN, Limits, SimulatedGitHub, World, generate
from bandsync_dagster_tests.github.surroundings import credentials

Result = TypeVar("Result")
NAME = "acme/pool"


@pytest.fixture
def world() -> World:
    """Return a small world with one repository whose name the tests know."""
    world = generate(seed=3, repositories=1, changes=30, runs=30, awkward=False)
    (repository,) = world.truth()["repositories"]
    world.rename_repository(world.repository(repository["full_name"]), "pool")
    return world


def use(url: str, work: Callable[[GitHubClient], Awaitable[Result]], **settings: Any) -> Result:
    """Do some work with a client of this server, without waiting between attempts."""

    async def no_sleep(_: float) -> None:
        await asyncio.sleep(0)

    async def inside() -> Result:
        options = {"credentials": credentials(DEFAULT_TOKEN), "ledger": MemoryLedger(), "sleep": no_sleep, **settings}
        async with GitHubClient(base_url=url, **options) as client:
            return await work(client)

    return asyncio.run(inside())


@pytest.mark.parametrize("enterprise", [False, True])
def test_rest_and_graphql_are_reached_under_both_kinds_of_url(world: World, enterprise: bool) -> None:
    """GitHub Enterprise Server has other paths, and the same answers."""

    async def both(client: GitHubClient) -> tuple[str, int]:
        repository = await fetch_repository(client, NAME)
        page = await fetch_changes(client, NAME, last=100)
        return repository.full_name, len(page.changes)

    with SimulatedGitHub(world) as github:
        assert use(github.enterprise_url if enterprise else github.url, both) == (NAME, 30)


def test_a_head_page_that_did_not_change_costs_no_quota(world: World) -> None:
    """The ETag goes back as it came, and the answer is a 304."""

    async def twice(client: GitHubClient) -> tuple[bool, bool]:
        first = await fetch_runs(client, NAME, repository_id=1)
        again = await fetch_runs(client, NAME, repository_id=1, etag={first.fingerprint: first.etag}.get)
        return first.modified, again.modified

    with SimulatedGitHub(world) as github:
        assert use(github.url, twice) == (True, False)
        assert github.count(status=304) == 1
        assert github.spent("core") == 1


def test_with_the_first_defence_alone_no_limit_answer_is_ever_received(world: World) -> None:
    """Twenty at once on a limit of twelve: eleven are sent, the rest is not."""

    async def all_at_once(client: GitHubClient) -> int:
        await client.get(f"/repos/{NAME}")
        asked = (client.get(f"/repos/{NAME}") for _ in range(20))
        answers = await asyncio.gather(*asked, return_exceptions=True)
        return sum(isinstance(answer, RateLimited) for answer in answers)

    with SimulatedGitHub(world, limits=Limits(core=12)) as github:
        assert use(github.url, all_at_once) == 10
        assert github.count(limited=True) == 0
        assert github.count() == 11


def test_a_second_consumer_is_noticed_at_the_first_limit_answer(world: World) -> None:
    """Somebody else spent the rest; one answer says so, and nothing more is sent."""

    async def on(client: GitHubClient) -> None:
        await client.get(f"/repos/{NAME}")
        github.spend("core", 5000)
        for _ in range(3):
            with pytest.raises(RateLimited):
                await client.get(f"/repos/{NAME}")

    with SimulatedGitHub(world) as github:
        use(github.url, on)
        assert github.count() == 2


def test_a_secondary_limit_without_retry_after_stops_both_apis(world: World) -> None:
    """For a minute nothing is sent at all."""

    async def on(client: GitHubClient) -> None:
        for _ in range(2):
            with pytest.raises(RateLimited) as caught:
                await fetch_changes(client, NAME, first=1)
            assert caught.value.bucket == "graphql"
        with pytest.raises(RateLimited):
            await fetch_repository(client, NAME)

    limits = Limits(graphql_points_per_minute=0, retry_after_missing_first=5, graphql_secondary_status=200)
    with SimulatedGitHub(world, limits=limits) as github:
        use(github.url, on)
        assert github.count() == 1


@pytest.mark.parametrize("kind", ["cut", "malformed", "html_502", "html_504", "server_error"])
def test_rest_trouble_on_the_wire_is_survived(world: World, kind: Any) -> None:
    """The same rows in the end."""
    with SimulatedGitHub(world) as github:
        github.faults.add(kind, times=2)
        page = use(github.url, lambda client: fetch_runs(client, NAME, repository_id=1))
        assert len(page.verifications) == 30
        assert github.count() == 3


@pytest.mark.parametrize("kind", ["cut", "html_502", "html_504", "query_timeout", "resource_limits"])
def test_a_query_that_github_gave_up_on_is_handed_back(world: World, kind: Any) -> None:
    """At once for many items, after retries for one."""
    with SimulatedGitHub(world) as github:
        github.faults.add(kind, times=2)
        with pytest.raises(QueryTooLarge):
            use(github.url, lambda client: fetch_changes(client, NAME, last=10))
        page = use(github.url, lambda client: fetch_changes(client, NAME, last=1))
        assert len(page.changes) == 1
        assert github.count() == 3


def test_a_revoked_token_is_bad_credentials(world: World) -> None:
    """One request, one clear error."""
    with SimulatedGitHub(world) as github:
        github.revoke(DEFAULT_TOKEN)
        with pytest.raises(BadCredentials):
            use(github.url, lambda client: fetch_repository(client, NAME))
        assert github.count() == 1


def test_graphql_without_a_token_is_bad_credentials(world: World) -> None:
    """No reset would ever help."""
    with SimulatedGitHub(world) as github, pytest.raises(BadCredentials):
        use(github.url, lambda client: fetch_changes(client, NAME, last=1), credentials=[Anonymous()])


def test_a_server_that_is_not_there_is_a_lost_connection(world: World) -> None:
    """After all retries, with a message that says what happened."""
    with SimulatedGitHub(world) as github:
        url = github.url
    with pytest.raises(ConnectionLost, match="ConnectError"):
        use(url, lambda client: fetch_repository(client, NAME))
