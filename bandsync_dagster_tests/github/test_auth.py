"""Credentials: what they send, what they show, and how a GitHub App's tokens are renewed."""

import json
from collections.abc import Callable
from datetime import timedelta

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from bandsync_dagster.github.auth import AppInstallation, PersonalToken, fingerprint_of
from bandsync_dagster.github.client import PUBLIC_URL, GitHubClient, RestAnswer
from bandsync_dagster.github.errors import (
    BadCredentials,
    ConnectionLost,
    Forbidden,
    GitHubError,
    PayloadError,
    RateLimited,
    TransientError,
)
from bandsync_dagster_tests.github.surroundings import NOON, Handler, Stage, answer, quota_headers

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PEM = KEY.private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
).decode()
# The clock of these tests is not the machine's.
UNTIMED = {"verify_exp": False, "verify_iat": False}
RENEWAL = "/app/installations/42/access_tokens"


class Installation:
    """GitHub's side of an App: gives a token for each request with a good JWT, and answers with it."""

    def __init__(self, stage: Stage, *, length: int = 40) -> None:
        self.stage = stage
        self.length = length
        self.given: list[str] = []
        self.claims: list[dict[str, object]] = []
        self.next: list[httpx.Response | Exception] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        """Answer a request for a token, or one with a token."""
        if request.url.path != RENEWAL:
            return answer({"token": request.headers["authorization"]})
        assert request.method == "POST"
        signed = request.headers["authorization"].removeprefix("Bearer ")
        self.claims.append(jwt.decode(signed, KEY.public_key(), ["RS256"], options=UNTIMED))
        if self.next:
            refusal = self.next.pop(0)
            if isinstance(refusal, Exception):
                raise refusal
            return refusal
        self.given.append("ghs_" + str(len(self.given)).rjust(self.length, "x"))
        expires = self.stage.now + timedelta(hours=1)
        return answer({"token": self.given[-1], "expires_at": expires.isoformat()}, status=201)


def app(stage: Stage, **changes: str) -> AppInstallation:
    """Return the credential of an installation."""
    settings = {
        "app_id": "7",
        "private_key": PEM,
        "installation_id": "42",
        "base_url": PUBLIC_URL,
        **changes,
    }
    return AppInstallation(**settings, clock=stage.clock)


def client_of(stage: Stage, github: Handler, credential: AppInstallation | None = None) -> GitHubClient:
    """Return a client that authenticates as an installation."""
    return stage.client(github, credentials=[credential or app(stage)])


async def get(client: GitHubClient) -> RestAnswer:
    """Ask for anything."""
    return await client.get("/x")


def test_a_fingerprint_names_a_token_without_giving_it_away() -> None:
    """It is stable, short and safe to store."""
    token = PersonalToken(" ghp_secret\n")
    assert token.fingerprint == fingerprint_of("ghp_secret") == PersonalToken("ghp_secret").fingerprint
    assert len(token.fingerprint) == 12
    assert "secret" not in repr(token)


@pytest.mark.parametrize("token", ["", "  ", "ghp_a b", "ghp_\u00e9", "ghp_a\nb", "ghp_a\x00"])
def test_a_token_that_no_header_can_carry_is_refused_without_showing_it(token: str) -> None:
    """The HTTP library would complain with the token in clear."""
    with pytest.raises(ValueError, match="token") as caught:
        PersonalToken(token)
    assert "ghp_" not in str(caught.value)


def test_an_installation_token_is_fetched_once_and_used_until_it_ends(stage: Stage) -> None:
    """55 minutes later it is renewed: 5 minutes before its end, so none ends on the way."""
    github = Installation(stage)

    async def use(client: GitHubClient) -> list[str]:
        tokens: list[str] = []
        for minutes in (0, 54, 2, 30):
            stage.now += timedelta(minutes=minutes)
            tokens.append((await client.get("/x")).data["token"])
        return tokens

    first, second, third, fourth = stage.run(client_of(stage, github), use)
    assert first == second == f"Bearer {github.given[0]}"
    assert third == fourth == f"Bearer {github.given[1]}"


