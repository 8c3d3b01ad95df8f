"""Every error the store raises, as one tree. Nothing else belongs here.

    StoreError
    ├── StoreUnavailable        worth trying the same again: locked, unreachable, starting up, full, a deadlock
    ├── StoreMisconfigured      a person has to change the URL, the rights or the database
    ├── StoreTooNew             a newer release has upgraded the database
    ├── StoreRefused            the database refuses a statement, and would again
    ├── RowRejected             a row is not what its table takes
    ├── SyncError
    │   ├── UnknownSync         there is no sync with this id
    │   ├── IllegalTransition   the sync is in a state that this event does not start from
    │   └── BatchOutOfOrder     an earlier batch of the sync is missing
    └── SpoolError
        ├── SpoolFull           one more batch would exceed the spool's size
        └── SpoolDamaged        a spooled batch cannot be read back as it was written

Messages are one line, end in what to do where a person can do something, and never hold a password. A caller's own
mistake (a naive datetime, a column the table does not have) is a `ValueError` and stays outside of this tree.
"""


class StoreError(Exception):
    """Something the store could not do."""


class StoreUnavailable(StoreError):
    """The database cannot do it now; the same call may succeed later."""


class StoreMisconfigured(StoreError):
    """The database cannot be used as it is configured."""


class StoreTooNew(StoreError):
    """The database was upgraded by a newer release than this one."""

    def __init__(self, where: str, found: str, known: str) -> None:
        super().__init__(
            f"{where} has schema revision {found}, which is newer than this release knows (up to {known}), or another "
            "program's, such as Dagster's: upgrade bandsync-dagster, or use a database of its own"
        )
        self.found = found
        self.known = known


class StoreRefused(StoreError):
    """The database refuses what it was asked to do."""


class RowRejected(StoreError):
    """A value does not fit its column; nothing of its batch was written."""

    def __init__(self, table: str, row_id: object, column: str, problem: str) -> None:
        super().__init__(f"{table} row {row_id!r}: column {column} {problem}")
        self.table = table
        self.row_id = row_id
        self.column = column


class SyncError(StoreError):
    """A sync does not allow what was asked of it."""


class UnknownSync(SyncError):
    """There is no such sync."""

    def __init__(self, sync_id: int) -> None:
        super().__init__(f"there is no sync {sync_id} in this database")
        self.sync_id = sync_id


class IllegalTransition(SyncError):
    """The event does not start from the state the sync is in (`state`)."""

    def __init__(self, sync_id: int, event: str, state: str) -> None:
        super().__init__(f"sync {sync_id} is {state}: cannot {event} it")
        self.sync_id = sync_id
        self.event = event
        self.state = state


class BatchOutOfOrder(SyncError):
    """The batch is not the one that follows the last one written."""

    def __init__(self, sync_id: int, number: int, last: int) -> None:
        super().__init__(f"batch {number} of sync {sync_id} does not follow batch {last}, the last one written")
        self.sync_id = sync_id
        self.number = number
        self.last = last


class SpoolError(StoreError):
    """The spool could not keep or give back a batch."""


class SpoolFull(SpoolError):
    """Keeping the batch would exceed the spool's size."""


class SpoolDamaged(SpoolError):
    """A spooled batch is not what was written."""
