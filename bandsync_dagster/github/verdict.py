"""What an answer of GitHub means: one pure function from status, headers and body to a verdict. No I/O, no state.

The order of the questions matters. A 5xx is transient whatever its headers say; a block or a missing permission is not
a rate limit although its status is 403 too; a limit is recognised by its wording first, because a secondary limit
leaves `x-ratelimit-remaining` above zero, and the last request before a primary one leaves it at zero.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any, Literal, cast

from bandsync_dagster.github.errors import (
    BadCredentials,
    Blocked,
    ConnectionLost,
    Forbidden,
    GitHubError,
    NotFound,
    QueryTooLarge,
    RequestRefused,
    ServerError,
)
from bandsync_dagster.github.payload import decode
from bandsync_dagster.github.quota import RESET_MARGIN, QuotaReading

Kind = Literal[
    "ok",
    "not_modified",
    "moved",
    "primary",
    "secondary",
    "bad_credentials",
    "forbidden",
    "blocked",
    "not_found",
    "refused",
    "transient",
    "too_large",
]

# Wordings: GitHub docs, "Rate limits for the REST API" and "Troubleshooting the REST API"; the older ones as PyGithub
# and octokit's throttling plugin recognise them.
_PRIMARY_TEXT = re.compile(r"\bapi rate limit (already )?exceeded", re.IGNORECASE)
_SECONDARY_TEXT = re.compile(
    r"\bsecondary rate|\babuse detection|please retry your request again later"
    r"|please wait a few minutes before you try again|#(about-)?secondary-rate-limits|#abuse-rate-limits",
    re.IGNORECASE,
)
_PERMISSION_TEXT = re.compile(
    r"resource not accessible|resource protected by|must have|not permitted|forbids access|saml|ip allow list"
    r"|personal access token|administrative rules|disabled|maximum number of login attempts",
    re.IGNORECASE,
)
_LOCKED_OUT_TEXT = re.compile(r"maximum number of login attempts", re.IGNORECASE)
_TIMEOUT_TEXT = re.compile(
    r"something went wrong while executing your query|respond to your request in time|\btimeout\b|\btimed out\b"
    r"|resource limits for this query exceeded",
    re.IGNORECASE,
)
_TRANSIENT_TEXT = re.compile(r"internal (server )?error|service.unavailable|try again", re.IGNORECASE)
# `RATE_LIMIT` with code `graphql_rate_limit` has been seen since January 2026 beside the documented `RATE_LIMITED`.
_LIMIT_TYPES = frozenset({"RATE_LIMITED", "RATE_LIMIT"})
_SIZE_TYPES = frozenset({"RESOURCE_LIMITS_EXCEEDED", "MAX_NODE_LIMIT_EXCEEDED"})
_ACCESS_TYPES: dict[str, Kind] = {
    "NOT_FOUND": "not_found",
    "FORBIDDEN": "forbidden",
    "INSUFFICIENT_SCOPES": "forbidden",
}
# The status of a verdict on silence: there was no answer.
NO_ANSWER = 0
_KINDS_BY_STATUS: dict[int, Kind] = {
    HTTPStatus.UNAUTHORIZED: "bad_credentials",
    HTTPStatus.NOT_FOUND: "not_found",
    HTTPStatus.GONE: "not_found",
    HTTPStatus.REQUEST_TIMEOUT: "transient",
}
_LONGEST_MESSAGE = 300
_LONGEST_WAIT = 86_400
_SECONDARY_WAIT = 60
_MOST_DOUBLINGS = 6


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do about an answer.

    Attributes:
        kind: What it is.
        message: What GitHub said, shortened.
        bucket: The bucket of a primary limit, where GitHub names it.
        retry_after: The seconds GitHub asks to wait.
        reason: Why a repository is blocked: `dmca`, `tos`, ...
    """

    kind: Kind
    message: str = ""
    bucket: str | None = None
    retry_after: int | None = None
    reason: str | None = None


def classify(status: int, headers: Mapping[str, str], body: bytes, *, graphql: bool) -> Verdict:
    """Return what an answer means; never raises, whatever the body holds."""
    names = {name.lower(): value for name, value in headers.items()}
    if status == HTTPStatus.NOT_MODIFIED:
        return Verdict("not_modified")
    if status < HTTPStatus.MULTIPLE_CHOICES:
        return _query_result(names, body) if graphql else Verdict("ok")
    if status < HTTPStatus.BAD_REQUEST:
        return Verdict("moved" if "location" in names else "refused", "a redirect")
    answer = _Refusal.read(status, names, body)
    return answer.server_failure(graphql=graphql) if status >= HTTPStatus.INTERNAL_SERVER_ERROR else answer.verdict()


