"""Where a repository stands, told from its runs."""

import pytest

from bandsync_dagster.cli.tracking import Standing, count, track, tracks
from bandsync_dagster_tests.cli.collections import run


@pytest.mark.parametrize(
    ("status", "standing"),
    [
        ("QUEUED", Standing.WAITING),
        ("NOT_STARTED", Standing.WAITING),
        ("STARTING", Standing.RUNNING),
        ("STARTED", Standing.RUNNING),
        ("CANCELING", Standing.RUNNING),
        ("SUCCESS", Standing.DONE),
        ("FAILURE", Standing.FAILED),
        ("CANCELED", Standing.CANCELLED),
    ],
)
def test_one_run_decides_by_its_status(status: str, standing: Standing) -> None:
    """Without deferrals and retries a repository stands where its only run does."""
    assert track([run(1, status=status)]).standing is standing


def test_a_repository_without_a_run_is_missing() -> None:
    """What was never launched can't be taken for done."""
    assert track([]).standing is Standing.MISSING
    assert not Standing.MISSING.is_final


def test_a_deferred_run_counts_as_its_successor_stands() -> None:
    """A deferred run has ended well, and is not done: its queued successor is."""
    deferred = track([run(2, status="QUEUED", after=1), run(1)])
    assert (deferred.standing, deferred.deferrals) == (Standing.DEFERRED, 1)
    again = track([run(3, status="STARTED", after=2), run(2, after=1), run(1)])
    assert (again.standing, again.deferrals) == (Standing.RUNNING, 2)
    assert track([run(3, after=2), run(2, after=1), run(1)]).standing is Standing.DONE


def test_a_re_execution_that_copied_the_tag_is_no_successor() -> None:
    """Somebody who runs a deferred run's successor again by hand copies its tags; the parent tells them apart."""
    copy = run(3, status="QUEUED", after=1, parent="run-2")
    assert track([copy, run(2, after=1), run(1)]).standing is Standing.WAITING


def test_a_lost_run_that_dagster_starts_again_has_not_failed() -> None:
    """A killed worker is retried by Dagster's daemon; until then the repository waits."""
    lost = run(1, status="FAILURE", tags={"dagster/will_retry": "true"})
    assert track([lost]).standing is Standing.WAITING
    assert track([run(2, parent="run-1"), lost]).standing is Standing.DONE


def test_runs_are_sorted_to_their_repositories_and_others_ignored() -> None:
    """Runs of other asset jobs and of other repositories of the same collection change nothing."""
    found = tracks(
        ["acme/pool", "acme/sea"],
        [run(3, status="FAILURE"), run(2, key="acme/else"), run(1, job="discovery", status="FAILURE")],
    )
    assert {key: one.standing for key, one in found.items()} == {
        "acme/pool": Standing.FAILED,
        "acme/sea": Standing.MISSING,
    }
    assert count(found) == {Standing.FAILED: 1, Standing.MISSING: 1}
