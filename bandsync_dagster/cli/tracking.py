"""From the runs of one collection to where each repository stands. Pure: no I/O, no clock."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from bandsync_dagster.cli.webserver import Run
from bandsync_dagster.tags import COLLECTION_JOB, PARTITION, SUCCESSOR_OF

# Dagster's own: a failed run that its daemon will start again.
_WILL_RETRY = "dagster/will_retry"

_ENDED = {"SUCCESS": "done", "FAILURE": "failed", "CANCELED": "cancelled"}
_QUEUED = frozenset({"QUEUED", "NOT_STARTED", "MANAGED"})


class Standing(Enum):
    """Where one repository stands in a collection."""

    MISSING = "missing"  # no run was launched for it
    WAITING = "waiting"  # queued
    DEFERRED = "deferred"  # queued again, after a run that met the quota
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether nothing more will happen to it."""
        return self in {Standing.DONE, Standing.FAILED, Standing.CANCELLED}


@dataclass(frozen=True)
class Track:
    """The runs of one repository in one collection, oldest first, and where they leave it."""

    standing: Standing
    runs: tuple[Run, ...] = ()

    @property
    def latest(self) -> Run | None:
        """The run that decides."""
        return self.runs[-1] if self.runs else None

    @property
    def deferrals(self) -> int:
        """How often the quota sent it back into the queue."""
        return sum(is_successor(run) for run in self.runs)


def is_successor(run: Run) -> bool:
    """Tell whether a run took over from a deferred one; a re-execution by hand copies the tag, but not the parent."""
    return run.parent is not None and run.tags.get(SUCCESSOR_OF) == run.parent


def track(runs: Sequence[Run]) -> Track:
    """Say where the runs of one repository leave it.

    Args:
        runs: Newest first, as the webserver gives them. A deferred run has ended well and has a successor, which is
            newer: so the newest decides.
    """
    if not runs:
        return Track(Standing.MISSING)
    return Track(_standing(runs[0]), tuple(reversed(runs)))


def tracks(keys: Iterable[str], runs: Iterable[Run]) -> dict[str, Track]:
    """Say where each repository of a collection stands, given all the collection's runs, newest first."""
    by_key: dict[str, list[Run]] = {key: [] for key in keys}
    for run in runs:
        key = run.tags.get(PARTITION)
        if run.job == COLLECTION_JOB and key in by_key:
            by_key[key].append(run)
    return {key: track(own) for key, own in by_key.items()}


def count(tracked: Mapping[str, Track]) -> Counter[Standing]:
    """Count the repositories in each standing."""
    return Counter(track.standing for track in tracked.values())


def _standing(run: Run) -> Standing:
    if run.status in _QUEUED:
        return Standing.DEFERRED if is_successor(run) else Standing.WAITING
    if run.status == "FAILURE" and run.tags.get(_WILL_RETRY) == "true":
        return Standing.WAITING
    return Standing(_ENDED.get(run.status, "running"))
