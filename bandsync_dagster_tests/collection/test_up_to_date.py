"""Deciding which repositories are left alone, from what is stored."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from bandsync_dagster.collection.activity import FRESH, is_up_to_date
from bandsync_dagster.simulator import generate
from bandsync_dagster.store.activity import Look
from bandsync_dagster.store.queries import StoredRepository
from bandsync_dagster.store.schema import STAGES
from bandsync_dagster.store.standing import Standing
from bandsync_dagster_tests.collection.simulated import START

LOOKED = START - timedelta(minutes=10)
BEFORE, SINCE = LOOKED - timedelta(minutes=1), LOOKED + timedelta(minutes=1)


def standing(*, started: datetime = BEFORE, **facts: Any) -> Standing:
    """Return the standing of a repository whose stages were last collected then."""
    [row] = generate(repositories=1, changes=0, runs=0, now=START).truth()["repositories"]
    known = StoredRepository(**row, state="active", state_reason=None, first_seen_at=BEFORE, last_seen_at=BEFORE)
    return Standing(known, **{"completed": dict.fromkeys(STAGES, started), **facts})


@pytest.mark.parametrize(
    ("look", "facts", "expected"),
    [
        (Look(LOOKED, None), {}, True),
        (None, {}, False),
        (Look(START - FRESH, None), {}, False),
        (Look(START - FRESH + timedelta(seconds=1), None), {}, True),
        (Look(LOOKED, "new workflow runs"), {}, False),
        (Look(LOOKED, "new workflow runs"), {"started": SINCE}, True),
        (Look(LOOKED, "new workflow runs"), {"started": LOOKED}, True),
        (
            Look(LOOKED, "new workflow runs"),
            {"completed": {"changes": SINCE, "verifications": BEFORE, "jobs": SINCE}},
            False,
        ),
        (Look(LOOKED, None), {"completed": {"changes": SINCE, "verifications": SINCE}}, False),
        (Look(LOOKED, "new workflow runs"), {"completed": {}}, False),
        (Look(LOOKED, None), {"unfinished": 1}, False),
        (Look(LOOKED, None), {"pending": 1}, False),
    ],
)
def test_a_repository_is_left_alone_only_when_there_is_certainly_nothing_to_collect(
    look: Look | None, facts: dict[str, Any], expected: bool
) -> None:
    """A fresh look found nothing, or what it found was collected since; and nothing is left to do here."""
    assert is_up_to_date(standing(**facts), look, now=START) == expected
