"""What requests authenticate with: personal tokens, GitHub App installations, or nothing.

A credential is known elsewhere by its fingerprint only; no token is ever stored, logged or part of a repr.
"""

import hashlib
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Protocol

import httpx
import jwt

from bandsync_dagster.clock import Clock, utc_now
from bandsync_dagster.github.errors import BadCredentials, ConnectionLost, GitHubError, RateLimited, TransientError
from bandsync_dagster.github.payload import Fields, decode
from bandsync_dagster.github.quota import clock_skew, local_time, read_quota
from bandsync_dagster.github.redaction import redact
from bandsync_dagster.github.verdict import classify, failure, resume_time

# GitHub docs, "Generating a JSON Web Token (JWT) for a GitHub App": issued 60 s in the past, at most 10 min of life.
_JWT_BACKDATED = timedelta(seconds=60)
_JWT_LIFE = timedelta(minutes=9)
# Installation tokens live an hour. Renewed this long before they end, none ends while a request is on its way.
_RENEWAL_MARGIN = timedelta(minutes=5)
_LAST_RESORT_MARGIN = timedelta(seconds=30)


class Credential(Protocol):
    """What a request authenticates with."""

    @property
    def fingerprint(self) -> str:
        """A name for this credential that is safe to store and to show."""
        ...

    async def token(self, http: httpx.AsyncClient) -> str:
        """Return the token to send now, empty for none; a new one is fetched with `http` when the old one ends."""
        ...

    def discard(self) -> bool:
        """Forget the token, which GitHub refused, and say whether another one can be had."""
        ...


class PersonalToken:
    """A token somebody created: classic, fine-grained, OAuth, or the one of a GitHub Actions job.

    Args:
        token: As GitHub showed it.

    Raises:
        ValueError: It is empty or holds characters that no HTTP header may carry.
    """

    def __init__(self, token: str) -> None:
        self._token = _sendable(token.strip())
        self.fingerprint = fingerprint_of(self._token)

    def __repr__(self) -> str:
        """Show the fingerprint, never the token."""
        return f"PersonalToken({self.fingerprint})"

    async def token(self, http: httpx.AsyncClient) -> str:  # noqa: ARG002 - the credential's interface
        """Return the token."""
        return self._token

    def discard(self) -> bool:
        """There is no other."""
        return False


class Anonymous:
    """No token: 60 REST requests an hour for each IP address, and no GraphQL."""

    fingerprint = "anonymous"

    async def token(self, http: httpx.AsyncClient) -> str:  # noqa: ARG002 - the credential's interface
        """Return the empty token."""
        return ""

    def discard(self) -> bool:
        """There is no other."""
        return False


