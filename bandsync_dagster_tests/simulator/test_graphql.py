"""GraphQL over a generated world: what is answered, compared with the world's truth, and how it is refused."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, cast

import pytest
from graphql import (
    GraphQLInterfaceType,
    GraphQLNamedType,
    GraphQLObjectType,
    execute_sync,
    get_named_type,
    is_leaf_type,
    is_required_argument,
    parse,
)

from bandsync_dagster.simulator.generation import generate
from bandsync_dagster.simulator.graphql import Rate, execute
from bandsync_dagster.simulator.graphql_cost import Cost
from bandsync_dagster.simulator.graphql_executor import served_schema
from bandsync_dagster.simulator.graphql_resolvers import Request
from bandsync_dagster.simulator.records import Repository
from bandsync_dagster.simulator.world import World

NOW = datetime(2026, 11, 1, tzinfo=timezone.utc)
RATE = Rate(limit=5000, used=13, remaining=4987, reset_at=NOW + timedelta(hours=1))
CHANGES = """query($owner: String!, $name: String!, $first: Int, $last: Int, $after: String, $before: String,
    $order: IssueOrder) {
  repository(owner: $owner, name: $name) { databaseId nameWithOwner pullRequests(
      first: $first, last: $last, after: $after, before: $before, orderBy: $order) {
    totalCount pageInfo { hasNextPage hasPreviousPage startCursor endCursor }
    edges { cursor node {
      id fullDatabaseId number title state isDraft author { ...who } mergedBy { ...who }
      baseRefName baseRefOid headRefName headRefOid additions deletions changedFiles reviewDecision
      commits(first: 1) { totalCount nodes { commit { committedDate } } } comments { totalCount }
      reviews(first: 1) { totalCount nodes { submittedAt } } labels(first: 100) { nodes { name } }
      createdAt updatedAt closedAt mergedAt mergeCommit { oid } url } } } } }
  fragment who on Actor { __typename login ... on User { databaseId } ... on Bot { databaseId }
    ... on Organization { databaseId } ... on Mannequin { databaseId } }"""
JOBS = """query($ids: [ID!]!, $after: String, $filter: CheckRunFilter) { nodes(ids: $ids) { ... on CheckSuite {
  databaseId status conclusion workflowRun { databaseId runNumber }
  checkRuns(first: 100, after: $after, filterBy: $filter) { totalCount pageInfo { hasNextPage endCursor } nodes {
    databaseId id name status conclusion startedAt completedAt detailsUrl } } } } }"""
BY_UPDATE = {"field": "UPDATED_AT", "direction": "ASC"}
ALL = {"checkType": "ALL"}


@pytest.fixture
def world() -> World:
    """Return a world with every awkward value in it."""
    return generate(repositories=2, changes=130, runs=40, now=NOW, clock=lambda: NOW)


@pytest.fixture
def repository(world: World) -> Repository:
    """Return one repository of the world."""
    return world.repository("acme/alto")


def ask(world: World, document: str, **variables: object) -> dict[str, Any]:
    """Return the data of an answer without errors."""
    body = execute(world, document, variables, rate=RATE).body
    assert "errors" not in body, body["errors"][:3]
    return body["data"]


def refusal(world: World, document: str, **variables: object) -> tuple[Any, dict[str, Any]]:
    """Return the data of an answer with exactly one error, and the error."""
    body = execute(world, document, variables, rate=RATE).body
    (error,) = body["errors"]
    return body.get("data"), error


def listing(world: World, repository: Repository, **bounds: object) -> dict[str, Any]:
    """Return one page of changes."""
    owner, name = repository.full_name.split("/")
    return ask(world, CHANGES, owner=owner, name=name, **bounds)["repository"]["pullRequests"]


def all_changes(world: World, repository: Repository, **arguments: object) -> Iterator[dict[str, Any]]:
    """Walk forward to the end of the changes."""
    page = listing(world, repository, first=30, **arguments)
    yield from (edge["node"] for edge in page["edges"])
    while page["pageInfo"]["hasNextPage"]:
        page = listing(world, repository, first=30, after=page["pageInfo"]["endCursor"], **arguments)
        yield from (edge["node"] for edge in page["edges"])


def parsed(text: str | None) -> datetime | None:
    """Read a `DateTime`."""
    return None if text is None else datetime.strptime(text, "%Y-%m-%dT%H:%M:%S%z")


def clean(text: str | None) -> str | None:
    """Leave out what no database can hold, as the truth does."""
    return text and "".join(letter for letter in text if letter != "\x00" and not "\ud800" <= letter <= "\udfff")


def person(prefix: str, actor: dict[str, Any] | None) -> dict[str, Any]:
    """Return login and id as the truth has them: with REST's spelling of bots."""
    if actor is None:
        return {f"{prefix}_login": None, f"{prefix}_id": None}
    suffix = "[bot]" if actor["__typename"] == "Bot" else ""
    return {f"{prefix}_login": actor["login"] + suffix, f"{prefix}_id": actor["databaseId"]}


