"""Running functions in real processes: in several that start together, or in one that comes to a violent end."""

import multiprocessing
import multiprocessing.synchronize
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

PATIENCE_SECONDS = 200

# Clean processes (nothing of this one is in them) that have the slow imports behind them. `pytest` is among these as
# each process imports the main program.
CLEAN = multiprocessing.get_context("forkserver")
CLEAN.set_forkserver_preload(
    [
        "bandsync_dagster_tests.collection.collecting",
        "bandsync_dagster_tests.collection.workers",
        "bandsync_dagster_tests.store.builders",
        "pytest",
    ]
)


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
    with ProcessPoolExecutor(count, CLEAN, initializer=_join, initargs=(CLEAN.Barrier(count),)) as pool:
        waiting = [pool.submit(_together, work, each) for each in arguments]
        return [one.result(timeout=PATIENCE_SECONDS) for one in waiting]


def in_process_that_is_killed(work: Callable[..., object], *arguments: Any, **named: Any) -> None:
    """Call `work` in a process of its own, which does not live to see the end of it."""
    process = CLEAN.Process(target=work, args=arguments, kwargs=named)
    process.start()
    process.join(PATIENCE_SECONDS)
    assert process.exitcode == -signal.SIGKILL
