"""Fixtures of the client's tests."""

import pytest

from bandsync_dagster_tests.github.surroundings import Stage


@pytest.fixture
def stage() -> Stage:
    """Return fresh surroundings for a client."""
    return Stage()
