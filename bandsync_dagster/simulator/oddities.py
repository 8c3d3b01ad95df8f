"""The values that break naive collectors: each was seen in real data, and generated worlds have them from the start."""

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

from bandsync_dagster.simulator.records import Repository, Run
from bandsync_dagster.simulator.world import World

# GitHub answers Go's zero time for some jobs that were skipped before they were ever queued.
ZERO_TIME = datetime(1, 1, 1, tzinfo=timezone.utc)
NO_RUNNER: dict[str, Any] = {
    "runner_id": None,
    "runner_name": None,
    "runner_group_id": None,
    "runner_group_name": None,
}
LARGEST_BODY = 65_536
SPECIAL_FROM = 8

Values = dict[str, Any]


def special_repositories(count: int) -> dict[int, Values]:
    """Return what is special about some of the last of `count` repositories, by position."""
    if count < SPECIAL_FROM:
        return {}
    special: list[Values] = [
        {"empty": True},
        {"archived": True},
        {"fork": True},
        {"private": True, "visibility": "private"},
        {"actions": "empty"},
    ]
    return {count - 1 - position: values for position, values in enumerate(special)}


def change_values(world: World, repository: Repository, position: int) -> Values:
    """Return the awkward values of a change; positions in a row give all of them in turn."""
    kinds: list[Callable[[], Values]] = [
        lambda: {"title": "ends in \x00 NUL", "body": "\x00"},
        lambda: {"author": None},
        lambda: {"author": world.add_user("dependabot[bot]", "Bot"), "head_ref": "dependabot/pip/rich-15"},
        lambda: {"title": "half an emoji \ud83d and a whole one \U0001f680"},
        lambda: {"head_repository_id": None, "head_ref": "main"},
        lambda: {"author": world.add_user("mona-imported", "Mannequin")},
        lambda: {
            "labels": [
                world.label(repository, "needs\x00triage"),
                world.label(repository, "\u200f\u0639\u0627\u062c\u0644"),
            ]
        },
        lambda: {"reviews": None},
        lambda: {"title": "x" * 1024, "body": "y" * LARGEST_BODY},
        lambda: {"author": repository.owner, "title": "\u202eright to left\nand two lines"},
        lambda: {"merged_by": None},
        lambda: {"commits": 0, "first_commit_at": None, "additions": 0, "deletions": 0, "changed_files": 0},
        lambda: {"body": None, "base_ref": "release/2.x", "head_ref": "gr\u00fc\u00dfe/\U0001f3b8"},
    ]
    return kinds[position % len(kinds)]()


def add_run(world: World, repository: Repository, position: int, at: datetime, values: Values) -> Run:
    """Add an awkward run; positions in a row give all kinds in turn."""
    return RUNS[position % len(RUNS)](world, repository, at, values)


def _later(world: World, at: datetime, hours: int) -> datetime:
    """Return the time some hours on, but not after the world's present."""
    return min(at + timedelta(hours=hours), world.now())


def _without_jobs(world: World, repository: Repository, at: datetime, values: Values) -> Run:
    """A workflow file that could not be parsed."""
    return world.add_run(repository, at=at, jobs=0, conclusion="startup_failure", **{**values, "name": None})


def _many_jobs(world: World, repository: Repository, at: datetime, values: Values) -> Run:
    """A matrix: more jobs than any page holds."""
    jobs = [{"name": f"test ({number // 13}, {number % 13})"} for number in range(130)]
    return world.add_run(repository, at=at, jobs=jobs, **values)


def _skipped(world: World, repository: Repository, at: datetime, values: Values) -> Run:
    """Skipped jobs: never assigned, times missing, zero, or the wrong way round."""
    skipped = {"status": "completed", "conclusion": "skipped", "labels": [], **NO_RUNNER}
    jobs = [
        {"name": "deploy", **skipped, "started_at": ZERO_TIME, "completed_at": at},
        {"name": "publish", **skipped, "started_at": None},
        {"name": "notify", **skipped, "started_at": at, "completed_at": at - timedelta(seconds=1)},
    ]
    return world.add_run(repository, at=at, jobs=jobs, conclusion="skipped", **values)


def _ended_before_it_began(world: World, repository: Repository, at: datetime, values: Values) -> Run:
    """A cancelled job whose end lies three weeks before its start, the worst seen."""
    ended = at - timedelta(seconds=1_906_073)
    jobs = [
        {"name": "build", "status": "completed", "conclusion": "cancelled", "started_at": at, "completed_at": ended}
    ]
    return world.add_run(repository, at=at, jobs=jobs, conclusion="cancelled", **values)


def _stale(world: World, repository: Repository, at: datetime, values: Values) -> Run:
    """Given up by GitHub after two weeks: there is no end."""
    jobs = [{"name": "build", "status": "completed", "conclusion": "stale", **NO_RUNNER}]
    return world.add_run(repository, at=at, jobs=jobs, conclusion="stale", **values)


def _without_conclusion(world: World, repository: Repository, at: datetime, values: Values) -> Run:
    """Completed, and nobody knows how."""
    run = world.add_run(repository, at=at, jobs=1, conclusion=None, **values)
    world.finish_run(run, None)
    return run


