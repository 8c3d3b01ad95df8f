"""The server around the endpoints: tokens, limits, ETags, faults, mounts, and other processes."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from itertools import islice
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from bandsync_dagster.simulator import App, Limits, World, generate
from bandsync_dagster_tests.simulator.conftest import Serve

NOW = datetime(2026, 11, 1, 12, 0, 0, 400_000, tzinfo=timezone.utc)
QUERY = {"query": 'query Totals { repository(owner: "acme", name: "alto") { databaseId } rateLimit { remaining } }'}

Connect = Callable[..., httpx.Client]


class Hands:
    """A clock whose hands are moved by the test."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        """Return the time shown."""
        return self.now


@pytest.fixture
def world() -> World:
    """Return a small world without awkward values."""
    return generate(repositories=2, changes=3, runs=4, awkward=False, now=NOW)


def _left(response: httpx.Response) -> int:
    return int(response.headers["x-ratelimit-remaining"])


def test_every_answer_tells_the_bucket_and_the_hosts_time(world: World, serve: Serve, connect: Connect) -> None:
    """Errors too; REST and GraphQL have buckets of their own."""
    client = connect(serve(world, clock=lambda: NOW))
    answers = [client.get("/repos/acme/alto"), client.get("/repos/acme/x"), client.post("/graphql", json=QUERY)]
    assert [answer.headers["x-ratelimit-resource"] for answer in answers] == ["core", "core", "graphql"]
    assert [_left(answer) for answer in answers] == [4999, 4998, 4999]
    assert {parsedate_to_datetime(answer.headers["date"]) for answer in answers} == {NOW.replace(microsecond=0)}
    reset = {answer.headers["x-ratelimit-reset"] for answer in answers}
    assert reset == {str(int(NOW.timestamp()) + 3600)}


def test_an_exhausted_rest_bucket_refuses_until_its_reset(world: World, serve: Serve, connect: Connect) -> None:
    """The last request still succeeds, with nothing left; the other bucket is not concerned."""
    clock = Hands()
    client = connect(serve(world, clock=clock, limits=Limits(core=2, window=3)))
    answers = [client.get("/repos/acme/alto") for _ in range(3)]
    assert [(answer.status_code, _left(answer)) for answer in answers] == [(200, 1), (200, 0), (403, 0)]
    assert answers[-1].json()["message"].startswith("API rate limit exceeded for user ID")
    assert client.post("/graphql", json=QUERY).json()["data"]["repository"]
    clock.now = datetime.fromtimestamp(int(answers[-1].headers["x-ratelimit-reset"]) + 1, timezone.utc)
    assert client.get("/repos/acme/alto").status_code == 200


@pytest.mark.parametrize(("kind", "code"), [("RATE_LIMITED", None), ("RATE_LIMIT", "graphql_rate_limit")])
def test_an_exhausted_graphql_bucket_answers_200_with_an_error(
    world: World,
    serve: Serve,
    connect: Connect,
    kind: Any,
    code: str | None,
) -> None:
    """In either of the two forms seen, and without data."""
    client = connect(serve(world, limits=Limits(graphql=1, graphql_type=kind)))
    client.post("/graphql", json=QUERY)
    answer = client.post("/graphql", json=QUERY)
    assert (answer.status_code, _left(answer), "data" in answer.json()) == (200, 0, False)
    assert [(error["type"], error.get("code")) for error in answer.json()["errors"]] == [(kind, code)]


def test_limits_can_answer_429(world: World, serve: Serve, connect: Connect) -> None:
    """GitHub uses both."""
    client = connect(serve(world, limits=Limits(core=0, rest_status=429)))
    assert client.get("/repos/acme/alto").status_code == 429


def test_each_token_has_its_own_quota_and_a_second_consumer(world: World, serve: Serve, connect: Connect) -> None:
    """What somebody else spends is missing at the next answer."""
    github = serve(world, tokens=("one", "two"))
    one, two = (connect(github, token) for token in ("one", "two"))
    github.spend("core", 4000, token="one")
    assert (_left(one.get("/repos/acme/alto")), _left(two.get("/repos/acme/alto"))) == (999, 4999)
    github.reset_limits()
    assert _left(one.get("/repos/acme/alto")) == 4999


def test_the_overview_costs_nothing(world: World, serve: Serve, connect: Connect) -> None:
    """It tells both buckets."""
    client = connect(serve(world, clock=lambda: NOW))
    client.get("/repos/acme/alto")
    resources = client.get("/rate_limit").json()["resources"]
    assert resources["core"] == {"limit": 5000, "used": 1, "remaining": 4999, "reset": int(NOW.timestamp()) + 3600}
    assert resources["graphql"]["remaining"] == 5000


def test_a_host_without_limits_never_mentions_them(world: World, serve: Serve, connect: Connect) -> None:
    """As Enterprise Server: no headers, no overview, and null in GraphQL."""
    client = connect(serve(world, limits=None))
    answers = [client.get("/repos/acme/alto"), client.get("/rate_limit"), client.post("/graphql", json=QUERY)]
    assert [answer.status_code for answer in answers] == [200, 404, 200]
    assert not [name for answer in answers for name in answer.headers if name.startswith("x-ratelimit")]
    assert answers[-1].json()["data"]["rateLimit"] is None


def test_the_api_is_mounted_as_on_enterprise_server_too(world: World, serve: Serve, connect: Connect) -> None:
    """URLs in payloads and links stay below the mount."""
    github = serve(world)
    client = connect(github)
    answer = client.get("/api/v3/repos/acme/alto/actions/runs?per_page=1")
    assert answer.links["next"]["url"].startswith(f"{github.enterprise_url}/repositories/")
    assert answer.json()["workflow_runs"][0]["jobs_url"].startswith(f"{github.enterprise_url}/repos/acme/alto/")
    assert client.post("/api/graphql", json=QUERY).json()["data"]["repository"]


def test_an_unchanged_answer_is_free_for_whoever_is_authorised(world: World, serve: Serve, connect: Connect) -> None:
    """It is paid for without a token, and once something changed."""
    github = serve(world)
    client, anonymous = connect(github), connect(github, None)
    url = "/repos/acme/alto/actions/runs"
    for who, cost in ((client, 0), (anonymous, 1)):
        first = who.get(url)
        again = who.get(url, headers={"if-none-match": first.headers["etag"]})
        assert (again.status_code, again.content, _left(first) - _left(again)) == (304, b"", cost)
    etag = client.get(url).headers["etag"]
    world.rerun(world.repository("acme/alto").runs[0])
    assert client.get(url, headers={"if-none-match": etag}).status_code == 200


def test_etags_are_of_one_token(world: World, serve: Serve, connect: Connect) -> None:
    """Another token's ETag never matches."""
    github = serve(world, tokens=("one", "two"))
    etag = connect(github, "one").get("/repos/acme/alto").headers["etag"]
    assert connect(github, "two").get("/repos/acme/alto", headers={"if-none-match": etag}).status_code == 200
    assert etag.startswith('W/"')


