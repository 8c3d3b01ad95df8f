"""Clients that we did not write, against the simulator over HTTP: what they get is the world's truth."""

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from github import Auth, Github
from githubkit import GitHub
from githubkit.exception import GitHubException, PrimaryRateLimitExceeded
from githubkit.retry import RetryOption

from bandsync_dagster.simulator.generation import generate
from bandsync_dagster.simulator.limits import Limits
from bandsync_dagster.simulator.server import SimulatedGitHub
from bandsync_dagster.simulator.world import World

NOW = datetime(2026, 11, 1, tzinfo=timezone.utc)
TOKEN = "simulated-token"
NAME = "acme/alto"
FIELDS = {
    "repositories": ("id", "full_name", "private", "archived", "fork", "default_branch", "created_at", "pushed_at"),
    "changes": ("id", "number", "title", "draft", "created_at", "updated_at", "closed_at", "merged_at"),
    "verifications": ("id", "run_number", "run_attempt", "event", "status", "conclusion", "head_sha", "updated_at"),
    "jobs": ("id", "run_attempt", "name", "status", "conclusion", "completed_at"),
}
FEED = """query($cursor: String) { repository(owner: "acme", name: "alto") {
  pullRequests(first: 30, after: $cursor, orderBy: {field: UPDATED_AT, direction: ASC}) {
    nodes { fullDatabaseId } pageInfo { hasNextPage endCursor } } } }"""
Rows = list[dict[str, Any]]


@pytest.fixture
def plain() -> Iterator[SimulatedGitHub]:
    """Serve a world in which every value is one that GitHub's description knows: githubkit takes no others."""
    with SimulatedGitHub(generate(repositories=3, changes=130, runs=40, awkward=False, rerun_share=0.1)) as server:
        yield server


@pytest.fixture
def awkward() -> Iterator[SimulatedGitHub]:
    """Serve a world with everything in it that breaks naive clients."""
    with SimulatedGitHub(generate(repositories=9, changes=130, runs=40)) as server:
        yield server


@pytest.fixture
def scarce() -> Iterator[SimulatedGitHub]:
    """Serve a world under limits that a listing of its changes exceeds, with windows of two seconds."""
    world = generate(repositories=1, changes=130, runs=0, awkward=False)
    with SimulatedGitHub(world, limits=Limits(core=3, graphql=3, window=2.0)) as server:
        yield server


def truth(world: World, table: str) -> Rows:
    """Return the fields compared, of all repositories or of what is in one."""
    home = world.repository(NAME).id
    rows = [row for row in world.truth()[table] if row.get("repository_id", home) == home]
    return [{name: row[name] for name in FIELDS[table]} for row in rows]


def seen(table: str, items: list[Any]) -> Rows:
    """Return the same fields of what a client got, by id."""
    rows = [{name: storable(getattr(item, name)) for name in FIELDS[table]} for item in items]
    return sorted(rows, key=lambda row: row["id"])


def storable(value: Any) -> Any:
    """Return a value as the truth has it: without what no database can hold, and with no time for "never"."""
    if isinstance(value, str):
        return "".join(letter for letter in value if letter != "\x00" and not "\ud800" <= letter <= "\udfff")
    return None if isinstance(value, datetime) and value.year < 2000 else value


def test_githubkit_lists_the_truth_over_rest(plain: SimulatedGitHub) -> None:
    """Repositories, pull requests, runs and jobs, page by page, parsed by its generated models."""
    owner, repo = NAME.split("/")
    with GitHub(TOKEN, base_url=plain.url, http_cache=False) as client:
        api, pages = client.rest("2022-11-28"), client.rest.paginate
        repositories = list(pages(api.repos.list_for_org, org=owner, per_page=2))
        changes = list(pages(api.pulls.list, owner=owner, repo=repo, state="all", per_page=50))
        runs = list(
            pages(
                api.actions.list_workflow_runs_for_repo,
                map_func=lambda answer: answer.parsed_data.workflow_runs,
                owner=owner,
                repo=repo,
                per_page=15,
            )
        )
        jobs = [job for run in runs for job in githubkit_jobs(client, run.id)]
    assert seen("repositories", repositories) == truth(plain.world, "repositories")
    assert seen("changes", changes) == truth(plain.world, "changes")
    assert seen("verifications", runs) == truth(plain.world, "verifications")
    assert seen("jobs", jobs) == truth(plain.world, "jobs")


