"""The client: what leaves the process, where to, and what an answer becomes."""

import contextlib
import json

import httpx
import pytest

from bandsync_dagster.github.auth import fingerprint_of
from bandsync_dagster.github.client import GitHubClient, GraphQLAnswer, graphql_url, user_agent
from bandsync_dagster.github.errors import ConnectionLost, NotFound, PayloadError, RequestRefused
from bandsync_dagster_tests.github.surroundings import Stage, answer

MOVED = {"location": "https://api.github.com/repositories/7"}
TOKEN = "ghp_one"


def query(stage: Stage, *answers: httpx.Response | Exception, **settings: object) -> GraphQLAnswer:
    """Ask a query of a client with these answers."""
    return stage.run(
        stage.client(answers, **settings), lambda client: client.query("query Q { x }", {"a": 1}, name="things")
    )


def test_every_request_carries_the_pinned_version_an_own_user_agent_and_the_token(stage: Stage) -> None:
    """GitHub rejects requests without a User-Agent, and changes answers between API versions."""
    stage.get([answer({})])
    headers = stage.requests[0].headers
    assert headers["x-github-api-version"] == "2022-11-28"
    assert headers["user-agent"].startswith("bandsync/")
    assert headers["accept"] == "application/vnd.github+json"
    assert headers["authorization"] == "Bearer ghp_one"


def test_a_checkout_that_is_not_installed_has_a_user_agent_too() -> None:
    """There is no version to name then."""
    assert user_agent("no-such-distribution") == "bandsync/checkout"


def test_without_credentials_no_authorization_is_sent(stage: Stage) -> None:
    """Anonymous requests are allowed, 60 an hour."""
    result = stage.get([answer({})], credentials=[])
    assert "authorization" not in stage.requests[0].headers
    assert result.fingerprint == "anonymous"


