"""Rows as GitHub's answers give them, with only what a test is about to be said."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone

from bandsync_dagster.github.models import Change, Job
from bandsync_dagster.store.queries import PendingVerification

NOON = datetime(2026, 11, 2, 12, tzinfo=timezone.utc)


def after(**span: float) -> datetime:
    """Return a moment after (or, negative, before) noon."""
    return NOON + timedelta(**span)


def change(updated_at: datetime, *, number: int = 1) -> Change:
    """Return a pull request."""
    return Change(
        id=number,
        repository_id=1,
        node_id=f"PR_{number}",
        number=number,
        title="",
        state="open",
        draft=False,
        author_login=None,
        author_id=None,
        author_type=None,
        author_is_bot=None,
        base_ref="main",
        base_sha="0",
        head_ref="topic",
        head_sha="1",
        additions=0,
        deletions=0,
        changed_files=0,
        commits=1,
        comments=0,
        reviews=0,
        review_decision=None,
        first_review_at=None,
        first_commit_at=None,
        labels=[],
        created_at=updated_at,
        updated_at=updated_at,
        closed_at=None,
        merged_at=None,
        merge_commit_sha=None,
        merged_by_login=None,
        merged_by_id=None,
        html_url="",
    )


_JOB = Job(
    id=1,
    repository_id=1,
    verification_id=1,
    run_attempt=1,
    node_id=None,
    name="build",
    status="completed",
    conclusion="success",
    created_at=NOON,
    started_at=NOON,
    completed_at=after(minutes=1),
    html_url=None,
)


def job(number: int, **values: object) -> Job:
    """Return a job that ran for a minute from noon and succeeded, but for what is said otherwise."""
    return replace(_JOB, id=number, **values)  # pyright: ignore[reportArgumentType]


def pending(**values: object) -> PendingVerification:
    """Return a finished run whose jobs are wanted, but for what is said otherwise."""
    run = PendingVerification(
        id=1,
        run_attempt=1,
        status="completed",
        conclusion="success",
        check_suite_node_id="CS_1",
        created_at=NOON,
        run_started_at=NOON,
        retries=0,
    )
    return run._replace(**values)
