"""GraphQL queries: what is asked, at what cost, and which rows, gaps and errors come of the answers."""

import json
from collections.abc import Awaitable, Callable
from datetime import datetime, timezone
from typing import Any

import httpx
import pytest

from bandsync_dagster.github.client import GitHubClient
from bandsync_dagster.github.errors import Forbidden, NotFound, PayloadError, QueryTooLarge, RequestRefused
from bandsync_dagster.github.graphql import (
    DOCUMENTS,
    Activity,
    ChangePage,
    SuiteJobs,
    fetch_activity,
    fetch_changes,
    fetch_suite,
    fetch_suites,
)
from bandsync_dagster.github.models import Change, Job
from bandsync_dagster.simulator.graphql import cost_of
from bandsync_dagster_tests.github.payloads import activity_node, change_node, changes_data, check_run, suite, who
from bandsync_dagster_tests.github.surroundings import Stage, answer


def utc(day: int, hour: int) -> datetime:
    """Return a time in January 2026."""
    return datetime(2026, 1, day, hour, tzinfo=timezone.utc)


def fault(*path: str | int, type_: str = "FORBIDDEN") -> dict[str, Any]:
    """Return an error that points somewhere."""
    return {"type": type_, "path": list(path), "message": "not for you"}


def body(data: object, *faults: dict[str, Any]) -> httpx.Response:
    """Return an answer with data and errors."""
    return answer({"data": data, **({"errors": list(faults)} if faults else {})})


def changes(stage: Stage, response: httpx.Response, **page: Any) -> ChangePage:
    """Fetch a page of pull requests."""
    page = page or {"first": 100}
    return stage.run(stage.client([response]), lambda client: fetch_changes(client, "acme/pool", **page))


def suites(stage: Stage, response: httpx.Response, *run_ids: int) -> list[SuiteJobs | None]:
    """Fetch the jobs of workflow runs."""
    wanted = {f"CS_{run_id}": run_id for run_id in run_ids}
    return stage.run(stage.client([response]), lambda client: fetch_suites(client, wanted, repository_id=99))


def activity(stage: Stage, response: httpx.Response, *ids: str) -> list[Activity | None]:
    """Fetch the activity of repositories."""
    return stage.run(stage.client([response]), lambda client: fetch_activity(client, ids))


def sent(stage: Stage) -> dict[str, Any]:
    """Return the variables of the last query."""
    return json.loads(stage.requests[-1].content)["variables"]


