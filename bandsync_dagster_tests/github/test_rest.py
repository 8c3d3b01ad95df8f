"""REST endpoints: what is asked, and which rows come of real answers."""

from datetime import datetime, timedelta, timezone
from typing import Any

import httpx
import pytest

from bandsync_dagster.github.client import GitHubClient
from bandsync_dagster.github.errors import NotFound, PayloadError, RequestRefused
from bandsync_dagster.github.models import Job, Repository, Verification
from bandsync_dagster.github.quota import QuotaReading
from bandsync_dagster.github.rest import (
    JobPage,
    RunPage,
    created_filter,
    fetch_jobs,
    fetch_owner_kind,
    fetch_rate_limit,
    fetch_repository,
    fetch_run,
    fetch_runs,
    iterate_repositories,
)
from bandsync_dagster_tests.github.surroundings import NOON, Stage, answer, recorded

REPOSITORY: dict[str, Any] = {
    "id": 3_000_000_000,
    "node_id": "R_1",
    "full_name": "acme/pool",
    "private": False,
    "visibility": "public",
    "archived": True,
    "disabled": False,
    "fork": False,
    "default_branch": "main",
    "created_at": "2020-01-01T00:00:00Z",
    "pushed_at": None,
    "has_pull_requests": True,
}
MINIMAL = {name: REPOSITORY[name] for name in ("id", "node_id", "full_name", "private", "fork")}
RUNS = recorded("workflow_runs")
JOBS = recorded("jobs")


def utc(text: str) -> datetime:
    """Return a time from its text."""
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc)


def runs(stage: Stage, response: httpx.Response, **options: Any) -> RunPage:
    """Fetch a page of workflow runs."""
    client = stage.client([response])
    return stage.run(client, lambda client: fetch_runs(client, "acme/pool", repository_id=9, **options))


def jobs(stage: Stage, items: list[Any], *, full: bool = False) -> JobPage:
    """Fetch the jobs of the run that the items belong to."""
    run_id = items[0]["run_id"] if items else 1
    client = stage.client([answer({"total_count": len(items), "jobs": items})])
    return stage.run(client, lambda client: fetch_jobs(client, "acme/pool", run_id, repository_id=9, full=full))


def listing(stage: Stage, pages: list[httpx.Response], kind: Any = "org") -> list[list[Repository]]:
    """List an owner's repositories."""

    async def collect(client: GitHubClient) -> list[list[Repository]]:
        return [page async for page in iterate_repositories(client, kind, "acme")]

    return stage.run(stage.client(pages), collect)