def _job_never_ended(world: World, repository: Repository, at: datetime, values: Values) -> Run:
    """A finished run with a job that still waits."""
    waiting = {"name": "approve", "status": "queued", "labels": ["self-hosted"], **NO_RUNNER}
    return world.add_run(repository, at=at, jobs=[{"name": "build"}, waiting], **values)


def _never_started(world: World, repository: Repository, at: datetime, values: Values) -> Run:
    """The spending limit: a failure without runner and steps."""
    job = {"name": "build", "status": "completed", "conclusion": "failure", "started_at": at, "completed_at": at}
    return world.add_run(repository, at=at, jobs=[{**job, "steps": [], **NO_RUNNER}], conclusion="failure", **values)


def _unexpanded_matrix(world: World, repository: Repository, at: datetime, values: Values) -> Run:
    """Cancelled before the matrix was expanded: the job is named by its template."""
    job = {"status": "completed", "conclusion": "cancelled", "started_at": at, "completed_at": at, **NO_RUNNER}
    jobs = [{"name": "test (${{ matrix.os }}, ${{ matrix.python }})", **job}]
    return world.add_run(repository, at=at, jobs=jobs, conclusion="cancelled", **values)


def _odd_text(world: World, repository: Repository, at: datetime, values: Values) -> Run:
    """NUL, half a surrogate pair, line breaks and wide characters wherever text can be."""
    step = {"name": "run \x00 it", "status": "completed", "conclusion": "success", "number": 1}
    step |= {"started_at": "2020-01-20T09:42:40.000-08:00", "completed_at": None}
    jobs = [
        {"name": "b\x00uild \U0001f3b8", "labels": ["self\x00hosted", "\U0001f427"], "steps": [step]},
        {"name": "two\nlines", "runner_name": "runner \ud83d"},
    ]
    titles = {"display_title": "\x00" + "d" * 1023, "name": "CI \ud83d", "head_branch": "fix/\x00\U0001f3b8"}
    return world.add_run(repository, at=at, jobs=jobs, **{**values, **titles})


def _nobody(world: World, repository: Repository, at: datetime, values: Values) -> Run:
    """Fork, branch and account are gone."""
    gone = {"actor": None, "head_repository_id": None, "head_branch": None, "name": None, "event": "pull_request"}
    return world.add_run(repository, at=at, **{**values, **gone})


def _in_progress(world: World, repository: Repository, at: datetime, values: Values) -> Run:
    return world.add_run(repository, at=at, conclusion=None, **values)


def _by_bot(world: World, repository: Repository, at: datetime, values: Values) -> Run:
    """Started by a bot, on a commit that has runs already, in the same second."""
    newest = repository.runs[-1] if repository.runs else None
    bot = {"actor": world.add_user("dependabot[bot]", "Bot"), "head_sha": newest.head_sha if newest else world.sha()}
    return world.add_run(repository, at=newest.created_at if newest else at, **{**values, **bot})


def _rerun(world: World, repository: Repository, at: datetime, values: Values) -> Run:
    run = world.add_run(repository, at=at, conclusion="failure", **values)
    world.rerun(run, at=_later(world, at, 1), actor=world.add_user("dev-1"), conclusion="failure")
    world.rerun(run, at=_later(world, at, 2), actor=world.add_user("dev-2"))
    return run


def _partly_rerun(world: World, repository: Repository, at: datetime, values: Values) -> Run:
    """Only the failed job ran again, twice; the others appear as copies each time."""
    jobs = [{"name": "build", "conclusion": "success"}, {"name": "test"}, {"name": "lint", "conclusion": "success"}]
    run = world.add_run(repository, at=at, jobs=jobs, conclusion="failure", **values)
    world.rerun(run, failed_only=True, at=_later(world, at, 1), conclusion="failure")
    world.rerun(run, failed_only=True, at=_later(world, at, 2), actor=world.add_user("dev-2"))
    return run


def _rerun_in_progress(world: World, repository: Repository, at: datetime, values: Values) -> Run:
    run = world.add_run(repository, at=at, conclusion="failure", **values)
    world.rerun(run, at=_later(world, at, 1), conclusion=None)
    return run


def _queued(world: World, repository: Repository, at: datetime, values: Values) -> Run:
    """Waits for a runner; has no jobs yet."""
    run = world.add_run(repository, at=at, jobs=0, conclusion=None, **values)
    run.attempt.status = "queued"
    return run


def _annotated(world: World, repository: Repository, at: datetime, values: Values) -> Run:
    """Its `updated_at` moved days after it had ended."""
    run = world.add_run(repository, at=at, **values)
    world.annotate_run(run, at=_later(world, at, 9))
    return run


RUNS: list[Callable[[World, Repository, datetime, Values], Run]] = [
    *(_without_jobs, _many_jobs, _skipped, _ended_before_it_began, _stale, _without_conclusion, _job_never_ended),
    *(_never_started, _unexpanded_matrix, _odd_text, _nobody, _in_progress, _by_bot, _rerun, _partly_rerun),
    *(_rerun_in_progress, _queued, _annotated),
]
# Every second of the first runs of a repository is awkward, so that all kinds are there; later it is one in 25.
FIRST_RUNS = 2 * len(RUNS)
