"""What happens in a world: identities, orders, re-runs, moves."""

from datetime import datetime, timedelta, timezone

import pytest

from bandsync_dagster.simulator.records import updated_order
from bandsync_dagster.simulator.world import World

NOW = datetime(2026, 11, 1, 12, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)


@pytest.fixture
def world() -> World:
    """Return an empty world whose present is NOW."""
    return World(clock=lambda: NOW)


def test_a_touched_change_moves_to_the_end_of_the_list_by_update(world: World) -> None:
    """The list by update stays sorted, and the list by creation does not move."""
    repository = world.add_repository("acme/alto")
    first, second, third = (world.add_change(repository, at=NOW - hours * HOUR) for hours in (3, 2, 1))
    world.touch_change(first, title="again")
    assert repository.changes_by_update == [second, third, first]
    assert repository.changes == [first, second, third]
    assert repository.changes_by_update == sorted(repository.changes, key=updated_order)


def test_merging_closing_and_reviewing_touch_a_change(world: World) -> None:
    """Each of them moves `updated_at`, and sets what GitHub sets with it."""
    repository = world.add_repository("acme/alto")
    merged, closed, reviewed = (world.add_change(repository, at=NOW - HOUR) for _ in range(3))
    world.merge_change(merged)
    world.close_change(closed)
    world.review_change(reviewed, "CHANGES_REQUESTED")
    assert (merged.state, merged.merged_at, merged.closed_at, merged.updated_at) == ("merged", NOW, NOW, NOW)
    assert merged.merge_commit_sha
    assert (closed.state, closed.merged_at, closed.closed_at, closed.merge_commit_sha) == ("closed", None, NOW, None)
    assert (reviewed.review_decision, reviewed.updated_at, len(reviewed.reviews or [])) == ("CHANGES_REQUESTED", NOW, 1)


def test_a_rerun_keeps_the_runs_identity_and_makes_an_attempt(world: World) -> None:
    """Id, creation time and check suite stay; number, start and update belong to the new attempt."""
    run = world.add_run(world.add_repository("acme/alto"), at=NOW - HOUR, conclusion="failure")
    identity, before = (run.id, run.created_at, run.suite_id), run.attempt
    world.rerun(run, conclusion=None)
    assert (run.id, run.created_at, run.suite_id) == identity
    assert (run.attempt.number, run.attempt.status, run.attempt.conclusion) == (2, "in_progress", None)
    assert run.attempt.run_started_at > before.updated_at
    assert [job.run_attempt for job in run.jobs] == [1, 1, 1, 2, 2, 2]


def test_a_partial_rerun_carries_the_other_jobs_over_as_copies(world: World) -> None:
    """A copy has a new id, the times of the job that really ran, and names that job however often it was carried."""
    jobs = [{"name": "build", "conclusion": "success"}, {"name": "test"}]
    run = world.add_run(world.add_repository("acme/alto"), at=NOW - HOUR, jobs=jobs, conclusion="failure")
    build = run.jobs[0]
    for _ in range(2):
        world.rerun(run, failed_only=True, conclusion="failure")
    copies = [attempt.jobs[0] for attempt in run.attempts[1:]]
    assert [copy.copy_of for copy in copies] == [build.id, build.id]
    assert len({build.id, *(copy.id for copy in copies)}) == 3
    assert {(copy.started_at, copy.completed_at) for copy in copies} == {(build.started_at, build.completed_at)}
    assert [attempt.jobs[1].copy_of for attempt in run.attempts] == [None, None, None]


def test_jobs_that_ran_again_never_look_like_copies(world: World) -> None:
    """Equal name, times and conclusion always mean a copy, even if everything happens in one second."""
    run = world.add_run(world.add_repository("acme/alto"), at=NOW, jobs=1)
    for _ in range(5):
        world.rerun(run)
    assert len({(job.name, job.started_at, job.completed_at) for job in run.jobs}) == 6


def test_nothing_ends_in_the_future(world: World) -> None:
    """A run that is added now and ends at once has ended by now."""
    run = world.add_run(world.add_repository("acme/alto"))
    assert run.attempt.updated_at <= NOW
    assert all(job.completed_at is not None and job.completed_at <= NOW for job in run.jobs)


def test_a_run_in_progress_ends_when_it_is_finished(world: World) -> None:
    """Its jobs get the conclusion they lack."""
    run = world.add_run(world.add_repository("acme/alto"), at=NOW - HOUR, conclusion=None)
    assert {job.status for job in run.jobs} == {"in_progress"}
    world.finish_run(run, "cancelled")
    assert (run.attempt.status, run.attempt.conclusion) == ("completed", "cancelled")
    assert {(job.status, job.conclusion) for job in run.jobs} == {("completed", "cancelled")}


def test_a_deleted_run_is_found_nowhere(world: World) -> None:
    """Neither by its id nor by its suite's, nor its jobs by theirs."""
    repository = world.add_repository("acme/alto")
    kept, gone = (world.add_run(repository, at=NOW - HOUR) for _ in range(2))
    world.delete_run(gone)
    assert repository.runs == [kept]
    assert [world.resolve_node(text) for text in (gone.node_id, gone.suite_node_id, gone.jobs[0].node_id)] == [None] * 3


def test_every_former_name_leads_to_the_repository_until_it_is_taken(world: World) -> None:
    """A name that somebody else takes belongs to them."""
    repository = world.add_repository("acme/alto")
    world.rename_repository(repository, "viola")
    world.rename_repository(repository, "violin", owner=world.add_user("umbrella", "Organization"))
    assert repository.full_name == "umbrella/violin"
    assert [world.find_moved(name) for name in ("acme/alto", "ACME/Viola", "umbrella/violin")] == [
        repository,
        repository,
        None,
    ]
    other = world.add_repository("acme/alto")
    assert world.find_repository("acme/alto") is other
    assert world.find_moved("acme/alto") is None


def test_a_deleted_repository_frees_its_name(world: World) -> None:
    """It is not found by any name; a new one may be."""
    repository = world.add_repository("acme/alto")
    world.rename_repository(repository, "viola")
    world.delete_repository(repository)
    assert (world.find_repository("acme/viola"), world.find_moved("acme/alto")) == (None, None)
    assert world.repository(world.add_repository("acme/viola").full_name) is not repository


@pytest.mark.parametrize("text", ["", "CS", "CS_kwDO", "CS_kwDO!", "CS_kwDOAAAAF", "XX_kwDOAAAAAAAAAAE", "\x00"])
def test_what_is_no_node_id_resolves_to_nothing(world: World, text: str) -> None:
    """Whatever text a client sends."""
    world.add_run(world.add_repository("acme/alto"))
    assert world.resolve_node(text) is None


def test_node_ids_resolve_to_the_type_they_are_of(world: World) -> None:
    """A check suite is its run, a check run its job."""
    repository = world.add_repository("acme/alto")
    run, change = world.add_run(repository), world.add_change(repository)
    expected = {
        repository.node_id: ("Repository", repository),
        repository.owner.node_id: ("Organization", repository.owner),
        change.node_id: ("PullRequest", change),
        run.node_id: ("WorkflowRun", run),
        run.suite_node_id: ("CheckSuite", run),
        run.jobs[0].node_id: ("CheckRun", run.jobs[0]),
    }
    assert {text: world.resolve_node(text) for text in expected} == expected
