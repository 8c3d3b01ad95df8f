"""The REST endpoints bandsync uses, each as one function from a client to rows. Every field is checked, none changed.

Fields and nullability: GitHub's OpenAPI description, and where real answers are looser, those.
"""

import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Literal

from bandsync_dagster.github.client import GitHubClient, RestAnswer
from bandsync_dagster.github.errors import NotFound, PayloadError
from bandsync_dagster.github.models import Job, Repository, Verification
from bandsync_dagster.github.payload import Fields
from bandsync_dagster.github.quota import QuotaReading, local_time

OwnerKind = Literal["org", "user"]
Etag = Callable[[str], str | None]

PAGE_SIZE = 100
# GitHub changelog, 2026-09-25: a filtered count is reported as "2,500+" beyond that; unfiltered ones stop at 40,000.
_EXACT_FILTERED = 2_500
_EXACT_UNFILTERED = 40_000


@dataclass(frozen=True, slots=True)
class RunPage:
    """One page of workflow runs, newest first.

    Attributes:
        total: How many runs match.
        exact: Whether `total` is that number, and not a lower bound.
        next: The URL of the next page, if GitHub gives one.
        etag: To ask "anything new?" with the token of this `fingerprint`.
        modified: False if nothing is new since the given ETag; then the page is empty and `total` 0.
        repository_id: Which repository the runs belong to by their own account; None if there are none.
    """

    verifications: list[Verification]
    total: int
    exact: bool
    next: str | None
    etag: str | None
    fingerprint: str
    modified: bool
    repository_id: int | None = None


@dataclass(frozen=True, slots=True)
class JobPage:
    """One page of the jobs of a workflow run, all attempts."""

    jobs: list[Job]
    total: int
    next: str | None


async def fetch_repository(client: GitHubClient, full_name: str) -> Repository:
    """Return a repository; a renamed one by its new name, so compare `full_name`."""
    answer = await client.get(_repository_path(full_name))
    return parse_repository(Fields(answer.endpoint, "", answer.data))


async def fetch_owner_kind(client: GitHubClient, name: str) -> OwnerKind:
    """Return whether a login is an organisation or a user."""
    answer = await client.get(f"/users/{_segment(name)}")
    return "org" if Fields(answer.endpoint, "", answer.data).text("type") == "Organization" else "user"


async def iterate_repositories(client: GitHubClient, kind: OwnerKind, name: str) -> AsyncIterator[list[Repository]]:
    """Yield the repositories of an owner, page by page, oldest first: new ones only ever append."""
    owner = _segment(name)
    url = f"/orgs/{owner}/repos" if kind == "org" else f"/users/{owner}/repos"
    params: dict[str, str | int] | None = {
        "type": "all" if kind == "org" else "owner",
        "sort": "created",
        "direction": "asc",
        "per_page": PAGE_SIZE,
    }
    seen: set[str] = set()
    while url:
        answer = await client.get(url, params)
        if url in seen:
            raise PayloadError(answer.endpoint, "Link", "leads back to a page that was read before")
        seen.add(url)
        whole = Fields(answer.endpoint, "", {"repositories": answer.data})
        yield [parse_repository(item) for item in whole.objects("repositories")]
        url, params = answer.links.get("next", ""), None


async def fetch_rate_limit(client: GitHubClient) -> dict[str, QuotaReading]:
    """Return what is left in each bucket, for the one token it is asked with; empty where there are no limits."""
    try:
        answer = await client.get("/rate_limit", cost=0)
    except NotFound:
        # GitHub Enterprise Server docs: 404 "Rate limiting is not enabled."
        return {}
    resources = Fields(answer.endpoint, "", answer.data).fields("resources")
    readings = [
        _reading(resources.fields(name), name, client.clock()) for name in ("core", "graphql") if name in resources
    ]
    return {reading.bucket: reading for reading in readings if reading.limit > 0}


