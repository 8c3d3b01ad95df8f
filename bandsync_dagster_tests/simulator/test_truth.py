"""The truth a world tells: the store's columns, nothing it can't hold, only what may be read."""

from datetime import datetime, timezone
from typing import Any

import pytest

from bandsync_dagster.simulator.generation import generate
from bandsync_dagster.simulator.truth import REST_ONLY
from bandsync_dagster.simulator.world import World
from bandsync_dagster.store import schema

NOW = datetime(2026, 11, 1, 12, tzinfo=timezone.utc)
# Columns whose values only the store knows.
OWN = {"state", "state_reason", "first_seen_at", "last_seen_at"}
SYNCS = {"first_sync_id", "last_sync_id"}


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for item in (*value, *value.values()) for text in _texts(item)]
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
    return [value] if isinstance(value, str) else []


@pytest.fixture(scope="module")
def world() -> World:
    """Return a world with every awkward value in it."""
    return generate(repositories=8, now=NOW, rerun_share=0.1)


@pytest.mark.parametrize("table", ["repositories", "changes", "verifications", "jobs"])
def test_rows_have_the_columns_of_the_store(world: World, table: str) -> None:
    """All of them, but those that tell of the store itself."""
    columns = set(schema.metadata.tables[table].columns.keys())
    expected = columns - (OWN if table == "repositories" else SYNCS)
    assert {frozenset(row) for row in world.truth()[table]} == {frozenset(expected)}


@pytest.mark.parametrize("detail", ["basic", "full"])
def test_every_text_can_be_stored(world: World, detail: Any) -> None:
    """No NUL and no half of a surrogate pair is left, however deep."""
    texts = [text for rows in world.truth(detail=detail).values() for row in rows for text in _texts(row)]
    assert [text for text in texts if "\x00" in text] == []
    "".join(texts).encode("utf-8")


def test_every_time_is_aware_and_real(world: World) -> None:
    """UTC, and never the zero time."""
    rows = [row for its in world.truth(detail="full").values() for row in its]
    times = [value for row in rows for value in row.values() if isinstance(value, datetime)]
    assert {time.tzinfo for time in times} == {timezone.utc}
    assert min(times).year >= 2000


def test_basic_detail_lacks_what_only_rest_tells_of_runs_that_ran_once(world: World) -> None:
    """Jobs of runs that ran again came by REST, so they have it; no job has steps."""
    rows = world.truth(detail="basic")
    attempts = {row["id"]: row["run_attempt"] for row in rows["verifications"]}
    once = [row for row in rows["jobs"] if attempts[row["verification_id"]] == 1]
    again = [row for row in rows["jobs"] if attempts[row["verification_id"]] > 1]
    assert {row[name] for row in once for name in REST_ONLY} == {None}
    assert all(row["created_at"] and row["labels"] for row in again)
    assert {row["steps"] for row in rows["jobs"]} == {None}


def test_full_detail_has_steps_with_times_in_utc(world: World) -> None:
    """Whatever offset and fraction GitHub gave them."""
    steps = [step for row in world.truth(detail="full")["jobs"] for step in row["steps"]]
    assert {step["started_at"][-1] for step in steps} == {"Z"}
    assert any(step["started_at"] == "2020-01-20T17:42:40Z" for step in steps)


def test_repositories_without_access_have_a_row_and_no_content() -> None:
    """Blocked, or behind SAML; a deleted one has not even a row."""
    world = generate(repositories=5, changes=2, runs=2, awkward=False, now=NOW)
    blocked, hidden, deleted, disabled, _ = world.repositories.values()
    world.block_repository(blocked)
    world.update_repository(hidden, saml=True)
    world.delete_repository(deleted)
    world.update_repository(disabled, actions="refused", has_pull_requests=False)
    rows = world.truth()
    assert {table: len(its) for table, its in rows.items()} == {
        "repositories": 4,
        "changes": 2,
        "verifications": 2,
        "jobs": 6,
    }


def test_truth_follows_the_world() -> None:
    """What happens later is true later."""
    world = generate(repositories=1, changes=1, runs=1, awkward=False, now=NOW)
    (change,), (run,) = world.changes.values(), world.runs.values()
    world.touch_change(change, title="new")
    world.rerun(run)
    rows = world.truth()
    assert rows["changes"][0]["title"] == "new"
    assert rows["verifications"][0]["run_attempt"] == 2
    assert len(rows["jobs"]) == 6
