"""What the pool gains: the same simulated repositories, collected through Dagster's queue with a pool of 5 and of 1.

Everything is as in production: daemon, queue, code server, one process for each run; only GitHub is simulated, with
the time that the real one takes to answer. Each collection starts in a new home folder and ends with a comparison of
all rows with what the simulated GitHub knows. See README.md beside this file.
"""  # noqa: INP001  (a program, not part of a package)

import os
import platform
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import sqlalchemy as sa

from bandsync_dagster.cli.errors import Interrupted
from bandsync_dagster.cli.interrupts import Interrupts, heeding_signals
from bandsync_dagster.cli.local import UNFINISHED, Local, local_dagster
from bandsync_dagster.cli.webserver import Launch, Run
from bandsync_dagster.settings import Settings
from bandsync_dagster.simulator import DEFAULT_TOKEN, Limits, SimulatedGitHub, World, generate
from bandsync_dagster.store.engine import reading
from bandsync_dagster.store.schema import STAGE_TABLES
from bandsync_dagster.tags import COLLECTION_JOB, DISCOVERY_JOB, PARTITION, POOL

POOLS = (5, 1)
# This measures the pool and not the quota, which 40 repositories would not use up anyway.
LIMITS = Limits(core=1_000_000, graphql=1_000_000, rest_points_per_minute=1_000_000)
POLL_SECONDS = 0.5
SEED = 1
PACKAGES = ("bandsync-dagster", "dagster", "dagster-webserver", "sqlalchemy", "httpx")
# Of the store, not of GitHub.
OWN_COLUMNS = {"first_sync_id", "last_sync_id"}
FOREIGN_VARIABLES = ("GITHUB_", "BANDSYNC_", "DAGSTER_")


@dataclass(frozen=True)
class Workload:
    """What is collected, and from how slow a GitHub.

    Attributes:
        repositories: How many; all alike.
        runs: Workflow runs of each. With full detail each costs a request, so this is what makes the work.
        latency: Shortest and longest time of an answer in seconds.
    """

    repositories: int
    runs: int
    latency: tuple[float, float]

    def world(self) -> World:
        """Make the world; the same each time but for its present."""
        return generate(SEED, repositories=self.repositories, changes=20, runs=self.runs, awkward=False)


@dataclass(frozen=True)
class Measured:
    """One collection.

    Attributes:
        pool: The pool's limit.
        seconds: From the first run's launch to the last run's end.
        busy: Seconds of all runs together, each from its process's first sign to its end.
        unfilled: Seconds of all places together before their first run and after their last one.
        requests: What GitHub was asked.
        cpu: CPU seconds of Dagster and its runs.
        own_cpu: CPU seconds of this process, which is mostly the simulated GitHub.
    """

    pool: int
    seconds: float
    busy: float
    unfilled: float
    requests: int
    cpu: float
    own_cpu: float

    def __str__(self) -> str:
        """Describe it in one line."""
        return (
            f"pool {self.pool}: {self.seconds:8.1f} s, {self.requests} requests,"
            f" CPU {self.cpu:.0f} s (simulated GitHub {self.own_cpu:.0f} s)"
        )

    def shares(self, latency: tuple[float, float]) -> str:
        """Say what the places of the pool were occupied with."""
        places = self.pool * self.seconds
        answers = self.requests * statistics.mean(latency)
        parts = {
            "waiting for GitHub": answers,
            "the rest of the runs": self.busy - answers,
            "between two runs": places - self.busy - self.unfilled,
            "before the first and after the last": self.unfilled,
        }
        return ", ".join(f"{name} {seconds / places:.0%}" for name, seconds in parts.items())


def collect(workload: Workload, pool: int, interrupts: Interrupts) -> Measured:
    """Collect everything once, in a new home folder.

    Raises:
        ClickException: A run failed, or a row is not as it should be.
    """
    world = workload.world()
    with (
        tempfile.TemporaryDirectory(prefix="bandsync-benchmark-") as home,
        SimulatedGitHub(world, limits=LIMITS, latency=workload.latency, seed=SEED) as github,
    ):
        before, own_before = _cpu(resource.RUSAGE_CHILDREN), _cpu(resource.RUSAGE_SELF)
        environment = _environment(Path(home), github.url)
        settings = Settings.from_mapping(environment)
        with local_dagster(settings, environment, interrupts) as local:
            local.instance.event_log_storage.set_concurrency_slots(POOL, pool)
            _finish(local, [Launch(DISCOVERY_JOB, {})], interrupts)
            github.clear_log()
            keys = [repository.full_name for repository in world.repositories.values()]
            began = time.time()
            runs = _finish(local, [Launch(COLLECTION_JOB, {PARTITION: key}) for key in keys], interrupts)
            _compare(local.services.engine, world)
        started, ended = sorted(run.started or 0 for run in runs), sorted(run.ended or 0 for run in runs)
        # Children count once they have ended and been waited for, which by now they all were.
        return Measured(
            pool=pool,
            seconds=ended[-1] - began,
            busy=sum(ended) - sum(started),
            unfilled=sum(start - began for start in started[:pool]) + sum(ended[-1] - end for end in ended[-pool:]),
            requests=len(github.log),
            cpu=_cpu(resource.RUSAGE_CHILDREN) - before,
            own_cpu=_cpu(resource.RUSAGE_SELF) - own_before,
        )


