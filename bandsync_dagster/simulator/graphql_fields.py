"""What each plain field of GraphQL is, by type: those that follow from the view itself.

Fields that take arguments or need the rest of the world are in `graphql_resolvers`.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any

from bandsync_dagster.simulator import records
from bandsync_dagster.simulator.graphql_views import (
    GITHUB_ACTIONS,
    CheckRun,
    CheckSuite,
    Commit,
    PullRequest,
    PullRequestReview,
    Ref,
    Workflow,
    WorkflowRun,
    graphql_login,
)
from bandsync_dagster.simulator.records import change_url, job_url, node_id, run_url

Getter = Callable[[Any], Any]

SITE = "https://github.com"
# Nobody may tell from GraphQL which commits these are; hashes are long enough to number them.
_HASH_DIGITS = 15


def _account_url(user: records.User) -> str:
    return f"{SITE}/{'apps/' if user.type == 'Bot' else ''}{graphql_login(user)}"


def _upper(value: str | None) -> str | None:
    """Return one of GraphQL's enum words; what REST leaves empty is null here."""
    return value.upper() if value else None


def upper(path: str) -> Getter:
    """Return a getter of the enum word at an attribute path."""
    get = attrgetter(path)
    return lambda view: _upper(get(view))


def _located(url: Getter) -> dict[str, Getter]:
    """Return the fields of `UniformResourceLocatable`."""
    return {"url": url, "resourcePath": lambda view: url(view).removeprefix(SITE)}


def _commit_id(commit: Commit) -> str:
    return node_id("C", int(commit.oid[:_HASH_DIGITS], 16))


def _change_url(view: PullRequest) -> str:
    return change_url(view.repository, view.change)


def _run_url(view: WorkflowRun | CheckSuite) -> str:
    return run_url(view.repository, view.run)


def _suite_url(view: CheckSuite) -> str:
    return f"{SITE}/{view.repository.full_name}/commit/{view.run.head_sha}/checks?check_suite_id={view.run.suite_id}"


def _check_run_url(view: CheckRun) -> str:
    return f"{SITE}/{view.repository.full_name}/runs/{view.job.id}"


def _review_url(view: PullRequestReview) -> str:
    return f"{_change_url(view.pull)}#pullrequestreview-{view.review.id}"


def _commit_url(view: Commit) -> str:
    return f"{SITE}/{view.repository.full_name}/commit/{view.oid}"


def _workflow_url(view: Workflow) -> str:
    return f"{SITE}/{view.repository.full_name}/actions/workflows/{view.workflow.path.rsplit('/', 1)[-1]}"


def _association(view: PullRequest) -> str:
    payload = view.change.payload or {}
    return payload.get("author_association", "NONE" if view.change.author is None else "CONTRIBUTOR")


def _merge_commit(view: PullRequest) -> Commit | None:
    change = view.change
    if change.merge_commit_sha is None:
        return None
    return Commit(change.merge_commit_sha, change.merged_at or change.updated_at, view.repository)


def _branch(view: CheckSuite) -> Ref | None:
    return None if view.run.head_branch is None else Ref(view.run.head_branch, view.repository)


def _creator(view: CheckSuite) -> records.User | None:
    actor = view.run.actor
    return actor if actor is not None and actor.type == "User" else None


def _step_time(name: str) -> Getter:
    def read(step: Mapping[str, Any]) -> datetime | None:
        return None if step.get(name) is None else datetime.fromisoformat(step[name].replace("Z", "+00:00"))

    return read


def _step_seconds(step: Mapping[str, Any]) -> int | None:
    began, ended = _step_time("started_at")(step), _step_time("completed_at")(step)
    return None if began is None or ended is None else (ended - began) // timedelta(seconds=1)


_ACTOR: dict[str, Getter] = {
    "avatarUrl": lambda user: f"https://avatars.githubusercontent.com/u/{user.id}?v=4",
    "databaseId": attrgetter("id"),
    "id": attrgetter("node_id"),
    "login": graphql_login,
    **_located(_account_url),
}

