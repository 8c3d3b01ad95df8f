"""The fields of GraphQL that take arguments or need the world: look-ups and connections."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from graphql import GraphQLResolveInfo

from bandsync_dagster.simulator import graphql_errors as errors
from bandsync_dagster.simulator import graphql_views as views
from bandsync_dagster.simulator import records
from bandsync_dagster.simulator.graphql_cost import PAGE_LIMIT, Cost, reads_items
from bandsync_dagster.simulator.graphql_pages import Bounds, Order, Page, paginate
from bandsync_dagster.simulator.steps import steps_of
from bandsync_dagster.simulator.world import World

Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rate:
    """The `graphql` bucket of a token, after the query was charged."""

    limit: int
    used: int
    remaining: int
    reset_at: datetime


@dataclass(slots=True)
class Request:
    """What resolvers know of the query they work for."""

    world: World
    cost: Cost
    rate: Rate | None = None
    _reads: dict[int, bool] = field(default_factory=dict)

    def reads_items(self, info: GraphQLResolveInfo) -> bool:
        """Tell whether the connection at hand is asked for its items, or only counted."""
        key = id(info.field_nodes[0])
        if key not in self._reads:
            selections = [node.selection_set for node in info.field_nodes if node.selection_set is not None]
            self._reads[key] = reads_items(selections, info.fragments)
        return self._reads[key]


def connection(
    info: GraphQLResolveInfo, items: Sequence[Any], order: Order, arguments: Arguments, wrap: Callable[[Any], Any]
) -> Page:
    """Return the page asked for, or the bare count."""
    if not info.context.reads_items(info):
        return Page(len(items))
    bounds = Bounds(*(arguments.get(name) for name in ("first", "last", "after", "before")))
    bounds.check(info.field_name)
    return paginate(items, order, bounds, wrap)


# Look-ups


def _accessible(repository: records.Repository) -> records.Repository:
    if repository.blocked:
        raise errors.blocked()
    if repository.saml:
        raise errors.saml_required()
    return repository


def find_repository(world: World, full_name: str, *, follow: bool) -> records.Repository:
    """Return a repository by its name, or by a former one, if it can be read."""
    found = world.find_repository(full_name) or (world.find_moved(full_name) if follow else None)
    if found is None:
        raise errors.not_found_repository(full_name)
    return _accessible(found)


def _repository(_: None, info: GraphQLResolveInfo, *, owner: str, name: str, **arguments: bool) -> records.Repository:
    return find_repository(info.context.world, f"{owner}/{name}", follow=arguments.get("followRenames", True))


def _owned_repository(
    owner: records.User, info: GraphQLResolveInfo, *, name: str, **arguments: bool
) -> records.Repository:
    return _repository(None, info, owner=owner.login, name=name, **arguments)


def view_of(world: World, node_id: str) -> Any:  # noqa: ANN401  (one of the views, or an account)
    """Return what a global id stands for.

    Raises:
        FaultError: It stands for nothing, or for something that may not be read.
    """
    found = world.resolve_node(node_id)
    if found is None:
        raise errors.not_found_node(node_id)
    kind, record = found
    if isinstance(record, records.User):
        return record
    repository = _home(world, record)
    if repository is None or repository.gone:
        raise errors.not_found_node(node_id)
    return _view(world, kind, record, _accessible(repository))


def _home(world: World, record: Any) -> records.Repository | None:  # noqa: ANN401  (any record but an account)
    if isinstance(record, records.Repository):
        return record
    owner = world.runs.get(record.run_id) if isinstance(record, records.Job) else record
    return None if owner is None else world.repositories.get(owner.repository_id)


def _view(world: World, kind: str, record: Any, repository: records.Repository) -> Any:  # noqa: ANN401  (as `view_of`)
    if kind == "Repository":
        return record
    if kind == "CheckRun":
        return views.CheckRun(record, world.runs[record.run_id], repository)
    kinds = {"PullRequest": views.PullRequest, "WorkflowRun": views.WorkflowRun, "CheckSuite": views.CheckSuite}
    return kinds[kind](record, repository)


def _node(_: None, info: GraphQLResolveInfo, *, id: str) -> Any:  # noqa: A002, ANN401  (GitHub's argument; as `view_of`)
    return view_of(info.context.world, id)


def _nodes(_: None, info: GraphQLResolveInfo, *, ids: list[str]) -> list[Any]:
    if len(ids) > PAGE_LIMIT:
        raise errors.FaultError(
            "ARGUMENT_LIMIT", f"You may not provide more than {PAGE_LIMIT} node ids; you provided {len(ids)}."
        )
    return [_view_or_error(info.context.world, node_id) for node_id in ids]


def _view_or_error(world: World, node_id: str) -> Any:  # noqa: ANN401  (as `view_of`, or the error of this place alone)
    try:
        return view_of(world, node_id)
    except errors.FaultError as error:
        return error


def _account(kind: str, *types: str) -> Callable[..., records.User]:
    def find(_: None, info: GraphQLResolveInfo, *, login: str) -> records.User:
        user = info.context.world.user(login)
        if user is None or user.type not in types:
            raise errors.not_found_account(kind, login)
        return user

    return find


def _rate_limit(_: None, info: GraphQLResolveInfo, **_arguments: bool) -> Request | None:
    return None if info.context.rate is None else info.context


# Connections

BY_CREATION = Order(records.created_order, (datetime, int))
BY_UPDATE = Order(records.updated_order, (datetime, int))
BY_COMMENTS = Order(lambda change: (change.comments, change.id), (int, int))
BY_ID = Order(lambda record: (record.id,), (int,))
# Items of lists that only grow at their end: (position, item).
BY_POSITION = Order(lambda item: (item[0],), (int,))


def _descending(order: Order, *, wanted: bool) -> Order:
    return Order(order.key, order.types, wanted)


def _pull_requests(repository: records.Repository, info: GraphQLResolveInfo, **arguments: Any) -> Page:  # noqa: ANN401
    wanted = arguments.get("orderBy") or {"field": "CREATED_AT", "direction": "ASC"}
    ordered, order = _ordered_changes(repository, wanted["field"])
    found = [change for change in ordered if _matches(change, arguments)] if _filters(arguments) else ordered
    order = _descending(order, wanted=wanted["direction"] == "DESC")
    return connection(info, found, order, arguments, lambda change: views.PullRequest(change, repository))


def _ordered_changes(repository: records.Repository, by: str) -> tuple[Sequence[records.Change], Order]:
    """Return the changes in ascending order; the world keeps them so, but for the order by comments."""
    if not repository.has_pull_requests:
        return [], BY_CREATION
    if by == "UPDATED_AT":
        return repository.changes_by_update, BY_UPDATE
    if by == "COMMENTS":
        return sorted(repository.changes, key=BY_COMMENTS.key), BY_COMMENTS
    return repository.changes, BY_CREATION


def _filters(arguments: Arguments) -> bool:
    return any(arguments.get(name) is not None for name in ("states", "baseRefName", "headRefName", "labels"))


def _matches(change: records.Change, arguments: Arguments) -> bool:
    states, labels = arguments.get("states"), arguments.get("labels")
    return (
        (states is None or change.state.upper() in states)
        and arguments.get("baseRefName") in (None, change.base_ref)
        and arguments.get("headRefName") in (None, change.head_ref)
        and (labels is None or any(label.name in labels for label in change.labels))
    )


def _pull_request(repository: records.Repository, _: GraphQLResolveInfo, *, number: int) -> views.PullRequest:
    change = repository.changes_by_number.get(number) if repository.has_pull_requests else None
    if change is None:
        raise errors.FaultError("NOT_FOUND", f"Could not resolve to a PullRequest with the number of {number}.")
    return views.PullRequest(change, repository)


def _head_repository(pull: views.PullRequest, info: GraphQLResolveInfo) -> records.Repository | None:
    head = info.context.world.repositories.get(pull.change.head_repository_id)
    return head if head is not None and head.readable else None


def _comments(pull: views.PullRequest, _: GraphQLResolveInfo, **_arguments: Any) -> views.PullRequest:  # noqa: ANN401
    return pull


def _labels(pull: views.PullRequest, info: GraphQLResolveInfo, **arguments: Any) -> Page:  # noqa: ANN401
    wanted, labels = arguments["orderBy"] or {}, pull.change.labels
    if wanted.get("field") == "NAME":
        labels = sorted(labels, key=lambda label: label.name)
    order = _descending(BY_POSITION, wanted=wanted.get("direction") == "DESC")
    wrap = _item(lambda label: views.Label(label, pull.repository))
    return connection(info, list(enumerate(labels)), order, arguments, wrap)


def _reviews(pull: views.PullRequest, info: GraphQLResolveInfo, **arguments: Any) -> Page | None:  # noqa: ANN401
    if pull.change.reviews is None:
        return None
    author, states = arguments.get("author"), arguments.get("states")
    found = [
        (position, review)
        for position, review in enumerate(pull.change.reviews)
        if (states is None or review.state.upper() in states)
        and (author is None or (review.author is not None and views.graphql_login(review.author) == author))
    ]
    return connection(info, found, BY_POSITION, arguments, _item(lambda review: views.PullRequestReview(review, pull)))


def _commits(pull: views.PullRequest, info: GraphQLResolveInfo, **arguments: Any) -> Page:  # noqa: ANN401
    numbers = [(number, number) for number in range(pull.change.commits)]
    return connection(info, numbers, BY_POSITION, arguments, _item(lambda number: _commit(pull, number)))


def _commit(pull: views.PullRequest, number: int) -> views.PullRequestCommit:
    """Return one of a change's commits: the last is its head, the others are made up between first and last."""
    change = pull.change
    first = change.first_commit_at or change.created_at
    last = number == change.commits - 1
    oid = change.head_sha if last else f"{change.id * 1_000 + number:040x}"
    date = first + timedelta(minutes=number)
    return views.PullRequestCommit(views.Commit(oid, date, pull.repository), pull)