def _environment(home: Path, github_url: str) -> dict[str, str]:
    """Return what the processes get: nothing that was meant for the real GitHub."""
    surroundings = os.environ.items()  # noqa: TID251  (a program of its own)
    return {
        **{name: value for name, value in surroundings if not name.startswith(FOREIGN_VARIABLES)},
        "BANDSYNC_HOME": str(home),
        "BANDSYNC_GITHUB_URL": github_url,
        "BANDSYNC_SOURCES": "org:acme",
        "BANDSYNC_DETAIL": "full",
        "GITHUB_TOKEN": DEFAULT_TOKEN,
    }


def _finish(local: Local, launches: Sequence[Launch], interrupts: Interrupts) -> list[Run]:
    """Launch runs and return them when all have ended well."""
    job, left = launches[0].job, list(launches)
    while left:
        left = left[len(local.webserver.launch(left)) :]
    while len(runs := _ended(local, job)) < len(launches):
        local.processes.ensure_alive()
        interrupts.pause(POLL_SECONDS)
    failed = [run.tags.get(PARTITION, job) for run in runs if run.status != "SUCCESS"]
    if failed:
        raise click.ClickException(f"these runs failed: {', '.join(failed)}")
    return runs


def _ended(local: Local, job: str) -> list[Run]:
    return [run for run in local.webserver.runs({}) if run.job == job and run.status not in UNFINISHED]


def _compare(engine: sa.Engine, world: World) -> None:
    """Make sure that every table holds exactly what the simulated GitHub knows."""
    truth = world.truth(detail="full")
    for stage, table in STAGE_TABLES.items():
        columns = [column for column in table.columns if column.name not in OWN_COLUMNS]
        with reading(engine) as connection:
            stored = [dict(row) for row in connection.execute(sa.select(*columns)).mappings()]
        wrong = list(_differences(stored, truth[stage]))
        if wrong:
            raise click.ClickException(f"{len(wrong)} rows of {stage} are not as they should be: {wrong[:5]}")


def _differences(stored: Sequence[Mapping[str, Any]], true: Sequence[Mapping[str, Any]]) -> Iterator[int]:
    """Yield the ids of rows that are missing, too many, or different."""
    found, expected = ({row["id"]: dict(row) for row in rows} for rows in (stored, true))
    for number in found.keys() | expected.keys():
        if found.get(number) != expected.get(number):
            yield number


def _cpu(whose: int) -> float:
    usage = resource.getrusage(whose)
    return usage.ru_utime + usage.ru_stime


def machine() -> str:
    """Describe what this runs on."""
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    load = os.getloadavg()[0]
    return (
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, load {load:.1f} before;"
        f" Python {platform.python_version()}; {packages}"
    )


def spread(values: Sequence[float]) -> str:
    """Return the middle of values, and how far apart they are."""
    middle = statistics.median(values)
    apart = (max(values) - min(values)) / middle
    return f"{middle:.2f} (from {min(values):.2f} to {max(values):.2f}, {apart:.1%} apart)"


def summary(measured: Sequence[Measured], latency: tuple[float, float]) -> Iterator[str]:
    """Yield the lines that say what came out; none of nothing."""
    if not measured:
        return
    times = {pool: [one.seconds for one in measured if one.pool == pool] for pool in POOLS}
    for pool in POOLS:
        yield f"pool {pool}: {spread(times[pool])} s"
        last = [one for one in measured if one.pool == pool][-1]
        yield f"        of its places' time: {last.shares(latency)}"
    ratios = [slow / fast for fast, slow in zip(*(times[pool] for pool in POOLS), strict=True)]
    yield f"A pool of {POOLS[0]} is {spread(ratios)} times as fast as a pool of {POOLS[1]}."


@click.command()
@click.option("--repositories", default=40, show_default=True, help="How many repositories to collect.")
@click.option("--runs", default=40, show_default=True, help="Workflow runs of each, at one request each.")
@click.option("--repetitions", default=2, show_default=True, help="How often to collect with each pool.")
@click.option(
    "--latency", nargs=2, type=float, default=(0.3, 4.0), show_default=True, help="Seconds of an answer, from and to."
)
def main(repositories: int, runs: int, repetitions: int, latency: tuple[float, float]) -> None:
    """Measure how much faster a pool of 5 is than a pool of 1."""
    workload = Workload(repositories, runs, latency)
    click.echo(machine())
    click.echo(f"{repositories} repositories of {runs} runs each, {latency[0]} to {latency[1]} s a request")
    measured: list[Measured] = []
    # Stopped by Ctrl-C, it says what it has measured, where that is enough to compare.
    with heeding_signals() as interrupts, suppress(Interrupted):
        for _ in range(repetitions):
            for pool in POOLS:
                measured.append(collect(workload, pool, interrupts))
                click.echo(str(measured[-1]))
    for line in summary(measured[: len(measured) // len(POOLS) * len(POOLS)], latency):
        click.echo(line)


if __name__ == "__main__":
    sys.exit(main())