FIELDS: dict[str, dict[str, Getter]] = {
    "User": {**_ACTOR, "name": lambda _: None},
    "Organization": {**_ACTOR, "name": lambda _: None},
    "Bot": _ACTOR,
    "Mannequin": _ACTOR,
    "Repository": {
        "archivedAt": lambda repository: repository.updated_at if repository.archived else None,
        "createdAt": attrgetter("created_at"),
        "databaseId": attrgetter("id"),
        "defaultBranchRef": lambda r: None if r.pushed_at is None else Ref(r.default_branch, r),
        "description": lambda _: None,
        "id": attrgetter("node_id"),
        "isArchived": attrgetter("archived"),
        "isDisabled": attrgetter("disabled"),
        "isEmpty": lambda repository: repository.pushed_at is None,
        "isFork": attrgetter("fork"),
        "isLocked": lambda _: False,
        "isPrivate": attrgetter("private"),
        "name": attrgetter("name"),
        "nameWithOwner": attrgetter("full_name"),
        "owner": attrgetter("owner"),
        "pushedAt": attrgetter("pushed_at"),
        "updatedAt": attrgetter("updated_at"),
        "visibility": upper("visibility"),
        **_located(lambda repository: f"{SITE}/{repository.full_name}"),
    },
    "Ref": {
        "id": lambda ref: node_id("REF", ref.repository.id),
        "name": attrgetter("name"),
        "prefix": lambda _: "refs/heads/",
        "repository": attrgetter("repository"),
    },
    "PullRequest": {
        "additions": attrgetter("change.additions"),
        "author": attrgetter("change.author"),
        "authorAssociation": _association,
        "baseRefName": attrgetter("change.base_ref"),
        "baseRefOid": attrgetter("change.base_sha"),
        "baseRepository": attrgetter("repository"),
        "body": lambda view: view.change.body or "",
        "bodyText": lambda view: view.change.body or "",
        "changedFiles": attrgetter("change.changed_files"),
        "closed": lambda view: view.change.state != "open",
        "closedAt": attrgetter("change.closed_at"),
        "createdAt": attrgetter("change.created_at"),
        "deletions": attrgetter("change.deletions"),
        "fullDatabaseId": attrgetter("change.id"),
        "headRefName": attrgetter("change.head_ref"),
        "headRefOid": attrgetter("change.head_sha"),
        "id": attrgetter("change.node_id"),
        "isCrossRepository": lambda view: view.change.head_repository_id != view.repository.id,
        "isDraft": attrgetter("change.draft"),
        "locked": lambda view: (view.change.payload or {}).get("locked", False),
        "mergeCommit": _merge_commit,
        "mergeable": lambda _: "UNKNOWN",
        "merged": lambda view: view.change.state == "merged",
        "mergedAt": attrgetter("change.merged_at"),
        "mergedBy": attrgetter("change.merged_by"),
        "number": attrgetter("change.number"),
        "permalink": _change_url,
        "publishedAt": attrgetter("change.created_at"),
        "repository": attrgetter("repository"),
        "reviewDecision": upper("change.review_decision"),
        "state": upper("change.state"),
        "title": attrgetter("change.title"),
        "totalCommentsCount": attrgetter("change.comments"),
        "updatedAt": attrgetter("change.updated_at"),
        **_located(_change_url),
    },
    "PullRequestCommit": {
        "commit": attrgetter("commit"),
        "id": lambda view: _commit_id(view.commit),
        "pullRequest": attrgetter("pull"),
        **_located(lambda view: f"{_change_url(view.pull)}/commits/{view.commit.oid}"),
    },
    "Commit": {
        "abbreviatedOid": lambda commit: commit.oid[:7],
        "authoredDate": attrgetter("date"),
        "committedDate": attrgetter("date"),
        "id": _commit_id,
        "oid": attrgetter("oid"),
        "repository": attrgetter("repository"),
        **_located(_commit_url),
    },
    "Label": {
        "color": attrgetter("label.color"),
        "id": attrgetter("label.node_id"),
        "isDefault": lambda _: False,
        "name": attrgetter("label.name"),
        "repository": attrgetter("repository"),
    },
    "PullRequestReview": {
        "author": attrgetter("review.author"),
        "createdAt": lambda view: view.review.submitted_at or view.pull.change.updated_at,
        "fullDatabaseId": attrgetter("review.id"),
        "id": attrgetter("review.node_id"),
        "pullRequest": attrgetter("pull"),
        "repository": attrgetter("pull.repository"),
        "state": upper("review.state"),
        "submittedAt": attrgetter("review.submitted_at"),
        "updatedAt": lambda view: view.review.submitted_at or view.pull.change.updated_at,
        **_located(_review_url),
    },
    "Workflow": {
        "createdAt": attrgetter("repository.created_at"),
        "databaseId": attrgetter("workflow.id"),
        "id": attrgetter("workflow.node_id"),
        "name": attrgetter("workflow.name"),
        "state": lambda _: "ACTIVE",
        "updatedAt": attrgetter("repository.created_at"),
        **_located(_workflow_url),
    },
    "WorkflowRun": {
        "checkSuite": lambda view: CheckSuite(view.run, view.repository),
        "createdAt": attrgetter("run.created_at"),
        "databaseId": attrgetter("run.id"),
        "event": attrgetter("run.event"),
        "id": attrgetter("run.node_id"),
        "runNumber": attrgetter("run.run_number"),
        "updatedAt": attrgetter("run.attempt.updated_at"),
        "workflow": lambda view: Workflow(view.run.workflow, view.repository),
        **_located(_run_url),
    },
    "App": {
        "databaseId": attrgetter("id"),
        "id": attrgetter("node_id"),
        "name": attrgetter("name"),
        "slug": attrgetter("slug"),
    },
    "CheckSuite": {
        "app": lambda _: GITHUB_ACTIONS,
        "branch": _branch,
        "commit": lambda view: Commit(view.run.head_sha, view.run.created_at, view.repository),
        "conclusion": upper("run.attempt.conclusion"),
        "createdAt": attrgetter("run.created_at"),
        "creator": _creator,
        "databaseId": attrgetter("run.suite_id"),
        "id": attrgetter("run.suite_node_id"),
        "repository": attrgetter("repository"),
        "status": upper("run.attempt.status"),
        "updatedAt": attrgetter("run.attempt.updated_at"),
        "workflowRun": lambda view: WorkflowRun(view.run, view.repository),
        **_located(_suite_url),
    },
    "CheckRun": {
        "checkSuite": lambda view: CheckSuite(view.run, view.repository),
        "completedAt": attrgetter("job.completed_at"),
        "conclusion": upper("job.conclusion"),
        "databaseId": attrgetter("job.id"),
        "detailsUrl": lambda view: job_url(view.repository, view.job),
        "externalId": lambda _: "",
        "id": attrgetter("job.node_id"),
        "name": attrgetter("job.name"),
        "permalink": _check_run_url,
        "repository": attrgetter("repository"),
        "startedAt": attrgetter("job.started_at"),
        "status": upper("job.status"),
        **_located(_check_run_url),
    },
    "CheckStep": {
        "completedAt": _step_time("completed_at"),
        "conclusion": lambda step: _upper(step["conclusion"]),
        "externalId": lambda _: None,
        "name": lambda step: step["name"],
        "number": lambda step: step["number"],
        "secondsToCompletion": _step_seconds,
        "startedAt": _step_time("started_at"),
        "status": lambda step: _upper(step["status"]),
    },
    "IssueCommentConnection": {"totalCount": attrgetter("change.comments")},
    "PageInfo": {
        "endCursor": attrgetter("end_cursor"),
        "hasNextPage": attrgetter("has_next"),
        "hasPreviousPage": attrgetter("has_previous"),
        "startCursor": attrgetter("start_cursor"),
    },
    "RateLimit": {
        "cost": attrgetter("cost.points"),
        "limit": attrgetter("rate.limit"),
        "nodeCount": attrgetter("cost.nodes"),
        "remaining": attrgetter("rate.remaining"),
        "resetAt": attrgetter("rate.reset_at"),
        "used": attrgetter("rate.used"),
    },
}

CONNECTION_FIELDS: dict[str, Getter] = {
    "edges": attrgetter("edges"),
    "nodes": attrgetter("nodes"),
    "pageInfo": lambda page: page,
    "totalCount": attrgetter("total"),
}
EDGE_FIELDS: dict[str, Getter] = {"cursor": attrgetter("cursor"), "node": attrgetter("node")}
