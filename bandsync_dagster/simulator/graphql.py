"""The simulated GitHub's GraphQL endpoint: a document and its variables in, a response body and its cost out.

Nothing here knows HTTP or tokens: the server charges the cost, answers rate limits itself, and calls `execute` with
the world's lock held. Every answer has HTTP status 200, as GitHub's do.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from graphql import DocumentNode, GraphQLError, execute_sync, parse, validate

from bandsync_dagster.simulator.graphql_cost import NODE_LIMIT, Cost, measure
from bandsync_dagster.simulator.graphql_errors import field_entry, refused_document
from bandsync_dagster.simulator.graphql_executor import FastExecution, served_schema
from bandsync_dagster.simulator.graphql_resolvers import Rate, Request
from bandsync_dagster.simulator.world import World

__all__ = ["Cost", "Execution", "Rate", "cost_of", "execute"]


@dataclass(frozen=True, slots=True)
class Execution:
    """The answer to a query and what it takes from the `graphql` bucket."""

    body: dict[str, Any]
    cost: int


@lru_cache(maxsize=512)
def _prepare(text: str) -> tuple[DocumentNode | None, tuple[GraphQLError, ...]]:
    """Parse and validate a document; clients send the same few over and over."""
    try:
        document = parse(text)
    except GraphQLError as error:
        return None, (error,)
    return document, tuple(validate(served_schema(), document))


def cost_of(document: str, variables: Mapping[str, Any] | None, operation_name: str | None = None) -> Cost:
    """Return what a query costs, before it is executed. What can't be executed costs the least there is."""
    parsed, problems = _prepare(document)
    if parsed is None or problems:
        return Cost()
    return measure(served_schema(), parsed, variables or {}, operation_name)


def execute(
    world: World,
    document: str,
    variables: Mapping[str, Any] | None,
    *,
    operation_name: str | None = None,
    rate: Rate | None = None,
) -> Execution:
    """Answer one query.

    Args:
        world: What is asked about; its lock is the caller's.
        document: The query's text.
        variables: The query's variables.
        operation_name: Which operation of the document is meant.
        rate: The token's bucket after this query; None on a host without limits, where `rateLimit` is null.
    """
    parsed, problems = _prepare(document)
    cost = cost_of(document, variables, operation_name)
    if parsed is None or problems:
        return Execution(refused_document(problems), cost.points)
    if cost.nodes > NODE_LIMIT:
        return Execution(_too_many_nodes(cost), cost.points)
    request = Request(world, cost, rate)
    return Execution(_run(parsed, variables, operation_name, request), cost.points)


def _too_many_nodes(cost: Cost) -> dict[str, Any]:
    message = (
        f"This query requests up to {cost.nodes:,} possible nodes which exceeds the maximum limit of {NODE_LIMIT:,}."
    )
    return {"data": None, "errors": [{"type": "MAX_NODE_LIMIT_EXCEEDED", "message": message}]}


def _run(
    document: DocumentNode, variables: Mapping[str, Any] | None, operation_name: str | None, request: Request
) -> dict[str, Any]:
    result = execute_sync(
        served_schema(),
        document,
        context_value=request,
        variable_values=dict(variables or {}),
        operation_name=operation_name,
        execution_context_class=FastExecution,
    )
    errors = result.errors or []
    if result.data is None and not any(error.path for error in errors):
        return refused_document(errors)
    body: dict[str, Any] = {"data": result.data}
    return body | {"errors": [field_entry(error) for error in errors]} if errors else body
