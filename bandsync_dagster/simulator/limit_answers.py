"""The answers of a GitHub that refuses: exhausted buckets, secondary limits, bad credentials. Wording as observed."""

from datetime import datetime

from bandsync_dagster.simulator.exchange import Answer, message
from bandsync_dagster.simulator.limits import BUCKETS, Limits, RateLimiter, Refusal
from bandsync_dagster.simulator.tokens import Caller

BAD_CREDENTIALS = message(401, "Bad credentials")
NO_DOCUMENT = Answer(200, {"errors": [{"message": "A query attribute must be specified and must be a string."}]})
SUPPORT = "If you reach out to GitHub Support for help, please include the request ID SIM:1."
SECONDARY = f"You have exceeded a secondary rate limit. Please wait a few minutes before you try again. {SUPPORT}"
SECONDARY_DOCS = (
    "https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api#about-secondary-rate-limits"
)


def primary(caller: Caller, limits: Limits, *, graphql: bool) -> Answer:
    """Return the answer to a request whose bucket is exhausted."""
    if graphql:
        return Answer(200, {"errors": [_graphql_error(limits)]})
    if caller.anonymous:
        text = "API rate limit exceeded for 127.0.0.1. (But here's the good news: Authenticated requests get a higher"
        return message(limits.rest_status, f"{text} rate limit. Check out the documentation for more details.)")
    who = "installation ID 2" if caller.app else "user ID 1"
    return message(limits.rest_status, f"API rate limit exceeded for {who}. {SUPPORT}")


def _graphql_error(limits: Limits) -> dict[str, str]:
    if limits.graphql_type == "RATE_LIMITED":
        return {"type": "RATE_LIMITED", "message": "API rate limit exceeded for user ID 1."}
    text = "API rate limit already exceeded for user ID 1."
    return {"type": "RATE_LIMIT", "code": "graphql_rate_limit", "message": text}


def secondary(refusal: Refusal, limits: Limits, *, graphql: bool) -> Answer:
    """Return the answer to a request that a secondary limit refuses."""
    headers = {} if refusal.retry_after is None else {"retry-after": str(refusal.retry_after)}
    if graphql and limits.graphql_secondary_status == 200:  # noqa: PLR2004
        return Answer(200, {"errors": [{"type": "RATE_LIMITED", "message": SECONDARY}]}, headers)
    status = limits.graphql_secondary_status if graphql else limits.rest_status
    return Answer(status, {"message": SECONDARY, "documentation_url": SECONDARY_DOCS}, headers)


def overview(limiter: RateLimiter | None, caller: Caller, now: datetime) -> Answer:
    """Return the answer to `/rate_limit`, which costs nothing; a host without limits doesn't have it."""
    if limiter is None:
        return message(404, "Rate limiting is not enabled.")
    resources: dict[str, dict[str, int]] = {}
    for bucket in BUCKETS:
        reading = limiter.read(caller.identity, bucket, now)
        numbers = {"limit": reading.limit, "used": reading.used, "remaining": reading.remaining}
        resources[bucket] = numbers | {"reset": int(reading.reset_at)}
    idle = {"limit": 30, "used": 0, "remaining": 30, "reset": int(now.timestamp()) + 60}
    return Answer(200, {"resources": resources | {"search": idle}, "rate": resources["core"]})
