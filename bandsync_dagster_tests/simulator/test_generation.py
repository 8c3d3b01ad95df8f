"""Generated worlds: exact sizes, the same for the same seed, awkward from the start."""

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from bandsync_dagster.simulator import oddities
from bandsync_dagster.simulator.generation import SETTLED, generate
from bandsync_dagster.simulator.world import World

NOW = datetime(2026, 11, 1, 12, tzinfo=timezone.utc)


@pytest.fixture(scope="module")
def world() -> World:
    """Return a world with every awkward value in it."""
    return generate(repositories=12, now=NOW)


def test_the_same_seed_gives_the_same_world() -> None:
    """And another seed another one."""
    truths = [generate(seed, repositories=2, now=NOW).truth(detail="full") for seed in (7, 7, 8)]
    assert truths[0] == truths[1]
    assert truths[0] != truths[2]


def test_sizes_are_exact() -> None:
    """A world without awkward values has precisely what was asked for."""
    sizes = {"repositories": 3, "changes": 7, "runs": 20, "jobs_per_run": 2, "reviews": 2}
    world = generate(**sizes, rerun_share=0.1, awkward=False, now=NOW)
    rows = world.truth()
    assert {table: len(its) for table, its in rows.items()} == {
        "repositories": 3,
        "changes": 21,
        "verifications": 60,
        "jobs": 132,
    }
    assert {row["reviews"] for row in rows["changes"]} == {2}
    assert sum(row["run_attempt"] == 2 for row in rows["verifications"]) == 6


def test_nothing_is_younger_than_the_last_minutes(world: World) -> None:
    """A client that leaves the last minutes for the next time finds all of it."""
    rows = world.truth()
    newest = max(row["created_at"] for table in ("changes", "verifications") for row in rows[table])
    assert newest <= NOW - SETTLED
    assert max(row["updated_at"] for row in rows["changes"]) <= NOW - SETTLED
    assert max(row["updated_at"] for row in rows["verifications"]) < NOW
    assert max(row["completed_at"] for row in rows["jobs"] if row["completed_at"]) < NOW


def test_after_it_was_generated_a_world_goes_by_its_clock() -> None:
    """What happens then happens now."""
    later = NOW + timedelta(days=1)
    world = generate(repositories=1, changes=1, runs=0, now=NOW, clock=lambda: later)
    world.touch_change(world.repository("acme/alto").changes[0])
    assert world.truth()["changes"][0]["updated_at"] == later


def test_changes_are_sorted_by_update_and_creation(world: World) -> None:
    """Both lists hold all changes, oldest first, ties by id."""
    for repository in world.repositories.values():
        assert len(repository.changes) == len(repository.changes_by_update) == len(repository.changes_by_number)
        assert repository.changes == sorted(repository.changes, key=lambda change: (change.created_at, change.id))
        updates = [(change.updated_at, change.id) for change in repository.changes_by_update]
        assert updates == sorted(updates)


def test_no_change_is_updated_before_it_was_created_or_ended(world: World) -> None:
    """`updated_at` is the last of all its times."""
    for change in world.changes.values():
        times = [change.created_at, change.closed_at, change.merged_at]
        times += [review.submitted_at for review in change.reviews or []]
        assert change.updated_at >= max(time for time in times if time is not None)


def _has(rows: list[dict[str, Any]], **values: object) -> bool:
    return any(all(row[name] == value for name, value in values.items()) for row in rows)


def test_the_awkward_changes_are_there(world: World) -> None:
    """Deleted accounts, bots and other kinds of authors, gone forks, refused reviews, very long titles."""
    rows, changes = world.truth()["changes"], world.changes.values()
    assert _has(rows, author_login=None, author_is_bot=None)
    assert _has(rows, author_login="dependabot[bot]", author_type="Bot", author_is_bot=True)
    assert {row["author_type"] for row in rows} == {None, "User", "Bot", "Organization", "Mannequin"}
    assert _has(rows, reviews=None, first_review_at=None)
    assert _has(rows, commits=0, first_commit_at=None)
    assert _has(rows, state="merged", merged_by_login=None)
    assert any(change.head_repository_id is None for change in changes)
    assert max(len(row["title"]) for row in rows) == 1024
    assert max(len(change.body or "") for change in changes) == oddities.LARGEST_BODY


def test_the_awkward_runs_are_there(world: World) -> None:
    """No jobs, many jobs, no conclusion, nobody, unfinished, run again."""
    rows = world.truth()["verifications"]
    conclusions = {row["conclusion"] for row in rows}
    assert {"startup_failure", "stale", "skipped", "cancelled", "failure", "success", None} <= conclusions
    assert _has(rows, status="completed", conclusion=None)
    assert _has(rows, actor_login=None, head_repository_id=None, head_branch=None, name=None)
    assert {row["status"] for row in rows} == {"completed", "in_progress", "queued"}
    assert _has(rows, run_attempt=2, status="in_progress")
    assert {0, 130} <= {len(run.attempt.jobs) for run in world.runs.values()}
    commits = [row["head_sha"] for row in rows]
    assert len(set(commits)) < len(commits)


def test_the_awkward_jobs_are_there(world: World) -> None:
    """Times that are missing, zero or the wrong way round; no runner; copies; a job that never ended."""
    rows = world.truth()["jobs"]
    assert _has(rows, conclusion="skipped", started_at=None)
    assert any(job.started_at == oddities.ZERO_TIME for job in world.jobs.values())
    lengths = [row["completed_at"] - row["started_at"] for row in rows if row["completed_at"] and row["started_at"]]
    assert min(lengths) == timedelta(seconds=-1_906_073)
    assert _has(rows, conclusion="stale", completed_at=None)
    assert _has(rows, status="queued", conclusion=None)
    assert any("${{" in row["name"] for row in rows)
    assert any("\n" in row["name"] for row in rows)
    assert any(row["copy_of"] for row in rows)
    assert any(job.runner_id is None and job.conclusion == "failure" for job in world.jobs.values())


def test_text_that_no_database_takes_is_in_titles_bodies_labels_branches_and_names(world: World) -> None:
    """NUL characters and halves of surrogate pairs, as real repositories have them."""
    texts = {
        "title": [change.title for change in world.changes.values()],
        "body": [change.body or "" for change in world.changes.values()],
        "label": [label.name for change in world.changes.values() for label in change.labels],
        "run": [run.display_title or "" for run in world.runs.values()],
        "branch": [run.head_branch or "" for run in world.runs.values()],
        "job": [job.name for job in world.jobs.values()],
        "job label": [label for job in world.jobs.values() for label in job.labels],
    }
    assert [place for place, its in texts.items() if not any("\x00" in text for text in its)] == []
    assert any("\ud83d" in text for text in texts["title"])


def test_ids_do_not_fit_into_32_bits(world: World) -> None:
    """Of runs, jobs, changes, repositories and accounts."""
    indexes = (world.runs, world.suites, world.jobs, world.changes, world.repositories, world.users)
    assert min(min(index) for index in indexes) > 2**31


def test_some_repositories_are_special(world: World) -> None:
    """One each is archived, private, a fork, without Actions and without anything."""
    repositories = list(world.repositories.values())
    for special in ("archived", "private", "fork"):
        assert sum(getattr(repository, special) for repository in repositories) == 1
    assert [r.actions for r in repositories].count("empty") == 1
    assert [r.pushed_at for r in repositories].count(None) == 1
