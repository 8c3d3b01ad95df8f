"""The one write path: rows, counters and checkpoint in one transaction, each batch exactly once.

Whatever dies when, the three agree. A batch sent again after a commit whose answer was lost is recognised by its
number. Concurrent writers of the same rows lock in the same order (sync, new rows by id, stored rows by id, job totals,
checkpoint), so they wait for each other instead of deadlocking.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from bandsync_dagster.store.engine import writing
from bandsync_dagster.store.errors import BatchOutOfOrder, IllegalTransition, UnknownSync
from bandsync_dagster.store.merging import merge
from bandsync_dagster.store.rows import Row, clean_json, clean_row
from bandsync_dagster.store.schema import STAGE_TABLES, checkpoints, job_totals, syncs
from bandsync_dagster.store.statements import IDS_PER_STATEMENT, excluded, insert_into

SYNC_COLUMNS = frozenset({"first_sync_id", "last_sync_id"})


@dataclass(frozen=True, slots=True)
class Batch:
    """What one transaction writes.

    Attributes:
        number: 1 for the first batch of the sync, then one more each, also after a deferral: `Sync.last_batch + 1`.
        rows: In the columns of the stage's table, without the two that name syncs. An id that occurs twice is
            counted once, at its newest.
        position: Where the checkpoint moves to; None leaves it where it is.
        job_totals: Rows of `job_totals`, without `collected_at`.
        requests: Requests spent since the last batch.
        points: GraphQL points spent since the last batch.
    """

    number: int
    stage: str
    repository_id: int
    sync_id: int
    rows: Sequence[Mapping[str, Any]]
    position: Mapping[str, Any] | None
    job_totals: Sequence[Mapping[str, Any]] = ()
    requests: int = 0
    points: int = 0


@dataclass(frozen=True, slots=True)
class Written:
    """What a batch did. `applied` is False when it had been written before: nothing was done or counted."""

    collected: int = 0
    created: int = 0
    updated: int = 0
    unchanged: int = 0
    applied: bool = True


def write_batch(engine: sa.Engine, batch: Batch, *, now: datetime) -> Written:
    """Write a batch of a running sync.

    Raises:
        IllegalTransition: The sync is not running.
        BatchOutOfOrder: The batch before this one was not written.
        RowRejected: A value does not fit its column. Nothing was written.
        StoreUnavailable: The database cannot take it now: the same batch may be written again.
    """
    return _write(engine, batch, frozenset({"running"}), now)


def write_spooled_batch(engine: sa.Engine, batch: Batch, *, now: datetime) -> Written:
    """Write a batch that was kept while the database was away; its sync may have ended badly meanwhile.

    The rows count for the sync that collected them. The checkpoint moves only if no other sync has moved it since that
    one started. Raises what `write_batch` raises.
    """
    return _write(engine, batch, frozenset({"running", "failed", "cancelled"}), now)


def _write(engine: sa.Engine, batch: Batch, states: frozenset[str], now: datetime) -> Written:
    rows = _newest(batch)
    totals = [_job_total(batch, total, now) for total in batch.job_totals]
    with writing(engine) as connection:
        sync = _lock_sync(connection, batch)
        if batch.number <= sync.last_batch:
            return Written(applied=False)
        _require_next(sync, batch, states)
        written = _write_rows(connection, STAGE_TABLES[batch.stage], rows, batch.sync_id)
        _write_job_totals(connection, totals)
        _count(connection, batch, written, now)
        if batch.position is not None:
            _move_checkpoint(connection, batch, sync, now)
    return written


def _newest(batch: Batch) -> list[Row]:
    """Clean the rows, keep each id once, and order them as every writer locks them."""
    table = STAGE_TABLES[batch.stage]
    newest: dict[int, Row] = {}
    for given in batch.rows:
        row = clean_row(table, {"repository_id": batch.repository_id, **given}, without=SYNC_COLUMNS)
        if row["repository_id"] != batch.repository_id:
            raise ValueError(f"{table.name} row {row['id']} is not of repository {batch.repository_id}")
        known = newest.get(row["id"])
        newest[row["id"]] = row if known is None else merge(table.name, known, row)
    return [newest[row_id] for row_id in sorted(newest)]


def _job_total(batch: Batch, total: Mapping[str, Any], now: datetime) -> Row:
    known = {"repository_id": batch.repository_id, "retries": 0, "collected_at": now}
    return clean_row(job_totals, {**known, **total})


def _lock_sync(connection: sa.Connection, batch: Batch) -> sa.Row[Any]:
    statement = sa.select(syncs).where(syncs.c.id == batch.sync_id).with_for_update()
    sync = connection.execute(statement).one_or_none()
    if sync is None:
        raise UnknownSync(batch.sync_id)
    if sync.stage != batch.stage or sync.repository_id not in (None, batch.repository_id):
        theirs = f"{sync.stage} of repository {sync.repository_id}"
        raise ValueError(f"sync {sync.id} is of {theirs}, the batch of {batch.stage} of {batch.repository_id}")
    return sync


def _require_next(sync: sa.Row[Any], batch: Batch, states: frozenset[str]) -> None:
    if sync.state not in states:
        raise IllegalTransition(batch.sync_id, "write a batch of", sync.state)
    if batch.number != sync.last_batch + 1:
        raise BatchOutOfOrder(batch.sync_id, batch.number, sync.last_batch)


def _write_rows(connection: sa.Connection, table: sa.Table, rows: list[Row], sync_id: int) -> Written:
    created = _insert_new(connection, table, rows, sync_id)
    known = {row["id"]: row for row in rows if row["id"] not in created}
    changed = _merge_with_stored(connection, table, known)
    _overwrite(connection, table, changed, sync_id)
    return Written(len(rows), len(created), len(changed), len(known) - len(changed))


def _insert_new(connection: sa.Connection, table: sa.Table, rows: list[Row], sync_id: int) -> set[int]:
    """Insert what is not stored yet. Only the rows this statement inserted come back, whoever else inserts them."""
    if not rows:
        return set()
    statement = insert_into(connection, table).on_conflict_do_nothing(index_elements=["id"]).returning(table.c.id)
    by_sync = {"first_sync_id": sync_id, "last_sync_id": sync_id}
    return set(connection.execute(statement, [{**row, **by_sync} for row in rows]).scalars())


def _merge_with_stored(connection: sa.Connection, table: sa.Table, rows: Mapping[int, Row]) -> list[Row]:
    """Return the rows that differ from what is stored, as they should be; what is stored is locked from here on."""
    changed: list[Row] = []
    names = [column.key for column in table.columns if column.key not in SYNC_COLUMNS]
    for ids in _chunks(sorted(rows)):
        statement = (
            sa.select(*(table.c[name] for name in names))
            .where(table.c.id.in_(ids))
            .order_by(table.c.id)
            .with_for_update()
        )
        for row in connection.execute(statement):
            stored = dict(zip(names, row, strict=True))
            merged = merge(table.name, stored, rows[stored["id"]])
            if merged != stored:
                changed.append(merged)
    return changed


def _chunks(ids: Sequence[int]) -> Iterable[Sequence[int]]:
    for start in range(0, len(ids), IDS_PER_STATEMENT):
        yield ids[start : start + IDS_PER_STATEMENT]


def _overwrite(connection: sa.Connection, table: sa.Table, rows: list[Row], sync_id: int) -> None:
    """Replace stored rows. An upsert, because that goes many rows to a statement; all the rows exist and are locked."""
    if not rows:
        return
    statement = insert_into(connection, table)
    statement = statement.on_conflict_do_update(
        index_elements=["id"], set_=excluded(statement, "id", "repository_id", "first_sync_id")
    )
    by_sync = {"first_sync_id": sync_id, "last_sync_id": sync_id}
    connection.execute(statement, [{**row, **by_sync} for row in rows])


def _write_job_totals(connection: sa.Connection, totals: Iterable[Row]) -> None:
    """Note what is known of the verifications' jobs, unless a later attempt is noted."""
    newest = {total["verification_id"]: total for total in sorted(totals, key=lambda total: total["run_attempt"])}
    if not newest:
        return
    statement = insert_into(connection, job_totals)
    statement = statement.on_conflict_do_update(
        index_elements=["verification_id"],
        set_=excluded(statement, "verification_id", "repository_id"),
        where=statement.excluded.run_attempt >= job_totals.c.run_attempt,
    )
    connection.execute(statement, [newest[verification_id] for verification_id in sorted(newest)])