def resume_time(verdict: Verdict, reading: QuotaReading | None, *, now: datetime, strikes: int) -> datetime:
    """Return when to go on after a limit answer, in the order GitHub prescribes.

    `retry-after`; else the reset, if nothing remains; else a minute, doubled with each strike ("Best practices for
    using the REST API").
    """
    if verdict.retry_after is not None:
        return now + timedelta(seconds=max(verdict.retry_after, 1))
    if reading is not None and (verdict.kind == "primary" or reading.remaining == 0):
        return max(reading.reset_at, now) + RESET_MARGIN
    return now + timedelta(seconds=_SECONDARY_WAIT * 2 ** min(max(strikes - 1, 0), _MOST_DOUBLINGS))


def failure(verdict: Verdict, endpoint: str, status: int) -> GitHubError:
    """Return the error that a verdict other than ok, not_modified, moved or a limit becomes."""
    message = f"{endpoint}: {verdict.message or 'no explanation'}" + (f" (status {status})" if status else "")
    if status == NO_ANSWER and verdict.kind == "transient":
        return ConnectionLost(message)
    if verdict.kind == "blocked":
        return Blocked(message, verdict.reason or "unknown")
    errors: dict[str, type[GitHubError]] = {
        "bad_credentials": BadCredentials,
        "forbidden": Forbidden,
        "not_found": NotFound,
        "transient": ServerError,
        "too_large": QueryTooLarge,
    }
    if verdict.kind in errors:
        return errors[verdict.kind](message)
    return RequestRefused(message, status)


@dataclass(frozen=True, slots=True)
class _Refusal:
    """An answer with a status of 400 or more (or a GraphQL one that comes to the same)."""

    status: int
    headers: Mapping[str, str]
    document: dict[str, Any]
    text: str

    @classmethod
    def read(cls, status: int, headers: Mapping[str, str], body: bytes) -> "_Refusal":
        document = _object(body)
        # Bodies that are not JSON are HTML pages of a proxy; their wording counts, but nobody wants to read them.
        text = " ".join(_strings(document)) if document else body[:10_000].decode("utf-8", errors="replace")
        return cls(status, headers, document, text)

    def verdict(self) -> Verdict:
        if self.status in (HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS):
            return self._named_limit() or self._unnamed_limit() or self._forbidden()
        if self.status == HTTPStatus.UNAVAILABLE_FOR_LEGAL_REASONS:
            return self._blocked()
        return Verdict(_KINDS_BY_STATUS.get(self.status, "refused"), self.message())

    def server_failure(self, *, graphql: bool) -> Verdict:
        """A 5xx: GitHub ends queries after 10 s with 502 or 504, sometimes 500 with a text."""
        gave_up = self.status in (HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT)
        said = f"{self.text} {_said(_faults(self.document))}"
        too_large = graphql and (gave_up or _TIMEOUT_TEXT.search(said) is not None)
        return Verdict("too_large" if too_large else "transient", self.message(), retry_after=self._retry_after())

    def message(self) -> str:
        said = self.document.get("message")
        return said[:_LONGEST_MESSAGE] if isinstance(said, str) and said else _phrase(self.status)

    def _named_limit(self) -> Verdict | None:
        """A limit that says which it is."""
        if _SECONDARY_TEXT.search(self.text):
            return self.secondary()
        return self.primary() if _PRIMARY_TEXT.search(self.text) else None

    def _unnamed_limit(self) -> Verdict | None:
        """A limit told by status and headers only."""
        if self.status == HTTPStatus.FORBIDDEN and (self._is_block() or _PERMISSION_TEXT.search(self.text)):
            return None
        if self._retry_after() is None and self.exhausted():
            return self.primary()
        limited = self.status == HTTPStatus.TOO_MANY_REQUESTS or self._retry_after() is not None
        return self.secondary() if limited else None

    def _forbidden(self) -> Verdict:
        if self._is_block():
            return self._blocked()
        if _LOCKED_OUT_TEXT.search(self.text):
            return Verdict("bad_credentials", self.message())
        # GitHub docs, "Troubleshooting the REST API": which permissions would have been enough.
        needed = self.headers.get("x-accepted-github-permissions", "")[:_LONGEST_MESSAGE]
        return Verdict("forbidden", self.message() + (f" (needs {needed})" if needed else ""))

    def primary(self) -> Verdict:
        # GraphQL without a token: "API rate limit exceeded", of a limit of 0. No window will ever change that.
        if self.headers.get("x-ratelimit-limit") == "0":
            return Verdict("bad_credentials", f"{self.message()} GitHub grants nothing here without a token.")
        bucket = self.headers.get("x-ratelimit-resource")
        return Verdict("primary", self.message(), bucket=bucket, retry_after=self._retry_after())

    def secondary(self) -> Verdict:
        return Verdict("secondary", self.message(), retry_after=self._retry_after())

    def _blocked(self) -> Verdict:
        block = self.document.get("block")
        reason = cast("dict[str, Any]", block).get("reason") if isinstance(block, dict) else None
        return Verdict("blocked", self.message(), reason=reason if isinstance(reason, str) else "unknown")

    def _is_block(self) -> bool:
        return "block" in self.document or "repository access blocked" in self.text.lower()

    def exhausted(self) -> bool:
        limit = self.headers.get("x-ratelimit-limit")
        return self.headers.get("x-ratelimit-remaining") == "0" and limit != "0"

    def _retry_after(self) -> int | None:
        text = self.headers.get("retry-after", "").strip()
        # A date is allowed by HTTP; GitHub sends seconds. What cannot be read counts as not there.
        return min(int(text), _LONGEST_WAIT) if text.isascii() and text.isdigit() and len(text) < 10 else None  # noqa: PLR2004 - digits