async def fetch_runs(
    client: GitHubClient,
    full_name: str,
    *,
    repository_id: int,
    created: tuple[datetime | None, datetime | None] | None = None,
    per_page: int = PAGE_SIZE,
    page: int = 1,
    etag: Etag | None = None,
) -> RunPage:
    """Return a page of workflow runs, newest first by creation.

    Args:
        client: Asks GitHub.
        full_name: The repository.
        repository_id: Its id, for the rows.
        created: The first and the last second of creation, both included; None leaves a side open.
        per_page: At most 100.
        page: From 1. Filtered, GitHub returns at most 1,000 runs and then empty pages without a word.
        etag: Returns the ETag known for the token of a fingerprint.

    Raises:
        RequestRefused: Status 422, beyond 40,000 runs.
    """
    params: dict[str, str | int] = {"per_page": per_page, "page": page, "exclude_pull_requests": "true"}
    if created is not None:
        params["created"] = created_filter(*created)
    answer = await client.get(f"{_repository_path(full_name)}/actions/runs", params, etag=etag)
    if answer.data is None:
        return RunPage([], 0, exact=False, next=None, etag=answer.etag, fingerprint=answer.fingerprint, modified=False)
    return _run_page(answer, repository_id, _EXACT_UNFILTERED if created is None else _EXACT_FILTERED)


async def fetch_run(client: GitHubClient, full_name: str, run_id: int, *, repository_id: int) -> Verification:
    """Return one workflow run at its latest attempt."""
    answer = await client.get(f"{_repository_path(full_name)}/actions/runs/{run_id}", {"exclude_pull_requests": "true"})
    return parse_verification(Fields(answer.endpoint, "", answer.data), repository_id)


async def fetch_jobs(
    client: GitHubClient,
    full_name: str,
    run_id: int,
    *,
    repository_id: int,
    full: bool,
    per_page: int = PAGE_SIZE,
    page: int = 1,
) -> JobPage:
    """Return a page of the jobs of a workflow run, of all its attempts.

    Args:
        client: Asks GitHub.
        full_name: The repository.
        run_id: The workflow run.
        repository_id: The repository's id, for the rows.
        full: Whether to keep the steps.
        per_page: At most 100; GitHub fails at 100 for some large runs where 30 works.
        page: From 1.
    """
    params: dict[str, str | int] = {"filter": "all", "per_page": per_page, "page": page}
    answer = await client.get(f"{_repository_path(full_name)}/actions/runs/{run_id}/jobs", params)
    whole = Fields(answer.endpoint, "", answer.data)
    jobs = [parse_job(item, repository_id, run_id, full=full) for item in whole.objects("jobs")]
    return JobPage(jobs, whole.integer("total_count"), answer.links.get("next"))


def created_filter(first: datetime | None, last: datetime | None) -> str:
    """Return a range in GitHub's search syntax (GitHub docs, "Understanding the search syntax")."""
    return f"{_moment(first)}..{_moment(last)}"


def parse_repository(item: Fields) -> Repository:
    """Read a full or minimal repository; the minimal one may leave out what is False here."""
    return Repository(
        id=item.integer("id"),
        node_id=item.text("node_id"),
        full_name=item.full_name("full_name"),
        private=item.boolean("private"),
        visibility=item.optional_text("visibility"),
        archived=item.optional_boolean("archived") or False,
        disabled=item.optional_boolean("disabled") or False,
        fork=item.boolean("fork"),
        default_branch=item.optional_text("default_branch"),
        created_at=item.optional_time("created_at"),
        pushed_at=item.optional_time("pushed_at"),
        has_pull_requests=item.optional_boolean("has_pull_requests"),
    )