class TestRepositories:
    """Repositories, alone and listed."""

    def test_every_field_of_a_repository_becomes_its_column(self, stage: Stage) -> None:
        """The id may be beyond 2^31."""
        client = stage.client([answer(REPOSITORY)])
        assert stage.run(client, lambda client: fetch_repository(client, "acme/pool")) == Repository(
            id=3_000_000_000,
            node_id="R_1",
            full_name="acme/pool",
            private=False,
            visibility="public",
            archived=True,
            disabled=False,
            fork=False,
            default_branch="main",
            created_at=utc("2020-01-01"),
            pushed_at=None,
            has_pull_requests=True,
        )

    def test_a_minimal_repository_is_neither_archived_nor_disabled(self, stage: Stage) -> None:
        """Listings may leave out what does not apply."""
        client = stage.client([answer(MINIMAL)])
        repository = stage.run(client, lambda client: fetch_repository(client, "acme/pool"))
        assert (repository.archived, repository.disabled, repository.visibility) == (False, False, None)
        assert repository.has_pull_requests is None

    def test_a_renamed_repository_comes_under_its_new_name(self, stage: Stage) -> None:
        """The caller compares the names."""
        moved = answer({"message": "Moved Permanently"}, {"location": "https://api.github.com/repositories/1"}, 301)
        client = stage.client([moved, answer({**REPOSITORY, "full_name": "acme/lake"})])
        assert stage.run(client, lambda client: fetch_repository(client, "acme/pool")).full_name == "acme/lake"

    @pytest.mark.parametrize(
        "name", ["acme", "acme/", "/pool", "a/b/c", "acme/..", "../pool", "a b/c", "acme/pool?x=1", "é/x"]
    )
    def test_a_name_that_could_change_the_path_is_never_sent(self, stage: Stage, name: str) -> None:
        """It is the caller's mistake, told before anything is sent."""
        with pytest.raises(ValueError, match="name"):
            stage.run(stage.client([]), lambda client: fetch_repository(client, name))

    @pytest.mark.parametrize(("type_", "kind"), [("Organization", "org"), ("User", "user"), ("Bot", "user")])
    def test_an_owner_is_an_organisation_or_a_user(self, stage: Stage, type_: str, kind: str) -> None:
        """Their repositories are listed by different endpoints."""
        client = stage.client([answer({"type": type_})])
        assert stage.run(client, lambda client: fetch_owner_kind(client, "acme")) == kind

    @pytest.mark.parametrize(("kind", "path"), [("org", "/orgs/acme/repos"), ("user", "/users/acme/repos")])
    def test_a_listing_follows_the_links_to_its_end(self, stage: Stage, kind: str, path: str) -> None:
        """In order of creation: what is created meanwhile comes at the end."""
        link = {"link": '<https://api.github.com/organizations/5/repos?page=2>; rel="next"'}
        pages = listing(stage, [answer([MINIMAL, MINIMAL], link), answer([MINIMAL]), answer([])], kind)
        assert [len(page) for page in pages] == [2, 1]
        first, second = (request.url for request in stage.requests)
        assert first.path == path
        assert (first.params["sort"], first.params["direction"], first.params["per_page"]) == ("created", "asc", "100")
        assert str(second) == "https://api.github.com/organizations/5/repos?page=2"

    def test_an_owner_without_repositories_is_an_empty_page(self, stage: Stage) -> None:
        """Nothing is not a failure."""
        assert listing(stage, [answer([])]) == [[]]

    def test_links_that_lead_in_a_circle_are_an_error(self, stage: Stage) -> None:
        """A listing has to end."""
        link = {"link": '<https://api.github.com/organizations/5/repos?page=2>; rel="next"'}
        with pytest.raises(PayloadError, match="Link"):
            listing(stage, [answer([MINIMAL], link) for _ in range(9)])

    @pytest.mark.parametrize(
        ("page", "field"),
        [({}, "repositories"), ([None], "repositories[0]"), ([MINIMAL, {**MINIMAL, "id": "1"}], "repositories[1].id")],
    )
    def test_a_listing_of_the_wrong_shape_names_the_field(self, stage: Stage, page: object, field: str) -> None:
        """Which item, which field."""
        with pytest.raises(PayloadError) as caught:
            listing(stage, [answer(page)])
        assert (caught.value.endpoint, caught.value.field) == ("GET /orgs/acme/repos", field)


class TestRateLimit:
    """What is left, asked for free."""

    def test_both_buckets_are_read(self, stage: Stage) -> None:
        """Resets are epoch seconds."""
        reset = NOON + timedelta(minutes=5)
        bucket = {"limit": 5000, "used": 1, "remaining": 4999, "reset": int(reset.timestamp())}
        client = stage.client([answer({"resources": {"core": bucket, "graphql": bucket, "search": bucket}})])
        assert stage.run(client, fetch_rate_limit) == {
            name: QuotaReading(name, 5000, 4999, reset) for name in ("core", "graphql")
        }

    @pytest.mark.parametrize(
        "response",
        [
            answer({"message": "Rate limiting is not enabled."}, status=404),
            answer({"resources": {"core": {"limit": 0, "remaining": 0, "reset": 0}}}),
            answer({"resources": {}}),
        ],
    )
    def test_a_host_without_limits_has_no_readings(self, stage: Stage, response: httpx.Response) -> None:
        """GitHub Enterprise Server has rate limits switched off by default."""
        assert stage.run(stage.client([response]), fetch_rate_limit) == {}