@pytest.mark.parametrize(
    ("base", "rest", "graphql"),
    [
        ("https://api.github.com", "https://api.github.com/x", "https://api.github.com/graphql"),
        ("https://api.github.com/", "https://api.github.com/x", "https://api.github.com/graphql"),
        ("https://git.acme.dev/api/v3", "https://git.acme.dev/api/v3/x", "https://git.acme.dev/api/graphql"),
        ("https://git.acme.dev/api/v3/", "https://git.acme.dev/api/v3/x", "https://git.acme.dev/api/graphql"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/x", "http://127.0.0.1:8080/graphql"),
    ],
)
def test_every_call_goes_to_the_base_url(stage: Stage, base: str, rest: str, graphql: str) -> None:
    """GitHub Enterprise Server serves REST under /api/v3 and GraphQL under /api/graphql."""

    async def both(client: GitHubClient) -> None:
        await client.get("/x")
        await client.query("query { x }", {})

    stage.run(stage.client([answer({}), answer({"data": {}})], base_url=base), both)
    assert [str(request.url) for request in stage.requests] == [rest, graphql]
    assert str(graphql_url(httpx.URL(base))) == graphql


@pytest.mark.parametrize(
    "base",
    [
        "",
        "api.github.com",
        "ftp://api.github.com",
        "https://",
        "https://me:pw@host",
        "https://h/?a=b",
        "https://h:port",
    ],
)
def test_a_base_url_that_is_none_is_refused_at_once(stage: Stage, base: str) -> None:
    """A mistake in the settings is a ValueError that does not repeat a password."""
    with pytest.raises(ValueError, match="URL") as caught:
        stage.client([], base_url=base)
    assert "pw" not in str(caught.value)


def test_params_are_sent_and_links_are_read(stage: Stage) -> None:
    """The next page is where the Link header says."""
    base = "https://api.github.com"
    link = f'<{base}/repositories/7/x?page=2&a=b>; rel="next", <{base}/x?page=9>; rel="last"'
    client = stage.client([answer([], {"link": link, "etag": 'W/"abc"'})])
    params = {"per_page": "100", "created": "*..2026-01-01T00:00:00Z"}
    result = stage.run(client, lambda client: client.get("/x", params))
    assert dict(stage.requests[0].url.params) == params
    assert result.links == {"next": f"{base}/repositories/7/x?page=2&a=b", "last": f"{base}/x?page=9"}
    assert result.etag == 'W/"abc"'


def test_an_etag_is_echoed_byte_for_byte_and_304_has_no_data(stage: Stage) -> None:
    """The quotes and the W/ are part of the value; the ETag is chosen by the token that is used."""
    known = {fingerprint_of("ghp_two"): 'W/"two"', fingerprint_of("ghp_one"): 'W/"one"'}
    client = stage.client([httpx.Response(304, headers={"etag": 'W/"one"'})])
    result = stage.run(client, lambda client: client.get("/x", etag=known.get))
    assert stage.requests[0].headers["if-none-match"] == 'W/"one"'
    assert (result.status, result.data) == (304, None)
    assert client.spent.requests == 1


@pytest.mark.parametrize("etag", ["", "a\nb", "é"])
def test_an_etag_that_no_header_can_carry_is_not_sent(stage: Stage, etag: str) -> None:
    """A broken stored ETag costs a full answer, and no error."""
    stage.run(stage.client([answer({})]), lambda client: client.get("/x", etag=lambda _: etag))
    assert "if-none-match" not in stage.requests[0].headers


def test_a_permanent_redirect_on_the_same_host_is_followed_and_reported(stage: Stage) -> None:
    """A renamed repository answers 301; the caller learns that the name is old."""
    result = stage.get([answer({}, MOVED, 301), answer({"id": 7})])
    assert [request.url.path for request in stage.requests] == ["/x", "/repositories/7"]
    assert stage.requests[1].headers["authorization"] == "Bearer ghp_one"
    assert (result.data, result.moved) == ({"id": 7}, True)


@pytest.mark.parametrize("status", [302, 307])
def test_a_temporary_redirect_is_followed_but_is_no_new_name(stage: Stage, status: int) -> None:
    """Only 301 and 308 mean that the name has changed."""
    assert not stage.get([answer({}, {"location": "/y"}, status), answer({})]).moved
    assert stage.requests[1].url == "https://api.github.com/y"


ELSEWHERE = [
    "https://evil.example/x",
    "http://api.github.com/x",
    "https://api.github.com:8443/x",
    "https://api.github.com.evil.example/x",
    "https://api.github.com@evil.example/x",
    "https://user:pass@api.github.com/x",
    "ftp://api.github.com/x",
    "file:///etc/passwd",
    "https://[",
    "https://api.github.com:port/x",
    "https://\u0000/",
]
# What is no absolute URL is taken as a path, wherever it seems to point.
RELATIVE = ["//evil.example/x", "///evil.example/x", "https://", "http:/x", "x", "@evil.example/", ".evil.example"]


def visited(stage: Stage) -> set[str]:
    """Return where requests went."""
    return {f"{request.url.scheme}://{request.url.netloc.decode()}" for request in stage.requests}


@pytest.mark.parametrize("url", [*ELSEWHERE, *RELATIVE])
def test_the_token_is_sent_nowhere_else_whatever_a_redirect_says(stage: Stage, url: str) -> None:
    """Another host, scheme, port or user in a Location header ends the call."""
    with pytest.raises((RequestRefused, ConnectionLost)):
        stage.get(lambda _: httpx.Response(301, headers=[(b"location", url.encode())]))
    assert visited(stage) == {"https://api.github.com"}


@pytest.mark.parametrize("url", ELSEWHERE)
def test_a_link_to_another_host_is_refused(stage: Stage, url: str) -> None:
    """The next page is not skipped either: data would be missing without a word."""
    with pytest.raises(RequestRefused):
        stage.run(stage.client([]), lambda client: client.get(url))


@pytest.mark.parametrize("url", RELATIVE)
def test_a_link_that_only_looks_like_another_host_stays_on_this_one(stage: Stage, url: str) -> None:
    """Tricks of spelling lead to a 404 of GitHub's at most."""
    with contextlib.suppress(RequestRefused):
        stage.run(stage.client([answer({})]), lambda client: client.get(url))
    assert visited(stage) <= {"https://api.github.com"}


def test_redirects_without_end_are_given_up(stage: Stage) -> None:
    """A loop of redirects must not spend the quota."""
    with pytest.raises(RequestRefused, match="without end"):
        stage.get(lambda _: answer({}, {"location": "/x"}, 302))
    assert len(stage.requests) == 6


def test_a_query_is_never_redirected(stage: Stage) -> None:
    """A GraphQL URL that redirects is a wrong base URL."""
    with pytest.raises(RequestRefused, match="URL of GitHub's API"):
        query(stage, answer({}, {"location": "/graphql2"}, 301))
    assert len(stage.requests) == 1


def test_a_query_sends_document_and_variables_and_returns_data_and_faults(stage: Stage) -> None:
    """Partial data is kept, with the errors that explain its nulls."""
    fault = {"type": "NOT_FOUND", "path": ["nodes", 1, {}], "message": "no node with ghp_0123456789abcdef"}
    result = query(stage, answer({"data": {"nodes": [{}, None], "rateLimit": {"cost": 3}}, "errors": [fault, {}]}))
    assert json.loads(stage.requests[0].content) == {"query": "query Q { x }", "variables": {"a": 1}}
    assert result.data.items("nodes") == [{}, None]
    assert [(entry.type, entry.path) for entry in result.errors] == [("NOT_FOUND", ("nodes", 1)), ("", ())]
    assert result.errors[0].message == "no node with ***"
    assert result.cost == 3


def test_a_variable_with_a_lone_surrogate_can_be_sent(stage: Stage) -> None:
    """A cursor that came from GitHub goes back as it came."""
    client = stage.client([answer({"data": {}})])
    stage.run(client, lambda client: client.query("query { x }", {"cursor": "\ud800"}))
    assert json.loads(stage.requests[0].content)["variables"] == {"cursor": "\ud800"}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"data": 5}, "data"),
        ({"data": []}, "data"),
        ({"data": {"x": 1}, "errors": "none"}, "errors"),
        ({"data": {"x": 1}, "errors": [1]}, "errors[0]"),
        ({"data": {"x": 1}, "errors": [{"type": 1}]}, "errors[0].type"),
        ({"data": {"x": 1}, "errors": [{"path": "x"}]}, "errors[0].path"),
        ([{"data": 1}], "(whole answer)"),
        ({"data": None}, "data"),
    ],
)
def test_a_graphql_answer_of_the_wrong_shape_names_the_field(stage: Stage, body: object, field: str) -> None:
    """A wrong type anywhere in the envelope is a typed error."""
    with pytest.raises(PayloadError) as caught:
        query(stage, answer(body))
    assert (caught.value.endpoint, caught.value.field) == ("POST /graphql (things)", field)


def test_points_are_counted_as_github_counts_them(stage: Stage) -> None:
    """`rateLimit.cost` where it is given, else the expected cost; a 304 and a failed request are requests too."""

    async def several(client: GitHubClient) -> None:
        await client.get("/x")
        await client.query("query { x }", {}, cost=5)
        await client.query("query { x }", {}, cost=5)
        await client.query("query { x }", {}, cost=5)

    answers = [
        httpx.Response(304),
        answer({"data": {"rateLimit": {"cost": 2}}}),
        answer({"data": {"rateLimit": None}}),
        answer({"data": {"rateLimit": {"cost": True}}}),
    ]
    client = stage.client(answers)
    stage.run(client, several)
    assert (client.spent.requests, client.spent.points) == (4, 12)


def test_no_error_and_no_repr_shows_the_token(stage: Stage) -> None:
    """Even a server that repeats the token cannot make bandsync show it."""
    client = stage.client([answer({"message": f"no {TOKEN} here, nor plain"}, status=404)], tokens=(TOKEN,))
    with pytest.raises(NotFound) as caught:
        stage.run(client, lambda client: client.get("/x"))
    assert TOKEN not in f"{caught.value!r}{client!r}{vars(client)!r}"
    assert "***" in str(caught.value)
