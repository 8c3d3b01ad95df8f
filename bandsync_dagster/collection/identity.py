"""Which repository a name means. A repository's id is its identity: names change, and are given anew.

What GitHub says of a repository is believed for a day. Then, and whenever the store doubts it, GitHub is asked again.
"""

from dataclasses import asdict, dataclass, fields
from datetime import timedelta

from bandsync_dagster.clock import Clock
from bandsync_dagster.collection.outage import Store
from bandsync_dagster.github.client import GitHubClient
from bandsync_dagster.github.errors import Blocked, NotFound
from bandsync_dagster.github.models import Repository
from bandsync_dagster.github.rest import fetch_repository
from bandsync_dagster.store.queries import StoredRepository, find_repository
from bandsync_dagster.store.repositories import mark_repository, upsert_repositories

BELIEVED_FOR = timedelta(days=1)
_COLUMNS = tuple(column.name for column in fields(Repository))


@dataclass(frozen=True, slots=True)
class Registry:
    """The repositories in the store, kept in line with what GitHub says of them.

    Attributes:
        store: The store.
        clock: The time.
    """

    store: Store
    clock: Clock

    async def known(self, full_name: str) -> StoredRepository | None:
        """Return what the store knows under this name."""
        return await self.store.call(find_repository, full_name)

    def believed(self, known: StoredRepository | None) -> Repository | None:
        """Return the repository if the store's word is good enough."""
        if known is None or known.state != "active" or self.clock() - known.last_seen_at > BELIEVED_FOR:
            return None
        return Repository(**{name: getattr(known, name) for name in _COLUMNS})

    async def ask(self, client: GitHubClient, full_name: str, known: StoredRepository | None) -> Repository:
        """Ask GitHub which repository the name means, and note the answer.

        Raises:
            AccessError: GitHub does not give the repository out; its state in the store says so too.
        """
        try:
            found = await fetch_repository(client, full_name)
        except (NotFound, Blocked) as error:
            await self._note_loss(known, error)
            raise
        if known is not None and known.id != found.id:
            await self._mark(known.id, "gone", f"its name was given to repository {found.id}")
        await self.note(found, asked_as=full_name)
        return found

    async def note(self, found: Repository, *, asked_as: str) -> None:
        """Store a repository as just seen, under whatever name it was asked for."""
        await self.store.call(upsert_repositories, [asdict(found)], now=self.clock())
        if found.full_name.lower() == asked_as.lower():
            await self._mark(found.id, "active", None)
        else:
            await self._mark(found.id, "renamed", f"{asked_as} is called {found.full_name} now")

    async def _note_loss(self, known: StoredRepository | None, error: NotFound | Blocked) -> None:
        if known is not None:
            await self._mark(known.id, "blocked" if isinstance(error, Blocked) else "gone", str(error))

    async def _mark(self, repository_id: int, state: str, reason: str | None) -> None:
        await self.store.call(mark_repository, repository_id, state, reason, now=self.clock())