def change_row(node: dict[str, Any]) -> dict[str, Any]:
    """Return the truth's columns of a change that GraphQL tells."""
    reviews, commits = node["reviews"], node["commits"]
    names = {"changed_files": "changedFiles", "base_ref": "baseRefName", "base_sha": "baseRefOid", "node_id": "id"}
    names |= {"head_ref": "headRefName", "head_sha": "headRefOid", "draft": "isDraft", "html_url": "url"}
    times = {f"{name}_at": parsed(node[f"{name}At"]) for name in ("created", "updated", "closed", "merged")}
    return {
        **{name: node[name] for name in ("number", "additions", "deletions")},
        **{column: clean(node[name]) if column == "head_ref" else node[name] for column, name in names.items()},
        **times,
        **person("author", node["author"]),
        **person("merged_by", node["mergedBy"]),
        "id": int(node["fullDatabaseId"]),
        "title": clean(node["title"]),
        "state": node["state"].lower(),
        "author_type": node["author"] and node["author"]["__typename"],
        "review_decision": node["reviewDecision"] and node["reviewDecision"].lower(),
        "comments": node["comments"]["totalCount"],
        "commits": commits["totalCount"],
        "first_commit_at": parsed(commits["nodes"][0]["commit"]["committedDate"]) if commits["nodes"] else None,
        "reviews": reviews and reviews["totalCount"],
        "first_review_at": parsed(reviews["nodes"][0]["submittedAt"]) if reviews and reviews["nodes"] else None,
        "labels": [clean(label["name"]) for label in node["labels"]["nodes"]],
        "merge_commit_sha": node["mergeCommit"] and node["mergeCommit"]["oid"],
    }


@pytest.mark.parametrize("field", ["CREATED_AT", "UPDATED_AT", "COMMENTS"])
@pytest.mark.parametrize("direction", ["ASC", "DESC"])
def test_the_changes_are_those_of_the_world(world: World, repository: Repository, field: str, direction: str) -> None:
    """In any order, every change comes once, with every field as the truth has it."""
    order = {"field": field, "direction": direction}
    rows = [change_row(node) for node in all_changes(world, repository, order=order)]
    truth = {row["id"]: row for row in world.truth()["changes"] if row["repository_id"] == repository.id}
    assert [{name: truth[row["id"]][name] for name in row} for row in rows] == rows
    assert len(rows) == len(truth) == 130
    key = {"CREATED_AT": "created_at", "UPDATED_AT": "updated_at", "COMMENTS": "comments"}[field]
    keys = [(row[key], row["id"]) for row in rows]
    assert keys == sorted(keys, reverse=direction == "DESC")


def test_the_world_has_all_kinds_of_authors(world: World, repository: Repository) -> None:
    """People, bots, organizations, mannequins and deleted accounts all are in the answer."""
    authors = [node["author"] for node in all_changes(world, repository)]
    assert {author and author["__typename"] for author in authors} == {None, "User", "Bot", "Organization", "Mannequin"}
    assert "dependabot" in {author["login"] for author in authors if author}