class TestChanges:
    """Pull requests in the order of their last update."""

    def test_every_field_of_a_pull_request_becomes_its_column(self, stage: Stage) -> None:
        """Names are REST's, states are lower-case, times are UTC, ids may be beyond 2^31."""
        page = changes(stage, body(changes_data([change_node(1)])))
        assert page.changes == [
            Change(
                id=3_000_000_001,
                repository_id=99,
                node_id="PR_1",
                number=1,
                title="change 1",
                state="merged",
                draft=False,
                author_login="octo",
                author_id=7,
                author_type="User",
                author_is_bot=False,
                base_ref="main",
                base_sha="b" * 40,
                head_ref="topic",
                head_sha="a" * 40,
                additions=10,
                deletions=2,
                changed_files=3,
                commits=5,
                comments=4,
                reviews=2,
                review_decision="approved",
                first_review_at=utc(1, 12),
                first_commit_at=utc(1, 8),
                labels=["bug", "good first issue"],
                created_at=utc(1, 10),
                updated_at=utc(2, 10),
                closed_at=utc(2, 9),
                merged_at=utc(2, 9),
                merge_commit_sha="c" * 40,
                merged_by_login="boss",
                merged_by_id=8,
                html_url="https://github.com/acme/pool/pull/1",
            )
        ]

    def test_a_page_says_where_it_stands_and_whose_it_is(self, stage: Stage) -> None:
        """GitHub follows renames silently, so the page carries the repository's identity."""
        page = changes(stage, body(changes_data([change_node(1), change_node(2)], has_next=True)))
        assert (page.repository_id, page.node_id, page.full_name, page.total) == (99, "R_99", "acme/pool", 1000)
        assert (page.cursors, page.start_cursor, page.end_cursor) == (["c0", "c1"], "c0", "c1")
        assert (page.has_next, page.has_previous, page.missing) == (True, True, 0)

    @pytest.mark.parametrize(
        ("page", "document", "cursor"),
        [
            ({"first": 50, "after": "x"}, "ChangesForward", "x"),
            ({"first": 50}, "ChangesForward", None),
            ({"last": 50, "before": "x"}, "ChangesBackward", "x"),
            ({"last": 50}, "ChangesBackward", None),
        ],
    )
    def test_forward_and_backward_are_two_documents(
        self, stage: Stage, page: dict[str, Any], document: str, cursor: str | None
    ) -> None:
        """GitHub takes exactly one of `first` and `last`."""
        changes(stage, body(changes_data([])), **page)
        assert f"query {document}(" in json.loads(stage.requests[0].content)["query"]
        assert sent(stage) == {"owner": "acme", "name": "pool", "size": 50, "cursor": cursor}

    @pytest.mark.parametrize("page", [{}, {"first": 1, "last": 1}, {"after": "x"}])
    def test_a_page_without_one_direction_is_the_callers_mistake(self, stage: Stage, page: dict[str, Any]) -> None:
        """It is told before anything is sent."""
        with pytest.raises(ValueError, match="first or last"):
            stage.run(stage.client([]), lambda client: fetch_changes(client, "acme/pool", **page))

    def test_what_github_leaves_null_is_none(self, stage: Stage) -> None:
        """Deleted authors, open pull requests, repositories without reviews."""
        absent = dict.fromkeys(
            ["author", "mergedBy", "closedAt", "mergedAt", "mergeCommit", "reviewDecision", "reviews", "labels"]
        )
        node = change_node(1, state="OPEN", commits={"totalCount": 0, "nodes": []}, **absent)
        (change,) = changes(stage, body(changes_data([node]))).changes
        assert (change.state, change.labels, change.reviews) == ("open", [], None)
        nothing = ["author_login", "author_id", "author_type", "author_is_bot", "merged_by_login", "merged_by_id"]
        nothing += [
            "closed_at",
            "merged_at",
            "merge_commit_sha",
            "review_decision",
            "first_review_at",
            "first_commit_at",
        ]
        assert {name: getattr(change, name) for name in nothing} == dict.fromkeys(nothing)

    @pytest.mark.parametrize(
        ("actor", "login", "bot"),
        [
            (who("dependabot", "Bot"), "dependabot[bot]", True),
            (who("dependabot[bot]", "Bot"), "dependabot[bot]", True),
            (who("ghost", "Mannequin"), "ghost", False),
            ({"__typename": "EnterpriseUserAccount", "login": "boss"}, "boss", False),
        ],
    )
    def test_logins_are_spelled_as_in_rest(self, stage: Stage, actor: dict[str, Any], login: str, bot: bool) -> None:
        """GraphQL leaves out the `[bot]`; runs, which come by REST, have it."""
        (change,) = changes(stage, body(changes_data([change_node(1, author=actor)]))).changes
        assert (change.author_login, change.author_is_bot, change.author_type) == (login, bot, actor["__typename"])

    @pytest.mark.parametrize(
        "faults",
        [
            [],
            [fault("repository", "pullRequests", "edges", 1, "node", "additions", type_="")],
            [fault("repository", "pullRequests", "edges", 1, type_="NOT_FOUND")],
        ],
    )
    def test_a_null_is_a_gap_that_is_counted(self, stage: Stage, faults: list[dict[str, Any]]) -> None:
        """The others are kept, each with its own cursor."""
        page = changes(stage, body(changes_data([change_node(1), None, change_node(3)]), *faults))
        assert [change.number for change in page.changes] == [1, 3]
        assert (page.cursors, page.missing) == (["c0", "c2"], 1)

    def test_an_item_an_error_points_into_is_a_gap_although_it_is_not_null(self, stage: Stage) -> None:
        """A null that an error caused must not be stored as if there was nothing."""
        spoilt = change_node(2, reviews=None)
        faults = [fault("repository", "pullRequests", "edges", 1, "node", "reviews")]
        page = changes(stage, body(changes_data([change_node(1), spoilt]), *faults))
        assert ([change.number for change in page.changes], page.missing) == ([1], 1)

    def test_a_page_of_which_nothing_may_be_read_is_forbidden(self, stage: Stage) -> None:
        """Nobody would ever fill these gaps."""
        faults = [fault("repository", "pullRequests", "edges", index, "node") for index in (0, 1)]
        with pytest.raises(Forbidden, match="not for you"):
            changes(stage, body(changes_data([None, None]), *faults))

    def test_a_repository_that_is_not_there_is_not_found(self, stage: Stage) -> None:
        """Also a private one without access: GitHub answers both alike."""
        with pytest.raises(NotFound, match="acme/pool"):
            changes(stage, body({"repository": None}, fault("repository", type_="NOT_FOUND")))

    def test_a_cursor_github_does_not_know_is_refused(self, stage: Stage) -> None:
        """The caller starts that walk again."""
        invalid = {"type": "INVALID_CURSOR_ARGUMENTS", "message": "`x` does not appear to be a valid cursor."}
        with pytest.raises(RequestRefused, match="valid cursor"):
            changes(stage, body({"repository": None}, invalid), first=10, after="x")

    def test_one_item_is_tried_again_and_many_are_not(self, stage: Stage) -> None:
        """A page can be halved, a single pull request cannot."""
        with pytest.raises(QueryTooLarge):
            changes(stage, httpx.Response(502), first=2)
        retried = [httpx.Response(502), body(changes_data([change_node(1)]))]
        page = stage.run(stage.client(retried), lambda client: fetch_changes(client, "acme/pool", first=1))
        assert len(page.changes) == 1

    @pytest.mark.parametrize(
        ("spoil", "field"),
        [
            ({"number": "1"}, "number"),
            ({"title": None}, "title"),
            ({"fullDatabaseId": None}, "fullDatabaseId"),
            ({"createdAt": "yesterday"}, "createdAt"),
            ({"commits": None}, "commits"),
            ({"labels": {"nodes": [None]}}, "labels.nodes[0]"),
            ({"author": {"login": "x"}}, "author.__typename"),
        ],
    )
    def test_a_field_of_the_wrong_kind_is_named(self, stage: Stage, spoil: dict[str, Any], field: str) -> None:
        """Endpoint, position and field, so that somebody can look."""
        with pytest.raises(PayloadError) as caught:
            changes(stage, body(changes_data([change_node(1), {**change_node(2), **spoil}])))
        assert caught.value.endpoint == "POST /graphql (pull requests of acme/pool)"
        assert caught.value.field == f"data.repository.pullRequests.edges[1].node.{field}"


