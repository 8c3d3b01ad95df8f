"""The steps of a job, as REST spells them: times with an offset and milliseconds, on some jobs at least."""

from datetime import datetime, timedelta, timezone
from typing import Any

from bandsync_dagster.simulator.records import Job

NAMES = ("Set up job", "Checkout code", "Run tests", "Complete job")
# GitHub gives the times of steps in zones other than UTC now and then; job ids decide here which ones.
ZONES = (timezone.utc, timezone(timedelta(hours=-8)), timezone(timedelta(hours=5, minutes=30)))


def steps_of(job: Job) -> list[dict[str, Any]]:
    """Return the steps of a job: its own if it has any, else usual ones that fit its times."""
    if job.steps is not None:
        return job.steps
    if job.started_at is None or job.completed_at is None or job.runner_id is None:
        return []
    length = max(job.completed_at - job.started_at, timedelta()) / len(NAMES)
    zone = ZONES[job.id % len(ZONES)]
    return [_step(job, number, job.started_at + length * number, length, zone) for number in range(len(NAMES))]


def _step(job: Job, number: int, began: datetime, length: timedelta, zone: timezone) -> dict[str, Any]:
    return {
        "name": NAMES[number],
        "status": "completed",
        "conclusion": job.conclusion if number == NAMES.index("Run tests") else "success",
        "number": number + 1,
        "started_at": step_time(began, zone),
        "completed_at": step_time(began + length, zone),
    }


def step_time(time: datetime, zone: timezone) -> str:
    """Return a step's time as GitHub spells it: with `Z`, or with milliseconds and an offset."""
    if zone is timezone.utc:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ")
    return time.astimezone(zone).isoformat(timespec="milliseconds")
