"""What an algorithm is given to collect one stage of one repository: whom to ask, where to go on, where to put rows."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import sqlalchemy as sa

from bandsync_dagster.clock import Clock
from bandsync_dagster.collection.outage import Sleep, Store
from bandsync_dagster.collection.pipeline import Page, Pipeline
from bandsync_dagster.github.client import GitHubClient
from bandsync_dagster.github.models import Change, Job, Repository, Verification
from bandsync_dagster.store.syncs import Sync

Record = Change | Verification | Job
Params = ParamSpec("Params")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class StageOptions:
    """What a person may ask of one collection.

    Attributes:
        full_refresh: Start without the checkpoint; rows are kept.
        history_days: How far back a first load goes; None goes to the beginning.
        detail: `full` collects by REST what only REST knows of jobs: runner, labels, queue time, steps.
    """

    full_refresh: bool = False
    history_days: int | None = None
    detail: Literal["basic", "full"] = "basic"


@dataclass(frozen=True, slots=True)
class Ending:
    """How a stage ended when it isn't simply complete: one word for the store, and the reason for a person."""

    word: str
    reason: str | None


class IdentityError(Exception):
    """The name that is being collected belongs to another repository than the one it was known to be."""

    def __init__(self, full_name: str, expected_id: int, found_id: int) -> None:
        super().__init__(f"{full_name} is repository {found_id} now; it was {expected_id}: the name was given anew")
        self.full_name = full_name
        self.found_id = found_id


@dataclass(slots=True)
class Scan:
    """One stage of one repository, being collected.

    Attributes:
        client: Asks GitHub.
        sync: What this is a part of; after a deferral, the same one as before.
        repository: As GitHub describes it, `id` being its identity and `full_name` its present name.
        position: The checkpoint to go on from; None at the first time and on a full refresh.
        options: What a person asked for.
        clock: The time.
        pipeline: Takes the pages; use `put` and `flush`.
        store: The store; use `read`.
        sleep: Waits for a number of seconds, without holding anybody up.
        ending: What the algorithm said about its end; None means complete.
        notes: Facts the algorithm keeps for whoever looks at the sync.
    """

    client: GitHubClient
    sync: Sync
    repository: Repository
    position: dict[str, Any] | None
    options: StageOptions
    clock: Clock
    pipeline: Pipeline
    store: Store
    sleep: Sleep = asyncio.sleep
    ending: Ending | None = None
    notes: dict[str, Any] = field(default_factory=dict[str, Any])

    async def put(
        self,
        rows: Sequence[Record],
        *,
        position: Mapping[str, Any] | None = None,
        job_totals: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Hand over rows with the position they justify, before asking for more.

        Returns when they are stored, so that nothing that quota was spent on can be lost; with a store that lags
        behind, when there is room for as many again.
        """
        await self.pipeline.put(Page([_as_row(row) for row in rows], position, job_totals))
        await self.pipeline.settle()

    async def flush(self) -> None:
        """Wait until all that was put is stored, so that `read` sees it."""
        await self.pipeline.flush()

    async def read(
        self, query: Callable[Concatenate[sa.Engine, Params], Result], *args: Params.args, **kwargs: Params.kwargs
    ) -> Result:
        """Run a query of the store in a thread; its first argument, the engine, is added here."""
        return await self.store.call(query, *args, **kwargs)

    def recognise(self, repository_id: int, full_name: str | None = None) -> None:
        """Make sure that an answer is about the repository being collected; call it before putting the answer's rows.

        A repository that goes by another name now is asked for by that name from here on.

        Raises:
            IdentityError: The name belongs to another repository by now.
        """
        if repository_id != self.repository.id:
            raise IdentityError(self.repository.full_name, self.repository.id, repository_id)
        if full_name is not None and full_name != self.repository.full_name:
            self.repository = replace(self.repository, full_name=full_name)

    def note(self, **facts: object) -> None:
        """Keep facts among the sync's metrics."""
        self.notes.update(facts)

    def outcome(self, word: str, reason: str) -> None:
        """Say that this ends as something else than complete, such as `disabled` or `skipped`, and why."""
        self.ending = Ending(word, reason)


@lru_cache
def _columns(kind: type[Record]) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    names = tuple(column.name for column in fields(kind))
    return names, attrgetter(*names)


def _as_row(record: Record) -> dict[str, Any]:
    """Return the record's fields by column name (`dataclasses.asdict` would copy every value deeply)."""
    names, values = _columns(type(record))
    return dict(zip(names, values(record), strict=True))