class AppInstallation:
    """A GitHub App installed in an organisation; its tokens live an hour and are renewed before they end.

    Args:
        app_id: The App's id or client id.
        private_key: The App's private key, PEM. Line ends may be written as a backslash and an n.
        installation_id: The id of the installation.
        base_url: The API's, such as `https://api.github.com`.
        clock: Tells the time.

    Raises:
        ValueError: The key is none.
    """

    def __init__(
        self, app_id: str, private_key: str, installation_id: str, *, base_url: str, clock: Clock = utc_now
    ) -> None:
        if not installation_id.isdigit():
            raise ValueError(f"{installation_id!r} is not the id of a GitHub App installation, which is a number")
        self._app_id = app_id
        self._key = _private_key(private_key)
        self._url = f"{base_url.rstrip('/')}/app/installations/{installation_id}/access_tokens"
        self._clock = clock
        self._token = ""
        self._expires_at: datetime | None = None
        # How far GitHub's clock is ahead of this one: a JWT from the future is refused.
        self._offset = timedelta(0)
        self.fingerprint = fingerprint_of(f"app:{app_id}:{installation_id}")

    def __repr__(self) -> str:
        """Show the fingerprint, never the key or a token."""
        return f"AppInstallation({self.fingerprint})"

    def discard(self) -> bool:
        """Forget the token, which GitHub refused: the installation gives another."""
        had_token, self._token, self._expires_at = bool(self._token), "", None
        return had_token

    async def token(self, http: httpx.AsyncClient) -> str:
        """Return the installation's token, renewed when it is about to end.

        Raises:
            GitHubError: GitHub gives no token. As long as the old one is good, a passing problem is none.
        """
        if self._good_for(_RENEWAL_MARGIN):
            return self._token
        try:
            await self._renew(http)
        except (TransientError, RateLimited):
            if not self._good_for(_LAST_RESORT_MARGIN):
                raise
        return self._token

    def _good_for(self, margin: timedelta) -> bool:
        return self._expires_at is not None and self._clock() + margin < self._expires_at

    async def _renew(self, http: httpx.AsyncClient) -> None:
        response = await self._ask(http)
        if response.status_code == HTTPStatus.UNAUTHORIZED and self._compare_clocks(response):
            response = await self._ask(http)
        if response.status_code != HTTPStatus.CREATED:
            raise self._refusal(response)
        answer = Fields("POST /app/installations/{id}/access_tokens", "", _json(response))
        # No assumption on the length: GitHub announced a longer format for installation tokens in April 2026.
        if not _fits_header(answer.text("token")):
            answer.fail("token", "should be a token, and holds characters that none has")
        self._token = answer.text("token")
        expires = int(answer.time("expires_at").timestamp())
        self._expires_at = local_time(expires, response.headers, now=self._clock())

    async def _ask(self, http: httpx.AsyncClient) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self._signed()}"}
        try:
            return await http.post(self._url, headers=headers, follow_redirects=False)
        except httpx.RequestError as error:
            raise ConnectionLost(redact(f"no installation token: {type(error).__name__}: {error}")) from None

    def _signed(self) -> str:
        now = self._clock() + self._offset
        claims = {"iat": int((now - _JWT_BACKDATED).timestamp()), "exp": int((now + _JWT_LIFE).timestamp())}
        return jwt.encode({**claims, "iss": self._app_id}, self._key, algorithm="RS256")

    def _compare_clocks(self, response: httpx.Response) -> bool:
        """Learn from a refusal how far the clocks are apart, and say whether that may have been its cause."""
        offset = -clock_skew(response.headers, now=self._clock())
        changed = abs(offset - self._offset) > _JWT_BACKDATED / 2
        self._offset = offset
        return changed

    def _refusal(self, response: httpx.Response) -> GitHubError:
        verdict = classify(response.status_code, response.headers, response.content, graphql=False)
        if verdict.kind in ("primary", "secondary"):
            now = self._clock()
            reading = read_quota(response.headers, "core", now=now)
            kind = "primary" if verdict.kind == "primary" else "secondary"
            return RateLimited("core", resume_time(verdict, reading, now=now, strikes=1), kind)
        if verdict.kind in ("not_found", "refused", "moved", "ok"):
            return BadCredentials(
                f"GitHub knows no such installation of the App: {redact(verdict.message)} (status "
                f"{response.status_code}). Check the App's id, the installation's id and the URL of the API."
            )
        return failure(verdict, "installation token", response.status_code)


def fingerprint_of(secret: str) -> str:
    """Return a short name for a secret that does not give it away."""
    return hashlib.sha256(secret.encode()).hexdigest()[:12]


def _sendable(token: str) -> str:
    """Check what would else end up, with the token in clear, in the HTTP library's complaint about a header."""
    if not token:
        raise ValueError("the GitHub token is empty")
    if not _fits_header(token):
        raise ValueError("the GitHub token holds characters that no token has (a line break or a space?)")
    return token


def _fits_header(token: str) -> bool:
    return bool(token) and token.isascii() and token.isprintable() and " " not in token


def _private_key(pem: str) -> str:
    key = pem.replace("\\n", "\n").strip() + "\n"
    try:
        jwt.get_algorithm_by_name("RS256").prepare_key(key)
    except (ValueError, TypeError, jwt.PyJWTError):
        raise ValueError("the GitHub App's private key is no RSA key in PEM format") from None
    return key


def _json(response: httpx.Response) -> object:
    try:
        return decode(response.content)
    except ValueError:
        raise TransientError("no installation token: the answer is not JSON") from None
