"""Who is asking: personal tokens, and the installation tokens of GitHub Apps with their short lives.

Source: GitHub docs, "Authenticating as a GitHub App" and "Generating an installation access token for a GitHub App".
"""

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import jwt

from bandsync_dagster.simulator.limits import ANONYMOUS

# Installation tokens have no fixed length any more (GitHub changelog, April 2026); these are longer than most fields.
TOKEN_BYTES = 300
LONGEST_JWT_LIFE = timedelta(minutes=10)
# Clocks may differ by this much: Apps date their web tokens back.
DRIFT = timedelta(minutes=1)


def fingerprint(token: str) -> str:
    """Return the part of a token's digest that may be logged."""
    return hashlib.sha256(token.encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class App:
    """A GitHub App that is installed on an account: what may ask for installation tokens."""

    app_id: str
    installation_id: int
    public_key: str
    account: str
    token_seconds: float = 3600.0


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever sent a request. Limits are kept per `identity`, ETags per `fingerprint` of the token itself."""

    identity: str
    fingerprint: str
    app: App | None = None

    @property
    def anonymous(self) -> bool:
        """Whether no token was sent."""
        return self.identity == ANONYMOUS


@dataclass(frozen=True, slots=True)
class _Installation:
    app: App
    expires_at: datetime


class Tokens:
    """The tokens a simulated GitHub accepts."""

    def __init__(self, tokens: Sequence[str], apps: Sequence[App] = (), *, open_access: bool = False) -> None:
        self._valid = set(tokens)
        self._apps = {app.installation_id: app for app in apps}
        self._issued: dict[str, _Installation] = {}
        # Requests without a token may count as the first token's, so that a simulator can be used without any.
        self._default = tokens[0] if open_access and tokens else None

    def identify(self, authorization: str | None, now: datetime) -> Caller | None:
        """Return who sends this `Authorization` header; None for bad credentials."""
        token = self._token(authorization)
        if token is None:
            return Caller(ANONYMOUS, ANONYMOUS)
        if token in self._valid:
            return Caller(fingerprint(token), fingerprint(token))
        installation = self._issued.get(token)
        if installation is None or now >= installation.expires_at:
            return None
        return Caller(f"installation:{installation.app.installation_id}", fingerprint(token), installation.app)

    def _token(self, authorization: str | None) -> str | None:
        if not authorization:
            return self._default
        scheme, _, token = authorization.partition(" ")
        return token.strip() if scheme.lower() in ("bearer", "token") else authorization

    def revoke(self, token: str) -> None:
        """Make a token bad from now on."""
        self._valid.discard(token)
        self._issued.pop(token, None)

    def issue(self, installation_id: int, authorization: str | None, now: datetime) -> tuple[str, datetime] | int:
        """Return a new installation token and when it ends, or the status that refuses it (401, 404)."""
        app = self._apps.get(installation_id)
        if app is None:
            return 404
        if not _proves(app, self._token(authorization) or "", now):
            return 401
        token, expires_at = f"ghs_{secrets.token_urlsafe(TOKEN_BYTES)}", now + timedelta(seconds=app.token_seconds)
        self._issued[token] = _Installation(app, expires_at)
        return token, expires_at.replace(microsecond=0)


def _proves(app: App, token: str, now: datetime) -> bool:
    """Whether a JSON web token was signed with the App's key, is meant for it, and is not too old or too long-lived."""
    try:
        claims = jwt.decode(
            token, app.public_key, algorithms=["RS256"], options={"verify_exp": False, "verify_iat": False}
        )
    except jwt.InvalidTokenError:
        return False
    issued, expires, time = claims.get("iat", 0), claims.get("exp", 0), now.timestamp()
    lives = issued <= time + DRIFT.total_seconds() and time < expires
    short = expires - issued <= (LONGEST_JWT_LIFE + DRIFT).total_seconds()
    return lives and short and str(claims.get("iss")) == app.app_id
