"""When the jobs of a run are asked for again."""

from datetime import timedelta

import pytest

from bandsync_dagster.collection.jobs import RETRY_AFTER, RunJobs, in_bulk, job_total, next_retry
from bandsync_dagster.github.models import Job
from bandsync_dagster.store.queries import PendingVerification
from bandsync_dagster_tests.collection.rows import NOON, after, job, pending

UNFINISHED = job(1, status="in_progress", conclusion=None, completed_at=None)


def found(run: PendingVerification, *jobs: Job, **values: bool) -> RunJobs:
    """Return what GitHub had of a run."""
    return RunJobs(run, jobs, len(jobs), "basic", **values)


def test_a_finished_run_with_finished_jobs_is_done() -> None:
    """So is one without any jobs: a workflow that could not start has none."""
    assert next_retry(found(pending(), job(1)), NOON) == (None, 0)
    assert next_retry(found(pending()), NOON) == (None, 0)


@pytest.mark.parametrize("unsettled", [UNFINISHED, job(1, conclusion=None)])
def test_an_unfinished_job_of_a_finished_run_is_asked_for_ever_more_rarely_and_then_no_more(unsettled: Job) -> None:
    """At the next sync first; after as many times as there are waits, never again."""
    waits, run = [], pending()
    while True:
        retry_at, retries = next_retry(found(run, unsettled), NOON)
        if retry_at is None:
            break
        waits.append(retry_at - NOON)
        run = run._replace(retries=retries)
    assert tuple(waits) == RETRY_AFTER
    assert sorted(waits) == waits


def test_a_suite_that_lags_behind_its_run_is_asked_again() -> None:
    """It may not have all its jobs yet."""
    assert next_retry(found(pending(), job(1), lagging=True), NOON) == (NOON, 1)


@pytest.mark.parametrize("status", ["queued", "in_progress", "waiting", None])
def test_a_run_that_goes_on_is_asked_at_every_sync_and_uses_up_no_retry(status: str | None) -> None:
    """Its jobs so far are worth having, and will change."""
    run = pending(status=status, retries=3)
    assert next_retry(found(run, job(1)), after(days=30)) == (after(days=30), 0)


def test_a_run_that_should_have_ended_long_ago_is_asked_once_a_day() -> None:
    """GitHub ends a run after 35 days; some never learn of it."""
    run = pending(status="in_progress")
    now = after(days=40)
    assert next_retry(found(run, UNFINISHED), now) == (now + timedelta(days=1), 0)


def test_a_run_github_has_no_more_is_asked_for_a_few_times_before_it_is_done() -> None:
    """While Actions are disabled all runs look deleted, and come back when they are enabled."""
    run = pending(status="queued")
    assert next_retry(found(run, gone=True), NOON) == (NOON, 1)
    assert next_retry(found(run._replace(retries=len(RETRY_AFTER)), gone=True), NOON) == (None, len(RETRY_AFTER))


def test_the_total_vouches_for_the_attempt_and_the_detail_that_were_collected() -> None:
    """A later attempt, or more detail, makes the run pending again."""
    run = pending(id=7, run_attempt=3)
    assert job_total(RunJobs(run, [job(1)], 5, "full"), 11, NOON) == {
        "verification_id": 7,
        "repository_id": 11,
        "run_attempt": 3,
        "total": 5,
        "detail": "full",
        "retry_at": None,
        "retries": 0,
        "collected_at": NOON,
    }


@pytest.mark.parametrize(
    ("values", "detail", "expected"),
    [
        ({}, "basic", True),
        ({}, "full", False),
        ({"run_attempt": 2}, "basic", False),
        ({"check_suite_node_id": None}, "basic", False),
    ],
)
def test_only_first_attempts_in_basic_detail_go_by_graphql(
    values: dict[str, object], detail: str, expected: bool
) -> None:
    """GraphQL knows neither the attempt of a job nor its labels, and needs the check suite."""
    assert in_bulk(pending(**values), detail) is expected
