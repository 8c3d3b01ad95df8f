"""What an HTTP request asks for, independent of where the API is mounted and how GraphQL packs its parts."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from bandsync_dagster.simulator.limits import Bucket
from bandsync_dagster.simulator.listing import Page

ENTERPRISE_REST = "/api/v3"
GRAPHQL_PATHS = ("/graphql", "/api/graphql")


@dataclass(frozen=True, slots=True)
class Incoming:
    """One request. `path` is below the API's address, `base` is that address as the client knows it."""

    method: str
    path: str
    base: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    graphql: bool
    document: str | None
    variables: Mapping[str, Any] | None
    operation_name: str | None
    text: str

    @property
    def bucket(self) -> Bucket:
        """Which quota it uses."""
        return "graphql" if self.graphql else "core"

    @property
    def document_name(self) -> str | None:
        """The operation's name in the document."""
        match = re.search(r"\b(?:query|mutation)\s+(\w+)", self.document or "")
        return self.operation_name or (match[1] if match else None)

    @property
    def size(self) -> int:
        """How many items it asks for: the page size, or the largest number or list among the variables."""
        if not self.graphql:
            return Page.of(self.query).size
        values = (self.variables or {}).values()
        return max((len(v) if isinstance(v, list) else v if isinstance(v, int) else 0 for v in values), default=0)


def read_incoming(request: Request, body: bytes) -> Incoming:
    """Read a request."""
    path, origin = request.url.path, f"{request.url.scheme}://{request.headers.get('host', 'localhost')}"
    enterprise = path.startswith(f"{ENTERPRISE_REST}/")
    graphql = path in GRAPHQL_PATHS and request.method == "POST"
    document, variables, operation_name = _graphql_parts(body) if graphql else (None, None, None)
    return Incoming(
        method=request.method,
        path=path.removeprefix(ENTERPRISE_REST) if enterprise else path,
        base=origin + ENTERPRISE_REST if enterprise else origin,
        query=dict(request.query_params),
        headers=request.headers,
        graphql=graphql,
        document=document,
        variables=variables,
        operation_name=operation_name,
        text=f"{path}?{request.url.query} {body.decode(errors='replace')}",
    )


def _graphql_parts(body: bytes) -> tuple[str | None, Mapping[str, Any] | None, str | None]:
    try:
        parts = json.loads(body)
    except ValueError:
        return None, None, None
    if not isinstance(parts, dict) or not isinstance(parts.get("query"), str):
        return None, None, None
    return parts["query"], parts.get("variables"), parts.get("operationName")
