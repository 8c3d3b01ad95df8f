"""Running a function in several real processes that start together, which is what concurrency tests need."""

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

_SPAWN = multiprocessing.get_context("spawn")


def _join(barrier: Any) -> None:
    global _barrier  # noqa: PLW0603  (handed to the process when it starts)
    _barrier = barrier


def _together(work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    _barrier.wait(timeout=120)
    return work(*arguments)


def in_processes(work: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Call `work` once for each tuple of arguments, each in its own process, all at the same moment."""
    count = len(arguments)
    with ProcessPoolExecutor(count, _SPAWN, initializer=_join, initargs=(_SPAWN.Barrier(count),)) as pool:
        waiting = [pool.submit(_together, work, each) for each in arguments]
        return [one.result(timeout=240) for one in waiting]