def test_ids_beyond_32_bits_are_sent_as_they_are(world: World, repository: Repository) -> None:
    """`Int` fields hold GitHub's real ids, `BigInt` fields hold them as text."""
    page = listing(world, repository, first=1)
    assert page["edges"][0]["node"]["fullDatabaseId"] == str(repository.changes[0].id)
    suite = ask(world, JOBS, ids=[repository.runs[0].suite_node_id], filter=ALL)["nodes"][0]
    assert suite["databaseId"] == repository.runs[0].suite_id > 2**31


def test_a_change_that_moved_comes_again_and_none_is_lost(world: World, repository: Repository) -> None:
    """The feed by update can be left and gone on with from a stored cursor."""
    page = listing(world, repository, first=50, order=BY_UPDATE)
    moved = repository.changes_by_update[10]
    world.touch_change(moved, at=NOW)
    rest = listing(world, repository, first=100, after=page["pageInfo"]["endCursor"], order=BY_UPDATE)
    numbers = [edge["node"]["number"] for edge in rest["edges"]]
    assert numbers == [change.number for change in repository.changes_by_update[49:]]
    assert numbers[-1] == moved.number


def test_the_last_edge_can_be_walked_back_from(world: World, repository: Repository) -> None:
    """`last` with `before` walks the feed by update towards its beginning."""
    seen, bounds = [], {}
    while True:
        page = listing(world, repository, last=40, order=BY_UPDATE, **bounds)
        seen[:0] = [edge["node"]["number"] for edge in page["edges"]]
        if not page["pageInfo"]["hasPreviousPage"]:
            break
        bounds = {"before": page["edges"][0]["cursor"]}
    assert seen == [change.number for change in repository.changes_by_update]


def test_filters_apply_before_the_count(world: World, repository: Repository) -> None:
    """`states` leaves out the others, also in `totalCount`."""
    document = """query($states: [PullRequestState!]) { repository(owner: "acme", name: "alto") {
      pullRequests(first: 100, states: $states) { totalCount nodes { state } } } }"""
    found = ask(world, document, states=["MERGED"])["repository"]["pullRequests"]
    assert {node["state"] for node in found["nodes"]} == {"MERGED"}
    assert found["totalCount"] == sum(change.state == "merged" for change in repository.changes)