def _check_runs(suite: views.CheckSuite, info: GraphQLResolveInfo, **arguments: Any) -> Page:  # noqa: ANN401
    wanted = arguments.get("filterBy") or {}
    jobs = sorted(suite.run.jobs, key=BY_ID.key)
    if wanted.get("checkType") != "ALL":
        # The default, LATEST, drops what a later check run of the same name supersedes, before anything is counted.
        jobs = sorted({job.name: job for job in jobs}.values(), key=BY_ID.key)
    found = [job for job in jobs if _wanted(job, wanted)] if wanted.keys() - {"checkType"} else jobs
    return connection(info, found, BY_ID, arguments, lambda job: views.CheckRun(job, suite.run, suite.repository))


def _wanted(job: records.Job, wanted: Arguments) -> bool:
    status, conclusion = job.status.upper(), (job.conclusion or "").upper()
    return (
        wanted.get("appId") in (None, views.GITHUB_ACTIONS.id)
        and wanted.get("checkName") in (None, job.name)
        and wanted.get("status") in (None, status)
        and (wanted.get("statuses") is None or status in wanted["statuses"])
        and (wanted.get("conclusions") is None or conclusion in wanted["conclusions"])
    )


def _steps(check_run: views.CheckRun, info: GraphQLResolveInfo, **arguments: Any) -> Page:  # noqa: ANN401
    number = arguments.get("number")
    found = [(step["number"], step) for step in steps_of(check_run.job) if number is None or step["number"] == number]
    return connection(info, found, BY_POSITION, arguments, _item(lambda step: step))


def _item(wrap: Callable[[Any], Any]) -> Callable[[tuple[int, Any]], Any]:
    return lambda item: wrap(item[1])


RESOLVERS: dict[str, dict[str, Callable[..., Any]]] = {
    "Query": {
        "node": _node,
        "nodes": _nodes,
        "organization": _account("an Organization", "Organization"),
        "rateLimit": _rate_limit,
        "repository": _repository,
        "repositoryOwner": _account("a RepositoryOwner", "User", "Organization"),
        "user": _account("a User", "User"),
    },
    "User": {"repository": _owned_repository},
    "Organization": {"repository": _owned_repository},
    "Repository": {"pullRequest": _pull_request, "pullRequests": _pull_requests},
    "PullRequest": {
        "comments": _comments,
        "commits": _commits,
        "headRepository": _head_repository,
        "labels": _labels,
        "reviews": _reviews,
    },
    "CheckSuite": {"checkRuns": _check_runs},
    "CheckRun": {"steps": _steps},
}
