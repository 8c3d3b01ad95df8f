"""What may be claimed of the feed of changes after a page of it."""

from datetime import timedelta

import pytest

from bandsync_dagster.collection.changes import Covered, last_settled
from bandsync_dagster.collection.moments import SETTLE, days_before, settled_before
from bandsync_dagster_tests.collection.rows import NOON, after, change


@pytest.mark.parametrize(
    ("ages", "expected"),
    [([], None), ([10], None), ([120], 0), ([300, 120, 119], 1), ([300, 10, 300], 0), ([300, 200], 1)],
)
def test_only_rows_older_than_two_minutes_are_settled_and_only_up_to_the_first_that_is_not(
    ages: list[int], expected: int | None
) -> None:
    """The upper end never passes a row that is younger: what becomes visible late would be skipped."""
    page = [change(after(seconds=-age), number=age) for age in ages]
    assert last_settled(page, settled_before(NOON)) == expected


def test_two_minutes_are_counted_in_whole_seconds_downward() -> None:
    """A fraction of a second never makes a row settled that isn't."""
    assert settled_before(NOON + timedelta(microseconds=999_999)) == NOON - SETTLE


@pytest.mark.parametrize(
    ("bottom", "lower_age", "history", "reached"),
    [
        (True, 1, None, True),
        (True, 1, 90, True),
        (False, 89, 90, False),
        (False, 91, 90, True),
        (False, 9000, None, False),
    ],
)
def test_the_walk_back_ends_at_the_beginning_or_beyond_the_history_wanted(
    bottom: bool, lower_age: int, history: int | None, reached: bool
) -> None:
    """A history that is extended later makes it go on from where it had stopped."""
    covered = Covered("u", NOON, "l", after(days=-lower_age), bottom)
    assert covered.reaches(days_before(NOON, history)) is reached


def test_a_covered_interval_survives_the_checkpoint() -> None:
    """What is loaded is what was dumped, the interval from the very beginning included."""
    for covered in (Covered("u", NOON, "l", NOON, bottom=False), Covered(None, None, None, None, bottom=True)):
        assert Covered.load(covered.dump()) == covered