def job_row(suite: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    """Return the truth's columns of a job that GraphQL tells."""
    times = {name: parsed(node[f"{name}At"]) for name in ("started", "completed")}
    known = {f"{name}_at": None if time is None or time.year < 2000 else time for name, time in times.items()}
    return {
        **known,
        "id": node["databaseId"],
        "node_id": node["id"],
        "verification_id": suite["workflowRun"]["databaseId"],
        "name": clean(node["name"]),
        "status": node["status"].lower(),
        "conclusion": node["conclusion"] and node["conclusion"].lower(),
        "html_url": node["detailsUrl"],
    }


def all_check_runs(world: World, node_id: str) -> Iterator[dict[str, Any]]:
    """Walk a suite to the end of its check runs."""
    after = None
    while True:
        (suite,) = ask(world, JOBS, ids=[node_id], after=after, filter=ALL)["nodes"]
        yield from (job_row(suite, node) for node in suite["checkRuns"]["nodes"])
        if not suite["checkRuns"]["pageInfo"]["hasNextPage"]:
            return
        after = suite["checkRuns"]["pageInfo"]["endCursor"]


def test_the_check_runs_of_all_attempts_are_the_jobs_of_the_world(world: World, repository: Repository) -> None:
    """Asked for ALL, suite by suite and page by page, every job comes once, as the truth has it."""
    rows = [row for run in repository.runs for row in all_check_runs(world, run.suite_node_id)]
    truth = {row["id"]: row for row in world.truth()["jobs"] if row["repository_id"] == repository.id}
    assert [{name: truth[row["id"]][name] for name in row} for row in rows] == rows
    assert len(rows) == len(truth) > 130


@pytest.mark.parametrize("wanted", [None, {}, {"checkType": "LATEST"}])
def test_superseded_check_runs_are_left_out_unless_asked_for(
    world: World, repository: Repository, wanted: Mapping[str, str] | None
) -> None:
    """LATEST is the default; the count is taken after the filter, so nothing tells what is missing."""
    run = world.add_run(repository, jobs=3, conclusion="failure")
    world.rerun(run)
    (suite,) = ask(world, JOBS, ids=[run.suite_node_id], filter=wanted)["nodes"]
    assert suite["checkRuns"]["totalCount"] == len(suite["checkRuns"]["nodes"]) == 3
    assert {node["databaseId"] for node in suite["checkRuns"]["nodes"]} == {job.id for job in run.attempt.jobs}
    (suite,) = ask(world, JOBS, ids=[run.suite_node_id], filter=ALL)["nodes"]
    assert suite["checkRuns"]["totalCount"] == 6


def test_steps_are_in_utc(world: World, repository: Repository) -> None:
    """What REST gives with an offset and milliseconds GraphQL gives in UTC."""
    run = repository.runs[0]
    document = (
        "query($id: ID!) { node(id: $id) { ... on CheckRun { steps(first: 10) { nodes { number startedAt } } } } }"
    )
    times = {
        step["startedAt"][-1]
        for job in run.jobs
        for step in ask(world, document, id=job.node_id)["node"]["steps"]["nodes"]
    }
    assert times == {"Z"}


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ({"status": "COMPLETED"}, {"build", "test"}),
        ({"statuses": ["QUEUED", "WAITING"]}, {"approve"}),
        ({"conclusions": ["FAILURE"]}, {"test"}),
        ({"checkName": "build"}, {"build"}),
        ({"appId": 15368}, {"build", "test", "approve"}),
        ({"appId": 1}, set()),
    ],
)
def test_check_runs_can_be_filtered(
    world: World, repository: Repository, wanted: Mapping[str, object], names: set[str]
) -> None:
    """By status, conclusion, name and app; GitHub Actions is the only app."""
    ended = {"status": "completed", "conclusion": "failure"}
    jobs = [{"name": "build"}, {"name": "test", **ended}, {"name": "approve", "status": "queued"}]
    run = world.add_run(repository, jobs=jobs)
    (suite,) = ask(world, JOBS, ids=[run.suite_node_id], filter=wanted)["nodes"]
    assert {node["name"] for node in suite["checkRuns"]["nodes"]} == names


def test_accounts_and_single_changes_are_found(world: World, repository: Repository) -> None:
    """By login, whatever its case, and by number."""
    document = """{ organization(login: "ACME") { login repository(name: "alto") { pullRequest(number: 2) { title } } }
      owner: repositoryOwner(login: "acme") { __typename } user(login: "dev-1") { login } }"""
    assert ask(world, document) == {
        "organization": {"login": "acme", "repository": {"pullRequest": {"title": repository.changes[1].title}}},
        "owner": {"__typename": "Organization"},
        "user": {"login": "dev-1"},
    }


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ('user(login: "acme") { id }', "Could not resolve to a User with the login of 'acme'."),
        ('organization(login: "x") { id }', "Could not resolve to an Organization with the login of 'x'."),
        (
            'repository(owner: "acme", name: "alto") { pullRequest(number: 999) { id } }',
            "Could not resolve to a PullRequest with the number of 999.",
        ),
    ],
)
def test_what_is_not_there_is_not_found(world: World, field: str, message: str) -> None:
    """Null, with GitHub's words."""
    _, error = refusal(world, f"{{ {field} }}")
    assert (error["type"], error["message"]) == ("NOT_FOUND", message)


def test_a_null_that_only_shows_when_executed_is_an_error_without_a_type(world: World) -> None:
    """A nullable variable with a default passes validation; null in it is the client's mistake."""
    document = """query($number: Int = 1) { repository(owner: "acme", name: "alto") {
      pullRequest(number: $number) { id } } }"""
    data, error = refusal(world, document, number=None)
    assert data == {"repository": {"pullRequest": None}}
    assert "type" not in error


