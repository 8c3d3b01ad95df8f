"""What each answer of GitHub means: the tables of rate limits, permissions, blocks and failures."""

import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bandsync_dagster.github import errors
from bandsync_dagster.github.quota import QuotaReading
from bandsync_dagster.github.verdict import Verdict, classify, failure, resume_time
from bandsync_dagster_tests.github.surroundings import NOON, quota_headers

LEFT = quota_headers(4000)
NONE_LEFT = quota_headers(0)
NO_LIMIT = {"x-ratelimit-limit": "0", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "0"}
PRIMARY = {
    "message": "API rate limit exceeded for user ID 7. If you reach out to GitHub Support, include the request ID.",
    "documentation_url": "https://docs.github.com/rest/overview/resources-in-the-rest-api#rate-limiting",
}
SECONDARY = {
    "message": "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.",
    "documentation_url": "https://docs.github.com/rest/using-the-rest-api/rate-limits#about-secondary-rate-limits",
}
ABUSE = {"message": "You have triggered an abuse detection mechanism. Please wait a few minutes before you try again."}
PERMISSION = {"message": "Resource not accessible by personal access token", "status": "403"}
BLOCK = {"message": "Repository access blocked", "block": {"reason": "tos", "html_url": "https://github.com/tos"}}
DMCA = {"message": "Repository access blocked", "block": {"reason": "dmca", "created_at": "2026-01-01T00:00:00Z"}}
HTML = "<html><head><title>502 Bad Gateway</title></head><body>Unicorn!</body></html>"
HTML_ABUSE = "<html><body><p>You have exceeded a secondary rate limit.</p></body></html>"
GAVE_UP = {
    "data": None,
    "errors": [{"message": "Something went wrong while executing your query. This may be the result of a timeout."}],
}

REST_ANSWERS = [
    # Primary limit: 403 or 429, both with nothing left.
    (403, NONE_LEFT, PRIMARY, "primary"),
    (429, NONE_LEFT, PRIMARY, "primary"),
    (403, LEFT, PRIMARY, "primary"),  # the headers lag behind
    (403, {}, PRIMARY, "primary"),
    (429, NONE_LEFT, {"message": "Too many requests"}, "primary"),
    (403, NONE_LEFT, {"message": "Forbidden"}, "primary"),
    (403, NONE_LEFT, HTML, "primary"),
    (403, NONE_LEFT, {"message": "API rate limit exceeded for installation ID 9."}, "primary"),
    (403, NONE_LEFT, {"message": "API rate limit exceeded for 1.2.3.4. (But here's the good news: ...)"}, "primary"),
    # Secondary limits: any remaining, retry-after or not.
    (403, LEFT, SECONDARY, "secondary"),
    (429, LEFT, SECONDARY, "secondary"),
    (403, {**LEFT, "retry-after": "30"}, SECONDARY, "secondary"),
    (429, {**LEFT, "retry-after": "30"}, SECONDARY, "secondary"),
    (403, NONE_LEFT, SECONDARY, "secondary"),
    (429, NONE_LEFT, SECONDARY, "secondary"),
    (403, LEFT, ABUSE, "secondary"),
    (429, LEFT, {"message": "Too many requests"}, "secondary"),
    (429, {}, "", "secondary"),
    (429, {}, HTML_ABUSE, "secondary"),
    (403, {}, HTML_ABUSE, "secondary"),
    (403, {**LEFT, "retry-after": "30"}, {"message": "Slow down"}, "secondary"),
    (429, NO_LIMIT, {"message": "Too many requests"}, "secondary"),  # 0 of 0 is no limit, but 429 is one
    # A 403 that is no rate limit.
    (403, LEFT, PERMISSION, "forbidden"),
    (403, NONE_LEFT, PERMISSION, "forbidden"),  # the last request before the limit was refused for another reason
    (403, NO_LIMIT, {"message": "Forbidden"}, "forbidden"),
    (403, {}, HTML, "forbidden"),
    (403, LEFT, {"message": "Resource protected by organization SAML enforcement."}, "forbidden"),
    (
        403,
        NONE_LEFT,
        {
            "message": "Although you appear to have the correct authorization credentials, the `acme` "
            "organization has an IP allow list enabled, and your IP is not permitted"
        },
        "forbidden",
    ),
    (
        403,
        {},
        {"message": "Request forbidden by administrative rules. Please make sure it has a User-Agent"},
        "forbidden",
    ),
    (403, LEFT, {"message": "Maximum number of login attempts exceeded. Please try again later."}, "bad_credentials"),
    (403, LEFT, BLOCK, "blocked"),
    (403, NONE_LEFT, BLOCK, "blocked"),
    (451, LEFT, DMCA, "blocked"),
    (451, NONE_LEFT, "", "blocked"),
    # Without a token, a bucket can have a limit of 0: no window will change that.
    (403, NO_LIMIT, PRIMARY, "bad_credentials"),
    (401, LEFT, {"message": "Bad credentials"}, "bad_credentials"),
    (401, NONE_LEFT, {"message": "Bad credentials"}, "bad_credentials"),
    # A 5xx is never a limit, whatever it carries.
    (500, NONE_LEFT, {"message": "Server Error"}, "transient"),
    (502, NONE_LEFT, HTML, "transient"),
    (502, LEFT, {"message": "Server Error"}, "transient"),
    (503, {**NONE_LEFT, "retry-after": "7"}, PRIMARY, "transient"),
    (504, {}, "", "transient"),
    (408, LEFT, "", "transient"),
    (404, NONE_LEFT, {"message": "Not Found"}, "not_found"),
    (410, LEFT, {"message": "Gone"}, "not_found"),
    (400, LEFT, {"message": "Problems parsing JSON"}, "refused"),
    (409, LEFT, {"message": "Git Repository is empty."}, "refused"),
    (422, NONE_LEFT, {"message": "pagination is limited for this resource."}, "refused"),
    (301, {"Location": "https://api.github.com/repositories/1"}, {"message": "Moved Permanently"}, "moved"),
    (307, {"location": "/y"}, "", "moved"),
    (300, {}, "", "refused"),
    (304, NONE_LEFT, "", "not_modified"),
    # Nothing left after this one, which succeeded: use it.
    (200, NONE_LEFT, {"total_count": 0}, "ok"),
    (200, {}, [], "ok"),
]


