"""The simulator's GraphQL schema is a part of the one that GitHub publishes."""

from collections.abc import Iterator

import pytest
from graphql import (
    GraphQLEnumType,
    GraphQLField,
    GraphQLInputField,
    GraphQLInputObjectType,
    GraphQLInterfaceType,
    GraphQLNamedType,
    GraphQLObjectType,
    GraphQLSchema,
    build_schema,
    is_introspection_type,
    is_specified_scalar_type,
    print_schema,
)

from bandsync_dagster.simulator.graphql_executor import served_schema

OURS = [
    kind
    for kind in served_schema().type_map.values()
    if not is_introspection_type(kind) and not is_specified_scalar_type(kind)
]


def differences(ours: GraphQLNamedType, theirs: GraphQLNamedType | None) -> Iterator[str]:
    """Say what of a type of ours is not so in GitHub's."""
    if type(ours) is not type(theirs):
        yield f"{ours.name} is {theirs and type(theirs).__name__}"
    elif isinstance(ours, GraphQLEnumType):
        # An enum we cut short would refuse what GitHub takes, and never send what GitHub sends.
        yield from (f"{ours.name}.{value}" for value in set(ours.values) ^ set(theirs.values))
    elif isinstance(ours, GraphQLObjectType | GraphQLInterfaceType | GraphQLInputObjectType):
        known = {interface.name for interface in getattr(theirs, "interfaces", ())}
        yield from (f"{ours.name} implements {i.name}" for i in getattr(ours, "interfaces", ()) if i.name not in known)
        for name, field in ours.fields.items():
            yield from field_differences(f"{ours.name}.{name}", field, theirs.fields.get(name))


def field_differences(
    name: str, ours: GraphQLField | GraphQLInputField, theirs: GraphQLField | GraphQLInputField | None
) -> Iterator[str]:
    """Say what of a field is not as in GitHub's schema: type, nullability, arguments and their defaults."""
    if theirs is None or str(ours.type) != str(theirs.type):
        yield f"{name}: {ours.type} is {theirs and theirs.type}"
        return
    if isinstance(ours, GraphQLInputField):
        return
    for argument in ours.args.keys() | theirs.args.keys():
        here, there = ours.args.get(argument), theirs.args.get(argument)
        if here is None or there is None or str(here.type) != str(there.type):
            yield f"{name}({argument}): {here and here.type} is {there and there.type}"
        elif here.default_value != there.default_value:
            yield f"{name}({argument}) = {here.default_value} is {there.default_value}"


@pytest.mark.network
@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.name)
def test_each_type_of_the_simulator_is_as_github_publishes_it(
    published_schema: GraphQLSchema, kind: GraphQLNamedType
) -> None:
    """Fields, types, nullability, arguments, defaults, enum values and interfaces are GitHub's."""
    assert list(differences(kind, published_schema.type_map.get(kind.name))) == []


@pytest.mark.parametrize(
    ("ours", "changed", "told"),
    [
        ("  isFork: Boolean!", "  isFork: Boolean", "Repository.isFork: Boolean! is Boolean"),
        ("dryRun: Boolean = false", "dryRun: Boolean = true", "Query.rateLimit(dryRun) = False is True"),
        ("avatarUrl(size: Int)", "avatarUrl", "User.avatarUrl(size): Int is None"),
        ("  STALE\n", "", "CheckConclusionState.STALE"),
        ("type Ref implements Node", "type Ref", "Ref implements Node"),
        ("  pushedAt: DateTime\n", "", "Repository.pushedAt: DateTime is None"),
        ("scalar URI", "enum URI { A }", "URI is GraphQLEnumType"),
    ],
)
def test_a_difference_would_be_seen(ours: str, changed: str, told: str) -> None:
    """The comparison finds each kind of difference that it is there for."""
    other = build_schema(print_schema(served_schema()).replace(ours, changed), assume_valid=True)
    assert told in [text for kind in OURS for text in differences(kind, other.type_map.get(kind.name))]
