"""The simulated GitHub as an ASGI application: authentication, limits, ETags, faults and latency around the endpoints.

Served at `/` as api.github.com is, and at `/api/v3` and `/api/graphql` as GitHub Enterprise Server is.
"""

import asyncio
import hashlib
import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from email.utils import format_datetime
from functools import partial
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from bandsync_dagster.clock import Clock, utc_now
from bandsync_dagster.simulator import control, graphql, limit_answers
from bandsync_dagster.simulator.exchange import Answer, Call, message
from bandsync_dagster.simulator.faults import Fault, Faults, Spoiled, Target, spoil
from bandsync_dagster.simulator.incoming import Incoming, read_incoming
from bandsync_dagster.simulator.limits import Limits, RateLimiter, Reading
from bandsync_dagster.simulator.repository_payloads import moment
from bandsync_dagster.simulator.request_log import LoggedRequest, RequestLog
from bandsync_dagster.simulator.rest import Rest
from bandsync_dagster.simulator.tokens import App, Caller, Tokens
from bandsync_dagster.simulator.world import World

DEFAULT_TOKEN = "simulated-token"  # noqa: S105  (opens nothing but a simulation)
API_VERSIONS = ("2022-11-28", "2026-03-10")
# What version 2026-03-10 of the REST API no longer has, in what is served here.
REMOVED = {"2026-03-10": {"merge_commit_sha", "assignee", "rate", "has_downloads"}}


@dataclass(frozen=True, slots=True)
class Options:
    """How a world is served.

    Args:
        limits: The host's rate limits; None for a host without any, as Enterprise Server is by default.
        tokens: The tokens that are good.
        apps: The GitHub Apps that are installed.
        latency: Shortest and longest time in seconds before an answer; None for none.
        open_access: Whether a request without a token counts as the first token's.
        clock: The host's clock, which need not agree with the client's.
        seed: What latencies and the chances of faults are drawn from.
    """

    limits: Limits | None = field(default_factory=Limits)
    tokens: Sequence[str] = (DEFAULT_TOKEN,)
    apps: Sequence[App] = ()
    latency: tuple[float, float] | None = None
    open_access: bool = False
    clock: Clock = utc_now
    seed: int = 1


