"""Which of two versions of a row is kept: never the older one."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bandsync_dagster.store.merging import merge
from bandsync_dagster_tests.store.builders import NOW, REPOSITORY, change, job, verification

LATER = NOW + timedelta(seconds=1)
QUEUED = {"status": "queued", "conclusion": None}
UNCONCLUDED = {"status": "completed", "conclusion": None}
FULL = {
    "created_at": NOW,
    "labels": ["linux"],
    "runner_id": 7,
    "runner_name": "runner-7",
    "runner_group_id": 1,
    "runner_group_name": "Default",
    "steps": [{"number": 1}],
}

JOBS = st.builds(
    lambda status, conclusion, attempt: job(1, status=status, conclusion=conclusion, run_attempt=attempt),
    st.sampled_from(["queued", "in_progress", "completed"]),
    st.sampled_from([None, "success", "failure"]),
    st.integers(1, 3),
)


@pytest.mark.parametrize(
    ("table", "stored", "incoming", "kept"),
    [
        ("changes", change(1, updated_at=LATER), change(1, title="old"), "stored"),
        ("changes", change(1), change(1, title="new", updated_at=LATER), "incoming"),
        ("changes", change(1), change(1, title="same second"), "incoming"),
        ("verifications", verification(1, updated_at=LATER), verification(1, name="old"), "stored"),
        ("verifications", verification(1), verification(1, updated_at=LATER, **QUEUED), "incoming"),
        ("verifications", verification(1), verification(1, **QUEUED), "stored"),
        ("verifications", verification(1), verification(1, run_attempt=2, **QUEUED), "incoming"),
        ("verifications", verification(1, run_attempt=2, **QUEUED), verification(1), "stored"),
        ("verifications", verification(1, **QUEUED), verification(1), "incoming"),
        ("verifications", verification(1), verification(1, **UNCONCLUDED), "stored"),
        ("jobs", job(1), job(1, **QUEUED), "stored"),
        ("jobs", job(1), job(1, status="in_progress"), "stored"),
        ("jobs", job(1, **QUEUED), job(1), "incoming"),
        ("jobs", job(1, **QUEUED), job(1, **UNCONCLUDED), "incoming"),
        ("jobs", job(1), job(1, **UNCONCLUDED), "stored"),
        ("jobs", job(1), job(1, conclusion="failure"), "incoming"),
        ("jobs", job(1, run_attempt=2), job(1), "stored"),
        ("jobs", job(1), job(1, run_attempt=2), "incoming"),
        ("jobs", job(1), job(1, run_attempt=2, **QUEUED), "stored"),
    ],
)
def test_the_newer_version_is_kept(table: str, stored: dict[str, Any], incoming: dict[str, Any], kept: str) -> None:
    """By `updated_at`, within one second by progress; jobs by attempt and progress alone."""
    assert merge(table, stored, incoming) == (stored if kept == "stored" else incoming)


def test_what_only_rest_knows_survives_graphql() -> None:
    """A job stored in full detail and seen again without keeps the detail."""
    assert merge("jobs", job(1, **FULL), job(1)) == job(1, **FULL)


def test_what_rest_says_anew_replaces_what_it_said() -> None:
    """Detail is kept only against not knowing."""
    incoming = job(1, **(FULL | {"labels": [], "runner_name": ""}))
    assert merge("jobs", job(1, **FULL), incoming) == incoming


@pytest.mark.parametrize("column", ["conclusion", "started_at", "completed_at", "html_url"])
def test_what_both_protocols_know_may_become_unknown(column: str) -> None:
    """None erases what it replaces, unless GraphQL could not know it."""
    queued = job(1, **QUEUED) | {column: None}
    assert merge("jobs", job(1, **QUEUED), queued)[column] is None


def test_a_row_stays_with_the_repository_that_counted_it() -> None:
    """The counters of two repositories would disagree with the table if a row moved."""
    assert merge("changes", change(1), change(1, repository_id=5, updated_at=LATER))["repository_id"] == REPOSITORY


@given(st.lists(JOBS, min_size=1, max_size=6))
def test_a_job_never_goes_back(versions: list[dict[str, Any]]) -> None:
    """Whatever order versions come in, the attempt never falls, and completed and its conclusion are never lost."""
    kept = versions[0]
    for version in versions[1:]:
        before, kept = kept, merge("jobs", kept, version)
        assert kept["run_attempt"] >= before["run_attempt"]
        if before["status"] == "completed":
            assert kept["status"] == "completed"
            assert kept["conclusion"] is not None or before["conclusion"] is None


@given(st.lists(st.tuples(st.integers(0, 5), st.text(max_size=3)), min_size=1), st.randoms())
def test_the_order_of_arrival_does_not_matter(versions: list[tuple[int, str]], shuffle: Any) -> None:
    """Versions with different times end in the newest, in whatever order they are merged."""
    rows = [change(1, updated_at=NOW + timedelta(seconds=age), title=title) for age, title in dict(versions).items()]
    newest = max(rows, key=lambda row: row["updated_at"])
    shuffle.shuffle(rows)
    kept = rows[0]
    for row in rows[1:]:
        kept = merge("changes", kept, row)
    assert kept == newest