def test_bad_tokens_and_missing_ones_are_told_apart(world: World, serve: Serve, connect: Connect) -> None:
    """401 for a bad one; without one there is a small quota for REST and no GraphQL."""
    github = serve(world)
    assert connect(github, "bad").get("/repos/acme/alto").json()["message"] == "Bad credentials"
    anonymous = connect(github, None)
    assert anonymous.get("/repos/acme/alto").headers["x-ratelimit-limit"] == "60"
    assert anonymous.post("/graphql", json=QUERY).status_code == 401
    github.revoke("simulated-token")
    assert connect(github).get("/repos/acme/alto").status_code == 401


def test_open_access_needs_no_token(world: World, serve: Serve, connect: Connect) -> None:
    """Whoever comes counts as the first token."""
    client = connect(serve(world, open_access=True), None)
    assert client.post("/graphql", json=QUERY).json()["data"]["rateLimit"] == {"remaining": 4999}


def test_a_user_agent_is_required(world: World, serve: Serve, connect: Connect) -> None:
    """As GitHub rejects requests without."""
    assert connect(serve(world)).get("/repos/acme/alto", headers={"user-agent": ""}).status_code == 403


def test_an_app_asks_for_a_token_and_lists_what_it_was_granted(world: World, serve: Serve, connect: Connect) -> None:
    """It sees its own account's repositories only, private ones too; personal tokens have no such list."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    app = App("42", 7, key.public_key().public_bytes(*form).decode(), "acme")
    world.update_repository(world.repository("acme/alto"), private=True)
    world.add_repository("umbrella/secret", private=True)
    github = serve(world, apps=[app], clock=lambda: NOW)
    proof = jwt.encode({"iat": NOW, "exp": NOW + timedelta(minutes=9), "iss": "42"}, key, algorithm="RS256")
    issued = connect(github, proof).post("/app/installations/7/access_tokens")
    assert (issued.status_code, issued.json()["expires_at"]) == (201, "2026-11-01T13:00:00Z")
    client = connect(github, issued.json()["token"])
    granted = client.get("/installation/repositories").json()
    assert (granted["total_count"], len(granted["repositories"])) == (2, 2)
    assert client.get("/repos/umbrella/secret").status_code == 404
    assert connect(github).get("/installation/repositories").status_code == 403


def test_too_many_at_once_meet_the_secondary_limit(world: World, serve: Serve, connect: Connect) -> None:
    """With the time to wait, while the primary quota has plenty left."""
    github = serve(world, limits=Limits(concurrent=2, retry_after=30), clock=lambda: NOW)
    client = connect(github)
    with ThreadPoolExecutor(6) as pool:
        # Whoever is let in has to wait for the world.
        with world.lock:
            asked = [pool.submit(client.get, "/repos/acme/alto") for _ in range(6)]
            refused = [answer.result() for answer in islice(as_completed(asked), 4)]
        answered = sorted(answer.result().status_code for answer in asked)
    assert answered == [200, 200, 403, 403, 403, 403]
    assert {(answer.status_code, answer.headers["retry-after"]) for answer in refused} == {(403, "30")}
    assert all("secondary rate limit" in answer.json()["message"] and _left(answer) > 4000 for answer in refused)
    assert github.count(limited="secondary") == 4


@pytest.mark.parametrize(("status", "expected"), [(200, 200), (403, 403)])
def test_graphql_meets_the_secondary_limit_with_either_status(
    world: World,
    serve: Serve,
    connect: Connect,
    status: Any,
    expected: int,
) -> None:
    """The time to wait may be missing at first."""
    limits = Limits(graphql_points_per_minute=1, graphql_secondary_status=status, retry_after_missing_first=1)
    client = connect(serve(world, limits=limits))
    answers = [client.post("/graphql", json=QUERY) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, expected, expected]
    assert ["retry-after" in answer.headers for answer in answers] == [False, False, True]
    assert "secondary rate limit" in answers[1].text


def test_a_cut_answer_breaks_the_connection(world: World, serve: Serve, connect: Connect) -> None:
    """The client sees that the body is not complete; the next request is well."""
    github = serve(world)
    client = connect(github)
    github.faults.add("cut")
    with pytest.raises(httpx.RemoteProtocolError):
        client.get("/repos/acme/alto")
    assert client.get("/repos/acme/alto").status_code == 200


def test_a_broken_server_tells_limits_and_no_etag(world: World, serve: Serve, connect: Connect) -> None:
    """A 502 with rate-limit headers is no limit; what it stands for was charged."""
    github = serve(world)
    client = connect(github)
    github.faults.add("html_502")
    answer = client.get("/repos/acme/alto/actions/runs?per_page=1")
    assert (answer.status_code, answer.headers["content-type"], _left(answer)) == (502, "text/html", 4999)
    assert not {"etag", "link"} & set(answer.headers)
    assert github.log[-1].fault == "html_502"


def test_a_fault_can_impose_a_secondary_limit(world: World, serve: Serve, connect: Connect) -> None:
    """Which then holds for everything the token asks."""
    github = serve(world, limits=Limits(retry_after=20))
    client = connect(github)
    github.faults.add("secondary")
    answers = [client.get("/repos/acme/alto"), client.post("/graphql", json=QUERY)]
    assert [answer.status_code for answer in answers] == [403, 403]


def test_a_large_query_can_be_made_to_time_out(world: World, serve: Serve, connect: Connect) -> None:
    """A smaller one then gets through."""
    github = serve(world)
    client = connect(github)
    github.faults.add("query_timeout", larger_than=10, times=None)
    page = 'repository(owner: "acme", name: "alto") { pullRequests(first: $first) { totalCount } }'
    document = f"query Page($first: Int) {{ {page} }}"
    sizes = [client.post("/graphql", json={"query": document, "variables": {"first": size}}) for size in (50, 10)]
    assert [answer.status_code for answer in sizes] == [502, 200]
    assert (sizes[0].json()["data"], "timeout" in sizes[0].text) == (None, True)


def test_a_world_may_change_while_it_is_served(world: World, serve: Serve, connect: Connect) -> None:
    """Writers and readers at once: every answer is whole."""
    client, repository = connect(serve(world, limits=None)), world.repository("acme/alto")

    def write(_: int) -> None:
        run = world.add_run(repository)
        world.touch_change(repository.changes[0])
        world.rerun(run)
        world.delete_run(run)

    def read(_: int) -> int:
        answer = client.get("/repos/acme/alto/actions/runs?per_page=100").json()
        return answer["total_count"] - len(answer["workflow_runs"])

    with ThreadPoolExecutor(8) as pool:
        writes, reads = pool.map(write, range(100)), pool.map(read, range(100))
        assert (list(writes), set(reads)) == ([None] * 100, {0})


def test_the_log_tells_every_request(world: World, serve: Serve, connect: Connect) -> None:
    """With what it cost; a token's fingerprint, never the token."""
    github = serve(world)
    client = connect(github)
    client.get("/repos/acme/alto/pulls?state=all")
    client.post("/graphql", json=QUERY)
    first, second = github.log
    assert (first.number, first.method, first.path, first.query) == (
        1,
        "GET",
        "/repos/acme/alto/pulls",
        {"state": "all"},
    )
    assert (first.bucket, first.cost, first.status, first.document) == ("core", 1, 200, None)
    assert (second.bucket, second.cost, second.status, second.document) == ("graphql", 1, 200, "Totals")
    assert "simulated-token" not in str(github.log)
    assert (github.count(path="/pulls$"), github.count(document="Totals"), github.spent("core")) == (1, 1, 1)
    github.clear_log()
    assert github.log == []


