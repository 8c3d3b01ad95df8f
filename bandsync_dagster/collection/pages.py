"""How many items to ask for at once. Nothing here knows what is asked, or of whom.

GitHub ends a query after 10 seconds and takes points for it (GitHub docs: rate limits and query limits for the GraphQL
API), so the same size is not tried again: it is halved. It grows back after a streak of successes, because what was
slow may have been one page only, or one minute.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from bandsync_dagster.github.errors import GitHubError

LARGEST = 100
STREAK = 8

Answer = TypeVar("Answer")


class PageSize:
    """A number of items that adapts between `smallest` and `largest`.

    Args:
        size: Where to start, usually the size remembered from last time.
        largest: GitHub's own limit: 100 items per page, 100 ids per query.
        smallest: Where halving ends.
    """

    def __init__(self, size: int | None = None, *, largest: int = LARGEST, smallest: int = 1) -> None:
        self.largest = largest
        self.smallest = smallest
        self.size = max(smallest, min(size or largest, largest))
        self._streak = 0

    def shrink(self, asked: int) -> bool:
        """Halve what was asked for. False when it was the smallest already."""
        self._streak = 0
        if asked <= self.smallest:
            return False
        self.size = max(asked // 2, self.smallest)
        return True

    def succeeded(self) -> None:
        """Note a success; a streak of them doubles the size."""
        if self.size == self.largest:
            return
        self._streak += 1
        if self._streak >= STREAK:
            self._streak = 0
            self.size = min(self.size * 2, self.largest)


async def ask_adaptively(
    ask: Callable[[int], Awaitable[Answer]], size: PageSize, *, choking: type[GitHubError], at_most: int = LARGEST
) -> Answer:
    """Ask for as many items as the size says, for fewer whenever GitHub chokes on them.

    Args:
        ask: Sends the request for that many items.
        size: Adapts with every answer.
        choking: The error that fewer items may cure.
        at_most: Ask for no more than this although the size would allow it.

    Raises:
        GitHubError: The error still met at the smallest size, or any that isn't a matter of size.
    """
    while True:
        asked = min(size.size, at_most)
        try:
            answer = await ask(asked)
        except choking:
            if not size.shrink(asked):
                raise
        else:
            size.succeeded()
            return answer
