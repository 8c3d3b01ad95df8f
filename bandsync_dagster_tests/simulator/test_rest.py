"""REST endpoints over HTTP: lists with their caps, runs and attempts, and what may not be seen."""

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import httpx
import pytest

from bandsync_dagster.simulator import World, generate
from bandsync_dagster.simulator.oddities import ZERO_TIME
from bandsync_dagster_tests.simulator.conftest import Serve

NOW = datetime(2026, 11, 1, 12, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)

Connect = Callable[..., httpx.Client]


@pytest.fixture
def world() -> World:
    """Return a small world without awkward values."""
    return generate(repositories=3, changes=5, runs=7, awkward=False, now=NOW)


@pytest.fixture
def client(world: World, serve: Serve, connect: Connect) -> httpx.Client:
    """Return a client of the world, on a host without limits."""
    return connect(serve(world, limits=None))


def _pages(client: httpx.Client, url: str, field: str | None = None) -> list[Any]:
    """Follow the links of a list to its end."""
    items: list[Any] = []
    following: str | None = url
    while following:
        response = client.get(following)
        assert response.status_code == 200, response.text
        items += response.json()[field] if field else response.json()
        following = response.links.get("next", {}).get("url")
    return items


def test_an_organisation_lists_its_repositories_page_by_page(client: httpx.Client, world: World) -> None:
    """Links lead to all of them, each once."""
    listed = _pages(client, "/orgs/acme/repos?per_page=1")
    assert {item["id"] for item in listed} == set(world.repositories)
    assert len(listed) == 3


def test_an_account_tells_what_it_is(client: httpx.Client) -> None:
    """A user is no organisation, and nobody is neither."""
    assert client.get("/users/acme").json()["type"] == "Organization"
    assert client.get("/users/dev-1").json()["type"] == "User"
    assert client.get("/orgs/acme").json()["login"] == "acme"
    assert [client.get(path).status_code for path in ("/orgs/dev-1", "/orgs/dev-1/repos", "/users/x")] == [404] * 3


def test_private_repositories_are_seen_only_by_those_who_may(
    client: httpx.Client, connect: Connect, serve: Serve, world: World
) -> None:
    """An account's public list leaves them out; without a token they don't exist."""
    private = world.repository("acme/alto")
    world.update_repository(private, private=True, visibility="private")
    anonymous = connect(serve(world), token=None)
    assert len(client.get("/orgs/acme/repos").json()) == len(client.get("/user/repos").json()) == 3
    assert len(client.get("/orgs/acme/repos?type=private").json()) == 1
    assert len(client.get("/users/acme/repos").json()) == len(anonymous.get("/orgs/acme/repos").json()) == 2
    assert anonymous.get("/repos/acme/alto").status_code == 404
    assert anonymous.get("/user/repos").status_code == 401


def test_runs_are_listed_newest_first_once_each(client: httpx.Client, world: World) -> None:
    """Whatever was run again."""
    runs = world.repository("acme/alto").runs
    world.rerun(runs[0])
    listed = _pages(client, "/repos/acme/alto/actions/runs?per_page=2", "workflow_runs")
    assert [item["id"] for item in listed] == [run.id for run in reversed(runs)]
    assert listed[-1]["run_attempt"] == 2


def test_a_filtered_list_ends_silently_after_1000_runs(serve: Serve, connect: Connect) -> None:
    """The eleventh page is empty, with status 200; the total is exact up to 2,500 and a lower bound beyond."""
    world = generate(repositories=2, changes=0, runs=2_600, jobs_per_run=0, awkward=False, now=NOW)
    client = connect(serve(world, limits=None))
    url, since = "/repos/acme/alto/actions/runs?per_page=100&exclude_pull_requests=true", "&created=>=2020-01-01"
    tenth, eleventh = (client.get(f"{url}{since}&page={page}") for page in (10, 11))
    assert (len(tenth.json()["workflow_runs"]), tenth.json()["total_count"]) == (100, 2_500)
    assert (eleventh.status_code, eleventh.json()["workflow_runs"]) == (200, [])
    assert client.get(f"{url}&page=26").json()["total_count"] == 2_600
    newest = world.repository("acme/alto").runs[-1_200:]
    window = f"&created={newest[0].created_at:%Y-%m-%dT%H:%M:%SZ}..*"
    assert client.get(url + window).json()["total_count"] == 1_200


def test_an_unfiltered_list_refuses_beyond_40000_runs(serve: Serve, connect: Connect) -> None:
    """With 422, and a total that ends there too."""
    world = generate(repositories=1, changes=0, runs=40_150, jobs_per_run=0, awkward=False, now=NOW)
    client = connect(serve(world, limits=None))
    url = "/repos/acme/alto/actions/runs?per_page=100&exclude_pull_requests=true"
    last, beyond = (client.get(f"{url}&page={page}") for page in (400, 401))
    assert (len(last.json()["workflow_runs"]), last.json()["total_count"]) == (100, 40_000)
    assert "next" not in last.links
    assert beyond.status_code == 422
    assert "pagination is limited" in beyond.json()["message"]


