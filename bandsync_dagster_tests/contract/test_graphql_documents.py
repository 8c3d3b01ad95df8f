"""Every GraphQL document that bandsync sends is one that GitHub takes, at the cost it is taken to have."""

import pytest
from graphql import GraphQLSchema, parse, validate

from bandsync_dagster.github.documents import DOCUMENTS
from bandsync_dagster.simulator.graphql import cost_of
from bandsync_dagster.simulator.graphql_executor import served_schema

POINTS = {"ChangesForward": 3, "ChangesBackward": 3, "Suites": 1, "Activity": 1}
VARIABLES = {"owner": "acme", "name": "pool", "size": 100, "ids": [f"id-{number}" for number in range(100)]}


@pytest.mark.network
@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_fits_githubs_published_schema(published_schema: GraphQLSchema, name: str) -> None:
    """Validation against GitHub's own schema finds nothing."""
    assert validate(published_schema, parse(DOCUMENTS[name])) == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_fits_the_simulators_schema(name: str) -> None:
    """What is sent to GitHub can be sent to the simulator."""
    assert validate(served_schema(), parse(DOCUMENTS[name])) == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_costs_what_is_planned_with(name: str) -> None:
    """For 100 items the formula gives 3 points for changes and 1 for everything else."""
    assert cost_of(DOCUMENTS[name], VARIABLES).points == POINTS[name]