def _query_result(headers: Mapping[str, str], body: bytes) -> Verdict:
    """A GraphQL answer with status 200, which may be anything."""
    if b'"errors"' not in body and b'"data"' in body:
        return Verdict("ok")
    answer = _Refusal.read(HTTPStatus.OK, headers, body)
    if not answer.document:
        return Verdict("transient", "not a GraphQL answer")
    faults = _faults(answer.document)
    if not faults and "data" in answer.document:
        return Verdict("ok")
    return _limit_in(answer, faults) or _size_in(faults) or _refusal_in(answer, faults)


def _limit_in(answer: _Refusal, faults: list[dict[str, Any]]) -> Verdict | None:
    # Messages about a named thing quote the name, and somebody may have called a repository "secondary-rate".
    texts = [_text(fault, "message") for fault in faults if _text(fault, "type") not in _ACCESS_TYPES]
    texts += [] if "data" in answer.document else [answer.text]
    if any(_SECONDARY_TEXT.search(text) for text in texts):
        return answer.secondary()
    if _types(faults) & _LIMIT_TYPES or any(_PRIMARY_TEXT.search(text) for text in texts):
        return answer.primary()
    return None


def _size_in(faults: list[dict[str, Any]]) -> Verdict | None:
    return Verdict("too_large", _said(faults)) if _types(faults) & _SIZE_TYPES else None


def _refusal_in(answer: _Refusal, faults: list[dict[str, Any]]) -> Verdict:
    """Errors beside data leave gaps in it and are the caller's to see; without data they are all there is."""
    data = answer.document.get("data")
    if isinstance(data, dict) and _has_content(cast("dict[str, Any]", data)):
        return Verdict("ok")
    said = _said(faults) or answer.message()
    if _TIMEOUT_TEXT.search(said):
        return Verdict("too_large", said)
    # GitHub docs: "the response status will still be 200, but you will receive an error message" with nothing left.
    if answer.exhausted() and not _types(faults) & set(_ACCESS_TYPES):
        return answer.primary()
    if not faults or _TRANSIENT_TEXT.search(f"{said} {' '.join(_types(faults))}"):
        return Verdict("transient", said)
    kinds: set[Kind] = {_ACCESS_TYPES.get(name, "refused") for name in _types(faults)}
    return Verdict(kinds.pop() if len(kinds) == 1 else "refused", said)


def _has_content(data: Mapping[str, Any]) -> bool:
    return any(value is not None for name, value in data.items() if name != "rateLimit")


def _faults(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    faults = document.get("errors")
    if not isinstance(faults, list):
        return []
    return [cast("dict[str, Any]", fault) for fault in cast("list[Any]", faults) if isinstance(fault, dict)]


def _types(faults: list[dict[str, Any]]) -> set[str]:
    return {_text(fault, "type") for fault in faults}


def _said(faults: list[dict[str, Any]]) -> str:
    return "; ".join(filter(None, (_text(fault, "message") for fault in faults)))[:_LONGEST_MESSAGE]


def _text(fault: Mapping[str, Any], name: str) -> str:
    value = fault.get(name)
    return value if isinstance(value, str) else ""


def _object(body: bytes) -> dict[str, Any]:
    try:
        document = decode(body)
    except ValueError:
        return {}
    return cast("dict[str, Any]", document) if isinstance(document, dict) else {}


def _strings(document: Mapping[str, Any]) -> list[str]:
    return [value for value in document.values() if isinstance(value, str)]


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "an unknown status"