def parse_verification(item: Fields, repository_id: int) -> Verification:
    """Read a workflow run."""
    actor = item.optional_fields("actor")
    triggering_actor = item.optional_fields("triggering_actor")
    head = item.optional_fields("head_repository")
    return Verification(
        id=item.integer("id"),
        repository_id=repository_id,
        node_id=item.text("node_id"),
        name=item.optional_text("name"),
        display_title=item.optional_text("display_title"),
        path=item.optional_text("path"),
        run_number=item.integer("run_number"),
        run_attempt=item.integer("run_attempt") if "run_attempt" in item else 1,
        event=item.text("event"),
        status=_lower(item.optional_text("status")),
        conclusion=_lower(item.optional_text("conclusion")),
        workflow_id=item.integer("workflow_id"),
        check_suite_id=item.optional_integer("check_suite_id"),
        check_suite_node_id=item.optional_text("check_suite_node_id"),
        head_branch=item.optional_text("head_branch"),
        head_sha=item.text("head_sha"),
        actor_login=actor.text("login") if actor else None,
        actor_id=actor.integer("id") if actor else None,
        actor_type=actor.text("type") if actor else None,
        actor_is_bot=actor.text("type") == "Bot" if actor else None,
        triggering_actor_login=triggering_actor.text("login") if triggering_actor else None,
        triggering_actor_id=triggering_actor.integer("id") if triggering_actor else None,
        head_repository_id=head.integer("id") if head else None,
        created_at=item.time("created_at"),
        updated_at=item.time("updated_at"),
        run_started_at=item.optional_time("run_started_at"),
        html_url=item.text("html_url"),
    )


def parse_job(item: Fields, repository_id: int, run_id: int, *, full: bool) -> Job:
    """Read a job of the workflow run `run_id`."""
    if item.integer("run_id") != run_id:
        item.fail("run_id", f"should be {run_id}, the run that was asked for")
    steps = item.objects("steps") if full and "steps" in item else None
    return Job(
        id=item.integer("id"),
        repository_id=repository_id,
        verification_id=run_id,
        run_attempt=item.integer("run_attempt") if "run_attempt" in item else 1,
        node_id=item.optional_text("node_id"),
        name=item.text("name"),
        status=item.text("status").lower(),
        conclusion=_lower(item.optional_text("conclusion")),
        created_at=item.optional_time("created_at"),
        started_at=item.optional_time("started_at"),
        completed_at=item.optional_time("completed_at"),
        html_url=item.optional_text("html_url"),
        labels=item.optional_texts("labels"),
        runner_id=item.optional_integer("runner_id"),
        runner_name=item.optional_text("runner_name"),
        runner_group_id=item.optional_integer("runner_group_id"),
        runner_group_name=item.optional_text("runner_group_name"),
        steps=None if steps is None else [_step(step) for step in steps],
    )


def _step(step: Fields) -> dict[str, Any]:
    """Read a step; its times carry the runner's own offset, and become UTC."""
    return {
        "number": step.integer("number"),
        "name": step.text("name"),
        "status": step.text("status").lower(),
        "conclusion": _lower(step.optional_text("conclusion")),
        "started_at": _iso(step.optional_time("started_at")),
        "completed_at": _iso(step.optional_time("completed_at")),
    }


def _run_page(answer: RestAnswer, repository_id: int, exact_below: int) -> RunPage:
    whole = Fields(answer.endpoint, "", answer.data)
    runs = whole.objects("workflow_runs")
    total = whole.integer("total_count")
    owners = [run.fields("repository").integer("id") for run in runs if "repository" in run]
    return RunPage(
        verifications=[parse_verification(run, repository_id) for run in runs],
        total=total,
        exact=total < exact_below,
        next=answer.links.get("next"),
        etag=answer.etag,
        fingerprint=answer.fingerprint,
        modified=True,
        repository_id=owners[0] if owners else None,
    )


def _reading(item: Fields, bucket: str, now: datetime) -> QuotaReading:
    reset_at = local_time(item.integer("reset"), {}, now=now)
    return QuotaReading(bucket, item.integer("limit"), item.integer("remaining"), reset_at)


def _repository_path(full_name: str) -> str:
    owner, slash, name = full_name.partition("/")
    if not slash:
        raise ValueError(f"{full_name!r} is not owner/name")
    return f"/repos/{_segment(owner)}/{_segment(name)}"


def _segment(text: str) -> str:
    """Return a name as it can stand in a path; names of GitHub's need no escaping, others must not change the path."""
    if text in (".", "..") or not re.fullmatch(r"[A-Za-z0-9._-]+", text):
        raise ValueError(f"{text!r} is not a name GitHub allows")
    return text


def _moment(moment: datetime | None) -> str:
    return "*" if moment is None else f"{moment.astimezone(timezone.utc):%Y-%m-%dT%H:%M:%SZ}"


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat().replace("+00:00", "Z")


def _lower(text: str | None) -> str | None:
    return None if text is None else text.lower()
