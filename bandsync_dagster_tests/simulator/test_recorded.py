"""A world of recorded payloads: what GitHub sent is what is true and what is served."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from bandsync_dagster.simulator.exchange import Call
from bandsync_dagster.simulator.recorded import recorded
from bandsync_dagster.simulator.rest import Rest
from bandsync_dagster.simulator.tokens import Caller
from bandsync_dagster.simulator.world import World

FOLDER = Path(__file__).parent.parent / "data" / "recorded"


def _items(name: str) -> dict[int, dict[str, Any]]:
    return {item["id"]: item for item in json.loads((FOLDER / f"{name}.json").read_text("utf-8"))}


def _plain(value: object) -> object:
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value


@pytest.fixture(scope="module")
def world() -> World:
    """Return the recorded world."""
    return recorded(FOLDER)


def test_every_recorded_item_is_in_the_truth(world: World) -> None:
    """Changes by their ids: one was recorded twice, and counts once, as it was last seen."""
    rows = world.truth()
    assert {row["id"] for row in rows["changes"]} == set(_items("pull_requests"))
    assert len(rows["changes"]) == 49
    assert {row["id"] for row in rows["verifications"]} == set(_items("workflow_runs"))
    assert {row["id"] for row in rows["jobs"]} == set(_items("jobs"))


@pytest.mark.parametrize(
    ("table", "name", "fields"),
    [
        ("changes", "pull_requests", ("node_id", "number", "title", "draft", "created_at", "updated_at", "merged_at")),
        ("verifications", "workflow_runs", ("node_id", "status", "conclusion", "run_attempt", "created_at", "path")),
        ("jobs", "jobs", ("node_id", "name", "run_attempt", "started_at", "completed_at", "html_url")),
    ],
)
def test_fields_are_as_recorded(world: World, table: str, name: str, fields: tuple[str, ...]) -> None:
    """Times too, to the second."""
    items = _items(name)
    for row in world.truth()[table]:
        assert {field: _plain(row[field]) for field in fields} == {field: items[row["id"]][field] for field in fields}


def test_words_are_lower_case_and_nothing_else_is_changed(world: World) -> None:
    """Among the recorded conclusions are `SUCCESS` and the empty text."""
    items = _items("jobs")
    for row in world.truth()["jobs"]:
        recorded_word = items[row["id"]]["conclusion"]
        assert row["conclusion"] == (recorded_word and recorded_word.lower())


def test_equal_jobs_of_one_attempt_are_no_copies(world: World) -> None:
    """Two recorded jobs of one attempt agree in name, times and conclusion, and both ran."""
    rows = world.truth()["jobs"]
    same = [row for row in rows if row["name"] == "deploymacos" and row["conclusion"] == "cancelled"]
    assert len({(row["verification_id"], row["run_attempt"]) for row in same}) == 1
    assert {row["copy_of"] for row in rows} == {None}


def test_payloads_are_served_as_recorded(world: World) -> None:
    """Each item of each list is the recorded one, field by field."""

    def get(path: str, **query: str) -> Any:
        answer = Rest(world).answer(
            Call(path, {"per_page": "100", **query}, Caller("somebody", "somebody"), "http://x")
        )
        assert answer.status == 200
        return answer.body

    changes = get("/repos/acme/pool/pulls", state="all")
    assert {change["id"]: change for change in changes} == _items("pull_requests")
    runs = get("/repos/acme/pool/actions/runs")["workflow_runs"]
    assert {run["id"]: run for run in runs} == _items("workflow_runs")
    jobs = [get(f"/repos/acme/pool/actions/runs/{run['id']}/jobs", filter="all")["jobs"] for run in runs]
    assert {job["id"]: job for its in jobs for job in its} == _items("jobs")