def test_a_json_web_token_is_issued_in_the_past_and_lives_less_than_ten_minutes(stage: Stage) -> None:
    """GitHub refuses one from the future, and one that lives longer."""
    github = Installation(stage)
    stage.run(client_of(stage, github), get)
    noon = int(NOON.timestamp())
    assert github.claims == [{"iat": noon - 60, "exp": noon + 540, "iss": "7"}]


@pytest.mark.parametrize("length", [8, 36, 520, 4_000])
def test_a_token_of_any_length_is_sent_whole(stage: Stage, length: int) -> None:
    """GitHub announced a longer format; none is cut or refused."""
    github = Installation(stage, length=length)
    sent = stage.run(client_of(stage, github), get).data["token"]
    assert sent == f"Bearer {github.given[0]}"
    assert len(sent) == length + len("Bearer ghs_")


def test_a_refused_token_is_replaced_once(stage: Stage) -> None:
    """A token revoked early is renewed; a second refusal is the truth."""
    github = Installation(stage)

    def refuse_first(request: httpx.Request) -> httpx.Response:
        refused = github.given and request.headers["authorization"] == f"Bearer {github.given[0]}"
        return answer({"message": "Bad credentials"}, status=401) if refused else github(request)

    assert stage.run(client_of(stage, refuse_first), get).data["token"] == f"Bearer {github.given[1]}"

    def refuse_all(request: httpx.Request) -> httpx.Response:
        return github(request) if request.url.path == RENEWAL else answer({"message": "Bad credentials"}, status=401)

    with pytest.raises(BadCredentials):
        stage.run(client_of(stage, refuse_all), get)
    assert len(github.given) == 4


def test_a_clock_that_is_off_is_corrected_from_the_refusal(stage: Stage) -> None:
    """A JWT from the future is refused; its second try is in GitHub's time."""
    github = Installation(stage)
    github.next = [answer({"message": "'Issued at' claim"}, {"date": "Sun, 01 Mar 2026 11:45:00 GMT"}, 401)]
    stage.run(client_of(stage, github), get)
    assert [claims["iat"] for claims in github.claims] == [int(NOON.timestamp()) - 60, int(NOON.timestamp()) - 960]


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        (answer({"message": "A JSON web token could not be decoded"}, status=401), BadCredentials),
        (answer({"message": "Not Found"}, status=404), BadCredentials),
        (answer({"message": "bad request"}, status=422), BadCredentials),
        (answer({}, {"location": "https://evil.example/"}, 301), BadCredentials),
        (answer({"message": "This installation has been suspended"}, status=403), Forbidden),
        (answer({"expires_at": "2026-03-01T13:00:00Z"}, status=201), PayloadError),
        (answer({"token": "ghs_x", "expires_at": 5}, status=201), PayloadError),
        (answer({"token": "ghs_x\n", "expires_at": "2026-03-01T13:00:00Z"}, status=201), PayloadError),
        (answer([], status=201), PayloadError),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else f"{value.status_code} {value.text[:20]}",
)
def test_a_refusal_to_give_a_token_is_a_typed_error(
    stage: Stage, refusal: httpx.Response, error: type[GitHubError]
) -> None:
    """Each is told once, and nothing is sent with a token that is not there."""
    github = Installation(stage)
    github.next = [refusal]
    with pytest.raises(error):
        stage.run(client_of(stage, github), get)
    assert [request.url.path for request in stage.requests] == [RENEWAL]
    assert {request.url.host for request in stage.requests} == {"api.github.com"}


@pytest.mark.parametrize(
    "trouble",
    [
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("slow"),
        httpx.Response(502, html="<h1>Bad Gateway</h1>"),
        httpx.Response(201, html="<h1>Hello</h1>"),
    ],
    ids=str,
)
def test_a_passing_problem_with_the_renewal_is_retried(stage: Stage, trouble: httpx.Response | Exception) -> None:
    """The renewal is no less patient than the requests it serves."""
    github = Installation(stage)
    github.next = [trouble]
    assert stage.run(client_of(stage, github), get).status == 200
    assert stage.naps == [2.0]


