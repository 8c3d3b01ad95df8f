"""The size of what is asked for: smaller when GitHub chokes, back again when it doesn't."""

import asyncio

import pytest

from bandsync_dagster.collection.pages import STREAK, PageSize, ask_adaptively
from bandsync_dagster.github.errors import ConnectionLost, QueryTooLarge


def ask(size: PageSize, *, most: int, at_most: int = 100) -> tuple[int, list[int]]:
    """Ask a GitHub that chokes on more than `most` items. Returns what it gave, and all that was asked for."""
    asked: list[int] = []

    async def answer(count: int) -> int:
        asked.append(count)
        if count > most:
            raise QueryTooLarge("too much")
        return count

    return asyncio.run(ask_adaptively(answer, size, choking=QueryTooLarge, at_most=at_most)), asked


def test_a_size_github_chokes_on_is_never_asked_for_twice_in_a_row() -> None:
    """Each attempt asks for half of the one before, because a timeout costs points."""
    size = PageSize()
    assert ask(size, most=12) == (12, [100, 50, 25, 12])
    assert ask(size, most=12) == (12, [12])


def test_a_single_item_github_chokes_on_is_its_error() -> None:
    """There is nothing smaller than one."""
    with pytest.raises(QueryTooLarge):
        ask(PageSize(3), most=0)


def test_halving_ends_at_the_smallest_size_that_makes_sense() -> None:
    """With a smallest size of 10, that is the last one tried."""
    size = PageSize(smallest=10)
    assert ask(size, most=10)[1] == [100, 50, 25, 12, 10]


def test_a_streak_of_successes_doubles_the_size_up_to_the_largest() -> None:
    """What was slow may have been one page, or one minute."""
    size = PageSize(30)
    for _ in range(STREAK):
        ask(size, most=100)
    assert size.size == 60
    for _ in range(STREAK):
        ask(size, most=100)
    assert size.size == 100


def test_a_failure_ends_the_streak() -> None:
    """Seven successes, a failure and a success are no streak."""
    size = PageSize(40)
    for _ in range(STREAK - 1):
        ask(size, most=100)
    ask(size, most=20)
    assert size.size == 20


def test_what_fewer_items_can_not_cure_is_raised_at_once() -> None:
    """A lost connection says nothing about the size."""

    async def answer(_: int) -> int:
        raise ConnectionLost("gone")

    size = PageSize()
    with pytest.raises(ConnectionLost):
        asyncio.run(ask_adaptively(answer, size, choking=QueryTooLarge))
    assert size.size == 100


def test_asking_for_fewer_than_the_size_allows_halves_what_was_asked() -> None:
    """A third of a page that is too much leads to a sixth, not to half a page."""
    assert ask(PageSize(), most=20, at_most=33) == (16, [33, 16])


@pytest.mark.parametrize(("remembered", "size"), [(None, 100), (0, 100), (250, 100), (-3, 1), (7, 7)])
def test_a_remembered_size_is_kept_within_bounds(remembered: int | None, size: int) -> None:
    """Whatever a checkpoint says, no page has more than 100 items or less than one."""
    assert PageSize(remembered).size == size