class TestSuites:
    """The jobs of many workflow runs at once."""

    def test_a_check_run_becomes_a_job_of_the_first_attempt(self, stage: Stage) -> None:
        """What only REST knows is None."""
        (jobs,) = suites(stage, body({"nodes": [suite(1, [check_run(5)])]}), 1)
        assert jobs == SuiteJobs(
            verification_id=1,
            suite_node_id="CS_1",
            status="completed",
            total=1,
            end_cursor=None,
            jobs=[
                Job(
                    id=100_000_000_005,
                    repository_id=99,
                    verification_id=1,
                    run_attempt=1,
                    node_id="CR_5",
                    name="build 5",
                    status="completed",
                    conclusion="success",
                    created_at=None,
                    started_at=utc(1, 10),
                    completed_at=datetime(2026, 1, 1, 10, 5, tzinfo=timezone.utc),
                    html_url="https://github.com/acme/pool/actions/runs/1/job/5",
                )
            ],
        )

    def test_a_suite_without_jobs_is_no_gap(self, stage: Stage) -> None:
        """A run that failed to start has none, and is done."""
        (jobs,) = suites(stage, body({"nodes": [suite(1, [])]}), 1)
        assert jobs is not None
        assert (jobs.total, jobs.jobs, jobs.end_cursor) == (0, [], None)

    @pytest.mark.parametrize("zero", ["0001-01-01T00:00:00Z", None])
    def test_a_job_that_never_started_has_no_start(self, stage: Stage, zero: str | None) -> None:
        """Skipped check runs carry null or the year 1."""
        run = check_run(1, startedAt=zero, detailsUrl=None, conclusion=None, status="QUEUED")
        (jobs,) = suites(stage, body({"nodes": [suite(1, [run])]}), 1)
        assert jobs is not None
        (job,) = jobs.jobs
        assert (job.started_at, job.conclusion, job.status) == (None, None, "queued")
        assert job.html_url == "https://github.com/acme/pool/runs/1"

    def test_more_jobs_than_a_page_holds_are_announced_and_paged(self, stage: Stage) -> None:
        """350 jobs come in four pages."""
        (jobs,) = suites(stage, body({"nodes": [suite(1, [check_run(1)], total=350, more=True)]}), 1)
        assert jobs is not None
        assert (jobs.total, jobs.end_cursor) == (350, "more")
        client = stage.client([body({"nodes": [suite(1, [check_run(2)], total=350)]})])
        rest = stage.run(client, lambda client: fetch_suite(client, "CS_1", 1, repository_id=99, after="more"))
        assert rest is not None
        assert (rest.end_cursor, rest.jobs[0].name) == (None, "build 2")
        assert sent(stage) == {"ids": ["CS_1"], "size": 100, "cursor": "more"}

    @pytest.mark.parametrize(
        "node",
        [
            None,
            {"__typename": "Issue"},
            {**suite(2, []), "checkRuns": None},
            suite(2, [check_run(1), None]),
            suite(3, [check_run(1)]),
        ],
        ids=["null", "another kind", "no list", "a null inside", "of another run"],
    )
    def test_what_is_not_the_whole_suite_is_a_gap_in_its_place(self, stage: Stage, node: dict[str, Any] | None) -> None:
        """The neighbours keep their places."""
        first, gap, third = suites(stage, body({"nodes": [suite(1, []), node, suite(3, [])]}), 1, 2, 3)
        assert first is not None
        assert third is not None
        assert (first.verification_id, gap, third.verification_id) == (1, None, 3)

    def test_a_list_that_is_too_short_has_gaps_at_its_end(self, stage: Stage) -> None:
        """A missing tail is missing, not done."""
        assert suites(stage, body({"nodes": [suite(1, [])]}), 1, 2, 3)[1:] == [None, None]

    def test_a_list_that_is_too_long_is_an_error(self, stage: Stage) -> None:
        """Then nobody knows which is which."""
        with pytest.raises(PayloadError, match="nodes"):
            suites(stage, body({"nodes": [suite(1, []), suite(2, [])]}), 1)

    def test_an_error_inside_a_suite_makes_it_a_gap(self, stage: Stage) -> None:
        """A conclusion that could not be read is not "no conclusion"."""
        spoilt = suite(2, [check_run(1, conclusion=None)])
        faults = [fault("nodes", 1, "checkRuns", "nodes", 0, "conclusion", type_="")]
        assert suites(stage, body({"nodes": [suite(1, []), spoilt]}, *faults), 1, 2)[1] is None

    def test_only_forbidden_suites_are_a_missing_permission(self, stage: Stage) -> None:
        """An App without the checks permission gets an error, not gaps for ever."""
        with pytest.raises(Forbidden):
            suites(stage, body({"nodes": [None]}, fault("nodes", 0)), 1)

    @pytest.mark.parametrize("count", [0, 101])
    def test_github_takes_a_hundred_ids_at_once(self, stage: Stage, count: int) -> None:
        """More is the caller's mistake, told before it costs anything."""
        with pytest.raises(ValueError, match="1 to 100"):
            suites(stage, body({}), *range(count))