class Application:
    """Answers HTTP requests about a world."""

    def __init__(self, world: World, options: Options) -> None:
        self.world, self.options, self.clock = world, options, options.clock
        self.rest = Rest(world)
        self.limiter = None if options.limits is None else RateLimiter(options.limits)
        self.tokens = Tokens(options.tokens, options.apps, open_access=options.open_access)
        self.faults = Faults(options.seed)
        self.log = RequestLog()
        self._random = random.Random(options.seed)  # noqa: S311  (the same latencies for the same seed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        request = Request(scope, receive)
        if request.url.path.startswith(control.PREFIX):
            answer = await run_in_threadpool(control.answer, self, request, await request.body())
            await _send(send, answer.status, answer.headers, _json_body(answer.body))
            return
        incoming = read_incoming(request, await request.body())
        spoiled, headers = await self._serve(incoming)
        headers = {"date": format_datetime(self.clock().astimezone(timezone.utc), usegmt=True), **headers}
        await _send(
            send, spoiled.status, {**headers, "content-type": spoiled.content_type}, spoiled.body, cut=spoiled.cut
        )

    async def _serve(self, incoming: Incoming) -> tuple[Spoiled, dict[str, str]]:
        now = self.clock()
        caller = self.tokens.identify(incoming.headers.get("authorization"), now)
        entry = self.log.add(partial(_entry, incoming, caller, now))
        refusal = self._refuse(incoming, caller, now)
        if refusal is not None or caller is None:
            return self._finish(entry, refusal or limit_answers.BAD_CREDENTIALS, None)
        fault = self.faults.pick(_target(incoming))
        limited = self._enter(caller, incoming, fault, now)
        if limited is not None:
            entry.limited = "secondary"
            return self._finish(entry, limited, self._reading(caller, incoming, now))
        try:
            answer = await run_in_threadpool(self._answer, incoming, caller, entry)
            # The headers tell how things stood when the request was counted, not when its answer arrives.
            reading = self._reading(caller, incoming, self.clock())
            await self._delay(fault)
        finally:
            if self.limiter is not None:
                self.limiter.leave(caller.identity)
        return self._finish(entry, answer, reading, fault)

    def _refuse(self, incoming: Incoming, caller: Caller | None, now: datetime) -> Answer | None:
        """Answer what needs no token or no quota: bad requests, installation tokens, the rate limits themselves."""
        if not incoming.headers.get("user-agent"):
            return message(
                403, "Request forbidden by administrative rules. Please make sure it has a User-Agent header."
            )
        if incoming.headers.get("x-github-api-version", API_VERSIONS[0]) not in API_VERSIONS:
            return message(400, "Unsupported API version.")
        match = re.fullmatch(r"/app/installations/(\d+)/access_tokens", incoming.path)
        if match is not None and incoming.method == "POST":
            return self._issue_token(int(match[1]), incoming, now)
        if caller is not None and incoming.path == "/rate_limit":
            return limit_answers.overview(self.limiter, caller, now)
        if incoming.graphql and caller is not None and caller.anonymous:
            return message(401, "This endpoint requires you to be authenticated.")
        return None

    def _issue_token(self, installation_id: int, incoming: Incoming, now: datetime) -> Answer:
        issued = self.tokens.issue(installation_id, incoming.headers.get("authorization"), now)
        if isinstance(issued, int):
            text = "Not Found" if issued == 404 else "A JSON web token could not be decoded"  # noqa: PLR2004
            return message(issued, text)
        token, expires_at = issued
        permissions = {"actions": "read", "metadata": "read", "pull_requests": "read"}
        body = {"token": token, "expires_at": moment(expires_at), "permissions": permissions}
        return Answer(201, body | {"repository_selection": "all"})

    def _enter(self, caller: Caller, incoming: Incoming, fault: Fault | None, now: datetime) -> Answer | None:
        if self.limiter is None:
            return None
        if fault is not None and fault.kind == "secondary":
            self.limiter.close(caller.identity, self.limiter.limits.retry_after, now)
        refusal = self.limiter.enter(caller.identity, incoming.bucket, now)
        if refusal is None:
            return None
        return limit_answers.secondary(refusal, self.limiter.limits, graphql=incoming.graphql)

    def _answer(self, incoming: Incoming, caller: Caller, entry: LoggedRequest) -> Answer:
        with self.world.lock:
            return (
                self._answer_graphql(incoming, caller, entry)
                if incoming.graphql
                else self._answer_rest(incoming, caller, entry)
            )

    def _answer_rest(self, incoming: Incoming, caller: Caller, entry: LoggedRequest) -> Answer:
        reading = self._reading(caller, incoming, entry.time)
        if reading is not None and reading.remaining < 1:
            return self._primary(caller, incoming, entry)
        answer = self._rest_answer(incoming, caller)
        free = answer.status == 304 and not caller.anonymous  # noqa: PLR2004  (an authorised 304 costs nothing)
        return (
            answer if self._take(caller, incoming, entry, 0 if free else 1) else self._primary(caller, incoming, entry)
        )

    def _rest_answer(self, incoming: Incoming, caller: Caller) -> Answer:
        if incoming.method != "GET":
            return message(404, "Not Found")
        answer = self.rest.answer(Call(incoming.path, incoming.query, caller, incoming.base))
        removed = REMOVED.get(incoming.headers.get("x-github-api-version", API_VERSIONS[0]), set())
        body = _json_body(_without(answer.body, removed) if removed else answer.body)
        if answer.status != 200:  # noqa: PLR2004
            return replace(answer, body=body)
        tag = _etag(caller, body)
        headers = {**answer.headers, "etag": tag, "cache-control": "private, max-age=60, s-maxage=60"}
        if _matches(incoming.headers.get("if-none-match", ""), tag):
            return Answer(304, b"", headers)
        return Answer(200, body, headers)

    def _answer_graphql(self, incoming: Incoming, caller: Caller, entry: LoggedRequest) -> Answer:
        if incoming.document is None:
            return limit_answers.NO_DOCUMENT
        cost = graphql.cost_of(incoming.document, incoming.variables, incoming.operation_name).points
        if not self._take(caller, incoming, entry, cost):
            return self._primary(caller, incoming, entry)
        reading = self._reading(caller, incoming, entry.time)
        rate = None if reading is None else _rate(reading)
        done = graphql.execute(
            self.world, incoming.document, incoming.variables, operation_name=incoming.operation_name, rate=rate
        )
        return Answer(200, done.body)

    def _take(self, caller: Caller, incoming: Incoming, entry: LoggedRequest, cost: int) -> bool:
        if self.limiter is not None and not self.limiter.take(caller.identity, incoming.bucket, cost, self.clock()):
            return False
        entry.cost = cost
        return True

    def _primary(self, caller: Caller, incoming: Incoming, entry: LoggedRequest) -> Answer:
        entry.limited = "primary"
        limits = self.options.limits or Limits()
        return limit_answers.primary(caller, limits, graphql=incoming.graphql)

    def _reading(self, caller: Caller, incoming: Incoming, now: datetime) -> Reading | None:
        return None if self.limiter is None else self.limiter.read(caller.identity, incoming.bucket, now)

    async def _delay(self, fault: Fault | None) -> None:
        seconds = self._random.uniform(*self.options.latency) if self.options.latency else 0.0
        if fault is not None and fault.kind == "slow":
            seconds += fault.seconds
        if seconds:
            await asyncio.sleep(seconds)

    def _finish(
        self, entry: LoggedRequest, answer: Answer, reading: Reading | None, fault: Fault | None = None
    ) -> tuple[Spoiled, dict[str, str]]:
        body = answer.body if isinstance(answer.body, bytes) else _json_body(answer.body)
        spoiled = Spoiled(answer.status, "application/json; charset=utf-8", body)
        if fault is not None:
            entry.fault = fault.kind
            spoiled = spoil(fault, answer.status, body, graphql=entry.bucket == "graphql")
            # An answer from a broken server has no ETag or links of the one it stands for.
            answer = answer if spoiled.status == answer.status else replace(answer, headers={})
        entry.status = spoiled.status
        headers = {"x-github-media-type": "github.v3; format=json", "x-github-request-id": f"SIM:{entry.number:X}"}
        return spoiled, {**headers, **(reading.headers() if reading else {}), **answer.headers}


