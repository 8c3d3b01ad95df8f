"""One request until there is an answer: leave to send it, the token, retries, and what is done about a rate limit.

    admit (first defence) ── send ── account ── classify ── passed: the answer
      ↑ ↑ ↑                                        │
      │ │ └── limit (second defence): the token is closed; another one may go on, or RateLimited is raised
      │ └──── transient: waited out, four times
      └────── refused token of a GitHub App: once, with a new token
                                                   └── anything else: the typed error

URLs, documents and what answers hold do not belong here (`client`), nor does what they mean (`verdict`).
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal, cast

import httpx

from bandsync_dagster.clock import Clock
from bandsync_dagster.github.auth import Credential
from bandsync_dagster.github.errors import GitHubError, LimitKind, QueryTooLarge, RateLimited, TransientError
from bandsync_dagster.github.payload import decode
from bandsync_dagster.github.quota import BUCKETS, Grant, QuotaLedger, QuotaReading, clock_skew, read_quota
from bandsync_dagster.github.redaction import redact
from bandsync_dagster.github.verdict import NO_ANSWER, Verdict, classify, failure, resume_time

_RETRIES = 4
_FIRST_BACKOFF = 2.0
_LONGEST_BACKOFF = 60.0
# A page of 100 workflow runs is about 1 MB.
_LARGEST_BODY = 64 * 2**20
_SHORTEST_WAIT = 0.05
# 500,000 nodes at most, so far fewer requests; anything else is no cost.
_DEAREST_QUERY = 500_000


@dataclass(slots=True)
class Spent:
    """What a client has used up so far. A 304 counts as a request; points are GraphQL's."""

    requests: int = 0
    points: int = 0


