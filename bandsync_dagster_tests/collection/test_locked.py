"""Five writers on one SQLite file, whose lock somebody else holds now and then for longer than they wait for it."""

import asyncio
import logging
import os
import re
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from bandsync_dagster.collection.ledger import StoreLedger
from bandsync_dagster.simulator import SimulatedGitHub, World
from bandsync_dagster.simulator.incoming import Incoming
from bandsync_dagster.store.engine import create_store_engine
from bandsync_dagster.store.schema import STAGE_TABLES, STAGES, syncs
from bandsync_dagster_tests.collection.simulated import (
    Clockwork,
    assert_same_rows,
    evenly,
    fill_with_runs,
    on_sqlite,
)
from bandsync_dagster_tests.collection.workers import Worker
from bandsync_dagster_tests.store.builders import stored
from bandsync_dagster_tests.store.processes import in_processes

NAMES = [f"acme/pool-{number}" for number in range(5)]
# How long a writer waits for the lock, in place of 30 s.
PATIENCE_SECONDS = 0.2
# How often the lock is held, how many requests are sent before that, and how often it is waited for in vain meanwhile.
HOLDS = 6
REQUESTS_BETWEEN = 5
REFUSALS_PER_HOLD = 5


class _Refusals(logging.Handler):
    """Keeps what is logged of attempts that failed, and tells the process that holds the lock of each."""

    def __init__(self, pipe: str) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._pipe = os.open(pipe, os.O_WRONLY)

    def emit(self, record: logging.LogRecord) -> None:
        if "is locked" in record.getMessage():
            self.lines.append(record.getMessage())
            os.write(self._pipe, b".")


def collect(url: str, github_url: str, name: str, pipe: str) -> tuple[int, int]:
    """Collect a repository in this process; return how many retries its syncs counted, and how many were logged."""
    refusals = _Refusals(pipe)
    logging.getLogger("bandsync_dagster").addHandler(refusals)
    engine = create_store_engine(f"{url}?timeout={PATIENCE_SECONDS}")
    backoff = (0.1,) * 1_000
    results = Worker(engine, github_url, ledger=StoreLedger(engine, delays=backoff), backoff=backoff)(name, name)
    engine.dispose()
    logged = [line for line in refusals.lines if re.search(rf"\(\d+ ({'|'.join(STAGES)})\) failed", line)]
    return sum(result.metrics["retries"] for result in results), len(logged)


class _Holder:
    """Holds a file's write lock, again and again, each time until some writers have given up waiting for it.

    While it waits for the lock itself, GitHub answers nobody: else, on a busy machine, the writers might be done first.
    """

    def __init__(self, path: str, pipe: Path, github: SimulatedGitHub) -> None:
        os.mkfifo(pipe)
        self.holds = 0
        self._requests, self._may_answer = threading.Semaphore(0), threading.Event()
        self._path = path
        # Open for both, so that it never ends.
        self._pipe = os.open(pipe, os.O_RDWR)
        self._done = False
        self._thread = threading.Thread(target=self._hold_again_and_again)
        self._may_answer.set()
        self._serve = github.application._serve
        github.application._serve = self._serve_when_held

    def __enter__(self) -> "_Holder":  # noqa: PYI034  (typing.Self is new in Python 3.11)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done = True
        os.write(self._pipe, b"." * REFUSALS_PER_HOLD)
        self._requests.release(REQUESTS_BETWEEN)
        self._thread.join()
        os.close(self._pipe)

    async def _serve_when_held(self, incoming: Incoming) -> Any:
        self._requests.release()
        await asyncio.to_thread(self._may_answer.wait)
        return await self._serve(incoming)

    def _hold_again_and_again(self) -> None:
        with closing(sqlite3.connect(self._path, timeout=60, isolation_level=None)) as connection:
            while self.holds < HOLDS and not self._done:
                for _ in range(REQUESTS_BETWEEN):
                    self._requests.acquire()
                self._may_answer.clear()
                connection.execute("BEGIN IMMEDIATE")
                self._may_answer.set()
                self._await_refusals()
                connection.execute("ROLLBACK")
                self.holds += 1

    def _await_refusals(self) -> None:
        for _ in range(REFUSALS_PER_HOLD):
            os.read(self._pipe, 1)


def five_repositories(clock: Clockwork) -> World:
    """Return a world of five repositories with a few pages of everything."""
    world = World(clock=clock)
    for name in NAMES:
        repository = fill_with_runs(world, name, evenly(15, days=20), jobs=2)
        for moment in sorted(evenly(15, days=20)):
            world.add_change(repository, at=moment)
    return world


@on_sqlite
def test_five_writers_that_find_the_file_locked_lose_nothing_and_count_everything_once(
    engine: sa.Engine, database_url: str, tmp_path: Path
) -> None:
    """Rows are those on GitHub, counters are those of the rows, and each refused batch is one retry."""
    clock = Clockwork()
    world = five_repositories(clock)
    pipe = tmp_path / "refusals"
    with SimulatedGitHub(world, clock=clock) as github, _Holder(str(engine.url.database), pipe, github) as holder:
        counts = in_processes(collect, [(database_url, github.url, name, str(pipe)) for name in NAMES])
    assert holder.holds == HOLDS
    assert [retries for retries, _ in counts] == [logged for _, logged in counts]
    assert sum(retries for retries, _ in counts) > 0
    for stage in STAGES:
        rows = stored(engine, STAGE_TABLES[stage])
        assert_same_rows(rows, world.truth()[stage])
        for sync in stored(engine, syncs):
            if sync["stage"] == stage:
                created = sum(row["first_sync_id"] == sync["id"] for row in rows)
                assert sync["records_created"] == created == sum(row["last_sync_id"] == sync["id"] for row in rows)
                assert sync["records_collected"] == created + sync["records_unchanged"]
                assert sync["state"] == "completed"
        assert len(rows) == {"changes": 75, "verifications": 75, "jobs": 150}[stage]