class TestRuns:
    """Workflow runs."""

    def test_recorded_runs_are_read_in_full(self, stage: Stage) -> None:
        """Real answers, among them two in progress and some second attempts."""
        page = runs(stage, answer({"total_count": 20, "workflow_runs": RUNS}))
        assert [run.id for run in page.verifications] == [item["id"] for item in RUNS]
        assert page.repository_id == 134018330
        for run, item in zip(page.verifications, RUNS, strict=True):
            for name in ("node_id", "name", "path", "run_number", "run_attempt", "event", "workflow_id", "head_sha"):
                assert getattr(run, name) == item[name]
            assert (run.status, run.conclusion) == tuple(
                item[name] and item[name].lower() for name in ("status", "conclusion")
            )
            assert run.head_repository_id == (item["head_repository"] or {}).get("id")
            assert run.created_at == utc(item["created_at"].removesuffix("Z"))

    def test_every_field_of_a_run_becomes_its_column(self, stage: Stage) -> None:
        """A bot is told by its type, as REST spells it."""
        bot = {"login": "dependabot[bot]", "id": 49699333, "type": "Bot"}
        item = {**RUNS[0], "id": 34_317_780_383, "display_title": "Bump x", "actor": bot, "conclusion": None}
        (run,) = runs(stage, answer({"total_count": 1, "workflow_runs": [item]})).verifications
        assert run == Verification(
            id=34_317_780_383,
            repository_id=9,
            node_id="WFR_kwLOB_z1Gs6x0Jpl",
            name="CodeQL",
            display_title="Bump x",
            path=".github/workflows/codeql.yml",
            run_number=158,
            run_attempt=1,
            event="schedule",
            status="completed",
            conclusion=None,
            workflow_id=5904664,
            check_suite_id=8117851893,
            check_suite_node_id="CS_kwDOB_z1Gs8AAAAB49yW9Q",
            head_branch="master",
            head_sha="06e6934c35c336b1a2bd3005fb21dc3914a45747",
            actor_login="dependabot[bot]",
            actor_id=49699333,
            actor_type="Bot",
            actor_is_bot=True,
            triggering_actor_login="dev-1",
            triggering_actor_id=900001,
            head_repository_id=134018330,
            created_at=utc("2022-09-03T05:15:09"),
            updated_at=utc("2022-09-03T05:16:16"),
            run_started_at=utc("2022-09-03T05:15:09"),
            html_url="https://github.com/acme/pool/actions/runs/2983238245",
        )

    def test_what_github_leaves_null_is_none(self, stage: Stage) -> None:
        """Deleted forks, deleted users, runs without a name."""
        names = ["actor", "triggering_actor", "head_repository", "name", "head_branch", "conclusion", "run_started_at"]
        (run,) = runs(
            stage, answer({"total_count": 1, "workflow_runs": [{**RUNS[0], **dict.fromkeys(names)}]})
        ).verifications
        nothing = [
            "actor_login",
            "actor_id",
            "actor_type",
            "actor_is_bot",
            "triggering_actor_login",
            "triggering_actor_id",
        ]
        nothing += ["head_repository_id", "name", "head_branch", "conclusion", "run_started_at"]
        assert {name: getattr(run, name) for name in nothing} == dict.fromkeys(nothing)

    def test_a_page_is_asked_for_without_pull_requests(self, stage: Stage) -> None:
        """They make answers large and slow, and say nothing certain."""
        created = (datetime(2026, 1, 1, 12, 30, 5, 999, timezone.utc), datetime(2026, 1, 2, tzinfo=timezone.utc))
        runs(stage, answer({"total_count": 0, "workflow_runs": []}), created=created, per_page=30, page=2)
        assert dict(stage.requests[0].url.params) == {
            "per_page": "30",
            "page": "2",
            "exclude_pull_requests": "true",
            "created": "2026-01-01T12:30:05Z..2026-01-02T00:00:00Z",
        }

    def test_a_range_may_be_open(self) -> None:
        """GitHub's search syntax has `*` for that; times are in UTC whatever they came in."""
        moment = datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
        assert created_filter(None, moment) == "*..2026-01-01T00:00:00Z"
        assert created_filter(moment, None) == "2026-01-01T00:00:00Z..*"

    @pytest.mark.parametrize(
        ("total", "filtered", "exact"),
        [(2499, True, True), (2500, True, False), (2500, False, True), (39_999, False, True), (40_000, False, False)],
    )
    def test_a_capped_total_is_a_lower_bound(self, stage: Stage, total: int, filtered: bool, exact: bool) -> None:
        """GitHub reports "2,500+" for a filter, and 40,000 at most."""
        created = (NOON, NOON) if filtered else None
        page = runs(stage, answer({"total_count": total, "workflow_runs": []}), created=created)
        assert (page.total, page.exact, page.repository_id) == (total, exact, None)

    def test_nothing_new_is_told_by_304(self, stage: Stage) -> None:
        """No rows, and no total either."""
        page = runs(stage, httpx.Response(304, headers={"etag": 'W/"a"'}), etag=lambda _: 'W/"a"')
        assert (page.modified, page.verifications, page.exact, page.etag) == (False, [], False, 'W/"a"')

    def test_an_answer_brings_its_etag_its_token_and_the_next_page(self, stage: Stage) -> None:
        """What the next time needs."""
        headers = {"etag": 'W/"b"', "link": '<https://api.github.com/repositories/9/actions/runs?page=2>; rel="next"'}
        page = runs(stage, answer({"total_count": 1, "workflow_runs": RUNS[:1]}, headers))
        assert (page.modified, page.etag, len(page.fingerprint)) == (True, 'W/"b"', 12)
        assert page.next == "https://api.github.com/repositories/9/actions/runs?page=2"

    def test_beyond_the_pagination_limit_is_a_refusal(self, stage: Stage) -> None:
        """422, which the caller tells by its status."""
        message = "In order to keep the API fast for everyone, pagination is limited for this resource."
        with pytest.raises(RequestRefused, match="pagination") as caught:
            runs(stage, answer({"message": message}, status=422), page=401)
        assert caught.value.status == 422

    def test_one_run_can_be_asked_for(self, stage: Stage) -> None:
        """As it is now, at its latest attempt."""
        client = stage.client([answer(RUNS[3])])
        run = stage.run(client, lambda client: fetch_run(client, "acme/pool", RUNS[3]["id"], repository_id=9))
        assert (run.id, stage.requests[0].url.path) == (RUNS[3]["id"], f"/repos/acme/pool/actions/runs/{RUNS[3]['id']}")

    def test_a_run_that_is_gone_is_not_found(self, stage: Stage) -> None:
        """Retention deletes runs."""
        with pytest.raises(NotFound, match="/repos/acme/pool/actions/runs/1"):
            stage.run(
                stage.client([answer({"message": "Not Found"}, status=404)]),
                lambda client: fetch_run(client, "acme/pool", 1, repository_id=9),
            )

    @pytest.mark.parametrize(
        ("data", "field"),
        [
            ({"workflow_runs": []}, "total_count"),
            ({"total_count": 1}, "workflow_runs"),
            ({"total_count": 1, "workflow_runs": [{}]}, "workflow_runs[0].id"),
            ({"total_count": 1, "workflow_runs": [{**RUNS[0], "actor": {"login": 5}}]}, "workflow_runs[0].actor.login"),
            ([], "(whole answer)"),
        ],
    )
    def test_a_field_of_the_wrong_kind_is_named(self, stage: Stage, data: object, field: str) -> None:
        """Endpoint and field."""
        with pytest.raises(PayloadError) as caught:
            runs(stage, answer(data))
        assert caught.value.endpoint == "GET /repos/acme/pool/actions/runs"
        assert caught.value.field.startswith(field)


