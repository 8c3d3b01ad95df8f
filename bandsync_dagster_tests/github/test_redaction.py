"""Secrets are taken out of text."""

import pytest

from bandsync_dagster.github.redaction import redact


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("bad token ghp_0123456789abcdefABCDEF", "bad token ***"),
        ("ghs_" + "x" * 900 + " is long", "*** is long"),
        ("github_pat_11ABC_def says", "*** says"),
        ("Authorization: Bearer simulated-token", "Authorization: Bearer ***"),
        ("Illegal header value b'Bearer s3cret'", "Illegal header value b'Bearer ***'"),
        ("authorization: token 0123456789abcdef0123456789abcdef01234567", "authorization: token ***"),
        ("https://user:pass@host/x", "https://***@host/x"),
        ("https://host/x?access_token=abc&page=2", "https://host/x?access_token=***&page=2"),
        ("jwt eyJhbGciOi.eyJpc3Mi.c2ln", "jwt ***"),
        ("the token is wrong", "the token is wrong"),
        ("https://api.github.com/repos/acme/pool", "https://api.github.com/repos/acme/pool"),
    ],
)
def test_what_looks_like_a_secret_is_hidden(text: str, clean: str) -> None:
    """Every form of credential disappears, and nothing else does."""
    assert redact(text) == clean


def test_a_known_secret_is_hidden_whatever_it_looks_like() -> None:
    """A token needs no known prefix to be kept back."""
    assert redact("I got plain-word from you", ["plain-word", ""]) == "I got *** from you"
