"""The GraphQL queries bandsync asks, each as one function from a client to rows.

A null where an item was asked for, and an item that an error points into, is a gap: it is counted or None, never
passed over, and never stored with parts of it missing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bandsync_dagster.github.client import GitHubClient, GraphQLAnswer
from bandsync_dagster.github.documents import ACTIVITY, CHANGES_BACKWARD, CHANGES_FORWARD, DOCUMENTS, SUITES
from bandsync_dagster.github.errors import Forbidden
from bandsync_dagster.github.models import Change, Job
from bandsync_dagster.github.payload import Fields

__all__ = [
    "DOCUMENTS",
    "MOST_ITEMS",
    "Activity",
    "ChangePage",
    "SuiteJobs",
    "fetch_activity",
    "fetch_changes",
    "fetch_suite",
    "fetch_suites",
    "parse_change",
    "parse_check_run",
]

# GitHub docs: at most 100 ids in one `nodes`, and 100 items in one connection.
MOST_ITEMS = 100

# Labels, commits and reviews of each pull request.
_CONNECTIONS_PER_CHANGE = 3


@dataclass(frozen=True, slots=True)
class ChangePage:
    """A page of the pull requests of a repository in the order of their last update.

    Attributes:
        repository_id: Which repository answered: GitHub follows renames without a word, and names are used again.
        total: How many pull requests the repository has.
        changes: Oldest update first, also when paging backward.
        cursors: One for each change: where it stands in the feed.
        missing: How many items are gaps.
    """

    repository_id: int
    node_id: str
    full_name: str
    total: int
    changes: list[Change]
    cursors: list[str]
    has_next: bool
    has_previous: bool
    start_cursor: str | None
    end_cursor: str | None
    missing: int


@dataclass(frozen=True, slots=True)
class SuiteJobs:
    """The jobs of a workflow run's check suite; `end_cursor` is set when there are more."""

    verification_id: int
    suite_node_id: str
    status: str
    total: int
    jobs: list[Job]
    end_cursor: str | None


@dataclass(frozen=True, slots=True)
class Activity:
    """When something last happened in a repository, and how many pull requests it has."""

    repository_id: int
    node_id: str
    full_name: str
    archived: bool
    pushed_at: datetime | None
    changes: int
    change_updated_at: datetime | None


async def fetch_changes(
    client: GitHubClient,
    full_name: str,
    *,
    first: int | None = None,
    after: str | None = None,
    last: int | None = None,
    before: str | None = None,
) -> ChangePage:
    """Return a page of pull requests: `first` items after a cursor, or the `last` before one.

    Raises:
        QueryTooLarge: GitHub gave up; ask for fewer. With a size of 1 it is raised after retries.
        RequestRefused: Among others, GitHub does not know the cursor.
        NotFound: There is no such repository, or the token may not see it.
    """
    size = first if first is not None else last
    if size is None or (first is not None and last is not None):
        raise ValueError("give either first or last")
    owner, _, name = full_name.partition("/")
    variables = {"owner": owner, "name": name, "size": size, "cursor": after if first is not None else before}
    answer = await client.query(
        CHANGES_FORWARD if first is not None else CHANGES_BACKWARD,
        variables,
        cost=max(round((1 + _CONNECTIONS_PER_CHANGE * size) / 100), 1),
        name=f"pull requests of {full_name}",
        divisible=size > 1,
    )
    return _change_page(answer)


async def fetch_suites(
    client: GitHubClient, suites: Mapping[str, int], *, repository_id: int, full_name: str = "", size: int = MOST_ITEMS
) -> list[SuiteJobs | None]:
    """Return the jobs of many workflow runs for one point.

    Args:
        client: Asks GitHub.
        suites: At most 100 node ids of check suites, each with the id of its workflow run.
        repository_id: The repository's id, for the rows.
        full_name: Its name, for errors.
        size: How many jobs of each run to ask for, at most 100.

    Returns:
        One entry for each suite, in the order given; None is a gap.

    Raises:
        QueryTooLarge: GitHub gave up; ask for fewer suites, or fewer jobs of one.
    """
    name = " of ".join(filter(None, ("jobs of check suites", full_name)))
    answer = await _fetch_nodes(client, SUITES, list(suites), {"size": size, "cursor": None}, name)
    nodes = _nodes(answer, len(suites), "CheckSuite")
    owners = suites.items()
    return [
        None if node is None else _suite_jobs(node, node_id, run_id, repository_id)
        for (node_id, run_id), node in zip(owners, nodes, strict=True)
    ]


