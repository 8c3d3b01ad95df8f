"""Tells the jobs that ran from those that a partial re-run only carried over. Pure.

After "re-run failed jobs", GitHub lists the jobs that were not run again once more under the new attempt: with another
id, and the same name, times and conclusion.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from bandsync_dagster.github.models import Job


def with_copies(jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs of all attempts of one run, each copy pointing to the job of the earliest attempt it repeats.

    Equal jobs of one attempt are no copies of each other; where there are several, they are paired in order of id.
    """
    alike: dict[object, list[Job]] = defaultdict(list)
    for job in sorted(jobs, key=lambda job: (job.run_attempt, job.id)):
        if job.status == "completed":
            alike[job.name, job.started_at, job.completed_at, job.conclusion].append(job)
    originals = {copy: original for group in alike.values() for copy, original in _pairs(group)}
    return [replace(job, copy_of=originals[job.id]) if job.id in originals else job for job in jobs]


def _pairs(group: Sequence[Job]) -> list[tuple[int, int]]:
    """Return the copies among equal jobs, in order of attempt, with the id each repeats."""
    attempts: dict[int, list[int]] = defaultdict(list)
    for job in group:
        attempts[job.run_attempt].append(job.id)
    first, *later = attempts.values()
    return [pair for ids in later for pair in zip(ids, first, strict=False)]