def everything(kind: GraphQLNamedType, depth: int) -> str:
    """Return a selection of all fields of a type, and of the types in them, that need no argument."""
    if isinstance(kind, GraphQLInterfaceType):
        parts = (f"... on {its.name} {everything(its, depth)}" for its in served_schema().get_possible_types(kind))
        return f"{{ __typename {' '.join(parts)} }}"
    chosen = ["__typename"]
    for name, field in cast("GraphQLObjectType", kind).fields.items():
        below = get_named_type(field.type)
        bounds = "(first: 3)" if "first" in field.args else ""
        if any(is_required_argument(argument) for argument in field.args.values()):
            continue
        if is_leaf_type(below):
            chosen.append(name)
        elif depth:
            # Two types that may stand at one place can have fields of one name and different nullability.
            chosen.append(f"{kind.name}_{name}: {name}{bounds} {everything(below, depth - 1)}")
    return f"{{ {' '.join(chosen)} }}"


@pytest.mark.parametrize("name", ["Repository", "PullRequest", "WorkflowRun", "CheckSuite", "CheckRun"])
def test_every_field_of_the_schema_can_be_read(world: World, repository: Repository, name: str) -> None:
    """Every field that is declared is answered, as its type says, for ordinary and awkward records alike."""
    records = {"Repository": [repository], "PullRequest": repository.changes[:40], "WorkflowRun": repository.runs}
    ids = [record.node_id for record in records.get(name, [])]
    ids += [run.suite_node_id for run in repository.runs if name == "CheckSuite"]
    ids += [job.node_id for run in repository.runs[:9] for job in run.jobs[:2] if name == "CheckRun"]
    selection = everything(served_schema().type_map[name], 4)
    found = ask(world, f"query($ids: [ID!]!) {{ nodes(ids: $ids) {{ ... on {name} {selection} }} }}", ids=ids[:100])
    assert {node["__typename"] for node in found["nodes"]} == {name}


def test_nodes_keep_their_places(world: World, repository: Repository) -> None:
    """A list of ids is answered place by place, with null and an error where an id stands for nothing."""
    runs = repository.runs[:2]
    ids = [runs[0].suite_node_id, "CS_kwDOnothing", runs[1].node_id, repository.node_id, runs[0].jobs[0].node_id]
    ids.append(repository.owner.node_id)
    data, error = refusal(world, "query($ids: [ID!]!) { nodes(ids: $ids) { __typename id } }", ids=ids)
    types = [node and node["__typename"] for node in data["nodes"]]
    assert types == ["CheckSuite", None, "WorkflowRun", "Repository", "CheckRun", "Organization"]
    assert [node and node["id"] for node in data["nodes"]] == [ids[0], None, *ids[2:]]
    assert (error["type"], error["path"]) == ("NOT_FOUND", ["nodes", 1])
    assert error["message"] == "Could not resolve to a node with the global id of 'CS_kwDOnothing'."


@pytest.mark.parametrize("name", ["nodes", "many"])
def test_more_than_100_ids_are_refused_as_a_whole(world: World, name: str) -> None:
    """The limit is per field, and the whole answer is lost."""
    document = f"query($ids: [ID!]!) {{ {name}: nodes(ids: $ids) {{ id }} rateLimit {{ cost }} }}"
    data, error = refusal(world, document, ids=["x"] * 101)
    assert data is None
    assert (error["type"], error["path"]) == ("ARGUMENT_LIMIT", [name])
    assert error["message"] == "You may not provide more than 100 node ids; you provided 101."


