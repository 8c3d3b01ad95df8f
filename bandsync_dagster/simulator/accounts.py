"""The part of a world that everything else hangs on: accounts, repositories, their access, and new ids.

What happens inside repositories is in `world`.
"""

import random
from datetime import datetime
from typing import Any

from bandsync_dagster.clock import Clock, utc_now
from bandsync_dagster.simulator.records import Label, Repository, User, Workflow, node_id
from bandsync_dagster.simulator.registry import USER_PREFIXES, Registry

# All but the workflow ids passed 2^31 long ago.
FIRST_IDS = {
    "user": 2_950_000_000,
    "repository": 3_150_000_000,
    "change": 3_300_000_000,
    "review": 4_200_000_000,
    "label": 9_700_000_000,
    "workflow": 190_000_000,
    "run": 34_000_000_000,
    "suite": 89_000_000_000,
    "job": 102_000_000_000,
    "runner": 7_000_000_000,
}


class Accounts(Registry):
    """Who and what there is, seeded: whatever a call doesn't give is drawn from the same random numbers."""

    def __init__(self, seed: int = 1, *, clock: Clock = utc_now) -> None:
        super().__init__()
        self.random = random.Random(seed)  # noqa: S311  (a world must be the same for the same seed)
        self.clock = clock
        self._last_ids = dict(FIRST_IDS)

    def now(self) -> datetime:
        """Return the present second."""
        return self.clock().replace(microsecond=0)

    def next_id(self, kind: str) -> int:
        """Return a new id. Ids of one kind only grow, by irregular steps."""
        self._last_ids[kind] += self.random.randrange(1, 40)
        return self._last_ids[kind]

    def sha(self) -> str:
        """Return a new commit."""
        return f"{self.random.getrandbits(160):040x}"

    def add_user(self, login: str, type_name: str = "User", *, user_id: int | None = None) -> User:
        """Add an account, or return the one that has the login."""
        with self.lock:
            known = self.user(login)
            if known is not None:
                return known
            number = user_id or self.next_id("user")
            user = User(number, node_id(USER_PREFIXES[type_name], number), login, type_name)
            self.users[number] = user
            self._logins[login.lower()] = user
            return user

    def add_repository(
        self, full_name: str, *, at: datetime | None = None, repository_id: int | None = None, **values: object
    ) -> Repository:
        """Add a repository without content; `values` set any of its fields. A new owner is an organisation."""
        with self.lock:
            login, _, name = full_name.partition("/")
            owner = self.add_user(login, "Organization")
            number, at = repository_id or self.next_id("repository"), at or self.now()
            times = {"created_at": at, "updated_at": at, "pushed_at": at}
            fields: dict[str, Any] = {"id": number, "node_id": node_id("R", number), **times, **values}
            repository = Repository(owner=owner, name=name, **fields)
            self.repositories[number] = repository
            self._names[repository.full_name.lower()] = repository
            return repository

    def rename_repository(self, repository: Repository, name: str, *, owner: User | None = None) -> None:
        """Give a repository another name, or another owner: the old name leads to it until it is taken again."""
        with self.lock:
            old = repository.full_name.lower()
            repository.owner, repository.name = owner or repository.owner, name
            self._names.pop(old, None)
            self._former_names[old] = repository
            self._names[repository.full_name.lower()] = repository
            repository.updated_at = self.now()

    def delete_repository(self, repository: Repository) -> None:
        """Delete a repository: 404 from now on, and its name is free."""
        with self.lock:
            repository.gone = True
            self._names.pop(repository.full_name.lower(), None)

    def update_repository(self, repository: Repository, **values: object) -> None:
        """Set fields of a repository: `archived`, `blocked`, `saml`, `actions`, `has_pull_requests`, ..."""
        with self.lock:
            for name, value in values.items():
                setattr(repository, name, value)

    def block_repository(self, repository: Repository, reason: str = "dmca") -> None:
        """Block access: `dmca` answers 451, `tos` 403."""
        self.update_repository(repository, blocked=reason)

    def label(self, repository: Repository, name: str, color: str = "3eede7") -> Label:
        """Return the repository's label of this name; it is made if new."""
        with self.lock:
            for label in repository.labels:
                if label.name == name:
                    return label
            number = self.next_id("label")
            label = Label(number, node_id("LA", number), name, color)
            repository.labels.append(label)
            return label

    def workflow(self, repository: Repository, name: str = "CI") -> Workflow:
        """Return the repository's workflow of this name; it is made if new."""
        with self.lock:
            for workflow in repository.workflows:
                if workflow.name == name:
                    return workflow
            number = self.next_id("workflow")
            workflow = Workflow(number, node_id("W", number), name, f".github/workflows/{name.lower()}.yml")
            repository.workflows.append(workflow)
            return workflow