async def fetch_suite(
    client: GitHubClient,
    node_id: str,
    verification_id: int,
    *,
    repository_id: int,
    full_name: str = "",
    after: str | None = None,
    size: int = MOST_ITEMS,
) -> SuiteJobs | None:
    """Return the next page of the jobs of one workflow run, or None for a gap."""
    variables = {"size": size, "cursor": after}
    name = " of ".join(filter(None, (f"jobs of run {verification_id}", full_name)))
    answer = await _fetch_nodes(client, SUITES, [node_id], variables, name)
    node = _nodes(answer, 1, "CheckSuite")[0]
    return None if node is None else _suite_jobs(node, node_id, verification_id, repository_id)


async def fetch_activity(client: GitHubClient, node_ids: Sequence[str]) -> list[Activity | None]:
    """Return the activity of at most 100 repositories for one point, in the order given; None is a gap."""
    answer = await _fetch_nodes(client, ACTIVITY, node_ids, {}, "activity of repositories")
    nodes = _nodes(answer, len(node_ids), "Repository")
    return [None if node is None else _activity(node) for node in nodes]


async def _fetch_nodes(
    client: GitHubClient, document: str, ids: Sequence[str], variables: Mapping[str, Any], name: str
) -> GraphQLAnswer:
    if not 0 < len(ids) <= MOST_ITEMS:
        raise ValueError(f"GitHub takes 1 to {MOST_ITEMS} ids at once, not {len(ids)}")
    divisible = len(ids) > 1 or variables.get("size", 1) > 1
    return await client.query(document, {"ids": list(ids), **variables}, name=name, divisible=divisible)


def _nodes(answer: GraphQLAnswer, count: int, kind: str) -> list[Fields | None]:
    """Return the items of `nodes` in order; gaps are None, and so is what is missing at the end."""
    values = answer.data.items("nodes")
    if len(values) > count:
        answer.data.fail("nodes", f"has {len(values)} items where {count} were asked for")
    broken = _faulty(answer, ("nodes",))
    nodes: list[Fields | None] = [None] * count
    for index, value in enumerate(values):
        if value is not None and index not in broken:
            node = Fields(answer.endpoint, f"data.nodes[{index}]", value)
            nodes[index] = node if node.text("__typename") == kind else None
    _raise_if_all_forbidden(answer, sum(node is not None for node in nodes))
    return nodes


def _faulty(answer: GraphQLAnswer, prefix: tuple[str, ...]) -> set[str | int]:
    """Return which items below a path an error points into."""
    depth = len(prefix)
    return {fault.path[depth] for fault in answer.errors if fault.path[:depth] == prefix and len(fault.path) > depth}


def _raise_if_all_forbidden(answer: GraphQLAnswer, good: int) -> None:
    """A page of which nothing may be read is no page of gaps: somebody has to grant something."""
    forbidden = [fault.message for fault in answer.errors if fault.type in ("FORBIDDEN", "INSUFFICIENT_SCOPES")]
    if forbidden and not good:
        raise Forbidden(f"{answer.endpoint}: {forbidden[0]}")


def _change_page(answer: GraphQLAnswer) -> ChangePage:
    repository = answer.data.fields("repository")
    feed = repository.fields("pullRequests")
    info = feed.fields("pageInfo")
    repository_id = repository.integer("databaseId")
    edges = _sound_edges(answer, feed)
    return ChangePage(
        repository_id=repository_id,
        node_id=repository.text("id"),
        full_name=repository.full_name("nameWithOwner"),
        total=feed.integer("totalCount"),
        changes=[parse_change(edge.fields("node"), repository_id) for edge in edges],
        cursors=[edge.text("cursor") for edge in edges],
        has_next=info.boolean("hasNextPage"),
        has_previous=info.boolean("hasPreviousPage"),
        start_cursor=info.optional_text("startCursor"),
        end_cursor=info.optional_text("endCursor"),
        missing=len(feed.items("edges")) - len(edges),
    )


def _sound_edges(answer: GraphQLAnswer, feed: Fields) -> list[Fields]:
    broken = _faulty(answer, ("repository", "pullRequests", "edges"))
    edges = [
        Fields(feed.endpoint, f"{feed.name('edges')}[{index}]", value)
        for index, value in enumerate(feed.items("edges"))
        if value is not None and index not in broken
    ]
    sound = [edge for edge in edges if "node" in edge]
    _raise_if_all_forbidden(answer, len(sound))
    return sound