def githubkit_jobs(client: GitHub[Any], run_id: int) -> list[Any]:
    """Return a run's jobs of all attempts."""
    return list(
        client.rest.paginate(
            client.rest("2022-11-28").actions.list_jobs_for_workflow_run,
            map_func=lambda answer: answer.parsed_data.jobs,
            **dict(zip(("owner", "repo"), NAME.split("/"), strict=True)),
            run_id=run_id,
            filter_="all",
            per_page=2,
        )
    )


def test_githubkit_walks_the_feed_over_graphql(awkward: SimulatedGitHub) -> None:
    """Its own pagination of a GraphQL connection gets every change, in order."""
    with GitHub(TOKEN, base_url=awkward.url, http_cache=False) as client:
        pages = list(client.graphql.paginate(FEED))
    ids = [int(node["fullDatabaseId"]) for page in pages for node in page["repository"]["pullRequests"]["nodes"]]
    assert ids == [change.id for change in awkward.world.repository(NAME).changes_by_update]


def pygithub(url: str) -> Github:
    """Return PyGithub without the pause it makes between requests."""
    return Github(auth=Auth.Token(TOKEN), base_url=url, per_page=30, seconds_between_requests=None)


@pytest.mark.parametrize("style", ["url", "enterprise_url"])
def test_pygithub_lists_the_truth(awkward: SimulatedGitHub, style: str) -> None:
    """Also in a world full of awkward values, and at an Enterprise address."""
    client = pygithub(getattr(awkward, style))
    try:
        repository = client.get_repo(NAME)
        runs = list(repository.get_workflow_runs())
        assert seen("repositories", list(client.get_organization("acme").get_repos())) == truth(
            awkward.world, "repositories"
        )
        assert seen("changes", list(repository.get_pulls(state="all"))) == truth(awkward.world, "changes")
        assert seen("verifications", runs) == truth(awkward.world, "verifications")
        jobs = [job for run in runs for job in run.jobs(_filter="all")]
        assert seen("jobs", jobs) == truth(awkward.world, "jobs")
    finally:
        client.close()


def test_pygithub_follows_a_rename(plain: SimulatedGitHub) -> None:
    """The old name leads to the repository under its new one."""
    repository = plain.world.repository(NAME)
    plain.world.rename_repository(repository, "contralto")
    client = pygithub(plain.url)
    try:
        found = client.get_repo(NAME)
        assert (found.id, found.full_name) == (repository.id, "acme/contralto")
    finally:
        client.close()


def test_pygithub_understands_the_rate_limit(scarce: SimulatedGitHub) -> None:
    """It waits until the reset that the headers announce, and gets everything."""
    client = pygithub(scarce.url)
    try:
        changes = list(client.get_repo(NAME).get_pulls(state="all"))
    finally:
        client.close()
    assert seen("changes", changes) == truth(scarce.world, "changes")
    assert scarce.count(limited="primary") >= 1


def wait_for_the_reset(error: GitHubException, _count: int) -> RetryOption:
    """Wait until a primary limit is over: a second longer than told, for the reset comes within its second."""
    if isinstance(error, PrimaryRateLimitExceeded):
        return RetryOption(do_retry=True, retry_after=error.retry_after + timedelta(seconds=1))
    return RetryOption(do_retry=False)


def test_githubkit_understands_the_rate_limit_of_rest(scarce: SimulatedGitHub) -> None:
    """It takes the answer for a primary limit, waits and gets everything."""
    with GitHub(TOKEN, base_url=scarce.url, http_cache=False, auto_retry=wait_for_the_reset) as client:
        listing = client.rest("2022-11-28").pulls.list
        changes = list(client.rest.paginate(listing, owner="acme", repo="alto", state="all", per_page=30))
    assert seen("changes", changes) == truth(scarce.world, "changes")
    assert scarce.count(limited="primary") >= 1


def test_githubkit_understands_the_rate_limit_of_graphql(scarce: SimulatedGitHub) -> None:
    """It takes the errors in a good answer for a primary limit, and knows when it ends."""
    with (
        GitHub(TOKEN, base_url=scarce.url, http_cache=False) as client,
        pytest.raises(PrimaryRateLimitExceeded) as told,
    ):
        list(client.graphql.paginate(FEED))
    assert timedelta() <= told.value.retry_after <= timedelta(seconds=2)
    assert scarce.count(limited="primary") == 1