def error_of(type_: str | None, message: str = "no", data: object = None, **more: object) -> dict[str, object]:
    """Return a GraphQL body with one error."""
    return {"data": data, "errors": [{**({"type": type_} if type_ else {}), "message": message, **more}]}


PARTIAL = {"nodes": [{"id": "x"}, None]}
GRAPHQL_ANSWERS = [
    (
        200,
        NONE_LEFT,
        {"errors": [{"type": "RATE_LIMITED", "message": "API rate limit exceeded for user ID 7."}]},
        "primary",
    ),
    (
        200,
        LEFT,
        {
            "errors": [
                {
                    "type": "RATE_LIMIT",
                    "code": "graphql_rate_limit",
                    "message": "API rate limit already exceeded for user ID 7.",
                }
            ]
        },
        "primary",
    ),
    (200, LEFT, error_of("RATE_LIMITED", data={"nodes": []}), "primary"),
    (200, LEFT, error_of("RATE_LIMITED", data=PARTIAL), "primary"),
    (200, LEFT, error_of(None, "API rate limit already exceeded for user ID 7."), "primary"),
    (200, LEFT, error_of(None, "API rate limit exceeded", data=PARTIAL), "primary"),
    (403, NONE_LEFT, PRIMARY, "primary"),
    (429, NONE_LEFT, PRIMARY, "primary"),
    (200, LEFT, SECONDARY, "secondary"),
    (200, {**LEFT, "retry-after": "60"}, SECONDARY, "secondary"),
    (200, LEFT, error_of(None, SECONDARY["message"]), "secondary"),
    (200, LEFT, error_of("FOO", SECONDARY["message"], data=PARTIAL), "secondary"),
    (403, LEFT, SECONDARY, "secondary"),
    (403, {**LEFT, "retry-after": "60"}, SECONDARY, "secondary"),
    (200, NONE_LEFT, error_of("NEW_WORD", "You have used too much."), "primary"),
    (200, NONE_LEFT, error_of("NOT_FOUND", data={"repository": None}), "not_found"),
    (200, NONE_LEFT, error_of("NOT_FOUND", data={"nodes": [None]}), "ok"),
    (403, NO_LIMIT, PRIMARY, "bad_credentials"),
    (401, {}, {"message": "This endpoint requires you to be authenticated."}, "bad_credentials"),
    (200, LEFT, error_of("RESOURCE_LIMITS_EXCEEDED", data={"user": None}, path=["user"]), "too_large"),
    (200, LEFT, error_of("RESOURCE_LIMITS_EXCEEDED", data=PARTIAL), "too_large"),
    (200, LEFT, error_of("MAX_NODE_LIMIT_EXCEEDED"), "too_large"),
    (200, LEFT, GAVE_UP, "too_large"),
    (502, LEFT, GAVE_UP, "too_large"),
    (500, LEFT, GAVE_UP, "too_large"),
    (502, NONE_LEFT, HTML, "too_large"),
    (504, {}, "", "too_large"),
    (504, LEFT, {"message": "We couldn't respond to your request in time. Sorry about that."}, "too_large"),
    (500, LEFT, {"message": "Server Error"}, "transient"),
    (503, NONE_LEFT, PRIMARY, "transient"),
    (200, LEFT, HTML, "transient"),
    (200, LEFT, "", "transient"),
    (200, LEFT, '{"data":{"nodes":[{"id"', "ok"),  # cut short: the client finds out when it reads it
    (200, LEFT, '{"errors":[{"type"', "transient"),
    (200, LEFT, error_of("SERVICE_UNAVAILABLE"), "transient"),
    (200, LEFT, error_of(None, "Internal server error"), "transient"),
    (200, LEFT, {"message": "odd"}, "transient"),
    (200, LEFT, error_of("NOT_FOUND", "Could not resolve to a Repository", data={"repository": None}), "not_found"),
    # A name is quoted in the message, and anybody may choose one.
    (
        200,
        LEFT,
        error_of("NOT_FOUND", "Could not resolve to 'o/secondary rate limit'", {"repository": None}),
        "not_found",
    ),
    (200, LEFT, error_of("FORBIDDEN", data={"repository": None}, extensions={"saml_failure": True}), "forbidden"),
    (200, LEFT, error_of("INSUFFICIENT_SCOPES", data={"rateLimit": {"cost": 1}, "repository": None}), "forbidden"),
    (200, LEFT, error_of("FORBIDDEN", data=PARTIAL), "ok"),
    (200, LEFT, error_of("NOT_FOUND", data=PARTIAL, path=["nodes", 1]), "ok"),
    (200, LEFT, error_of("NOT_FOUND", data={"nodes": [None]}), "ok"),
    (200, LEFT, {"errors": [{"type": {}, "message": []}, 5, None], "data": {"x": None}}, "refused"),
    (200, LEFT, error_of(None, "The additions count for this commit is unavailable", data=PARTIAL), "ok"),
    (200, LEFT, error_of("ARGUMENT_LIMIT", "You may not provide more than 100 node ids"), "refused"),
    (200, LEFT, error_of(None, "Field 'x' doesn't exist", extensions={"code": "undefinedField"}), "refused"),
    (200, LEFT, error_of("INVALID_CURSOR_ARGUMENTS", data={"repository": None}), "refused"),
    (200, NONE_LEFT, {"data": {"nodes": []}}, "ok"),
    (200, LEFT, {"data": {"nodes": []}, "errors": []}, "ok"),
    (400, LEFT, {"message": "Problems parsing JSON"}, "refused"),
]