def test_too_many_possible_nodes_are_refused_unread(world: World) -> None:
    """500,000 nodes is the most a query may ask for, whatever there is."""
    document = JOBS.replace("databaseId id", "steps(first: 50) { nodes { name } } databaseId id")
    data, error = refusal(world, document, ids=["x"] * 100)
    assert data is None
    assert error["type"] == "MAX_NODE_LIMIT_EXCEEDED"
    assert "requests up to 510,000 possible nodes which exceeds the maximum limit of 500,000" in error["message"]


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ("", "MISSING_PAGINATION_BOUNDARIES"),
        ("(first: 101)", "EXCESSIVE_PAGINATION"),
        ('(first: 1, after: "abc")', "INVALID_CURSOR_ARGUMENTS"),
    ],
)
def test_a_refused_page_empties_the_nearest_nullable_field(world: World, arguments: str, kind: str) -> None:
    """`pullRequests` can't be null, so the repository is."""
    document = f'{{ repository(owner: "acme", name: "alto") {{ id pullRequests{arguments} {{ nodes {{ id }} }} }} }}'
    data, error = refusal(world, document)
    assert data == {"repository": None}
    assert (error["type"], error["path"]) == (kind, ["repository", "pullRequests"])
    assert error["locations"] == [{"line": 1, "column": document.index("pullRequests") + 1}]


def test_a_count_needs_no_page_size(world: World) -> None:
    """A connection asked only for `totalCount` needs neither `first` nor `last`, and costs nothing of its own."""
    document = '{ rateLimit { nodeCount } repository(owner: "acme", name: "alto") { pullRequests { totalCount } } }'
    data = ask(world, document)
    assert data == {"rateLimit": {"nodeCount": 0}, "repository": {"pullRequests": {"totalCount": 130}}}


def test_renames_are_followed_silently_unless_told_not_to(world: World, repository: Repository) -> None:
    """GraphQL answers under the old name; only the name in the answer tells."""
    world.rename_repository(repository, "contralto")
    document = """query($follow: Boolean!) { repository(owner: "ACME", name: "Alto", followRenames: $follow) {
      nameWithOwner databaseId } }"""
    found = ask(world, document, follow=True)["repository"]
    assert found == {"nameWithOwner": "acme/contralto", "databaseId": repository.id}
    data, error = refusal(world, document, follow=False)
    assert data == {"repository": None}
    assert error["message"] == "Could not resolve to a Repository with the name 'ACME/Alto'."


def test_a_name_that_was_taken_again_means_the_new_repository(world: World, repository: Repository) -> None:
    """A former name leads to the old repository only until somebody else takes it."""
    world.rename_repository(repository, "contralto")
    taken = world.add_repository("acme/alto")
    document = '{ repository(owner: "acme", name: "alto") { databaseId } }'
    assert ask(world, document)["repository"]["databaseId"] == taken.id


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (World.delete_repository, ("NOT_FOUND", "Could not resolve to a", None)),
        (World.block_repository, ("FORBIDDEN", "Repository access blocked", None)),
        (
            lambda world, repository: world.update_repository(repository, saml=True),
            ("FORBIDDEN", "Resource protected by organization SAML enforcement", {"saml_failure": True}),
        ),
    ],
)
def test_what_may_not_be_read_is_null_with_an_error(
    world: World,
    repository: Repository,
    change: Callable[[World, Repository], None],
    expected: tuple[str, str, dict[str, Any] | None],
) -> None:
    """By name or by id, of the repository or of what is in it; the rest of the answer is there."""
    other, suite = world.repository("acme/bass"), repository.runs[0].suite_node_id
    change(world, repository)
    document = (
        """query($ids: [ID!]!) { gone: repository(owner: "acme", name: "alto") { id } nodes(ids: $ids) { id } }"""
    )
    body = execute(world, document, {"ids": [suite, other.node_id, repository.node_id]}).body
    assert body["data"] == {"gone": None, "nodes": [None, {"id": other.node_id}, None]}
    assert [error["path"] for error in body["errors"]] == [["gone"], ["nodes", 0], ["nodes", 2]]
    kind, message, extensions = expected
    assert all(error["type"] == kind and error["message"].startswith(message) for error in body["errors"])
    assert all(error.get("extensions") == extensions for error in body["errors"])


def test_without_access_to_pull_requests_there_are_none(world: World, repository: Repository) -> None:
    """A repository whose pull requests are switched off has an empty list."""
    world.update_repository(repository, has_pull_requests=False)
    assert listing(world, repository, first=1)["totalCount"] == 0


