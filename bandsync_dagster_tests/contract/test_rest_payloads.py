"""What the simulator answers over REST, against models generated from GitHub's own OpenAPI description."""

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import httpx
import pytest
from githubkit_schemas.v2022_11_28 import models
from pydantic import BaseModel, ValidationError

from bandsync_dagster.simulator.generation import generate
from bandsync_dagster.simulator.server import SimulatedGitHub

NOW = datetime(2026, 11, 1, tzinfo=timezone.utc)
# Where GitHub itself does not keep to its description; the simulator has these on purpose.
KNOWN_DEVIATIONS = {
    # Null once the fork is deleted: github/rest-api-description issue 1586.
    "WorkflowRun.head_repository",
    # GitHub gives up on jobs that never end, without a conclusion that the description knows.
    "Job.conclusion",
    # Null for deleted accounts in the list, and so in the single pull request.
    "PullRequest.user",
    # Null before the first push.
    "FullRepository.pushed_at",
}
Found = tuple[type[BaseModel], dict[str, Any]]


@pytest.fixture(scope="module")
def server() -> Iterator[SimulatedGitHub]:
    """Serve a world with every awkward value and special repository in it."""
    world = generate(repositories=8, changes=36, runs=40, now=NOW, clock=lambda: NOW)
    with SimulatedGitHub(world) as running:
        yield running


def fetch(client: httpx.Client, path: str, key: str | None = None, **params: str) -> Iterator[dict[str, Any]]:
    """Yield the items of all pages of a list, or one answer."""
    url: str | None = str(client.base_url.join(path).copy_merge_params({"per_page": "100", **params}))
    while url:
        response = client.get(url)
        assert response.status_code == 200, (url, response.text)
        body = readable(response.json())
        items = body if key is None else body[key]
        yield from items if isinstance(items, list) else [items]
        url = response.links.get("next", {}).get("url")


def readable(value: Any) -> Any:
    """Replace lone surrogates, which no typed model can hold."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [readable(item) for item in value]
    return {key: readable(item) for key, item in value.items()} if isinstance(value, dict) else value


def below(client: httpx.Client, name: str) -> Iterator[Found]:
    """Yield everything in one repository, with what it should be."""
    for change in fetch(client, f"/repos/{name}/pulls", state="all"):
        yield models.PullRequestSimple, change
        for one in fetch(client, f"/repos/{name}/pulls/{change['number']}"):
            yield models.PullRequest, one
    for run in fetch(client, f"/repos/{name}/actions/runs", "workflow_runs"):
        yield models.WorkflowRun, run
        for job in fetch(client, f"/repos/{name}/actions/runs/{run['id']}/jobs", "jobs", filter="all"):
            yield models.Job, job
        for attempt in range(1, run["run_attempt"]):
            for past in fetch(client, f"/repos/{name}/actions/runs/{run['id']}/attempts/{attempt}"):
                yield models.WorkflowRun, past


def everything(client: httpx.Client) -> Iterator[Found]:
    """Yield what the simulator has at all its endpoints, with what it should be."""
    yield models.OrganizationFull, next(fetch(client, "/orgs/acme"))
    yield models.RateLimitOverview, next(fetch(client, "/rate_limit"))
    for login in ("acme", "dev-1", "dependabot[bot]"):
        yield models.PublicUser, next(fetch(client, f"/users/{login}"))
    for repository in fetch(client, "/orgs/acme/repos"):
        yield models.MinimalRepository, repository
        yield models.FullRepository, next(fetch(client, f"/repos/{repository['full_name']}"))
    for repository in fetch(client, "/user/repos"):
        yield models.Repository, repository
    yield from below(client, "acme/alto")
    yield from below(client, "acme/bass")


def deviations(model: type[BaseModel], payload: dict[str, Any]) -> Iterator[str]:
    """Name the fields of a payload that are not as described, list positions left out, and those not described."""
    described = {field.alias or name for name, field in model.model_fields.items()}
    yield from (f"{model.__name__}.{name} is not described" for name in payload.keys() - described)
    try:
        model.model_validate(payload)
    except ValidationError as error:
        for problem in error.errors():
            path = [str(part) for part in problem["loc"] if not isinstance(part, int)]
            yield ".".join([model.__name__, *path])


def test_every_payload_is_as_github_describes_it(server: SimulatedGitHub) -> None:
    """All fields of all kinds of objects fit the description, but where GitHub's own answers don't."""
    headers = {"authorization": "Bearer simulated-token", "x-github-api-version": "2022-11-28"}
    with httpx.Client(base_url=server.url, headers=headers) as client:
        found = list(everything(client))
    assert {text for model, payload in found for text in deviations(model, payload)} == KNOWN_DEVIATIONS
    kinds = {model.__name__ for model, _ in found}
    assert {"Job", "WorkflowRun", "PullRequest", "PullRequestSimple", "FullRepository"} <= kinds


@pytest.mark.parametrize("name", ["id", "run_attempt", "created_at", "repository"])
def test_a_missing_field_would_be_seen(server: SimulatedGitHub, name: str) -> None:
    """The comparison finds what is missing, wrong or made up."""
    with httpx.Client(base_url=server.url, headers={"authorization": "Bearer simulated-token"}) as client:
        run = next(fetch(client, "/repos/acme/alto/actions/runs", "workflow_runs"))
    missing = {key: value for key, value in run.items() if key != name}
    assert any(text.startswith(f"WorkflowRun.{name}") for text in deviations(models.WorkflowRun, {**run, name: {}}))
    assert "WorkflowRun.made_up is not described" in deviations(models.WorkflowRun, {**missing, "made_up": 1})
