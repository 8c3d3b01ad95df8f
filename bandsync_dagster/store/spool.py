"""Batches that a database which stayed away did not take: kept in files, and written by the next sync of their stage.

They were paid for with quota. A file holds one batch and appears whole or not at all: it is written under another name,
flushed to the disk and renamed. Its first line is the SHA-256 of the rest. What cannot be read back as it was written
is moved into `set-aside/` with a reason beside it: nothing is deleted but what is in the database.
"""

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from bandsync_dagster.store.errors import RowRejected, SpoolDamaged, SpoolError, SpoolFull, SyncError
from bandsync_dagster.store.schema import STAGE_TABLES, job_totals
from bandsync_dagster.store.types import UtcDateTime
from bandsync_dagster.store.writes import Batch, write_spooled_batch

_log = logging.getLogger(__name__)

_SUFFIX = ".batch"
_UNFINISHED = ".part"
_SET_ASIDE = "set-aside"
# A temporary file this old belongs to a process that died while it wrote.
_ABANDONED_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class SpooledBatch:
    """A batch and the file it is kept in."""

    batch: Batch
    path: Path


@dataclass(frozen=True, slots=True)
class SetAside:
    """A file that could not be written to the database, where it was moved, and why."""

    path: Path
    reason: str


@dataclass(frozen=True, slots=True)
class Replay:
    """What replaying the spool did. `batches` and `rows` count what was new to the database."""

    batches: int = 0
    rows: int = 0
    set_aside: tuple[SetAside, ...] = ()


class Spool:
    """A folder of batches that wait for the database. Several processes and machines may share it.

    Args:
        folder: Made when it is first needed.
        max_bytes: How much all waiting batches may take together.
    """

    def __init__(self, folder: Path | str, max_bytes: int) -> None:
        self._folder = Path(folder)
        self._max_bytes = max_bytes

    def put(self, batch: Batch) -> Path:
        """Keep a batch. When this returns, it is on the disk.

        Raises:
            SpoolFull: The batch would exceed the spool's size.
            SpoolError: The folder cannot be written to.
        """
        name = f"{batch.sync_id:019}-{batch.number:09}{_SUFFIX}"
        try:
            folder = self._place(batch.repository_id, batch.stage)
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return self._keep(_encode(batch), folder / name)
        except OSError as error:
            raise SpoolError(
                f"the spool {self._folder} cannot keep a batch, which will be fetched again: {error}; "
                "make room there, or set BANDSYNC_SPOOL to a folder on another disk than the database's"
            ) from error

    def drain(self, repository_id: int, stage: str) -> Iterator[SpooledBatch | SetAside]:
        """Read back what waits for a stage of a repository, in the order it was fetched. Deletes nothing.

        A file that is not as it was written is set aside, and comes as that.
        """
        for path in sorted(self._place(repository_id, stage).glob(f"*{_SUFFIX}")):
            # One that is gone by now was written by another process.
            with suppress(FileNotFoundError):
                yield self._read(path)

    def remove(self, spooled: SpooledBatch) -> None:
        """Delete a batch that is in the database."""
        spooled.path.unlink(missing_ok=True)

    def set_aside(self, path: Path, reason: str) -> SetAside:
        """Move a file out of the way, for a person to look at, with the reason beside it."""
        folder = self._folder / _SET_ASIDE / path.parent.name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        kept = path.replace(folder / path.name)
        kept.with_suffix(".txt").write_text(f"{reason}\n", encoding="utf-8")
        _log.error("A spooled batch was not written and is kept as %s: %s", kept, reason)
        return SetAside(kept, reason)

    def _read(self, path: Path) -> SpooledBatch | SetAside:
        content = path.read_bytes()
        try:
            return SpooledBatch(_decode(content), path)
        except SpoolDamaged as damage:
            return self.set_aside(path, str(damage))

    def _place(self, repository_id: int, stage: str) -> Path:
        return self._folder / f"{repository_id}-{stage}"

    def _keep(self, content: bytes, path: Path) -> Path:
        descriptor, name = tempfile.mkstemp(dir=path.parent, suffix=_UNFINISHED)
        part = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            self._require_room(part)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        _sync_folder(path.parent)
        return path

    def _require_room(self, part: Path) -> None:
        """Refuse to exceed the size. The new file is counted where it is, so processes need not agree who is first."""
        sizes = 0
        newest = part.stat().st_mtime
        for path in self._folder.rglob("*"):
            # What is gone by now needs no room.
            with suppress(FileNotFoundError):
                sizes += _size(path, newest - _ABANDONED_SECONDS)
        if sizes > self._max_bytes:
            raise SpoolFull(
                f"the spool {self._folder} is full: this batch makes it {sizes:,} of {self._max_bytes:,} bytes; "
                "it will be fetched again"
            )


def _size(path: Path, abandoned_before: float) -> int:
    """Return what a file takes, after deleting it if it is what a dead process left."""
    status = path.stat()
    if path.suffix == _UNFINISHED and status.st_mtime < abandoned_before:
        path.unlink()
        return 0
    return 0 if path.is_dir() else status.st_size


def replay(engine: sa.Engine, spool: Spool, repository_id: int, stage: str, *, now: datetime) -> Replay:
    """Write what waits for a stage of a repository, oldest first.

    A batch that can never be written (damaged, its sync unknown, an earlier one missing) is set aside. Its
    checkpoint has not moved, so it will be collected again.

    Raises:
        StoreUnavailable: The database is away again. Everything not yet written stays in the spool.
    """
    batches = rows = 0
    aside: list[SetAside] = []
    for found in spool.drain(repository_id, stage):
        if isinstance(found, SetAside):
            aside.append(found)
            continue
        try:
            written = write_spooled_batch(engine, found.batch, now=now)
        except (SyncError, RowRejected) as problem:
            aside.append(spool.set_aside(found.path, str(problem)))
            continue
        spool.remove(found)
        batches += written.applied
        rows += written.collected
    return Replay(batches, rows, tuple(aside))


def _sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _encode(batch: Batch) -> bytes:
    """Return a batch as lines: the checksum, all but the rows, then one line for each row."""
    head = {
        "number": batch.number,
        "stage": batch.stage,
        "repository_id": batch.repository_id,
        "sync_id": batch.sync_id,
        "position": batch.position,
        "job_totals": [_to_json(total) for total in batch.job_totals],
        "requests": batch.requests,
        "points": batch.points,
    }
    lines = [json.dumps(head), *(json.dumps(_to_json(row)) for row in batch.rows)]
    body = "\n".join(lines).encode("ascii")
    return hashlib.sha256(body).hexdigest().encode("ascii") + b"\n" + body


def _decode(content: bytes) -> Batch:
    checksum, _, body = content.partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode("ascii") != checksum:
        raise SpoolDamaged("the file's checksum does not match its content")
    try:
        head, *rows = (json.loads(line) for line in body.split(b"\n"))
        table = STAGE_TABLES[head["stage"]]
        head["job_totals"] = tuple(_from_json(job_totals, total) for total in head["job_totals"])
        return Batch(rows=[_from_json(table, row) for row in rows], **head)
    except (ValueError, KeyError, TypeError) as problem:
        raise SpoolDamaged(f"another release wrote this file ({problem!r})") from problem


def _to_json(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}


def _from_json(table: sa.Table, row: Mapping[str, Any]) -> dict[str, Any]:
    times = {column.key for column in table.columns if isinstance(column.type, UtcDateTime)}
    return {
        name: datetime.fromisoformat(value) if name in times and value is not None else value
        for name, value in row.items()
    }
