"""Taking secrets out of text before it reaches an error, a log or a person. Nothing else belongs here."""

import re
from collections.abc import Iterable

HIDDEN = "***"

# Formats: GitHub docs, "About authentication to GitHub"; a JSON Web Token is three base64url parts.
_SECRETS = re.compile(
    r"gh[a-z]_[A-Za-z0-9_.\-]+"
    r"|github_pat_[A-Za-z0-9_]+"
    r"|eyJ[A-Za-z0-9_\-]+\.[A-Za-z0-9_\-]+\.[A-Za-z0-9_\-]*"
    r"|(?<=\bbearer )[^\s'\"]+"
    r"|(?<=\btoken )(?=[^\s'\"]*\d)[^\s'\"]{16,}"
    r"|(?<=://)[^/\s@'\"]+(?=@)"
    r"|(?<=[?&]access_token=)[^&\s'\"]+"
    r"|(?<=[?&]client_secret=)[^&\s'\"]+",
    re.IGNORECASE,
)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Return `text` without anything that looks like a credential, nor any of the given `secrets`."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, HIDDEN)
    return _SECRETS.sub(HIDDEN, text)