def encoded(body: object) -> bytes:
    """Return a body as it comes over the wire."""
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()


@pytest.mark.parametrize(("status", "headers", "body", "kind"), REST_ANSWERS)
def test_a_rest_answer_means(status: int, headers: dict[str, str], body: object, kind: str) -> None:
    """Each answer of the REST API that GitHub documents, or that somebody met, has one meaning."""
    assert classify(status, headers, encoded(body), graphql=False).kind == kind


@pytest.mark.parametrize(("status", "headers", "body", "kind"), GRAPHQL_ANSWERS)
def test_a_graphql_answer_means(status: int, headers: dict[str, str], body: object, kind: str) -> None:
    """Each answer of the GraphQL API that GitHub documents, or that somebody met, has one meaning."""
    assert classify(status, headers, encoded(body), graphql=True).kind == kind


def test_header_names_are_read_in_any_case() -> None:
    """HTTP header names have no case."""
    verdict = classify(403, {"Retry-After": "9", "X-RateLimit-Resource": "graphql"}, encoded(PRIMARY), graphql=False)
    assert verdict == Verdict("primary", PRIMARY["message"], bucket="graphql", retry_after=9)


@pytest.mark.parametrize(
    ("body", "reason"), [(BLOCK, "tos"), (DMCA, "dmca"), ({"block": {"reason": 5}}, "unknown"), (HTML, "unknown")]
)
def test_a_block_says_why(body: object, reason: str) -> None:
    """The reason of a block is GitHub's own word, if it gives one."""
    assert classify(451, {}, encoded(body), graphql=False).reason == reason


