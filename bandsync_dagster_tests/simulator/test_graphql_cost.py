"""The cost formula and node count, against the examples in GitHub's documentation and what others measured."""

import pytest

from bandsync_dagster.simulator.graphql import cost_of

MANY = "labels(first: 20) { nodes { name } } reviews(last: 50) { nodes { id } } commits(first: 1) { nodes { id } }"
PULLS = 'query { repository(owner: "a", name: "b") { pullRequests(first: %d) { nodes { %s } } } }'
JOBS = """query($ids: [ID!]!, $runs: Int = 100) { nodes(ids: $ids) { ... on WorkflowRun { checkSuite {
  checkRuns(first: $runs) { nodes { name %s } } } } } }"""


def ids(count: int) -> dict[str, list[str]]:
    """Return variables with so many node ids."""
    return {"ids": [f"WFR_{number}" for number in range(count)]}


@pytest.mark.parametrize(
    ("document", "variables", "requests", "points", "nodes"),
    [
        (PULLS % (100, "title commits { totalCount } comments { totalCount }"), {}, 1, 1, 100),
        (PULLS % (50, "labels(first: 20) { nodes { name } } reviews(first: 50) { nodes { id } }"), {}, 101, 1, 3_550),
        (PULLS % (100, MANY), {}, 301, 3, 7_200),
        (JOBS % "", ids(100), 100, 1, 10_000),
        (JOBS % "steps(first: 30) { nodes { name } }", ids(100), 10_100, 101, 310_000),
        (JOBS % "steps(first: 50) { nodes { name } }", ids(50), 5_050, 51, 255_000),
        (JOBS % "steps(first: 100) { nodes { name } }", ids(20), 2_020, 20, 202_000),
        (JOBS % "steps(first: 30) { nodes { name } }", {**ids(100), "runs": 30}, 3_100, 31, 93_000),
    ],
)
def test_a_query_costs_the_parents_of_its_connections(
    document: str, variables: dict[str, object], requests: int, points: int, nodes: int
) -> None:
    """Requests, points and node count follow the documented formula."""
    cost = cost_of(document, variables)
    assert (cost.requests, cost.points, cost.nodes) == (requests, points, nodes)


def test_the_innermost_page_size_is_free() -> None:
    """The cost of a connection is the number of its parents, whatever its own size."""
    small, large = (cost_of(PULLS % (100, f"reviews(first: {size}) {{ nodes {{ id }} }}"), {}) for size in (1, 100))
    assert small.points == large.points
    assert small.nodes < large.nodes


def test_fragments_and_repeated_fields_count_once() -> None:
    """The same connection asked for in two places of one selection is one connection."""
    plain = PULLS % (100, "reviews(first: 1) { nodes { id state } }")
    spread = """query { ...A repository(owner: "a", name: "b") { pullRequests(first: 100) { nodes { ...B } } } }
      fragment A on Query { repository(owner: "a", name: "b") { pullRequests(first: 100) { nodes { id } } } }
      fragment B on PullRequest { reviews(first: 1) { nodes { id } } ... { reviews(first: 1) { nodes { state } } } }"""
    assert cost_of(spread, {}) == cost_of(plain, {})


@pytest.mark.parametrize("items", ["... { nodes { id } }", "...Items", "... on PullRequestConnection { ...Items }"])
def test_items_asked_for_in_a_fragment_count(items: str) -> None:
    """A fragment on a connection hides nothing; one that is only counted still is free."""
    fragments = "fragment Items on PullRequestConnection { edges { cursor } }" if "Items" in items else ""
    document = f'query {{ repository(owner: "a", name: "b") {{ pullRequests(first: 7) {{ totalCount {items} }} }} }}'
    assert cost_of(document + fragments, {}).nodes == 7
    counted = document.replace(items, "... { totalCount }")
    assert cost_of(counted, {}).nodes == 0


def test_aliases_count_each() -> None:
    """Two aliases of one connection are two connections."""
    document = 'query { repository(owner: "a", name: "b") { %s } }'
    aliased = " ".join(f"p{number}: pullRequests(first: 100) {{ nodes {{ id }} }}" for number in range(3))
    assert cost_of(document % aliased, {}).requests == 3


@pytest.mark.parametrize(("directive", "requests"), [("@include(if: $on)", 0), ("@skip(if: $on)", 1)])
def test_what_a_directive_leaves_out_costs_nothing(directive: str, requests: int) -> None:
    """A skipped connection is not requested."""
    field = f"pullRequests(first: 1) {directive} {{ nodes {{ id }} }}"
    document = f'query($on: Boolean!) {{ repository(owner: "a", name: "b") {{ {field} }} }}'
    assert cost_of(document, {"on": False}).requests == requests


def test_the_named_operation_is_the_one_measured() -> None:
    """A document may hold several operations."""
    pages = " ".join(f"p{number}: pullRequests(first: 1) {{ nodes {{ id }} }}" for number in range(250))
    document = f'query A {{ rateLimit {{ cost }} }} query B {{ repository(owner: "a", name: "b") {{ {pages} }} }}'
    assert cost_of(document, {}, "A").points == 1
    assert cost_of(document, {}, "B").points == 3
    assert cost_of(document, {}, "C").points == 1


@pytest.mark.parametrize("document", ["", "{", "{ nothing }", "mutation { x }"])
def test_what_cannot_be_executed_costs_one_point(document: str) -> None:
    """A refused document still is a request."""
    assert cost_of(document, None).points == 1