@dataclass(frozen=True, slots=True)
class Call:
    """One request, as it can be sent any number of times with any token.

    Attributes:
        endpoint: What to call it in errors, without host and query.
        cost: What it takes from the bucket.
        body: Sent as JSON.
        etag: Returns the ETag known for the token of a fingerprint.
        divisible: The caller can ask for less, so a query that was too large is not sent again as it is: GitHub takes
            extra points for each query it has to end.
    """

    endpoint: str
    method: Literal["GET", "POST"]
    url: httpx.URL
    bucket: Literal["core", "graphql"]
    cost: int = 1
    body: Mapping[str, Any] | None = None
    etag: Callable[[str], str | None] | None = None
    divisible: bool = False

    @property
    def graphql(self) -> bool:
        """Whether the answer is a GraphQL one."""
        return self.bucket == "graphql"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. `document` is the decoded body of an answer that passed."""

    verdict: Verdict
    status: int = NO_ANSWER
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    document: Any = None
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class Manners:
    """How patient a client is; see `GitHubClient`."""

    share: float
    concurrency: int
    patience: float
    deadline: float
    jitter: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]


@dataclass(slots=True)
class _Tries:
    """What one call has been through."""

    failures: int = 0
    waited: float = 0.0
    limit: LimitKind = "reserve"
    renewed: set[str] = field(default_factory=set[str])


class Exchange:
    """Sends calls with the credentials of a client, under the quota of a ledger."""

    def __init__(
        self,
        *,
        http: httpx.AsyncClient,
        credentials: Mapping[str, Credential],
        ledger: QuotaLedger,
        clock: Clock,
        manners: Manners,
    ) -> None:
        self.spent = Spent()
        # How far this machine's clock is ahead of GitHub's, by the last answer that told.
        self.skew = timedelta(0)
        self._http = http
        self._credentials = credentials
        self._ledger = ledger
        self._clock = clock
        self._manners = manners
        self._slots = asyncio.Semaphore(manners.concurrency)
        self._renewal = asyncio.Lock()
        self._secrets: set[str] = set()

    def redact(self, text: str) -> str:
        """Return `text` without any token."""
        return redact(text, self._secrets)

    async def send(self, call: Call) -> Answer:
        """Return an answer that passed (2xx, 304 or a redirect), or raise a GitHubError."""
        tries = _Tries()
        while True:
            grant = await self._admit(call, tries)
            answer = await self._attempt(call, grant)
            verdict = answer.verdict
            if verdict.kind in ("ok", "not_modified", "moved"):
                return answer
            if verdict.kind in ("primary", "secondary"):
                tries.limit = "primary" if verdict.kind == "primary" else "secondary"
            elif not self._has_new_token(verdict, grant, tries):
                await self._back_off(call, tries, answer)

    async def _admit(self, call: Call, tries: _Tries) -> Grant:
        """Wait for leave to send, as long as patience lasts."""
        fingerprints = tuple(self._credentials)
        while True:
            now = self._clock()
            leave = await asyncio.to_thread(
                self._ledger.reserve, fingerprints, call.bucket, call.cost, share=self._manners.share, now=now
            )
            if not isinstance(leave, datetime):
                return leave
            delay = max((leave - now).total_seconds(), _SHORTEST_WAIT)
            if tries.waited + delay > self._manners.patience:
                raise RateLimited(call.bucket, leave, tries.limit)
            tries.waited += delay
            await self._manners.sleep(delay)

    async def _attempt(self, call: Call, grant: Grant) -> Answer:
        """Send once, and tell the ledger; a reservation never outlives its attempt."""
        try:
            token = await self._token(grant.fingerprint)
            answer = token if isinstance(token, Answer) else await self._ask(call, grant.fingerprint, token)
        except BaseException:
            await self._release(call, grant)
            raise
        await self._account(call, grant, answer)
        return answer

    async def _token(self, fingerprint: str) -> str | Answer:
        """Return the token, or why there is none as if GitHub had answered it."""
        try:
            async with self._renewal:
                token = await self._credentials[fingerprint].token(self._http)
        except TransientError as error:
            return Answer(Verdict("transient", str(error)))
        except RateLimited as error:
            wait = (error.resume_at - self._clock()).total_seconds()
            return Answer(Verdict("secondary", str(error), retry_after=max(int(wait), 1)))
        self._secrets.add(token)
        return token

    async def _ask(self, call: Call, fingerprint: str, token: str) -> Answer:
        request = self._request(call, fingerprint, token)
        try:
            async with self._slots:
                status, headers, body = await asyncio.wait_for(self._receive(request), self._manners.deadline)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            return Answer(Verdict("transient", self._describe(error)))
        except (httpx.RequestError, asyncio.TimeoutError) as error:
            self._count(call, None)
            # A query cut short was too long for something on the way; a connection that never was, was not.
            return Answer(Verdict("too_large" if call.divisible else "transient", self._describe(error)))
        return self._answer(call, fingerprint, status, headers, body)

    def _request(self, call: Call, fingerprint: str, token: str) -> httpx.Request:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        etag = call.etag(fingerprint) if call.etag else None
        if etag and etag.isascii() and etag.isprintable():
            headers["If-None-Match"] = etag
        if call.body is None:
            return self._http.build_request(call.method, call.url, headers=headers)
        headers["Content-Type"] = "application/json"
        # ASCII: a variable that came from GitHub may hold a lone surrogate, which no other encoding takes.
        content = json.dumps(call.body).encode("ascii")
        return self._http.build_request(call.method, call.url, headers=headers, content=content)

    async def _receive(self, request: httpx.Request) -> tuple[int, Mapping[str, str], bytes | None]:
        """Return status, headers and body; None for a body that is larger than anything GitHub sends."""
        response = await self._http.send(request, stream=True)
        try:
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > _LARGEST_BODY:
                    return response.status_code, response.headers, None
            return response.status_code, response.headers, bytes(body)
        finally:
            await response.aclose()

    def _answer(
        self, call: Call, fingerprint: str, status: int, headers: Mapping[str, str], body: bytes | None
    ) -> Answer:
        if body is None:
            verdict, body = Verdict("too_large", f"the answer is larger than {_LARGEST_BODY >> 20} MB"), b""
        else:
            verdict = classify(status, headers, body, graphql=call.graphql)
        document = None
        if verdict.kind == "ok":
            try:
                document = decode(body)
            except ValueError:
                verdict = Verdict("transient", "the answer is not the JSON it should be")
        self._count(call, verdict, document)
        return Answer(verdict, status, headers, document, fingerprint)

    def _count(self, call: Call, verdict: Verdict | None, document: object = None) -> None:
        self.spent.requests += 1
        limited = verdict is not None and verdict.kind in ("primary", "secondary")
        if call.graphql and not limited:
            self.spent.points += points_of(document, call.cost)

    async def _account(self, call: Call, grant: Grant, answer: Answer) -> None:
        """Tell the ledger what the answer said.

        Silence means "no limits" only where GitHub itself has spoken, and the word of an answer that failed is not
        enough to stop everybody for up to an hour: the next one will tell.
        """
        now = self._clock()
        self.skew = clock_skew(answer.headers, now=now) if "date" in answer.headers else self.skew
        reading = read_quota(answer.headers, call.bucket, now=now)
        if answer.verdict.kind in ("primary", "secondary"):
            await self._close(call, grant, answer.verdict, reading)
        elif not _speaks_of_quota(answer.verdict, reading):
            await self._release(call, grant)
        else:
            await asyncio.to_thread(self._ledger.settle, grant, call.bucket, reading, now=now)

    async def _close(self, call: Call, grant: Grant, verdict: Verdict, reading: QuotaReading | None) -> None:
        """Stop everybody who uses the token. A secondary limit concerns all it does, a primary one a bucket."""
        await self._release(call, grant)
        now, strikes = self._clock(), 0
        exhausted = reading is not None and reading.remaining == 0
        if verdict.kind == "secondary" and verdict.retry_after is None and not exhausted:
            strikes = await asyncio.to_thread(self._ledger.strike, grant.fingerprint, now=now)
        until = resume_time(verdict, reading, now=now, strikes=strikes)
        kind = "primary" if verdict.kind == "primary" else "secondary"
        buckets = {call.bucket, verdict.bucket or call.bucket} if kind == "primary" else set(BUCKETS)
        for bucket in sorted(buckets):
            await asyncio.to_thread(self._ledger.close, grant, bucket, until, now=now, kind=kind)

    async def _release(self, call: Call, grant: Grant) -> None:
        await asyncio.to_thread(self._ledger.release, grant, call.bucket, now=self._clock())

    def _has_new_token(self, verdict: Verdict, grant: Grant, tries: _Tries) -> bool:
        """Whether a token that was refused can be replaced, once for each call."""
        if verdict.kind != "bad_credentials" or grant.fingerprint in tries.renewed:
            return False
        tries.renewed.add(grant.fingerprint)
        return self._credentials[grant.fingerprint].discard()

    async def _back_off(self, call: Call, tries: _Tries, answer: Answer) -> None:
        """Wait before the next attempt, or raise what the answer means if there is none."""
        error = self._failure(call, answer)
        final = not isinstance(error, TransientError) or (call.divisible and isinstance(error, QueryTooLarge))
        if final or tries.failures >= _RETRIES:
            raise error
        backoff = _FIRST_BACKOFF * 2**tries.failures * (1 + self._manners.jitter() / 4)
        tries.failures += 1
        await self._manners.sleep(min(max(backoff, answer.verdict.retry_after or 0), _LONGEST_BACKOFF))

    def _failure(self, call: Call, answer: Answer) -> GitHubError:
        message = self.redact(answer.verdict.message)
        if answer.verdict.kind == "bad_credentials":
            message += f" [token {answer.fingerprint}]"
        return failure(replace(answer.verdict, message=message), call.endpoint, answer.status)

    def _describe(self, error: Exception) -> str:
        return self.redact(f"{type(error).__name__}: {error}".removesuffix(": "))


def _speaks_of_quota(verdict: Verdict, reading: QuotaReading | None) -> bool:
    if verdict.kind in ("transient", "too_large"):
        return reading is not None and reading.remaining > 0
    return reading is not None or verdict.kind in ("ok", "not_modified", "moved")


def points_of(document: object, declared: int) -> int:
    """Return what a query cost by GitHub's own account (`rateLimit { cost }`), or what it was expected to cost."""
    for name in ("data", "rateLimit", "cost"):
        document = cast("dict[str, object]", document).get(name) if isinstance(document, dict) else None
    sound = isinstance(document, int) and not isinstance(document, bool) and 0 <= document <= _DEAREST_QUERY
    return cast("int", document) if sound else declared