def test_a_missing_permission_is_named() -> None:
    """GitHub says which permissions would have been enough; whoever made the token needs to know."""
    verdict = classify(403, {"X-Accepted-GitHub-Permissions": "actions=read"}, encoded(PERMISSION), graphql=False)
    assert verdict.message == "Resource not accessible by personal access token (needs actions=read)"


@pytest.mark.parametrize("text", ["-1", "1.5", "Wed, 21 Oct 2026 07:28:00 GMT", "", "٣"])
def test_a_retry_after_that_is_no_number_counts_as_missing(text: str) -> None:
    """Garbage in `retry-after` must not become a wait of its own."""
    assert classify(403, {"retry-after": text}, encoded(SECONDARY), graphql=False) == Verdict(
        "secondary", SECONDARY["message"]
    )


@given(
    st.integers(min_value=100, max_value=999),
    st.dictionaries(
        st.sampled_from(["retry-after", "x-ratelimit-remaining", "x-ratelimit-limit", "location"]), st.text()
    ),
    st.one_of(
        st.binary(),
        st.recursive(
            st.none() | st.integers() | st.text(),
            lambda inner: (
                st.lists(inner)
                | st.dictionaries(
                    st.sampled_from(["data", "errors", "message", "type", "block", "reason", "path"]), inner
                )
            ),
        ).map(lambda value: json.dumps(value).encode()),
    ),
    st.booleans(),
)
def test_no_answer_makes_classify_raise(status: int, headers: dict[str, str], body: bytes, graphql: bool) -> None:
    """Whatever comes over the wire gets a verdict, and every verdict that is no answer an error of the tree."""
    verdict = classify(status, headers, body, graphql=graphql)
    assert isinstance(failure(verdict, "GET /x", status), errors.GitHubError)


READING = QuotaReading("core", 5000, 0, NOON + timedelta(minutes=20))
LEFT_READING = QuotaReading("core", 5000, 40, NOON + timedelta(minutes=20))


@pytest.mark.parametrize(
    ("verdict", "reading", "strikes", "seconds"),
    [
        (Verdict("secondary", retry_after=17), LEFT_READING, 0, 17),
        (Verdict("primary", retry_after=17), READING, 0, 17),
        (Verdict("secondary", retry_after=0), None, 0, 1),
        (Verdict("primary"), READING, 0, 1201),
        (Verdict("primary"), LEFT_READING, 0, 1201),  # the headers lag behind
        (Verdict("primary"), QuotaReading("core", 5000, 0, NOON - timedelta(hours=1)), 0, 1),
        (Verdict("secondary"), READING, 0, 1201),
        (Verdict("secondary"), LEFT_READING, 1, 60),
        (Verdict("secondary"), LEFT_READING, 2, 120),
        (Verdict("secondary"), None, 3, 240),
        (Verdict("secondary"), None, 50, 3840),
        (Verdict("primary"), None, 0, 60),
    ],
)
def test_a_limit_is_waited_out_in_the_order_github_prescribes(
    verdict: Verdict, reading: QuotaReading | None, strikes: int, seconds: int
) -> None:
    """First `retry-after`, then the reset if nothing is left, then a minute, doubling."""
    assert resume_time(verdict, reading, now=NOON, strikes=strikes) == NOON + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("verdict", "status", "error"),
    [
        (Verdict("bad_credentials"), 401, errors.BadCredentials),
        (Verdict("forbidden"), 403, errors.Forbidden),
        (Verdict("not_found"), 404, errors.NotFound),
        (Verdict("blocked", reason="tos"), 403, errors.Blocked),
        (Verdict("refused"), 422, errors.RequestRefused),
        (Verdict("transient"), 503, errors.ServerError),
        (Verdict("transient"), 0, errors.ConnectionLost),
        (Verdict("too_large"), 0, errors.QueryTooLarge),
        (Verdict("too_large"), 502, errors.QueryTooLarge),
    ],
)
def test_each_verdict_has_its_error(verdict: Verdict, status: int, error: type[Exception]) -> None:
    """What is raised tells the caller whether to try again, to ask for less, or to tell a person."""
    raised = failure(verdict, "GET /repos/acme/pool", status)
    assert type(raised) is error
    assert str(raised).startswith("GET /repos/acme/pool: ")
