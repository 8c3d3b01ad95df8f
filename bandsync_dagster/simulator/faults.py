"""What can go wrong between GitHub and a client, switchable fault by fault, by request, place and chance.

A fault says which requests it is for and what happens to their answers. Nothing here knows HTTP servers: `Fault.spoil`
takes an answer's parts and gives others.
"""

import json
import random
import re
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal[
    "html_502",
    "html_504",
    "server_error",
    "query_timeout",
    "cut",
    "malformed",
    "slow",
    "null_node",
    "partial",
    "resource_limits",
    "forbidden_nodes",
    "unknown_nodes",
    "forbidden",
    "secondary",
]
GRAPHQL_KINDS = frozenset(
    {"query_timeout", "null_node", "partial", "resource_limits", "forbidden_nodes", "unknown_nodes"}
)

JSON = "application/json; charset=utf-8"
NO_ACCESS = "Resource not accessible by personal access token"
SERVER_ERROR: dict[str, Any] = {"message": "Server Error"}
HTML = "<html>\r\n<head><title>{0}</title></head>\r\n<body>\r\n<center><h1>{0}</h1></center>\r\n</body>\r\n</html>\r\n"
TIMEOUT_MESSAGE = (
    "Something went wrong while executing your query. This may be the result of a timeout, or it could be a GitHub"
    " bug. Please include `0420:2F3A:1B` when reporting this issue."
)


@dataclass(frozen=True, slots=True)
class Target:
    """What a fault can recognise a request by. `size` is the page size or number of ids asked for."""

    bucket: str
    path: str
    text: str
    document: str | None
    size: int


@dataclass(slots=True)
class Fault:
    """One fault: what happens, to which requests, how often.

    Args:
        kind: What happens to the answer.
        bucket: Only requests of `core` or `graphql`.
        path: Only requests whose path has a match for this regular expression.
        document: Only GraphQL documents of this operation name.
        text: Only requests with this text in their path, query, document or variables: a repository's name, an id.
        larger_than: Only requests that ask for more than this many items.
        at: Only these of the requests all of the above applies to, counted from 1.
        times: How often at most; None for always.
        probability: The chance that it happens where it could.
        seconds: How long `slow` takes.
        place: Which node `null_node` and `partial` take, counted from 0.
        status: What `server_error` and `query_timeout` answer with.
    """

    kind: Kind
    bucket: Literal["core", "graphql"] | None = None
    path: str | None = None
    document: str | None = None
    text: str | None = None
    larger_than: int | None = None
    at: Collection[int] | None = None
    times: int | None = 1
    probability: float = 1.0
    seconds: float = 0.0
    place: int = 0
    status: int = 502
    seen: int = field(default=0, init=False)
    fired: int = field(default=0, init=False)

    def concerns(self, target: Target) -> bool:
        """Whether the request is one that this fault is for, regardless of counts and chance."""
        if self.bucket is None and self.kind in GRAPHQL_KINDS and target.bucket != "graphql":
            return False
        return (
            self.bucket in (None, target.bucket)
            and (self.path is None or re.search(self.path, target.path) is not None)
            and self.document in (None, target.document)
            and (self.text is None or self.text in target.text)
            and (self.larger_than is None or target.size > self.larger_than)
        )

    def happens(self, draw: Callable[[], float]) -> bool:
        """Count a request this fault is for, and say whether the fault happens to it."""
        self.seen += 1
        if self.at is not None and self.seen not in self.at:
            return False
        if self.times is not None and self.fired >= self.times:
            return False
        if self.probability < 1.0 and draw() >= self.probability:
            return False
        self.fired += 1
        return True


class Faults:
    """The faults that are switched on."""

    def __init__(self, seed: int = 1) -> None:
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self._random = random.Random(seed)  # noqa: S311  (the same faults for the same seed)

    def add(self, kind: Kind, **criteria: Any) -> Fault:  # noqa: ANN401  (the fields of Fault)
        """Switch a fault on; the criteria are the fields of `Fault`."""
        fault = Fault(kind, **criteria)
        with self._lock:
            self._faults.append(fault)
        return fault

    def remove(self, fault: Fault) -> None:
        """Switch one fault off."""
        with self._lock:
            self._faults.remove(fault)

    def clear(self) -> None:
        """Switch all faults off."""
        with self._lock:
            self._faults.clear()

    def pick(self, target: Target) -> Fault | None:
        """Return the fault that happens to a request: the first that is for it and happens."""
        with self._lock:
            for fault in self._faults:
                if fault.concerns(target) and fault.happens(self._random.random):
                    return fault
            return None