def test_created_selects_to_the_second_with_both_ends(client: httpx.Client, world: World) -> None:
    """An encoded offset is understood too."""
    repository = world.add_repository("acme/seconds")
    runs = [world.add_run(repository, at=NOW + timedelta(seconds=second)) for second in range(5)]
    url = "/repos/acme/seconds/actions/runs"
    for created in ("2026-11-01T12:00:01Z..2026-11-01T12:00:03Z", "2026-11-01T13:00:01+01:00..2026-11-01T12:00:03Z"):
        found = client.get(url, params={"created": created}).json()["workflow_runs"]
        assert [item["id"] for item in found] == [run.id for run in (runs[3], runs[2], runs[1])]
    assert client.get(url, params={"created": "soon"}).status_code == 422


@pytest.mark.parametrize(
    ("query", "expected"),
    [("status=failure", 1), ("status=completed", 7), ("event=push", 2), ("branch=main", 7), ("actor=nobody", 0)],
)
def test_other_filters_select_too(client: httpx.Client, query: str, expected: int) -> None:
    """A status is a status or a conclusion."""
    assert client.get(f"/repos/acme/alto/actions/runs?{query}").json()["total_count"] == expected


def test_runs_name_open_pull_requests_of_their_commit_unless_excluded(client: httpx.Client, world: World) -> None:
    """Closed ones are not named."""
    repository = world.repository("acme/alto")
    change = world.add_change(repository)
    run = world.add_run(repository, head_sha=change.head_sha)
    url = "/repos/acme/alto/actions/runs?per_page=1"
    assert client.get(url).json()["workflow_runs"][0]["id"] == run.id
    assert [item["number"] for item in client.get(url).json()["workflow_runs"][0]["pull_requests"]] == [change.number]
    assert client.get(f"{url}&exclude_pull_requests=true").json()["workflow_runs"][0]["pull_requests"] == []
    world.close_change(change)
    assert client.get(url).json()["workflow_runs"][0]["pull_requests"] == []


def test_attempts_and_their_jobs_can_be_asked_one_by_one(client: httpx.Client, world: World) -> None:
    """`latest` is the last attempt's jobs with the copies, `all` is everything, oldest first."""
    jobs = [{"name": "build", "conclusion": "success"}, {"name": "test"}]
    run = world.add_run(world.repository("acme/alto"), jobs=jobs, conclusion="failure")
    world.rerun(run, failed_only=True)
    url = f"/repos/acme/alto/actions/runs/{run.id}"
    ids = {
        path: [job["id"] for job in client.get(url + path).json()["jobs"]]
        for path in ("/jobs", "/jobs?filter=all", "/attempts/1/jobs", "/attempts/2/jobs")
    }
    first, second = ([job.id for job in attempt.jobs] for attempt in run.attempts)
    assert list(ids.values()) == [second, first + second, first, second]
    past, present = client.get(f"{url}/attempts/1").json(), client.get(url).json()
    assert (past["run_attempt"], past["conclusion"], past["previous_attempt_url"]) == (1, "failure", None)
    assert (present["run_attempt"], present["conclusion"]) == (2, "success")
    assert client.get(present["previous_attempt_url"]).json() == past
    assert past["created_at"] == present["created_at"]
    for gone in ("/attempts/3", "/attempts/0/jobs"):
        assert client.get(url + gone).status_code == 404


def test_jobs_of_large_runs_come_in_pages(client: httpx.Client, world: World) -> None:
    """Each job once."""
    run = world.add_run(world.repository("acme/alto"), jobs=350)
    jobs = _pages(client, f"/repos/acme/alto/actions/runs/{run.id}/jobs?per_page=100", "jobs")
    assert [job["id"] for job in jobs] == [job.id for job in run.jobs]


def test_a_job_can_be_asked_alone(client: httpx.Client, world: World) -> None:
    """In its own repository only; a start that never was is the zero time."""
    skipped = {"name": "deploy", "status": "completed", "conclusion": "skipped", "started_at": None}
    job = world.add_run(world.repository("acme/alto"), jobs=[skipped]).jobs[0]
    assert client.get(f"/repos/acme/alto/actions/jobs/{job.id}").json()["started_at"] == "0001-01-01T00:00:00Z"
    assert ZERO_TIME.year == 1
    assert client.get(f"/repos/acme/bass/actions/jobs/{job.id}").status_code == 404


def test_pull_requests_are_listed_in_any_order(client: httpx.Client, world: World) -> None:
    """Open ones by default; by update if asked."""
    changes = world.repository("acme/alto").changes
    world.touch_change(changes[0])
    numbers = [item["number"] for item in _pages(client, "/repos/acme/alto/pulls?state=all&sort=updated&per_page=2")]
    assert numbers[0] == changes[0].number
    assert sorted(numbers) == [change.number for change in changes]
    opened = client.get("/repos/acme/alto/pulls?direction=asc").json()
    assert [item["number"] for item in opened] == [change.number for change in changes if change.state == "open"]


