"""The few calls of Dagster's GraphQL API that the commands need, over HTTP as any other client would make them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from bandsync_dagster.cli.errors import BrokenOffError
from bandsync_dagster.cli.home import LOCATION

# What Dagster calls the only repository of a code location that exports `defs`.
_REPOSITORY: Final = "__repository__"
# Launching validates the run's configuration in the code server, and a page of runs brings their tags.
_TIMEOUT_SECONDS: Final = 60.0
_RUNS_PER_PAGE: Final = 200
_LAUNCHES_PER_REQUEST: Final = 10

_LAUNCH: Final = """
mutation Launch($launches: [ExecutionParams!]!) {
  launchMultipleRuns(executionParamsList: $launches) {
    __typename
    ... on LaunchMultipleRunsResult {
      launchMultipleRunsResult {
        __typename
        ... on LaunchRunSuccess { run { runId } }
        ... on RunConfigValidationInvalid { errors { message } }
        ... on Error { message }
      }
    }
    ... on Error { message }
  }
}
"""

_RUNS: Final = """
query Runs($filter: RunsFilter!, $cursor: String, $limit: Int!) {
  runsOrError(filter: $filter, cursor: $cursor, limit: $limit) {
    __typename
    ... on Runs { results { runId jobName status parentRunId tags { key value } startTime endTime } }
    ... on Error { message }
  }
}
"""

_TERMINATE: Final = """
mutation Terminate($runs: [String!]!) {
  terminateRuns(runIds: $runs, terminatePolicy: SAFE_TERMINATE) {
    __typename
    ... on TerminateRunsResult { terminateRunResults { __typename ... on TerminateRunSuccess { run { runId } } } }
    ... on Error { message }
  }
}
"""

_EVENTS: Final = """
query Events($run: ID!) {
  logsForRun(runId: $run) {
    __typename
    ... on EventConnection {
      events {
        __typename
        ... on ExecutionStepFailureEvent {
          error { message errorChain { error { message } } }
          failureMetadata { description }
        }
        ... on RunFailureEvent { message error { message } }
        ... on MaterializationEvent {
          metadataEntries { label ... on JsonMetadataEntry { jsonString } ... on IntMetadataEntry { intValue } }
        }
      }
    }
    ... on Error { message }
  }
}
"""


@dataclass(frozen=True)
class Launch:
    """A run to launch: an asset job, its tags and its configuration."""

    job: str
    tags: Mapping[str, str]
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """A run as Dagster's webserver shows it. Times are seconds since 1970."""

    id: str
    job: str
    status: str
    parent: str | None
    tags: Mapping[str, str]
    started: float | None = None
    ended: float | None = None


class Webserver:
    """A client of one webserver."""

    def __init__(self, url: str) -> None:
        self.url = url
        # A proxy from the environment has no business between us and our own machine.
        # A connection kept open may be closed by the other side just when it is used again.
        limits = httpx.Limits(max_keepalive_connections=0)
        self._http = httpx.Client(base_url=url, timeout=_TIMEOUT_SECONDS, trust_env=False, limits=limits)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def is_up(self) -> bool:
        """Tell whether the webserver answers."""
        try:
            return self._http.get("/server_info").is_success
        except httpx.TransportError:
            return False

    def launch(self, launches: Sequence[Launch]) -> list[str]:
        """Put runs into the queue, some at a time; return the ids of the first few.

        Returns:
            The ids of the runs launched by this call, which are those of the first entries of `launches`. Call again
            with the rest: in between, others get their turn.
        """
        parameters = [_execution_parameters(launch) for launch in launches[:_LAUNCHES_PER_REQUEST]]
        answer = self._ask(_LAUNCH, {"launches": parameters})["launchMultipleRuns"]
        results = _expect(answer, "LaunchMultipleRunsResult")["launchMultipleRunsResult"]
        return [_expect(result, "LaunchRunSuccess")["run"]["runId"] for result in results]

    def runs(self, tags: Mapping[str, str], statuses: Sequence[str] = ()) -> list[Run]:
        """Return all runs that carry the tags and are in one of the statuses (none: in any), newest first."""
        wanted: dict[str, Any] = {"tags": [{"key": key, "value": value} for key, value in tags.items()]}
        if statuses:
            wanted["statuses"] = list(statuses)
        runs: list[Run] = []
        while True:
            cursor = runs[-1].id if runs else None
            answer = self._ask(_RUNS, {"filter": wanted, "cursor": cursor, "limit": _RUNS_PER_PAGE})["runsOrError"]
            page = [_run(result) for result in _expect(answer, "Runs")["results"]]
            runs += page
            if len(page) < _RUNS_PER_PAGE:
                return runs

    def terminate(self, run_ids: Sequence[str]) -> list[str]:
        """Ask runs to end: queued ones at once, the others when they have written what they fetched.

        Returns:
            The runs that will. Dagster refuses for a run that is just starting: ask again when it has.
        """
        answer = self._ask(_TERMINATE, {"runs": list(run_ids)})["terminateRuns"]
        results = _expect(answer, "TerminateRunsResult")["terminateRunResults"]
        return [result["run"]["runId"] for result in results if result["__typename"] == "TerminateRunSuccess"]

    def events(self, run_id: str) -> list[Mapping[str, Any]]:
        """Return a run's failures and materializations, in the words of Dagster's GraphQL schema."""
        answer = self._ask(_EVENTS, {"run": run_id})["logsForRun"]
        return _expect(answer, "EventConnection")["events"]

    def _ask(self, document: str, variables: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            response = self._http.post("/graphql", json={"query": document, "variables": dict(variables)})
            body = response.raise_for_status().json()
        except httpx.HTTPError as error:
            raise BrokenOffError(f"Dagster's webserver at {self.url} does not answer: {error}") from error
        if body.get("errors"):
            raise BrokenOffError(f"Dagster's webserver refused a request: {body['errors'][0]['message']}")
        return body["data"]


def _execution_parameters(launch: Launch) -> dict[str, Any]:
    return {
        "selector": {"repositoryLocationName": LOCATION, "repositoryName": _REPOSITORY, "jobName": launch.job},
        "runConfigData": dict(launch.config),
        "executionMetadata": {"tags": [{"key": key, "value": value} for key, value in launch.tags.items()]},
        "mode": "default",
    }


def _run(result: Mapping[str, Any]) -> Run:
    return Run(
        id=result["runId"],
        job=result["jobName"],
        status=result["status"],
        parent=result["parentRunId"],
        tags={tag["key"]: tag["value"] for tag in result["tags"]},
        started=result["startTime"],
        ended=result["endTime"],
    )


def _expect(answer: Mapping[str, Any], typename: str) -> Mapping[str, Any]:
    """Return the answer if it is of the type that means success."""
    if answer["__typename"] == typename:
        return answer
    problems = [error["message"] for error in answer.get("errors", [])] or [answer.get("message", "")]
    raise BrokenOffError(f"Dagster refused a request ({answer['__typename']}): {'; '.join(problems)}")
