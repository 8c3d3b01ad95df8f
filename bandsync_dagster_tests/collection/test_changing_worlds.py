"""Worlds that change while they are being collected: in the end every row is true, and on the way nothing is lost."""

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bandsync_dagster.simulator import Limits, SimulatedGitHub, World, generate
from bandsync_dagster.simulator.records import Repository
from bandsync_dagster.store.engine import create_store_engine, upgrade
from bandsync_dagster.store.schema import STAGES
from bandsync_dagster_tests.collection.simulated import START, Clockwork, Simulation, assert_same_rows

ROUNDS = 2


class Fate:
    """What happens to a world, at which request of which round."""

    def __init__(self, simulation: Simulation, repository: Repository) -> None:
        self.world: World = simulation.world
        self.clock: Clockwork = simulation.clock
        self.repository = repository
        self.deleted: set[int] = set()
        self._plan: dict[int, list[tuple[str, int]]] = {}
        self._request = 0

    def begin_round(self, events: Sequence[tuple[int, str, int]]) -> None:
        """Lay down what happens in this round: before which request, what, to which record."""
        plan: dict[int, list[tuple[str, int]]] = defaultdict(list)
        for request, event, pick in events:
            plan[request].append((event, pick))
        self._plan, self._request = plan, 0

    def strike(self) -> None:
        """Let happen what is due before the next request."""
        self._request += 1
        for event, pick in self._plan.get(self._request, ()):
            with self.world.lock:
                EVENTS[event](self, pick)

    def change(self, pick: int) -> Any:
        """Return some change."""
        changes = self.repository.changes
        return changes[pick % len(changes)]

    def run(self, pick: int) -> Any:
        """Return some run, often a recent one."""
        runs = self.repository.runs
        return runs[-1 - pick % len(runs)]

    def rerun(self, pick: int, *, failed_only: bool, conclusion: str | None) -> None:
        """Run a finished run again."""
        run = self.run(pick)
        if run.attempt.status == "completed" and run.created_at > self.clock.now - timedelta(days=30):
            self.world.rerun(run, failed_only=failed_only, conclusion=conclusion)

    def annotate(self, pick: int) -> None:
        """Move only a run's `updated_at`; beyond the horizon nobody would ever look at it again."""
        run = self.run(pick)
        if run.created_at > self.clock.now - timedelta(days=30):
            self.world.annotate_run(run)

    def finish(self, _pick: int) -> None:
        """Let everything end that goes on."""
        for run in self.repository.runs:
            if run.attempt.status != "completed":
                self.world.finish_run(run)

    def delete(self, pick: int) -> None:
        """Delete a run."""
        run = self.run(pick)
        self.deleted |= {run.id, *(job.id for job in run.jobs)}
        self.world.delete_run(run)


EVENTS: Mapping[str, Callable[[Fate, int], object]] = {
    "new change": lambda fate, _: fate.world.add_change(fate.repository),
    "touched change": lambda fate, pick: fate.world.touch_change(fate.change(pick), title=f"touched {pick}"),
    "merged change": lambda fate, pick: fate.world.merge_change(fate.change(pick)),
    "review": lambda fate, pick: fate.world.review_change(fate.change(pick)),
    "new run": lambda fate, _: fate.world.add_run(fate.repository),
    "started run": lambda fate, _: fate.world.add_run(fate.repository, conclusion=None),
    "failed run": lambda fate, _: fate.world.add_run(fate.repository, conclusion="failure"),
    "finished runs": Fate.finish,
    "re-run": lambda fate, pick: fate.rerun(pick, failed_only=False, conclusion="success"),
    "re-run of the failed jobs": lambda fate, pick: fate.rerun(pick, failed_only=True, conclusion=None),
    "annotation": Fate.annotate,
    "deleted run": Fate.delete,
    "rename": lambda fate, pick: fate.world.rename_repository(fate.repository, f"pool-{pick}"),
    "a minute": lambda fate, _: fate.clock.advance(minutes=1),
    "an hour": lambda fate, _: fate.clock.advance(hours=1),
}

rounds = st.lists(
    st.lists(
        st.tuples(st.integers(1, 12), st.sampled_from(sorted(EVENTS)), st.integers(0, 200)), min_size=1, max_size=12
    ),
    min_size=ROUNDS,
    max_size=ROUNDS,
)


@contextmanager
def simulation_of(world: World, clock: Clockwork, limits: Limits) -> Iterator[Simulation]:
    """Serve a world, to be collected into a database of its own."""
    with tempfile.TemporaryDirectory() as folder:
        engine = create_store_engine(f"sqlite:///{Path(folder) / 'bandsync.db'}")
        upgrade(engine)
        with SimulatedGitHub(world, clock=clock, limits=limits) as github:
            yield Simulation(github, engine, clock)
        engine.dispose()


@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 1000),
    events=rounds,
    core=st.sampled_from([25, 5000]),
    history=st.sampled_from([None, None, 40]),
)
def test_after_the_world_stands_still_every_row_is_true_and_nothing_ever_regressed(
    seed: int, events: list[list[tuple[int, str, int]]], core: int, history: int | None
) -> None:
    """New, touched, re-run, finished, renamed and deleted, before any request, with and without deferrals."""
    clock = Clockwork()
    world = generate(
        seed, repositories=1, changes=120, runs=130, rerun_share=0.02, jobs_per_run=2, now=START, clock=clock
    )
    [repository] = world.repositories.values()
    name = repository.full_name
    with simulation_of(world, clock, Limits(core=core)) as simulation:
        fate = Fate(simulation, repository)
        simulation.before_request = fate.strike
        seen: dict[str, dict[int, Any]] = {stage: {} for stage in STAGES}
        for happening in events:
            fate.begin_round(happening)
            for stage in STAGES:
                simulation.collect_through_deferrals(stage, name, history_days=history)
                assert_no_regress(seen[stage], simulation.rows(stage))
            clock.advance(minutes=20)
        fate.begin_round([])
        clock.advance(hours=25)
        for stage in STAGES:
            simulation.collect_through_deferrals(stage, name)
            assert_no_regress(seen[stage], simulation.rows(stage))
        assert_true_but_for_deleted(simulation, fate.deleted)


def assert_no_regress(seen: dict[int, Any], rows: Sequence[Mapping[str, Any]]) -> None:
    """Assert that every row seen before is there, and no older than it was."""
    now = {row["id"]: age(row) for row in rows}
    assert seen.keys() <= now.keys()
    assert {number for number in seen if now[number] < seen[number]} == set()
    seen.update(now)


def age(row: Mapping[str, Any]) -> tuple[datetime | bool, ...]:
    """Return what may only grow as a row gets newer."""
    return (row["updated_at"],) if "updated_at" in row else (row["status"] == "completed",)


def assert_true_but_for_deleted(simulation: Simulation, deleted: set[int]) -> None:
    """Assert that the store holds the truth, and nothing beyond it but what GitHub has deleted meanwhile."""
    truth = simulation.world.truth()
    for stage in STAGES:
        stored = [{**row, "html_url": None} for row in simulation.rows(stage) if row["id"] not in deleted]
        assert_same_rows(stored, [{**row, "html_url": None} for row in truth[stage]])