def test_a_single_pull_request_has_its_numbers(client: httpx.Client, world: World) -> None:
    """Which the list does not."""
    change = world.repository("acme/alto").changes[0]
    url = f"/repos/acme/alto/pulls/{change.number}"
    item = client.get(url).json()
    assert (item["additions"], item["commits"], item["merged"]) == (change.additions, change.commits, True)
    assert "additions" not in client.get("/repos/acme/alto/pulls?state=all").json()[0]
    assert client.get("/repos/acme/alto/pulls/999").status_code == 404


def test_the_newer_api_version_lacks_what_it_dropped(client: httpx.Client, world: World) -> None:
    """An unknown version is refused."""
    url = f"/repos/acme/alto/pulls/{world.repository('acme/alto').changes[0].number}"
    assert "merge_commit_sha" in client.get(url).json()
    assert "merge_commit_sha" not in client.get(url, headers={"x-github-api-version": "2026-03-10"}).json()
    assert client.get(url, headers={"x-github-api-version": "2019-01-01"}).status_code == 400


@pytest.mark.parametrize("rest", ["", "/actions/runs?created=>=2026-01-01", "/pulls?state=all"])
def test_a_former_name_redirects_to_the_id(client: httpx.Client, world: World, rest: str) -> None:
    """With the rest of the path and the query kept."""
    repository = world.repository("acme/alto")
    world.rename_repository(repository, "viola")
    moved = client.get(f"/repos/acme/alto{rest}")
    assert moved.status_code == 301
    assert moved.json()["message"] == "Moved Permanently"
    assert f"/repositories/{repository.id}" in moved.headers["location"]
    assert client.get(moved.headers["location"]).json() == client.get(f"/repos/acme/viola{rest}").json()


def test_a_name_used_again_is_another_repository(client: httpx.Client, world: World) -> None:
    """There is no redirect any more."""
    world.rename_repository(world.repository("acme/alto"), "viola")
    other = world.add_repository("acme/alto")
    assert client.get("/repos/acme/alto").json()["id"] == other.id


def test_a_deleted_repository_is_not_found_by_name_or_id(client: httpx.Client, world: World) -> None:
    """Nor listed."""
    repository = world.repository("acme/alto")
    world.delete_repository(repository)
    paths = ("/repos/acme/alto", f"/repositories/{repository.id}", f"/repositories/{repository.id}/actions/runs")
    assert [client.get(path).status_code for path in paths] == [404] * 3
    assert len(client.get("/orgs/acme/repos").json()) == 2


@pytest.mark.parametrize(("reason", "status"), [("dmca", 451), ("tos", 403)])
def test_a_blocked_repository_says_why_and_is_still_listed(
    client: httpx.Client, world: World, reason: str, status: int
) -> None:
    """All of its endpoints."""
    world.block_repository(world.repository("acme/alto"), reason)
    for path in ("/repos/acme/alto", "/repos/acme/alto/actions/runs", "/repos/acme/alto/pulls"):
        answer = client.get(path)
        assert (answer.status_code, answer.json()["message"]) == (status, "Repository access blocked")
        assert answer.json()["block"]["reason"] == reason
    assert len(client.get("/orgs/acme/repos").json()) == 3


def test_single_sign_on_is_asked_for_in_a_header(client: httpx.Client, world: World) -> None:
    """It is a 403 that is no limit."""
    world.update_repository(world.repository("acme/alto"), saml=True)
    answer = client.get("/repos/acme/alto/actions/runs")
    assert answer.status_code == 403
    assert answer.headers["x-github-sso"].startswith("required; url=")
    assert "SAML" in answer.json()["message"]


@pytest.mark.parametrize(("mode", "status"), [("empty", 200), ("missing", 404), ("refused", 403)])
def test_disabled_actions_answer_in_one_of_three_ways(
    client: httpx.Client, world: World, mode: str, status: int
) -> None:
    """The repository itself and its pull requests stay."""
    repository = world.repository("acme/alto")
    world.update_repository(repository, actions=mode)
    listed = client.get("/repos/acme/alto/actions/runs")
    assert listed.status_code == status
    if status == 200:
        assert listed.json() == {"total_count": 0, "workflow_runs": []}
    assert client.get(f"/repos/acme/alto/actions/runs/{repository.runs[0].id}").status_code in (403, 404)
    assert client.get("/repos/acme/alto/pulls").status_code == 200


@pytest.mark.parametrize("path", ["/", "/nothing", "/repos/acme", "/repos/acme/alto/", "/repos/acme/alto/nothing"])
def test_what_is_not_there_is_not_found(client: httpx.Client, path: str) -> None:
    """A trailing slash is enough."""
    assert client.get(path).status_code == 404


def test_names_are_found_without_regard_to_case(client: httpx.Client) -> None:
    """And answered as they are spelled."""
    assert client.get("/repos/ACME/Alto").json()["full_name"] == "acme/alto"
