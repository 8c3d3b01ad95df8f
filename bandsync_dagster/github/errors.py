"""Every error the GitHub client raises, as one tree. Nothing else belongs here.

    GitHubError
    ├── RateLimited             quota used up or kept back: a deferral, never a failure
    ├── TransientError          worth trying again; raised once the client's own attempts are used up
    │   ├── ConnectionLost      no answer: refused, timed out, cut
    │   └── ServerError         5xx, or a body that is not what the status promised
    │       └── QueryTooLarge   GitHub gave up on the size of one query: ask for less
    ├── AccessError             asking again changes nothing until a person acts
    │   ├── BadCredentials      401
    │   ├── Forbidden           403 that is not a rate limit: scope, SAML, IP allow list
    │   ├── NotFound            404, or a GraphQL NOT_FOUND: deleted, or not visible to this token
    │   └── Blocked             451, or a 403 with reason "tos"
    ├── RequestRefused          any other 4xx: the request itself is wrong (422: beyond the pagination limit)
    └── PayloadError            an answer whose fields are not what GitHub documents

A caller's own mistake (a malformed key, an unknown stage) is a `ValueError` and stays outside of this tree.
"""

from datetime import datetime
from typing import Literal

LimitKind = Literal["primary", "secondary", "reserve"]


class GitHubError(Exception):
    """Something GitHub answered, or did not answer. The message never holds a token."""


class RateLimited(GitHubError):
    """No request may be sent to this bucket before `resume_at`.

    Attributes:
        bucket: The rate limit resource, as GitHub names it in `x-ratelimit-resource`: `core` or `graphql`.
        resume_at: When to go on, in UTC.
        kind: `primary` or `secondary` as GitHub answered, `reserve` when the request was not sent at all.
    """

    def __init__(self, bucket: str, resume_at: datetime, kind: LimitKind) -> None:
        super().__init__(f"GitHub's {bucket} limit is reached until {resume_at:%Y-%m-%d %H:%M:%S} UTC ({kind})")
        self.bucket = bucket
        self.resume_at = resume_at
        self.kind = kind


class TransientError(GitHubError):
    """GitHub or the way to it had a passing problem, and still had it at the last attempt."""


class ConnectionLost(TransientError):
    """The connection was refused, timed out or was cut before the answer was complete."""


class ServerError(TransientError):
    """GitHub answered with a 5xx, or with a body that cannot be read as what the status promised."""


class QueryTooLarge(ServerError):
    """GitHub ran out of time or resources on one query; the same query with fewer items may succeed."""


class AccessError(GitHubError):
    """GitHub refuses, and will go on refusing until somebody changes something."""


class BadCredentials(AccessError):
    """The token is wrong, expired or revoked."""


class Forbidden(AccessError):
    """The token is good but may not read this: a missing permission, SAML sign-on, an IP allow list."""


class NotFound(AccessError):
    """There is no such thing, or this token may not know of it; GitHub answers both alike."""


class Blocked(AccessError):
    """GitHub has blocked the repository (`reason` is `dmca`, `tos` or what else GitHub says)."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class RequestRefused(GitHubError):
    """GitHub understood the request and refuses it as such (`status` is the HTTP status)."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class PayloadError(GitHubError):
    """A field of an answer is missing or has another type than GitHub documents.

    Attributes:
        endpoint: What was asked, without host and secrets, such as `GET /repos/acme/pool/actions/runs`.
        field: The path of the offending field, such as `workflow_runs[3].id`.
    """

    def __init__(self, endpoint: str, field: str, problem: str) -> None:
        super().__init__(f"{endpoint}: field {field} {problem}")
        self.endpoint = endpoint
        self.field = field
