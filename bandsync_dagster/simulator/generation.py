"""Worlds made up from a seed: sizes are exact, everything else is drawn. The awkward values are in `oddities`."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from bandsync_dagster.clock import Clock, utc_now
from bandsync_dagster.simulator import oddities
from bandsync_dagster.simulator.records import Repository, Review, User, node_id
from bandsync_dagster.simulator.world import World

NAMES = (
    *("alto", "bass", "cello", "drums", "flute", "guitar", "harp", "horn", "lute", "oboe", "piano", "viola"),
    *("bassoon", "bugle", "clarinet", "cornet", "fiddle", "gong", "kazoo", "organ", "piccolo", "tuba", "zither"),
)
LABELS = ("bug", "enhancement", "dependencies", "good first issue")
EVENTS = ("push", "pull_request", "schedule", "workflow_dispatch")
WORKFLOWS = ("CI", "Lint", "Release")
JOBS = ("build", "test", "lint", "package", "deploy")
# Nothing in a generated world is younger: a client may leave the last minutes for the next time.
SETTLED = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything a generated repository has."""

    changes: int
    runs: int
    jobs_per_run: int
    reviews: int
    rerun_share: float
    awkward: bool


def generate(
    seed: int = 1,
    *,
    owner: str = "acme",
    owner_type: str = "Organization",
    repositories: int = 12,
    changes: int = 40,
    runs: int = 40,
    jobs_per_run: int = 3,
    reviews: int = 1,
    rerun_share: float = 0.0,
    awkward: bool = True,
    days: float = 120,
    now: datetime | None = None,
    clock: Clock = utc_now,
) -> World:
    """Make a world of one owner's repositories.

    Args:
        seed: The same seed and `now` give the same world.
        owner: Login of the organisation or user that owns them.
        owner_type: `Organization` or `User`.
        repositories: How many.
        changes: Per repository.
        runs: Per repository, spread evenly over the time.
        jobs_per_run: Per run, unless the run is an awkward one.
        reviews: Per change.
        rerun_share: Which share of the runs was run again once, beside the awkward ones.
        awkward: Whether the values that break naive collectors are in it. Some repositories are then special too: one
            archived, one private, one a fork, one without Actions, one empty (from eight repositories on).
        days: How far back it reaches.
        now: The end of its history; the clock's present if None.
        clock: What the world's own mutations take for the present.
    """
    end = (now or clock()).replace(microsecond=0) - SETTLED
    # While history is made up, its end is the present: nothing happens later.
    world = World(seed, clock=lambda: end)
    sizes = Sizes(changes, runs, jobs_per_run, reviews, rerun_share, awkward)
    world.add_user(owner, owner_type)
    composer = Composer(world, sizes, end - timedelta(days=days), end)
    special = oddities.special_repositories(repositories) if awkward else {}
    for index in range(repositories):
        composer.compose(f"{owner}/{_name(index)}", index, special.get(index, {}))
    world.clock = clock
    return world


def _name(index: int) -> str:
    return NAMES[index] if index < len(NAMES) else f"{NAMES[index % len(NAMES)]}-{index}"


