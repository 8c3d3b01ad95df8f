"""What GitHub's answers become: one frozen class per thing collected. Only shapes; parsing lives beside each protocol.

Field names are the column names of the store. Times are aware datetimes in UTC. Statuses and conclusions are
lower-case text, never enums: GitHub adds values without notice.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository. `id` is its identity: names change and are used again."""

    id: int
    node_id: str
    full_name: str
    private: bool
    visibility: str | None
    archived: bool
    disabled: bool
    fork: bool
    default_branch: str | None
    created_at: datetime | None
    pushed_at: datetime | None
    has_pull_requests: bool | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A pull request. `state` is `open`, `closed` or `merged`."""

    id: int
    repository_id: int
    node_id: str
    number: int
    title: str
    state: str
    draft: bool
    author_login: str | None
    author_id: int | None
    author_type: str | None
    author_is_bot: bool | None
    base_ref: str
    base_sha: str
    head_ref: str
    head_sha: str
    additions: int
    deletions: int
    changed_files: int
    commits: int
    comments: int
    reviews: int | None
    review_decision: str | None
    first_review_at: datetime | None
    first_commit_at: datetime | None
    labels: list[str]
    created_at: datetime
    updated_at: datetime
    closed_at: datetime | None
    merged_at: datetime | None
    merge_commit_sha: str | None
    merged_by_login: str | None
    merged_by_id: int | None
    html_url: str


@dataclass(frozen=True, slots=True)
class Verification:
    """A workflow run at its latest attempt."""

    id: int
    repository_id: int
    node_id: str
    name: str | None
    display_title: str | None
    path: str | None
    run_number: int
    run_attempt: int
    event: str
    status: str | None
    conclusion: str | None
    workflow_id: int
    check_suite_id: int | None
    check_suite_node_id: str | None
    head_branch: str | None
    head_sha: str
    actor_login: str | None
    actor_id: int | None
    actor_type: str | None
    actor_is_bot: bool | None
    triggering_actor_login: str | None
    triggering_actor_id: int | None
    head_repository_id: int | None
    created_at: datetime
    updated_at: datetime
    run_started_at: datetime | None
    html_url: str


@dataclass(frozen=True, slots=True)
class Job:
    """A job of a workflow run.

    `created_at`, `labels` and `runner_*` are known to REST only; they are None when the job came by GraphQL.
    `steps` is None unless the detail is `full`. `copy_of` is the id of the job this one repeats without having run
    again, after a partial re-run.
    """

    id: int
    repository_id: int
    verification_id: int
    run_attempt: int
    node_id: str | None
    name: str
    status: str
    conclusion: str | None
    created_at: datetime | None
    started_at: datetime | None
    completed_at: datetime | None
    html_url: str | None
    labels: list[str] | None = None
    runner_id: int | None = None
    runner_name: str | None = None
    runner_group_id: int | None = None
    runner_group_name: str | None = None
    steps: list[dict[str, Any]] | None = field(default=None)
    copy_of: int | None = None
