"""Cutting windows of creation time: every second is in exactly one part."""

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bandsync_dagster.collection.windows import FIRST_RUN, TARGET, Window, adapted, half, narrowed
from bandsync_dagster_tests.collection.rows import NOON, after

SECOND = timedelta(seconds=1)
spans = st.integers(min_value=0, max_value=10**7).map(lambda seconds: timedelta(seconds=seconds, microseconds=7))
windows = st.integers(min_value=0, max_value=10**7).map(lambda seconds: Window(NOON, NOON + timedelta(seconds=seconds)))


def seconds_between(first: datetime, last: datetime) -> int:
    """Return how many seconds lie between two, both included."""
    return int((last - first).total_seconds()) + 1


@given(windows, spans)
def test_the_newest_part_and_the_rest_are_the_whole(window: Window, span: timedelta) -> None:
    """Cut from the end, the two parts touch, don't overlap, and together are as long as the window."""
    part, rest = window.newest(span)
    assert part.until == window.until
    if rest is None:
        assert part == window
    else:
        assert part.since is not None
        assert (rest.since, rest.until) == (window.since, part.since - SECOND)
        assert part.length() == max(timedelta(seconds=span.seconds, days=span.days), SECOND)


@given(windows, spans)
def test_the_oldest_part_and_the_rest_are_the_whole(window: Window, span: timedelta) -> None:
    """Cut from the beginning, the two parts touch, don't overlap, and together are as long as the window."""
    part, rest = window.oldest(span)
    assert part.since == window.since
    if rest is None:
        assert part == window
    else:
        assert (rest.since, rest.until) == (part.until + SECOND, window.until)


@given(windows)
def test_halving_ends_at_single_seconds(window: Window) -> None:
    """However long a window is, cutting the newest half again and again ends at a window of one second."""
    cuts = 0
    while not window.one_second:
        part, rest = window.newest(half(window))
        assert rest is not None
        assert part.length() < window.length()
        window, cuts = part, cuts + 1
    assert cuts <= 24


def test_an_open_window_gives_up_its_newest_part_and_stays_open() -> None:
    """What has no beginning can be cut at its end for ever."""
    part, rest = Window(None, NOON).newest(timedelta(days=2))
    assert part == Window(after(days=-2, seconds=1), NOON)
    assert rest == Window(None, after(days=-2))


def test_an_open_window_has_no_oldest_part() -> None:
    """Nobody knows where it begins."""
    with pytest.raises(ValueError, match="beginning"):
        Window(None, NOON).oldest(timedelta(days=2))


def test_an_open_window_that_ends_before_github_actions_began_is_a_day_long() -> None:
    """Runs with impossible times don't make a window of no length."""
    assert Window(None, FIRST_RUN - timedelta(days=9)).length() == timedelta(days=1)


def test_an_empty_window_is_one_that_ends_before_it_begins() -> None:
    """A window of one second isn't empty; one that ends a second earlier is."""
    assert not Window(NOON, NOON).empty
    assert Window(NOON, after(seconds=-1)).empty
    assert not Window(None, NOON).empty


@pytest.mark.parametrize("minutes", [1, 10, 600])
def test_a_window_that_was_too_full_is_narrowed_by_the_density_of_its_newest_runs(minutes: int) -> None:
    """100 runs in so many minutes make a window for 700, if that is less than half of what was too much."""
    window = Window(after(days=-30), NOON)
    span = narrowed(window, NOON, after(minutes=-minutes, seconds=1), 100)
    assert span == timedelta(minutes=minutes * TARGET / 100)


def test_narrowing_halves_at_least() -> None:
    """Sparse newest runs don't keep a window as long as it was, or it would be asked for again and again."""
    window = Window(after(days=-1), NOON)
    assert narrowed(window, NOON, after(hours=-20), 100) == half(window)


def test_a_quiet_stretch_at_the_end_of_a_window_is_cut_off_by_itself() -> None:
    """However dense the runs before it are, they are not looked for in steps of seconds."""
    window = Window(after(days=-1), NOON)
    assert narrowed(window, after(hours=-3), after(hours=-3), 100) == timedelta(hours=3)
    part, rest = window.newest(timedelta(hours=3))
    assert part.since == after(hours=-3, seconds=1)
    assert rest is not None
    assert rest.until == after(hours=-3)


def test_the_span_follows_what_windows_hold_and_grows_fourfold_at_most() -> None:
    """A window with half the runs wanted doubles the span; an almost empty one makes it four times as long."""
    window, span = Window(after(seconds=1 - 3600), NOON), timedelta(hours=1)
    assert adapted(span, window, TARGET // 2) == 2 * span
    assert adapted(span, window, 1) == 4 * span
    assert adapted(span, window, 2 * TARGET) == span / 2


def test_after_an_empty_window_the_whole_rest_is_tried() -> None:
    """Where there are no runs, one request tells whether there are any further back."""
    assert adapted(timedelta(hours=1), Window(after(hours=-1), NOON), 0) is None