def _entry(incoming: Incoming, caller: Caller | None, now: datetime, number: int) -> LoggedRequest:
    return LoggedRequest(
        number=number,
        time=now,
        method=incoming.method,
        path=incoming.path,
        query=dict(incoming.query),
        fingerprint="bad" if caller is None else caller.fingerprint,
        bucket=incoming.bucket,
        document=incoming.document_name,
    )


def _target(incoming: Incoming) -> Target:
    return Target(
        bucket=incoming.bucket,
        path=incoming.path,
        text=incoming.text,
        document=incoming.document_name,
        size=incoming.size,
    )


def _rate(reading: Reading) -> graphql.Rate:
    reset_at = datetime.fromtimestamp(int(reading.reset_at), timezone.utc)
    return graphql.Rate(reading.limit, reading.used, reading.remaining, reset_at)


def _json_body(body: Any) -> bytes:  # noqa: ANN401  (any JSON)
    return b"" if body is None else json.dumps(body, separators=(",", ":")).encode()


def _without(value: Any, names: set[str]) -> Any:  # noqa: ANN401  (any JSON)
    """Return a JSON value without the fields of these names, wherever they are."""
    if isinstance(value, dict):
        return {name: _without(item, names) for name, item in value.items() if name not in names}
    return [_without(item, names) for item in value] if isinstance(value, list) else value


def _etag(caller: Caller, body: bytes) -> str:
    """Return a weak ETag. ETags are specific to the token: the same body has another one for somebody else."""
    return f'W/"{hashlib.sha256(caller.fingerprint.encode() + body).hexdigest()}"'


def _matches(if_none_match: str, tag: str) -> bool:
    return tag.removeprefix("W/") in [known.strip().removeprefix("W/") for known in if_none_match.split(",")]


async def _send(send: Send, status: int, headers: dict[str, str], body: bytes, *, cut: bool = False) -> None:
    length = {} if status == 304 else {"content-length": str(len(body))}  # noqa: PLR2004  (304 has no body)
    raw = [(name.encode(), value.encode()) for name, value in {**headers, **length}.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    # The server closes a connection whose body never gets complete.
    sent = body[: len(body) // 2] if cut else body
    await send({"type": "http.response.body", "body": sent, "more_body": cut})