@dataclass(frozen=True, slots=True)
class Spoiled:
    """A spoiled answer: what is sent instead. With `cut`, only the first half of the body is sent, then nothing."""

    status: int
    content_type: str
    body: bytes
    cut: bool = False


def spoil(fault: Fault, status: int, body: bytes, *, graphql: bool) -> Spoiled:
    """Return what becomes of a good answer."""
    if fault.kind in HTML_ANSWERS:
        return HTML_ANSWERS[fault.kind]
    if fault.kind in ("server_error", "query_timeout"):
        return _json(
            fault.status, {"data": None, "errors": [{"message": TIMEOUT_MESSAGE}]} if graphql else SERVER_ERROR
        )
    if fault.kind == "forbidden":
        return _json(403, {"message": NO_ACCESS})
    if fault.kind == "malformed":
        return Spoiled(status, JSON, body[: len(body) * 2 // 3])
    if fault.kind in DAMAGES and status == 200:  # noqa: PLR2004  (only a good answer can be damaged)
        return _json(status, DAMAGES[fault.kind](json.loads(body), fault.place))
    return Spoiled(status, JSON, body, cut=fault.kind == "cut")


def _html(title: str) -> Spoiled:
    return Spoiled(int(title[:3]), "text/html", HTML.format(title).encode())


def _json(status: int, body: dict[str, Any]) -> Spoiled:
    return Spoiled(status, JSON, json.dumps(body).encode())


HTML_ANSWERS = {"html_502": _html("502 Bad Gateway"), "html_504": _html("504 Gateway Time-out")}


def _null_node(body: dict[str, Any], place: int) -> dict[str, Any]:
    """Take one node away, without a word."""
    for _, items in _lists(body.get("data"), [])[:1]:
        _take(items, place % len(items))
    return body


def _partial(body: dict[str, Any], place: int) -> dict[str, Any]:
    """Take one node away, with an error that has no type."""
    error: dict[str, Any] = {"message": "Something went wrong while executing your query."}
    for path, items in _lists(body.get("data"), [])[:1]:
        _take(items, place % len(items))
        error["path"] = [*path, place % len(items)]
    body["errors"] = [*body.get("errors", []), error]
    return body


def _resource_limits(body: dict[str, Any], _place: int) -> dict[str, Any]:
    """Give partial results: nothing of the second half of the nodes, or of a single one."""
    error: dict[str, Any] = {"type": "RESOURCE_LIMITS_EXCEEDED", "message": "Resource limits for this query exceeded."}
    for path, items in _lists(body.get("data"), [])[:1]:
        for place in range(len(items) // 2, len(items)):
            _take(items, place)
        error["path"] = [*path, len(items) // 2]
    body["errors"] = [*body.get("errors", []), error]
    return body


def _forbidden_nodes(body: dict[str, Any], _place: int) -> dict[str, Any]:
    """Take all nodes away, each with an error: what a token gets that lacks a permission."""
    return _without_nodes(body, "FORBIDDEN", NO_ACCESS)


def _unknown_nodes(body: dict[str, Any], _place: int) -> dict[str, Any]:
    """Take all nodes away, as if the token may not even know of them."""
    return _without_nodes(body, "NOT_FOUND", "Could not resolve to a node with the global id given.")


def _without_nodes(body: dict[str, Any], kind: str, message: str) -> dict[str, Any]:
    errors = body.setdefault("errors", [])
    for path, items in _lists(body.get("data"), [])[:1]:
        for place in range(len(items)):
            _take(items, place)
            errors.append({"type": kind, "path": [*path, place], "message": message})
    return body


def _take(items: list[Any], place: int) -> None:
    """Replace a list item by null; of an edge, only its node, because its cursor is still known."""
    item = items[place]
    if isinstance(item, dict) and "node" in item:
        item["node"] = None
    else:
        items[place] = None


def _lists(value: Any, path: list[Any]) -> list[tuple[list[Any], list[Any]]]:  # noqa: ANN401  (any JSON)
    """Return the lists in a JSON value that hold something, outermost first, each with its path."""
    if isinstance(value, dict):
        fields = [(key, item) for key, item in value.items() if not key.startswith("__")]
        return [found for key, item in fields for found in _lists(item, [*path, key])]
    return [(path, value)] if isinstance(value, list) and value else []


DAMAGES: dict[str, Callable[[dict[str, Any], int], dict[str, Any]]] = {
    "null_node": _null_node,
    "partial": _partial,
    "resource_limits": _resource_limits,
    "forbidden_nodes": _forbidden_nodes,
    "unknown_nodes": _unknown_nodes,
}