class TestActivity:
    """Which repositories changed at all."""

    def test_activity_tells_the_newest_change_and_how_many_there_are(self, stage: Stage) -> None:
        """A repository without pull requests has none that is newest."""
        bare = activity_node(2, pushedAt=None, pullRequests={"totalCount": 0, "nodes": []})
        pushed, changed = utc(1, 10), utc(2, 10)
        assert activity(stage, body({"nodes": [activity_node(1), None, bare]}), "R_1", "R_x", "R_2") == [
            Activity(1, "R_1", "acme/r1", archived=False, pushed_at=pushed, changes=5, change_updated_at=changed),
            None,
            Activity(2, "R_2", "acme/r2", archived=False, pushed_at=None, changes=0, change_updated_at=None),
        ]


@pytest.mark.parametrize(
    ("name", "variables", "points"),
    [
        ("ChangesForward", {"size": 100}, 3),
        ("ChangesBackward", {"size": 100}, 3),
        ("ChangesForward", {"size": 33}, 1),
        ("ChangesBackward", {"size": 1}, 1),
        ("Suites", {"ids": ["x"] * 100, "size": 100}, 1),
        ("Activity", {"ids": ["x"] * 100}, 1),
    ],
)
def test_each_document_costs_by_githubs_formula(name: str, variables: dict[str, Any], points: int) -> None:
    """So 1,000 pull requests take 30 points, and the jobs of 1,000 runs take 10."""
    assert cost_of(DOCUMENTS[name], variables).points == points


@pytest.mark.parametrize("size", [1, 33, 50, 51, 100])
def test_the_expected_cost_of_a_page_is_the_formulas(stage: Stage, size: int) -> None:
    """Where GitHub does not report the cost, the client counts the same."""
    client = stage.client([body({**changes_data([]), "rateLimit": None})])
    stage.run(client, lambda client: fetch_changes(client, "acme/pool", last=size))
    assert client.spent.points == cost_of(DOCUMENTS["ChangesBackward"], {"size": size}).points


def test_every_document_asks_for_its_true_cost() -> None:
    """The cost GitHub reports is the one that counts."""
    assert all("rateLimit { cost }" in document for document in DOCUMENTS.values())


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: fetch_suites(client, {"CS_1": 1}, repository_id=99, size=1),
        lambda client: fetch_suite(client, "CS_1", 1, repository_id=99, size=1),
    ],
)
def test_a_single_check_run_is_tried_again(stage: Stage, ask: Callable[[GitHubClient], Awaitable[object]]) -> None:
    """There is nothing smaller to ask for."""
    stage.run(stage.client([httpx.Response(504), body({"nodes": [suite(1, [])]})]), ask)
    assert stage.naps == [2.0]