def test_the_rate_limit_is_the_buckets(world: World) -> None:
    """`rateLimit` tells the bucket after the query, its cost and its possible nodes."""
    document = """{ rateLimit { limit cost remaining used resetAt nodeCount }
      repository(owner: "acme", name: "alto") { pullRequests(first: 100) { nodes { reviews(first: 3) { edges { cursor }
      } commits(first: 2) { nodes { id } } } } } }"""
    answer = execute(world, document, {}, rate=RATE)
    assert answer.cost == 2
    assert answer.body["data"]["rateLimit"] == {
        "limit": 5000,
        "cost": 2,
        "remaining": 4987,
        "used": 13,
        "resetAt": "2026-11-01T01:00:00Z",
        "nodeCount": 600,
    }


def test_a_host_without_limits_has_no_rate_limit(world: World) -> None:
    """GitHub Enterprise Server without rate limiting answers null."""
    assert execute(world, "{ rateLimit { cost } }", {}).body == {"data": {"rateLimit": None}}


def test_a_dry_run_only_tells_the_cost(world: World) -> None:
    """Nothing else of the query is evaluated."""
    document = """{ rateLimit(dryRun: true) { cost nodeCount }
      repository(owner: "acme", name: "alto") { pullRequests(first: 100) { nodes { reviews(first: 100) { nodes { id }
      } } } } }"""
    assert ask(world, document) == {"rateLimit": {"cost": 1, "nodeCount": 10_100}}


def test_an_unknown_field_is_refused_in_githubs_words(world: World) -> None:
    """The field `WorkflowRun.runAttempt` is in no published schema, so asking for it is refused."""
    data, error = refusal(world, "query($id: ID!) { node(id: $id) { ... on WorkflowRun { runAttempt } } }", id="x")
    assert data is None
    assert error["message"] == "Field 'runAttempt' doesn't exist on type 'WorkflowRun'"
    assert error["extensions"] == {"code": "undefinedField", "typeName": "WorkflowRun", "fieldName": "runAttempt"}


@pytest.mark.parametrize("document", ["{", "query($id: ID!) { node(id: $id) { id } }", "query A { x } query B { y }"])
def test_what_cannot_be_executed_has_errors_and_no_data(world: World, document: str) -> None:
    """A document that does not parse, a missing variable, an unknown field: no `data` at all."""
    body = execute(world, document, {}).body
    assert body.keys() == {"errors"}
    assert all(error["message"] for error in body["errors"])


def test_the_schema_tells_its_fields(world: World) -> None:
    """Introspection works, so that a client can probe for a field before using it."""
    fields = ask(world, '{ __type(name: "WorkflowRun") { fields { name } } }')["__type"]["fields"]
    assert {"databaseId", "checkSuite"} <= {field["name"] for field in fields}


def test_plain_fields_read_directly_equal_graphql_cores_own_way(world: World) -> None:
    """The shortcut for plain fields changes nothing but the speed."""
    document = """{ __typename repository(owner: "acme", name: "alto") { nameWithOwner isPrivate visibility createdAt
      archivedAt defaultBranchRef { name } owner { __typename login } pullRequests(last: 100) { nodes { __typename
      title state body closedAt isDraft reviewDecision authorAssociation reviews(first: 9) { nodes { state submittedAt
      author { login } } } headRepository { name } labels(first: 9, orderBy: {field: NAME, direction: DESC}) { edges {
      cursor node { name color } } } } } } }"""
    plain = execute_sync(served_schema(), parse(document), context_value=Request(world, Cost()))
    assert plain.errors is None
    assert ask(world, document) == plain.data


@pytest.mark.parametrize(
    ("field", "value"), [("reviews", 3), ("state", "reopened"), ("created_at", "yesterday"), ("title", None)]
)
def test_a_mistake_in_the_simulator_is_no_answer(
    world: World, repository: Repository, field: str, value: object
) -> None:
    """An exception of our own is raised, not dressed up as an error of GitHub's."""
    setattr(repository.changes[0], field, value)
    with pytest.raises((TypeError, KeyError, AttributeError)):
        execute(world, CHANGES, {"owner": "acme", "name": "alto", "first": 1})
