"""What a GraphQL query costs and how many nodes it may return, computed from its text alone.

GitHub docs, "Rate limits and query limits for the GraphQL API": add up the requests needed to fulfil each unique
connection, assuming that every `first` or `last` is reached; divide by 100 and round. So the cost of a connection is
the number of its parents, and the innermost page size costs nothing. A connection asked for its `totalCount` only is
part of its parent.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from graphql import (
    DirectiveNode,
    DocumentNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLNamedType,
    GraphQLSchema,
    InlineFragmentNode,
    OperationDefinitionNode,
    SelectionNode,
    SelectionSetNode,
    get_named_type,
    value_from_ast_untyped,
)

NODE_LIMIT = 500_000
PAGE_LIMIT = 100
ITEM_FIELDS = frozenset({"nodes", "edges", "pageInfo"})


@dataclass(frozen=True, slots=True)
class Cost:
    """What one query costs.

    Attributes:
        requests: The requests needed to fulfil its connections.
        nodes: How many nodes it may return at most: `rateLimit { nodeCount }`.
        dry_run: Whether it only asks for its own cost.
    """

    requests: int = 0
    nodes: int = 0
    dry_run: bool = False

    @property
    def points(self) -> int:
        """What the query takes from the `graphql` bucket; never less than 1."""
        return max(1, (self.requests + 50) // 100)


def operation_of(document: DocumentNode, name: str | None) -> OperationDefinitionNode | None:
    """Return the operation of that name, or the first one."""
    operations = (node for node in document.definitions if isinstance(node, OperationDefinitionNode))
    return next((node for node in operations if name is None or (node.name and node.name.value == name)), None)


def measure(
    schema: GraphQLSchema, document: DocumentNode, variables: Mapping[str, Any], operation_name: str | None = None
) -> Cost:
    """Compute the cost of a document that fits the schema."""
    operation = operation_of(document, operation_name)
    root = schema.query_type
    if operation is None or root is None:
        return Cost()
    meter = _Meter(schema, document, _with_defaults(operation, variables))
    meter.visit([operation.selection_set], root, 1)
    return Cost(meter.requests, meter.nodes, meter.dry_run)


def _with_defaults(operation: OperationDefinitionNode, variables: Mapping[str, Any]) -> dict[str, Any]:
    defaults = {
        definition.variable.name.value: value_from_ast_untyped(definition.default_value)
        for definition in operation.variable_definitions or ()
        if definition.default_value is not None
    }
    return {**defaults, **variables}


def reads_items(selections: Iterable[SelectionSetNode], fragments: Mapping[str, FragmentDefinitionNode]) -> bool:
    """Tell whether a connection is asked for its items, and not only for their number."""
    for node in (node for selection_set in selections for node in selection_set.selections):
        if isinstance(node, FieldNode):
            if node.name.value in ITEM_FIELDS:
                return True
            continue
        if reads_items([_fragment(node, fragments).selection_set], fragments):
            return True
    return False


def _fragment(
    node: SelectionNode, fragments: Mapping[str, FragmentDefinitionNode]
) -> FragmentDefinitionNode | InlineFragmentNode:
    """Return what a selection stands for that is no field."""
    return fragments[node.name.value] if isinstance(node, FragmentSpreadNode) else cast("InlineFragmentNode", node)


class _Meter:
    """Walks a document once and adds up."""

    def __init__(self, schema: GraphQLSchema, document: DocumentNode, variables: Mapping[str, Any]) -> None:
        self.schema = schema
        self.variables = dict(variables)
        self.fragments = {
            node.name.value: node for node in document.definitions if isinstance(node, FragmentDefinitionNode)
        }
        self.requests = 0
        self.nodes = 0
        self.dry_run = False

    def visit(self, selections: list[SelectionSetNode], parent: GraphQLNamedType, parents: int) -> None:
        """Add up what hangs below `parents` objects of one type; equal response keys are one field."""
        merged: dict[tuple[str, str], list[FieldNode]] = defaultdict(list)
        for selection_set in selections:
            for owner, field in self._fields(selection_set, parent):
                key = field.alias.value if field.alias else field.name.value
                merged[owner.name, key].append(field)
        for (owner_name, _), fields in merged.items():
            definition = getattr(self.schema.type_map[owner_name], "fields", {}).get(fields[0].name.value)
            if definition is not None:
                self._field(fields, get_named_type(definition.type), parents)

    def _field(self, fields: list[FieldNode], kind: GraphQLNamedType, parents: int) -> None:
        arguments = self._arguments(fields[0])
        name = fields[0].name.value
        below = [field.selection_set for field in fields if field.selection_set is not None]
        self.dry_run = self.dry_run or (name == "rateLimit" and arguments.get("dryRun") is True)
        if kind.name.endswith("Connection") and reads_items(below, self.fragments):
            size = _page_size(arguments)
            self.requests += parents
            self.nodes += parents * size
            parents *= size
        elif name == "nodes" and isinstance(arguments.get("ids"), list):
            parents *= len(arguments["ids"])
        self.visit(below, kind, parents)

    def _fields(
        self, selection_set: SelectionSetNode, parent: GraphQLNamedType
    ) -> Iterator[tuple[GraphQLNamedType, FieldNode]]:
        """Yield the fields of a selection with the type each is asked of, fragments opened."""
        for node in selection_set.selections:
            if self._skipped(node.directives):
                continue
            if isinstance(node, FieldNode):
                yield parent, node
            else:
                yield from self._opened(node, parent)

    def _opened(self, node: SelectionNode, parent: GraphQLNamedType) -> Iterator[tuple[GraphQLNamedType, FieldNode]]:
        fragment = _fragment(node, self.fragments)
        condition = fragment.type_condition
        kind = parent if condition is None else self.schema.type_map[condition.name.value]
        yield from self._fields(fragment.selection_set, kind)

    def _skipped(self, directives: tuple[DirectiveNode, ...]) -> bool:
        for directive in directives:
            condition = self._arguments(directive).get("if")
            if (directive.name.value, condition) in {("skip", True), ("include", False)}:
                return True
        return False

    def _arguments(self, node: FieldNode | DirectiveNode) -> dict[str, Any]:
        return {
            argument.name.value: value_from_ast_untyped(argument.value, self.variables)
            for argument in node.arguments or ()
        }


def _page_size(arguments: Mapping[str, Any]) -> int:
    """Return how many items a page may hold; a page without bounds is refused later and counts as the largest."""
    sizes = [size for size in (arguments.get("first"), arguments.get("last")) if isinstance(size, int)]
    return max(0, sizes[0]) if sizes else PAGE_LIMIT