def _count(connection: sa.Connection, batch: Batch, written: Written, now: datetime) -> None:
    """Add to the counters where they are: what is read and written back is lost under concurrency."""
    counters = {
        "records_collected": written.collected,
        "records_created": written.created,
        "records_updated": written.updated,
        "records_unchanged": written.unchanged,
        "requests": batch.requests,
        "points": batch.points,
    }
    added = {name: syncs.c[name] + amount for name, amount in counters.items()}
    known = {"last_batch": batch.number, "repository_id": batch.repository_id, "heartbeat_at": now}
    connection.execute(syncs.update().where(syncs.c.id == batch.sync_id).values(**added, **known))


def _move_checkpoint(connection: sa.Connection, batch: Batch, sync: sa.Row[Any], now: datetime) -> None:
    """Move the checkpoint; one written after its sync has ended moves it only if nobody else has since it started."""
    statement = insert_into(connection, checkpoints).values(
        repository_id=batch.repository_id,
        stage=batch.stage,
        position=clean_json(batch.position),
        sync_id=batch.sync_id,
        updated_at=now,
    )
    follows = sa.or_(checkpoints.c.sync_id == batch.sync_id, checkpoints.c.updated_at <= sync.started_at)
    statement = statement.on_conflict_do_update(
        index_elements=["repository_id", "stage"],
        set_=excluded(statement, "repository_id", "stage"),
        where=None if sync.state == "running" else follows,
    )
    connection.execute(statement)
