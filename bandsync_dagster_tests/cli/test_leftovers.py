"""What a command that was killed has left in Dagster's storage is settled by the next one."""

import dagster as dg
import pytest
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteRepositoryOrigin
from dagster._core.test_utils import create_run_for_test
from dagster._core.utils import make_new_run_id

from bandsync_dagster.cli.leftovers import settle_leftovers
from bandsync_dagster.tags import COLLECTION

Status = dg.DagsterRunStatus
ORIGIN = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("bandsync"), "__repository__").get_job_origin("collection")


@pytest.mark.parametrize(
    ("status", "tags", "after"),
    [
        (Status.QUEUED, {COLLECTION: "earlier"}, Status.CANCELED),
        (Status.NOT_STARTED, {COLLECTION: "earlier"}, Status.CANCELED),
        (Status.STARTED, {COLLECTION: "earlier"}, Status.CANCELED),
        (Status.QUEUED, {"dagster/backfill": "abc"}, Status.QUEUED),
        (Status.STARTING, {}, Status.FAILURE),
        (Status.STARTED, {}, Status.FAILURE),
        (Status.CANCELING, {}, Status.CANCELED),
        (Status.SUCCESS, {COLLECTION: "earlier"}, Status.SUCCESS),
        (Status.FAILURE, {}, Status.FAILURE),
    ],
)
def test_each_run_ends_as_nobody_works_on_it_any_more(
    instance: dg.DagsterInstance, status: Status, tags: dict[str, str], after: Status
) -> None:
    """A lost run would hold its place in the pool; a queued one of a dead collection would be in the next one's way."""
    run_id = make_new_run_id()
    create_run_for_test(instance, run_id=run_id, status=status, tags=tags, remote_job_origin=ORIGIN)
    settle_leftovers(instance)
    found = instance.get_run_by_id(run_id)
    assert found is not None
    assert found.status is after
