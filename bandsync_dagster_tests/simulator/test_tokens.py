"""Who is asking: good, bad, missing, expiring and issued tokens."""

from datetime import datetime, timedelta, timezone
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from bandsync_dagster.simulator.limits import ANONYMOUS
from bandsync_dagster.simulator.tokens import App, Caller, Tokens, fingerprint

NOW = datetime(2026, 11, 1, 12, tzinfo=timezone.utc)
KEY, OTHER_KEY = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
PUBLIC = KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
APP = App("42", 7, PUBLIC.decode(), "acme", token_seconds=3600)


def _proof(key: rsa.RSAPrivateKey = KEY, **claims: Any) -> str:
    usual = {"iat": int(NOW.timestamp()) - 60, "exp": int(NOW.timestamp()) + 540, "iss": "42"}
    return f"Bearer {jwt.encode(usual | claims, key, algorithm='RS256')}"


@pytest.mark.parametrize("header", ["Bearer good", "bearer good", "token good", "good"])
def test_a_good_token_is_known_by_its_fingerprint(header: str) -> None:
    """In every spelling of the header that clients use."""
    assert Tokens(["good"]).identify(header, NOW) == Caller(fingerprint("good"), fingerprint("good"))


@pytest.mark.parametrize("header", ["Bearer bad", "Bearer", "Basic Z29vZDo="])
def test_bad_credentials_are_nobodys(header: str) -> None:
    """They are not taken for a request without a token."""
    assert Tokens(["good"]).identify(header, NOW) is None


def test_without_a_token_one_is_anonymous_unless_access_is_open() -> None:
    """Open access counts as the first token; a bad token stays bad."""
    assert Tokens(["good"]).identify(None, NOW) == Caller(ANONYMOUS, ANONYMOUS)
    open_tokens = Tokens(["good", "other"], open_access=True)
    assert open_tokens.identify(None, NOW) == open_tokens.identify("Bearer good", NOW)
    assert open_tokens.identify("Bearer bad", NOW) is None


def test_a_revoked_token_is_bad() -> None:
    """From then on."""
    tokens = Tokens(["good"])
    tokens.revoke("good")
    assert tokens.identify("Bearer good", NOW) is None


def test_an_app_gets_tokens_that_expire() -> None:
    """They are long, differ each time, and count on one installation's quota."""
    tokens = Tokens([], [APP])
    issued = [tokens.issue(7, _proof(), NOW) for _ in range(2)]
    (first, ends), (second, _) = [answer for answer in issued if not isinstance(answer, int)]
    assert (len(first) > 255, first == second, ends) == (True, False, NOW + timedelta(hours=1))
    callers = [tokens.identify(f"Bearer {token}", NOW) for token in (first, second)]
    assert [caller and caller.identity for caller in callers] == ["installation:7", "installation:7"]
    assert callers[0] != callers[1]
    assert tokens.identify(f"Bearer {first}", ends) is None


@pytest.mark.parametrize(
    ("installation", "proof", "status"),
    [
        (8, _proof(), 404),
        (7, None, 401),
        (7, "Bearer nonsense", 401),
        (7, _proof(OTHER_KEY), 401),
        (7, _proof(iss="43"), 401),
        (7, _proof(exp=int(NOW.timestamp()) - 1), 401),
        (7, _proof(exp=int(NOW.timestamp()) + 3600), 401),
        (7, _proof(iat=int(NOW.timestamp()) + 300), 401),
    ],
)
def test_an_app_that_proves_nothing_gets_no_token(installation: int, proof: str | None, status: int) -> None:
    """Another key, another App, a past, a future or too long a life."""
    assert Tokens([], [APP]).issue(installation, proof, NOW) == status
