"""Faults: to whom they happen, how often, and what becomes of an answer."""

import json
from typing import Any

import pytest

from bandsync_dagster.simulator.faults import Fault, Faults, Target, spoil

REST = Target("core", "/repos/acme/alto/actions/runs", "/repos/acme/alto/actions/runs?per_page=100", None, 100)
QUERY = Target("graphql", "/graphql", '{"query": "query Changes", "variables": {"name": "alto"}}', "Changes", 50)


@pytest.mark.parametrize(
    ("criteria", "concerned"),
    [
        ({}, {"rest", "query"}),
        ({"bucket": "core"}, {"rest"}),
        ({"path": "^/graphql$"}, {"query"}),
        ({"document": "Changes"}, {"query"}),
        ({"text": "alto"}, {"rest", "query"}),
        ({"text": "bass"}, set()),
        ({"larger_than": 50}, {"rest"}),
        ({"larger_than": 49}, {"rest", "query"}),
    ],
)
def test_a_fault_is_for_the_requests_it_describes(criteria: dict[str, Any], concerned: set[str]) -> None:
    """All of its criteria have to fit."""
    fault = Fault("html_502", **criteria)
    assert {name for name, target in (("rest", REST), ("query", QUERY)) if fault.concerns(target)} == concerned


@pytest.mark.parametrize(
    "kind", ["null_node", "partial", "resource_limits", "query_timeout", "forbidden_nodes", "unknown_nodes"]
)
def test_faults_of_graphql_never_happen_to_rest(kind: Any) -> None:
    """Even if nothing was said about the bucket."""
    assert not Fault(kind).concerns(REST)
    assert Fault(kind).concerns(QUERY)


def test_a_fault_happens_once_unless_told_otherwise() -> None:
    """Or as often as told, or always."""
    for times, expected in ((1, 1), (3, 3), (None, 5)):
        faults = Faults()
        faults.add("html_502", times=times)
        assert sum(faults.pick(REST) is not None for _ in range(5)) == expected


def test_positions_count_the_requests_a_fault_is_for() -> None:
    """The others pass without being counted."""
    faults = Faults()
    faults.add("html_502", bucket="core", at={2, 4}, times=None)
    picked = [faults.pick(target) is not None for target in (REST, QUERY, REST, REST, QUERY, REST)]
    assert picked == [False, False, True, False, False, True]


def test_chance_is_the_same_for_the_same_seed() -> None:
    """And about as likely as told."""
    runs: list[list[bool]] = []
    for seed in (3, 3, 4):
        faults = Faults(seed)
        faults.add("cut", times=None, probability=0.3)
        runs.append([faults.pick(REST) is not None for _ in range(1000)])
    assert runs[0] == runs[1] != runs[2]
    assert 200 < sum(runs[0]) < 400


def test_faults_can_be_switched_off() -> None:
    """One, or all of them."""
    faults = Faults()
    first, second = faults.add("cut", times=None), faults.add("slow", times=None)
    faults.remove(first)
    assert faults.pick(REST) is second
    faults.clear()
    assert faults.pick(REST) is None


@pytest.mark.parametrize(
    ("kind", "status", "content"),
    [("html_502", 502, "text/html"), ("html_504", 504, "text/html"), ("server_error", 502, "application/json")],
)
def test_a_broken_server_answers_in_its_own_way(kind: Any, status: int, content: str) -> None:
    """With HTML from the proxies in front of GitHub, with JSON from itself."""
    spoiled = spoil(Fault(kind), 200, b"{}", graphql=False)
    assert (spoiled.status, spoiled.content_type.partition(";")[0], spoiled.cut) == (status, content, False)


@pytest.mark.parametrize("graphql", [True, False])
def test_a_servers_own_errors_have_the_status_asked_for(graphql: bool) -> None:
    """REST says little, GraphQL says that it may have been a timeout."""
    spoiled = spoil(Fault("server_error", status=500), 200, b"{}", graphql=graphql)
    assert (spoiled.status, b"timeout" in spoiled.body, b"Server Error" in spoiled.body) == (500, graphql, not graphql)


def test_a_malformed_answer_is_no_json_and_says_it_is() -> None:
    """Status and type promise what the body does not keep."""
    spoiled = spoil(Fault("malformed"), 200, b'{"total_count": 1}', graphql=False)
    assert (spoiled.status, spoiled.content_type) == (200, "application/json; charset=utf-8")
    with pytest.raises(json.JSONDecodeError):
        json.loads(spoiled.body)


def _damaged(kind: Any, data: Any, place: int = 0) -> dict[str, Any]:
    body = json.dumps({"data": data}).encode()
    return json.loads(spoil(Fault(kind, place=place), 200, body, graphql=True).body)


def test_a_null_node_goes_without_a_word() -> None:
    """The list keeps its length."""
    assert _damaged("null_node", {"nodes": [{"id": 1}, {"id": 2}]}, 1) == {"data": {"nodes": [{"id": 1}, None]}}


def test_an_edge_loses_its_node_and_keeps_its_cursor() -> None:
    """As where a single pull request can't be resolved."""
    data = {"repository": {"pullRequests": {"edges": [{"cursor": "a", "node": {"id": 1}}]}}}
    damaged = _damaged("null_node", data)
    assert damaged["data"]["repository"]["pullRequests"]["edges"] == [{"cursor": "a", "node": None}]


def test_partial_data_names_where_it_is_missing() -> None:
    """In an error without a type."""
    damaged = _damaged("partial", {"nodes": [{"id": 1}, {"id": 2}]}, 1)
    assert damaged["data"] == {"nodes": [{"id": 1}, None]}
    assert [(error["path"], "type" in error) for error in damaged["errors"]] == [(["nodes", 1], False)]


def test_exceeded_resources_cost_the_second_half() -> None:
    """Or the only node."""
    damaged = _damaged("resource_limits", {"nodes": [{"id": n} for n in range(5)]})
    assert damaged["data"]["nodes"] == [{"id": 0}, {"id": 1}, None, None, None]
    assert damaged["errors"][0]["type"] == "RESOURCE_LIMITS_EXCEEDED"
    assert _damaged("resource_limits", {"nodes": [{"id": 1}]})["data"]["nodes"] == [None]


@pytest.mark.parametrize(("kind", "type_"), [("forbidden_nodes", "FORBIDDEN"), ("unknown_nodes", "NOT_FOUND")])
def test_nodes_a_token_may_not_read_are_all_null_with_an_error_each(kind: Any, type_: str) -> None:
    """Beside data and status 200; what else was asked for is answered."""
    damaged = _damaged(kind, {"rateLimit": {"cost": 1}, "nodes": [{"id": 1}, {"id": 2}]})
    assert damaged["data"] == {"rateLimit": {"cost": 1}, "nodes": [None, None]}
    assert [(error["type"], error["path"]) for error in damaged["errors"]] == [
        (type_, ["nodes", 0]),
        (type_, ["nodes", 1]),
    ]


def test_what_describes_the_schema_is_left_alone() -> None:
    """Introspection has lists too, which GitHub never leaves incomplete."""
    data = {"__type": {"fields": [{"name": "id"}]}}
    assert _damaged("null_node", data) == {"data": data}
