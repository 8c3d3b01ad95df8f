"""Which jobs of a run again attempted only repeat one that ran before."""

from bandsync_dagster.collection.copies import with_copies
from bandsync_dagster.github.models import Job
from bandsync_dagster_tests.collection.rows import after, job


def copies(*jobs: Job) -> dict[int, int]:
    """Return the copies among the jobs, each with the id it repeats."""
    return {each.id: each.copy_of for each in with_copies(jobs) if each.copy_of is not None}


def test_a_job_carried_over_into_a_later_attempt_is_a_copy() -> None:
    """Same name, times and conclusion under the next attempt: it did not run again."""
    assert copies(job(1), job(2, run_attempt=2)) == {2: 1}


def test_a_copy_of_a_copy_points_to_the_job_that_ran() -> None:
    """After three attempts both copies lead to the first."""
    assert copies(job(1), job(2, run_attempt=2), job(3, run_attempt=3)) == {2: 1, 3: 1}


def test_a_job_that_ran_again_is_no_copy() -> None:
    """Other times, or another conclusion, mean another execution."""
    again = job(2, run_attempt=2, started_at=after(hours=1), completed_at=after(hours=2))
    assert copies(job(1), again, job(3, run_attempt=2, conclusion="failure")) == {}


def test_equal_jobs_of_one_attempt_are_no_copies_of_each_other() -> None:
    """A matrix may have jobs that are alike in everything but their id."""
    assert copies(job(1), job(2)) == {}


def test_equal_jobs_are_paired_with_their_copies_in_order() -> None:
    """Two equal jobs and their two copies are two pairs; a third copy has nothing to repeat."""
    later = [job(number, run_attempt=2) for number in (12, 11, 13)]
    assert copies(job(2), job(1), *later) == {11: 1, 12: 2}


def test_a_job_that_did_not_finish_is_no_copy() -> None:
    """Two jobs that wait look alike and may still become anything."""
    waiting = {"status": "queued", "conclusion": None, "started_at": None, "completed_at": None}
    assert copies(job(1, **waiting), job(2, run_attempt=2, **waiting)) == {}


def test_all_jobs_come_back_in_the_order_given() -> None:
    """Recognising copies loses no job and changes nothing else."""
    jobs = [job(3, run_attempt=2), job(1), job(2, name="test")]
    assert [each.id for each in with_copies(jobs)] == [3, 1, 2]
    assert with_copies([]) == []