def parse_change(node: Fields, repository_id: int) -> Change:
    """Read a pull request."""
    author, merged_by = node.optional_fields("author"), node.optional_fields("mergedBy")
    commits, reviews = node.fields("commits"), node.optional_fields("reviews")
    merge_commit, labels = node.optional_fields("mergeCommit"), node.optional_fields("labels")
    first_commit = _first(commits)
    first_review = _first(reviews) if reviews else None
    return Change(
        id=node.big_integer("fullDatabaseId"),
        repository_id=repository_id,
        node_id=node.text("id"),
        number=node.integer("number"),
        title=node.text("title"),
        state=node.text("state").lower(),
        draft=node.boolean("isDraft"),
        author_login=_login(author),
        author_id=author.optional_integer("databaseId") if author else None,
        author_type=author.text("__typename") if author else None,
        author_is_bot=author.text("__typename") == "Bot" if author else None,
        base_ref=node.text("baseRefName"),
        base_sha=node.text("baseRefOid"),
        head_ref=node.text("headRefName"),
        head_sha=node.text("headRefOid"),
        additions=node.integer("additions"),
        deletions=node.integer("deletions"),
        changed_files=node.integer("changedFiles"),
        commits=commits.integer("totalCount"),
        comments=node.fields("comments").integer("totalCount"),
        reviews=reviews.integer("totalCount") if reviews else None,
        review_decision=_lower(node.optional_text("reviewDecision")),
        first_review_at=first_review.optional_time("submittedAt") if first_review else None,
        first_commit_at=first_commit.fields("commit").optional_time("authoredDate") if first_commit else None,
        labels=[label.text("name") for label in labels.objects("nodes")] if labels else [],
        created_at=node.time("createdAt"),
        updated_at=node.time("updatedAt"),
        closed_at=node.optional_time("closedAt"),
        merged_at=node.optional_time("mergedAt"),
        merge_commit_sha=merge_commit.text("oid") if merge_commit else None,
        merged_by_login=_login(merged_by),
        merged_by_id=merged_by.optional_integer("databaseId") if merged_by else None,
        html_url=node.text("url"),
    )


def _first(connection: Fields) -> Fields | None:
    nodes = connection.items("nodes") if "nodes" in connection else []
    return (
        Fields(connection.endpoint, f"{connection.name('nodes')}[0]", nodes[0])
        if nodes and nodes[0] is not None
        else None
    )


def _login(who: Fields | None) -> str | None:
    """Return a login as REST spells it: there the login of a bot ends in `[bot]`, in GraphQL it does not."""
    if who is None:
        return None
    login = who.text("login")
    return f"{login}[bot]" if who.text("__typename") == "Bot" and not login.endswith("[bot]") else login


def _suite_jobs(node: Fields, node_id: str, verification_id: int, repository_id: int) -> SuiteJobs | None:
    """Read a check suite; one that is not what was asked for, or not whole, is a gap."""
    run, check_runs = node.optional_fields("workflowRun"), node.optional_fields("checkRuns")
    if check_runs is None or (run is not None and run.optional_integer("databaseId") not in (None, verification_id)):
        return None
    values = check_runs.items("nodes")
    if any(value is None for value in values):
        return None
    info = check_runs.fields("pageInfo")
    jobs = [parse_check_run(item, repository_id, verification_id) for item in check_runs.objects("nodes")]
    return SuiteJobs(
        verification_id=verification_id,
        suite_node_id=node_id,
        status=node.text("status").lower(),
        total=check_runs.integer("totalCount"),
        jobs=jobs,
        end_cursor=info.text("endCursor") if info.boolean("hasNextPage") else None,
    )


def parse_check_run(item: Fields, repository_id: int, verification_id: int) -> Job:
    """Read a check run of GitHub Actions, whose id is the id of the job."""
    return Job(
        id=item.integer("databaseId"),
        repository_id=repository_id,
        verification_id=verification_id,
        run_attempt=1,
        node_id=item.text("id"),
        name=item.text("name"),
        status=item.text("status").lower(),
        conclusion=_lower(item.optional_text("conclusion")),
        created_at=None,
        started_at=item.optional_time("startedAt"),
        completed_at=item.optional_time("completedAt"),
        html_url=item.optional_text("detailsUrl") or item.optional_text("url"),
    )


def _activity(node: Fields) -> Activity:
    feed = node.fields("pullRequests")
    newest = _first(feed)
    return Activity(
        repository_id=node.integer("databaseId"),
        node_id=node.text("id"),
        full_name=node.full_name("nameWithOwner"),
        archived=node.boolean("isArchived"),
        pushed_at=node.optional_time("pushedAt"),
        changes=feed.integer("totalCount"),
        change_updated_at=newest.time("updatedAt") if newest else None,
    )


def _lower(text: str | None) -> str | None:
    return None if text is None else text.lower()
