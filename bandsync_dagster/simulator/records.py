"""What a GitHub consists of: plain, mutable records and how their node ids are spelled. No behaviour, no protocol.

Logins are spelled as REST spells them (`dependabot[bot]`). Statuses and conclusions are REST's lower-case words.
"""

import base64
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


def node_id(prefix: str, number: int) -> str:
    """Return the global node id of a record: a prefix that tells the type, and the number, unreadable."""
    packed = base64.urlsafe_b64encode(number.to_bytes(8, "big")).decode().rstrip("=")
    return f"{prefix}_kwDO{packed}"


@dataclass(slots=True, eq=False)
class User:
    """An account. `type` is what GraphQL calls `__typename`: User, Bot, Organization or Mannequin."""

    id: int
    node_id: str
    login: str
    type: str


@dataclass(slots=True, eq=False)
class Label:
    """A label of a repository."""

    id: int
    node_id: str
    name: str
    color: str


@dataclass(slots=True, eq=False)
class Review:
    """A review of a change. `submitted_at` is None while it is pending."""

    id: int
    node_id: str
    author: User | None
    state: str
    submitted_at: datetime | None


@dataclass(slots=True, eq=False)
class Change:
    """A pull request. `state` is open, closed or merged.

    `reviews` is None where GitHub refuses the connection (it is nullable). `payload` is the recorded REST item, if
    the change was recorded and not generated.
    """

    id: int
    node_id: str
    number: int
    repository_id: int
    title: str
    body: str | None
    state: str
    draft: bool
    author: User | None
    base_ref: str
    base_sha: str
    head_ref: str
    head_sha: str
    head_repository_id: int | None
    additions: int
    deletions: int
    changed_files: int
    commits: int
    comments: int
    review_decision: str | None
    reviews: list[Review] | None
    first_commit_at: datetime | None
    labels: list[Label]
    created_at: datetime
    updated_at: datetime
    closed_at: datetime | None
    merged_at: datetime | None
    merge_commit_sha: str | None
    merged_by: User | None
    payload: dict[str, Any] | None = None


@dataclass(slots=True, eq=False)
class Job:
    """A job, which is also a check run with the same id.

    `copy_of` is the id of the job that really ran, when a partial re-run only carried it over. `steps` is None where
    the usual ones are made up on demand from the job's own times.
    """

    id: int
    node_id: str
    run_id: int
    run_attempt: int
    name: str
    status: str
    conclusion: str | None
    created_at: datetime | None
    started_at: datetime | None
    completed_at: datetime | None
    labels: list[str]
    runner_id: int | None
    runner_name: str | None
    runner_group_id: int | None
    runner_group_name: str | None
    steps: list[dict[str, Any]] | None = None
    copy_of: int | None = None
    payload: dict[str, Any] | None = None


@dataclass(slots=True, eq=False)
class Attempt:
    """One attempt of a run. The last one is what GitHub lists."""

    number: int
    status: str
    conclusion: str | None
    run_started_at: datetime
    updated_at: datetime
    triggering_actor: User | None
    jobs: list[Job] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Workflow:
    """A workflow file of a repository."""

    id: int
    node_id: str
    name: str
    path: str


@dataclass(slots=True, eq=False)
class Run:
    """A workflow run and its check suite. It keeps its id and `created_at` whatever is run again."""

    id: int
    node_id: str
    repository_id: int
    suite_id: int
    suite_node_id: str
    workflow: Workflow
    name: str | None
    display_title: str | None
    run_number: int
    event: str
    head_branch: str | None
    head_sha: str
    head_repository_id: int | None
    actor: User | None
    created_at: datetime
    attempts: list[Attempt]
    payload: dict[str, Any] | None = None

    @property
    def attempt(self) -> Attempt:
        """The latest attempt."""
        return self.attempts[-1]

    @property
    def jobs(self) -> list[Job]:
        """The jobs of all attempts, oldest attempt first."""
        return [job for attempt in self.attempts for job in attempt.jobs]


@dataclass(slots=True, eq=False)
class Repository:
    """A repository, its access and its content.

    `blocked` is the reason GitHub gives (`dmca`: 451, `tos`: 403). `actions` is how the Actions endpoints answer:
    `enabled`, or where Actions are disabled with no runs (`empty`), 404 (`missing`) or 403 (`refused`).
    """

    id: int
    node_id: str
    owner: User
    name: str
    created_at: datetime
    updated_at: datetime
    pushed_at: datetime | None
    private: bool = False
    visibility: str = "public"
    archived: bool = False
    disabled: bool = False
    fork: bool = False
    has_pull_requests: bool = True
    default_branch: str = "main"
    size: int = 0
    gone: bool = False
    blocked: str | None = None
    saml: bool = False
    actions: str = "enabled"
    labels: list[Label] = field(default_factory=list)
    workflows: list[Workflow] = field(default_factory=list)
    # By creation and by update, oldest first, and by number; the world keeps the three in step.
    changes: list[Change] = field(default_factory=list)
    changes_by_update: list[Change] = field(default_factory=list)
    changes_by_number: dict[int, Change] = field(default_factory=dict)
    # By creation, oldest first.
    runs: list[Run] = field(default_factory=list)

    @property
    def full_name(self) -> str:
        """`owner/name`, as GitHub spells it now."""
        return f"{self.owner.login}/{self.name}"

    @property
    def readable(self) -> bool:
        """Whether its content can be read at all."""
        return not (self.gone or self.blocked or self.saml)

    def runs_created(self, since: datetime | None, until: datetime | None) -> tuple[int, int]:
        """Return the slice of `runs` created in the interval, both ends included."""
        start = 0 if since is None else bisect_left(self.runs, since, key=lambda run: run.created_at)
        stop = len(self.runs) if until is None else bisect_right(self.runs, until, key=lambda run: run.created_at)
        return start, max(start, stop)


def created_order(record: Change | Run) -> tuple[datetime, int]:
    """Sort key of lists by creation; times have a resolution of one second, so the id decides ties."""
    return record.created_at, record.id


def updated_order(change: Change) -> tuple[datetime, int]:
    """Sort key of lists by update."""
    return change.updated_at, change.id


def change_url(repository: Repository, change: Change) -> str:
    """Return the page of a change, under the repository's present name."""
    if change.payload is not None:
        return change.payload["html_url"]
    return f"https://github.com/{repository.full_name}/pull/{change.number}"


def run_url(repository: Repository, run: Run) -> str:
    """Return the page of a run, under the repository's present name."""
    if run.payload is not None:
        return run.payload["html_url"]
    return f"https://github.com/{repository.full_name}/actions/runs/{run.id}"


def job_url(repository: Repository, job: Job) -> str:
    """Return the page of a job: REST's `html_url`, GraphQL's `detailsUrl`."""
    if job.payload is not None:
        return job.payload["html_url"]
    return f"https://github.com/{repository.full_name}/actions/runs/{job.run_id}/job/{job.id}"
