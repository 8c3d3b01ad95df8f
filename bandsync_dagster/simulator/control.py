"""What another process may ask a simulated GitHub about itself, below `/_simulator/`: no part of GitHub's API.

GET state, log, truth; POST spend, faults, reset; DELETE faults, log.
"""

import json
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from bandsync_dagster.simulator.exchange import NOT_FOUND, Answer, message
from bandsync_dagster.simulator.limits import BUCKETS
from bandsync_dagster.simulator.tokens import fingerprint

if TYPE_CHECKING:
    from bandsync_dagster.simulator.application import Application

PREFIX = "/_simulator/"

Handler = Callable[["Application", Request, dict[str, Any]], Any]


def answer(application: "Application", request: Request, body: bytes) -> Answer:
    """Answer one control request."""
    handler = HANDLERS.get((request.method, request.url.path.removeprefix(PREFIX)))
    if handler is None:
        return NOT_FOUND
    try:
        done = handler(application, request, json.loads(body) if body else {})
    except (KeyError, TypeError, ValueError) as error:
        return message(422, f"{type(error).__name__}: {error}")
    return Answer(200, done, {"content-type": "application/json; charset=utf-8"})


def _state(application: "Application", _request: Request, _body: dict[str, Any]) -> dict[str, Any]:
    return {**application.log.summary(), "buckets": _buckets(application)}


def _buckets(application: "Application") -> dict[str, Any]:
    limiter, now = application.limiter, application.clock()
    if limiter is None:
        return {}
    found: dict[str, Any] = {}
    for token in application.options.tokens:
        readings = [limiter.read(fingerprint(token), bucket, now) for bucket in BUCKETS]
        found[fingerprint(token)] = {reading.bucket: reading.headers() for reading in readings}
    return found


def _log(application: "Application", request: Request, _body: dict[str, Any]) -> list[dict[str, Any]]:
    since = int(request.query_params.get("since", "0"))
    return [entry.as_json() for entry in application.log.requests()[since:]]


def _truth(application: "Application", request: Request, _body: dict[str, Any]) -> dict[str, Any]:
    detail = "full" if request.query_params.get("detail") == "full" else "basic"
    rows = application.world.truth(detail=detail)
    return {table: [_plain(row) for row in its] for table, its in rows.items()}


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}


def _spend(application: "Application", _request: Request, body: dict[str, Any]) -> dict[str, Any]:
    if application.limiter is not None:
        token = body.get("token", application.options.tokens[0])
        application.limiter.spend(fingerprint(token), body["bucket"], int(body["points"]), application.clock())
    return _buckets(application)


def _add_fault(application: "Application", _request: Request, body: dict[str, Any]) -> dict[str, Any]:
    application.faults.add(**body)
    return {}


def _clear_faults(application: "Application", _request: Request, _body: dict[str, Any]) -> dict[str, Any]:
    application.faults.clear()
    return {}


def _reset(application: "Application", _request: Request, _body: dict[str, Any]) -> dict[str, Any]:
    if application.limiter is not None:
        application.limiter.reset()
    return _buckets(application)


def _clear_log(application: "Application", _request: Request, _body: dict[str, Any]) -> dict[str, Any]:
    application.log.clear()
    return {}


HANDLERS: dict[tuple[str, str], Handler] = {
    ("GET", "state"): _state,
    ("GET", "log"): _log,
    ("GET", "truth"): _truth,
    ("POST", "spend"): _spend,
    ("POST", "faults"): _add_fault,
    ("DELETE", "faults"): _clear_faults,
    ("POST", "reset"): _reset,
    ("DELETE", "log"): _clear_log,
}
