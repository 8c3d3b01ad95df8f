"""The schema with its resolvers, and graphql-core's execution made fast enough for ten thousand nodes an answer.

graphql-core spends 10 to 20 µs on each field. Most fields here are a value read from a view, so these are read
directly, by a plan made once per selection; everything else takes graphql-core's way, and so does a value that is
missing where none may be.
"""

from collections.abc import Callable
from datetime import datetime, timezone
from functools import cache
from importlib import resources
from typing import Any

from graphql import (
    ExecutionContext,
    FieldNode,
    GraphQLEnumType,
    GraphQLField,
    GraphQLInt,
    GraphQLInterfaceType,
    GraphQLObjectType,
    GraphQLScalarType,
    GraphQLSchema,
    build_schema,
    get_named_type,
    is_leaf_type,
    is_non_null_type,
    is_specified_scalar_type,
)
from graphql.pyutils import Path

from bandsync_dagster.simulator.graphql_fields import CONNECTION_FIELDS, EDGE_FIELDS, FIELDS, Getter
from bandsync_dagster.simulator.graphql_resolvers import RESOLVERS
from bandsync_dagster.simulator.graphql_views import type_name


@cache
def served_schema() -> GraphQLSchema:
    """Return the schema, built from its text, with a resolver for each field."""
    text = resources.files("bandsync_dagster.simulator").joinpath("graphql_schema.graphql").read_text("utf-8")
    schema = build_schema(text)
    for kind in schema.type_map.values():
        if isinstance(kind, GraphQLObjectType) and not kind.name.startswith("__"):
            _resolve_fields(kind)
        elif isinstance(kind, GraphQLInterfaceType):
            kind.resolve_type = lambda view, _info, _type: type_name(view)
    scalars: dict[str, Any] = dict(schema.type_map)
    scalars["DateTime"].serialize = timestamp
    scalars["BigInt"].serialize = str
    return schema


def _resolve_fields(kind: GraphQLObjectType) -> None:
    getters, resolvers = _getters(kind.name), RESOLVERS.get(kind.name, {})
    for name, field in kind.fields.items():
        if name in resolvers:
            field.resolve = resolvers[name]
        else:
            field.resolve = _resolver(getters[name])
            field.extensions = {"getter": getters[name]}


def _getters(name: str) -> dict[str, Getter]:
    if name in FIELDS:
        return FIELDS[name]
    if name.endswith("Connection"):
        return CONNECTION_FIELDS
    return EDGE_FIELDS if name.endswith("Edge") else {}


def _resolver(getter: Getter) -> Callable[..., Any]:
    return lambda view, _info, **_arguments: getter(view)


def timestamp(time: datetime) -> str:
    """Write a time as GraphQL's `DateTime`: UTC, whole seconds, `Z`."""
    return time.astimezone(timezone.utc).isoformat(timespec="seconds").removesuffix("+00:00") + "Z"


class FastExecution(ExecutionContext):
    """Executes a query, reading plain fields directly."""

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401  (graphql-core's own)
        super().__init__(*arguments, **options)
        # The fields are kept with their plan, so that the id of the one can't be taken again while the other lives.
        self._plans: dict[int, tuple[dict[str, list[FieldNode]], list[_Step]]] = {}

    def execute_fields(
        self,
        parent_type: GraphQLObjectType,
        source_value: object,
        path: Path | None,
        fields: dict[str, list[FieldNode]],
    ) -> dict[str, Any]:
        """Return an object's fields."""
        if path is None and self.context_value.cost.dry_run:
            fields = {name: nodes for name, nodes in fields.items() if nodes[0].name.value == "rateLimit"}
        found = self._plans.get(id(fields))
        if found is None:
            plan = [self._step(parent_type, name, nodes) for name, nodes in fields.items()]
            found = self._plans[id(fields)] = (fields, plan)
        results: dict[str, Any] = {}
        for name, nodes, getter, serialize, nullable in found[1]:
            if getter is not None:
                value = getter(source_value)
                if value is not None:
                    results[name] = value if serialize is None else serialize(value)
                    continue
                if nullable:
                    results[name] = None
                    continue
            results[name] = self.execute_field(parent_type, source_value, nodes, Path(path, name, parent_type.name))
        return results

    def _step(self, parent_type: GraphQLObjectType, name: str, nodes: list[FieldNode]) -> "_Step":
        field_name = nodes[0].name.value
        if field_name == "__typename":
            return name, nodes, lambda _: parent_type.name, None, False
        field = parent_type.fields.get(field_name)
        if field is None or "getter" not in field.extensions or not is_leaf_type(get_named_type(field.type)):
            return name, nodes, None, None, False
        return name, nodes, field.extensions["getter"], _serializer(field), not is_non_null_type(field.type)

    @staticmethod
    def complete_leaf_value(return_type: GraphQLScalarType | GraphQLEnumType, result: Any) -> Any:  # noqa: ANN401
        """Serialize one value. GitHub declares ids as `Int` and sends what no 32 bits hold."""
        return result if return_type is GraphQLInt else ExecutionContext.complete_leaf_value(return_type, result)


_Step = tuple[str, list[FieldNode], Getter | None, Callable[[Any], Any] | None, bool]


def _serializer(field: GraphQLField) -> Callable[[Any], Any] | None:
    """Return what turns a field's value into JSON; the views give numbers, text and booleans as they are."""
    kind = get_named_type(field.type)
    if isinstance(kind, GraphQLEnumType):
        # A word that the schema doesn't know is a mistake in the world: a KeyError, not an answer.
        return {word: word for word in kind.values}.__getitem__
    return kind.serialize if isinstance(kind, GraphQLScalarType) and not is_specified_scalar_type(kind) else None