class TestJobs:
    """Jobs of a workflow run."""

    @pytest.mark.parametrize("item", JOBS, ids=lambda item: str(item["id"]))
    def test_a_recorded_job_is_read_in_full(self, stage: Stage, item: dict[str, Any]) -> None:
        """Each of the real ones."""
        (job,) = jobs(stage, [item], full=True).jobs
        same = ["id", "run_attempt", "node_id", "name", "html_url", "labels", "runner_id", "runner_name"]
        same += ["runner_group_id", "runner_group_name"]
        assert {name: getattr(job, name) for name in same} == {name: item.get(name) for name in same}
        assert (job.verification_id, job.repository_id, job.copy_of) == (item["run_id"], 9, None)
        assert job.status == item["status"].lower()
        assert job.steps is not None
        assert [step["name"] for step in job.steps] == [step["name"] for step in item["steps"]]

    def test_step_times_become_utc(self, stage: Stage) -> None:
        """They carry the runner's offset and milliseconds."""
        (job,) = jobs(stage, [JOBS[0]], full=True).jobs
        assert job.steps is not None
        assert job.steps[0] == {
            "number": 1,
            "name": "Set up job",
            "status": "completed",
            "conclusion": "success",
            "started_at": "2021-02-18T06:59:13Z",
            "completed_at": "2021-02-18T06:59:16Z",
        }

    def test_steps_are_left_out_unless_wanted(self, stage: Stage) -> None:
        """Everything else is kept: it came in the same answer."""
        (job,) = jobs(stage, [JOBS[0]]).jobs
        assert (job.steps, job.labels) == (None, [])

    def test_a_job_that_never_started_has_no_times(self, stage: Stage) -> None:
        """Null, or the year 1; and it may have ended before it started, which is kept as it is."""
        item = {**JOBS[0], "started_at": "0001-01-01T00:00:00Z", "completed_at": None, "labels": None, "steps": None}
        (job,) = jobs(stage, [item], full=True).jobs
        assert (job.started_at, job.completed_at, job.labels, job.steps) == (None, None, None, None)
        (job,) = jobs(stage, [{**JOBS[0], "completed_at": "2021-02-01T00:00:00Z"}]).jobs
        assert isinstance(job, Job)
        assert job.started_at is not None
        assert job.completed_at is not None
        assert job.completed_at < job.started_at

    def test_all_attempts_are_asked_for(self, stage: Stage) -> None:
        """`latest` leaves out what was not re-run."""
        page = jobs(stage, [])
        assert (page.jobs, page.total, page.next) == ([], 0, None)
        assert dict(stage.requests[0].url.params) == {"filter": "all", "per_page": "100", "page": "1"}

    def test_a_job_of_another_run_is_an_error(self, stage: Stage) -> None:
        """It must not be stored under this one."""
        with pytest.raises(PayloadError, match=r"jobs\[1\]\.run_id"):
            jobs(stage, [JOBS[0], {**JOBS[0], "run_id": 5}])