class Composer:
    """Fills repositories with history between two moments."""

    def __init__(self, world: World, sizes: Sizes, start: datetime, end: datetime) -> None:
        self.world, self.sizes, self.start, self.end = world, sizes, start, end
        self.people = [world.add_user(f"dev-{number}") for number in range(1, 9)]

    def compose(self, full_name: str, index: int, values: dict[str, Any]) -> None:
        """Add one repository and its history; `values` say what is special about it."""
        sizes, fields = self.sizes, {**values}
        empty, without_runs = fields.pop("empty", False), fields.get("actions", "enabled") != "enabled"
        repository = self.world.add_repository(full_name, at=self.start, **fields)
        if empty:
            repository.pushed_at = None
            return
        for position, at in enumerate(self._moments(sizes.changes)):
            self._add_change(repository, position + index, at)
        for position, at in enumerate(self._moments(0 if without_runs else sizes.runs)):
            self._add_run(repository, index, position, at)
        repository.updated_at = self.end

    def _moments(self, count: int) -> Iterator[datetime]:
        """Spread `count` moments evenly, but for some that fall into the same second as the one before."""
        span = int((self.end - self.start).total_seconds()) - 1
        for position in range(count):
            tied = self.sizes.awkward and position % 10 == 9  # noqa: PLR2004  (every tenth)
            yield self.start + timedelta(seconds=span * (position - tied + 1) // count)

    def _person(self) -> User:
        return self.world.random.choice(self.people)

    def _later(self, at: datetime, most: int) -> datetime:
        return min(at + timedelta(seconds=self.world.random.randrange(60, most)), self.end)

    def _add_change(self, repository: Repository, position: int, at: datetime) -> None:
        author = self._person()
        values: dict[str, Any] = {"author": author, "body": f"What {author.login} did"}
        values["draft"] = position % 11 == 3  # noqa: PLR2004  (one in eleven)
        values["labels"] = [self.world.label(repository, LABELS[position % 4])] if position % 3 == 0 else []
        values |= self._reviews(at)
        reviewed = values["reviews"][-1].submitted_at if values["reviews"] else at
        values |= self._ending(reviewed, position)
        if self.sizes.awkward and position % 2:
            values |= oddities.change_values(self.world, repository, position // 2)
        self.world.add_change(repository, at=at, **values)

    def _reviews(self, at: datetime) -> dict[str, Any]:
        reviews: list[Review] = []
        for _ in range(self.sizes.reviews):
            at, number = self._later(at, 86_400), self.world.next_id("review")
            state = "APPROVED" if number % 3 else "CHANGES_REQUESTED"
            reviews.append(Review(number, node_id("PRR", number), self._person(), state, at))
        return {"reviews": reviews, "review_decision": reviews[-1].state if reviews else None}

    def _ending(self, at: datetime, position: int) -> dict[str, Any]:
        ended = self._later(at, 200_000)
        if position % 4 == 3 or ended == self.end:  # noqa: PLR2004  (one in four is still open)
            return {"updated_at": at}
        values: dict[str, Any] = {"state": "closed", "draft": False, "closed_at": ended, "updated_at": ended}
        if position % 6 != 1:
            values |= {"state": "merged", "merged_at": ended, "merged_by": self._person()}
            values["merge_commit_sha"] = self.world.sha()
        return values

    def _add_run(self, repository: Repository, index: int, position: int, at: datetime) -> None:
        if self.sizes.awkward and (position % 2 if position < oddities.FIRST_RUNS else position % 25 == 0):
            oddities.add_run(
                self.world, repository, index * 7 + position // 2, at, self._run_values(repository, position)
            )
            return
        fails = position % 8 == 5  # noqa: PLR2004  (one in eight)
        jobs = [{"name": self._job_name(number)} for number in range(self.sizes.jobs_per_run)]
        run = self.world.add_run(
            repository,
            at=at,
            jobs=jobs,
            conclusion="failure" if fails else "success",
            **self._run_values(repository, position),
        )
        if self._is_rerun(position):
            self.world.rerun(run, at=self._later(run.attempt.updated_at, 86_400))

    def _job_name(self, number: int) -> str:
        return JOBS[number] if number < len(JOBS) else f"{JOBS[number % len(JOBS)]} ({number})"

    def _run_values(self, repository: Repository, position: int) -> dict[str, Any]:
        workflow = self.world.workflow(repository, WORKFLOWS[position % len(WORKFLOWS)])
        event = EVENTS[position % len(EVENTS)]
        return {"workflow": workflow, "name": workflow.name, "event": event, "actor": self._person()}

    def _is_rerun(self, position: int) -> bool:
        share = self.sizes.rerun_share
        return int((position + 1) * share) > int(position * share)