def test_other_processes_see_and_steer_it(world: World, serve: Serve, connect: Connect) -> None:
    """Counts, log, truth, quota and faults, by HTTP; none of it counts as a request to GitHub."""
    github = serve(world)
    client = connect(github)
    assert client.post("/_simulator/spend", json={"bucket": "core", "points": 4998}).status_code == 200
    assert client.post("/_simulator/faults", json={"kind": "html_504", "at": [2]}).status_code == 200
    assert [client.get("/repos/acme/alto").status_code for _ in range(3)] == [200, 504, 403]
    state = client.get("/_simulator/state").json()
    assert (state["requests"], state["spent"], state["by_status"]) == (3, {"core": 2}, {"200": 1, "504": 1, "403": 1})
    assert [entry["limited"] for entry in client.get("/_simulator/log?since=2").json()] == ["primary"]
    truth = client.get("/_simulator/truth?detail=full").json()
    assert {table: len(rows) for table, rows in truth.items()} == {
        "repositories": 2,
        "changes": 6,
        "verifications": 8,
        "jobs": 24,
    }
    client.post("/_simulator/reset")
    client.delete("/_simulator/faults")
    client.delete("/_simulator/log")
    assert client.get("/repos/acme/alto").status_code == 200
    assert client.get("/_simulator/state").json()["requests"] == 1


@pytest.mark.parametrize("body", [{"kind": "cut", "nonsense": 1}, {}, {"bucket": "core"}])
def test_steering_with_nonsense_says_what_is_wrong(
    world: World, serve: Serve, connect: Connect, body: dict[str, Any]
) -> None:
    """And changes nothing."""
    client = connect(serve(world))
    assert client.post("/_simulator/faults", json=body).status_code == 422
    assert client.get("/_simulator/nothing").status_code == 404
    assert client.get("/repos/acme/alto").status_code == 200


def test_a_port_is_free_again_after_the_server_stopped(world: World, serve: Serve, connect: Connect) -> None:
    """Even while a client still holds its connection."""
    github = serve(world)
    client = connect(github)
    client.get("/repos/acme/alto")
    github.__exit__(None, None, None)
    with pytest.raises(httpx.TransportError):
        client.get("/repos/acme/alto")
