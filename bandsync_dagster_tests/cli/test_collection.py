"""What is told of a discovery, from the events of its run."""

from typing import Any

import pytest

from bandsync_dagster.cli.collection import failure_text


def step_failure(message: str, *causes: str, description: str | None = None) -> dict[str, Any]:
    """Return the event of a step that failed, as Dagster's webserver gives it."""
    chain = [{"error": {"message": cause}} for cause in causes]
    metadata = {"description": description} if description else None
    error = {"message": message, "errorChain": chain}
    return {"__typename": "ExecutionStepFailureEvent", "error": error, "failureMetadata": metadata}


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([step_failure("Failure", description="org:acme: unknown")], "org:acme: unknown"),
        ([step_failure("Exceeded max_retries of 2\n", "KeyError: 'id'\n")], "KeyError: 'id'"),
        ([step_failure("KeyError: 'id'\n")], "KeyError: 'id'"),
        ([step_failure("")], "the run failed without saying why"),
        ([{"__typename": "RunFailureEvent", "message": "the worker was lost"}], "the worker was lost"),
        ([], "the run was cancelled"),
    ],
)
def test_the_reason_is_what_was_raised(events: list[dict[str, Any]], told: str) -> None:
    """Not what Dagster says around it: that a number of retries was exceeded helps nobody."""
    assert failure_text(events) == told
