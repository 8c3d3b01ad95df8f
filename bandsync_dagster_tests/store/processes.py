"""Running a function in several real processes that start together, which is what concurrency tests need."""

import multiprocessing
import multiprocessing.synchronize
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

PATIENCE_SECONDS = 200

# Clean processes (nothing of this one is in them) that have the slow imports behind them.
_CLEAN = multiprocessing.get_context("forkserver")
_CLEAN.set_forkserver_preload(["bandsync_dagster_tests.store.builders", "bandsync_dagster.store.quotas"])


def _join(barrier: multiprocessing.synchronize.Barrier) -> None:
    global _barrier  # noqa: PLW0603  (handed to the process when it starts)
    _barrier = barrier


def meet() -> None:
    """Wait until all processes have come here."""
    _barrier.wait(timeout=PATIENCE_SECONDS)


def _together(work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    meet()
    return work(*arguments)


def in_processes(work: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Call `work` once for each tuple of arguments, each in its own process, all at the same moment."""
    count = len(arguments)
    with ProcessPoolExecutor(count, _CLEAN, initializer=_join, initargs=(_CLEAN.Barrier(count),)) as pool:
        waiting = [pool.submit(_together, work, each) for each in arguments]
        return [one.result(timeout=PATIENCE_SECONDS) for one in waiting]
