"""Who is where in a world: indexes and look-ups, by id, name, node id and time. Nothing here changes what it holds."""

import base64
import binascii
import threading
from collections.abc import Iterator
from typing import Any

from bandsync_dagster.simulator.records import Change, Job, Repository, Run, User, node_id

Record = User | Repository | Change | Run | Job

USER_PREFIXES = {"User": "U", "Bot": "BOT", "Organization": "O", "Mannequin": "M"}


def parse_node_id(text: str) -> tuple[str, int] | None:
    """Return the prefix and number in a node id, or None if it was not spelled by `node_id`."""
    prefix, separator, packed = text.partition("_kwDO")
    if not separator:
        return None
    try:
        number = int.from_bytes(base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)), "big")
        return (prefix, number) if node_id(prefix, number) == text else None
    except (binascii.Error, OverflowError, ValueError):
        return None


class Registry:
    """All records of a world, found quickly. `lock` is held by whoever reads or changes more than one of them."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.users: dict[int, User] = {}
        self.repositories: dict[int, Repository] = {}
        self.changes: dict[int, Change] = {}
        self.runs: dict[int, Run] = {}
        self.suites: dict[int, Run] = {}
        self.jobs: dict[int, Job] = {}
        # Accounts are found without regard to case, and so are repositories. A former name leads to the repository
        # until somebody else takes the name.
        self._logins: dict[str, User] = {}
        self._names: dict[str, Repository] = {}
        self._former_names: dict[str, Repository] = {}
        # Only recorded records have node ids that tell nothing.
        self._recorded_nodes: dict[str, tuple[str, Record]] = {}

    def user(self, login: str) -> User | None:
        """Return the account with this login, if there is one."""
        return self._logins.get(login.lower())

    def find_repository(self, full_name: str) -> Repository | None:
        """Return the repository that has this name now."""
        repository = self._names.get(full_name.lower())
        return None if repository is None or repository.gone else repository

    def find_moved(self, full_name: str) -> Repository | None:
        """Return the repository that had this name once, if nobody took the name since."""
        name = full_name.lower()
        repository = None if name in self._names else self._former_names.get(name)
        return None if repository is None or repository.gone else repository

    def repository(self, full_name: str) -> Repository:
        """Return the repository with this present or former name.

        Raises:
            KeyError: There is none, or it was deleted.
        """
        found = self.find_repository(full_name) or self.find_moved(full_name)
        if found is None:
            raise KeyError(full_name)
        return found

    def owned_by(self, login: str) -> list[Repository]:
        """Return the repositories of an account, in the order of their names."""
        owned = (r for r in self.repositories.values() if not r.gone and r.owner.login.lower() == login.lower())
        return sorted(owned, key=lambda repository: repository.full_name.lower())

    def remember_node(self, type_name: str, record: Record, text: str | None = None) -> None:
        """Make a recorded node id resolvable. The first record that has it keeps it: recorded ids can repeat."""
        self._recorded_nodes.setdefault(text or record.node_id, (type_name, record))

    def resolve_node(self, text: str) -> tuple[str, Record] | None:
        """Return the GraphQL type name and record of a node id: check suites are their runs, check runs their jobs."""
        recorded = self._recorded_nodes.get(text)
        if recorded is not None:
            return recorded
        parsed = parse_node_id(text)
        if parsed is None:
            return None
        prefix, number = parsed
        for type_name, its_prefix, index in self._node_types():
            if prefix == its_prefix and number in index:
                return type_name, index[number]
        return None

    def _node_types(self) -> Iterator[tuple[str, str, dict[int, Any]]]:
        yield "CheckSuite", "CS", self.suites
        yield "CheckRun", "CR", self.jobs
        yield "WorkflowRun", "WFR", self.runs
        yield "PullRequest", "PR", self.changes
        yield "Repository", "R", self.repositories
        for type_name, prefix in USER_PREFIXES.items():
            yield type_name, prefix, self.users