def test_a_renewal_that_keeps_failing_is_a_transient_error(stage: Stage) -> None:
    """After four retries the caller has to know."""
    github = Installation(stage)
    github.next = [httpx.ConnectError("refused")] * 5
    with pytest.raises(ConnectionLost, match="installation token"):
        stage.run(client_of(stage, github), get)


def test_as_long_as_the_old_token_is_good_a_failed_renewal_is_none(stage: Stage) -> None:
    """Five minutes of trouble at renewal time cost nothing."""
    github = Installation(stage)

    async def use(client: GitHubClient) -> RestAnswer:
        await get(client)
        stage.now += timedelta(minutes=56)
        github.next = [httpx.Response(502), answer({"message": "API rate limit exceeded"}, quota_headers(0), 403)]
        await get(client)
        return await get(client)

    assert stage.run(client_of(stage, github), use).data["token"] == f"Bearer {github.given[0]}"
    assert stage.naps == []


def test_a_rate_limit_on_the_renewal_is_a_deferral(stage: Stage) -> None:
    """It is no failure, and both buckets wait for it."""
    github = Installation(stage)
    github.next = [answer({"message": "You have exceeded a secondary rate limit"}, {"retry-after": "100"}, 403)]

    async def use(client: GitHubClient) -> None:
        for ask in (lambda: client.get("/x"), lambda: client.query("query { x }", {})):
            with pytest.raises(RateLimited) as caught:
                await ask()
            assert caught.value.resume_at == NOON + timedelta(seconds=100)

    stage.run(client_of(stage, github), use)
    assert len(stage.requests) == 1


def test_the_renewal_of_an_enterprise_server_goes_to_its_base_url(stage: Stage) -> None:
    """No part of the App's traffic goes to github.com."""
    github = Installation(stage)
    base = "https://git.acme.dev/api/v3"
    requests: list[str] = []

    def watch(request: httpx.Request) -> httpx.Response:
        requests.append(str(request.url))
        given = {"token": "ghs_x", "expires_at": "2026-03-01T13:00:00Z"}
        return answer(given, status=201) if request.method == "POST" else github(request)

    stage.run(stage.client(watch, credentials=[app(stage, base_url=base)], base_url=base), get)
    assert requests == [f"{base}{RENEWAL}", f"{base}/x"]


@pytest.mark.parametrize("change", [lambda pem: pem.replace("\n", "\\n"), lambda pem: f"\n{pem}\n", lambda pem: pem])
def test_a_key_from_an_environment_variable_may_be_written_on_one_line(
    stage: Stage, change: Callable[[str], str]
) -> None:
    """Many tools cannot set a variable of several lines."""
    assert app(stage, private_key=change(PEM)).fingerprint == fingerprint_of("app:7:42")


@pytest.mark.parametrize(
    "key", ["", "secret-key", PEM[:200], "-----BEGIN RSA PRIVATE KEY-----\nsecret\n-----END RSA PRIVATE KEY-----"]
)
def test_a_key_that_is_none_is_refused_without_showing_it(stage: Stage, key: str) -> None:
    """A mistake in the settings is found before the first request."""
    with pytest.raises(ValueError, match="private key") as caught:
        app(stage, private_key=key)
    assert "secret" not in str(caught.value)


def test_an_installation_id_that_is_no_number_is_refused(stage: Stage) -> None:
    """It becomes part of a URL."""
    with pytest.raises(ValueError, match="installation"):
        app(stage, installation_id="42/../../user")


def test_no_repr_shows_a_key_or_a_token(stage: Stage) -> None:
    """What is printed by accident gives nothing away."""
    github = Installation(stage)
    credential = app(stage)
    stage.run(client_of(stage, github, credential), get)
    assert github.given[0] not in repr(credential)
    assert "PRIVATE" not in repr(credential)
    assert json.dumps(repr(credential))


def test_a_renewal_that_meets_server_errors_says_so(stage: Stage) -> None:
    """The status is in the message, for whoever has to find out."""
    github = Installation(stage)
    github.next = [httpx.Response(500)] * 5
    with pytest.raises(TransientError, match="500"):
        stage.run(client_of(stage, github), get)
