"""The gate's row, and the lock that makes it safe to decide on."""

import pytest
import sqlalchemy as sa

from bandsync_dagster.store.engine import create_store_engine
from bandsync_dagster.store.gate import Gate, locked_gate, read_gate
from bandsync_dagster_tests.store.builders import HOUR, NOW
from bandsync_dagster_tests.store.processes import in_processes

ROUNDS = 10
CLOSED = Gate("github", "closed", 5, "core", NOW + HOUR, NOW)


class PlannedFailure(Exception):
    """What a test fails with."""


def close(engine: sa.Engine, pool: str = "github") -> None:
    """Write a closed gate."""
    with locked_gate(engine, pool) as handle:
        handle.write(state="closed", limit=5, bucket="core", closed_until=NOW + HOUR, now=NOW)


def test_a_gate_that_nobody_closed_is_not_there(engine: sa.Engine) -> None:
    """Neither to a reader nor under the lock."""
    assert read_gate(engine, "github") is None
    with locked_gate(engine, "github") as handle:
        assert handle.gate is None
    assert read_gate(engine, "github") is None


def test_what_is_written_is_read(engine: sa.Engine) -> None:
    """By the one who wrote it at once, by others after the block."""
    with locked_gate(engine, "github") as handle:
        handle.write(state="closed", limit=5, bucket="core", closed_until=NOW + HOUR, now=NOW)
        assert handle.gate == CLOSED
        assert read_gate(engine, "github") is None
    assert read_gate(engine, "github") == CLOSED


def test_writing_again_replaces_everything(engine: sa.Engine) -> None:
    """Nothing of what was written before is left."""
    close(engine)
    with locked_gate(engine, "github") as handle:
        assert handle.gate == CLOSED
        handle.write(state="open", limit=7, bucket=None, closed_until=None, now=NOW + HOUR)
    assert read_gate(engine, "github") == Gate("github", "open", 7, None, None, NOW + HOUR)


def test_pools_have_gates_of_their_own(engine: sa.Engine) -> None:
    """Closing one leaves the other."""
    close(engine)
    assert read_gate(engine, "other") is None


def test_a_block_that_raises_changes_nothing(engine: sa.Engine) -> None:
    """The row never says what the pool was not told."""
    with pytest.raises(PlannedFailure):
        _write_and_fail(engine)
    assert read_gate(engine, "github") is None


def _write_and_fail(engine: sa.Engine) -> None:
    with locked_gate(engine, "github") as handle:
        handle.write(state="closed", limit=5, bucket="core", closed_until=NOW, now=NOW)
        raise PlannedFailure


def _raise_limit(url: str) -> None:
    engine = create_store_engine(url)
    for _ in range(ROUNDS):
        with locked_gate(engine, "github") as handle:
            limit = handle.gate.limit if handle.gate else 0
            handle.write(state="open", limit=limit + 1, bucket=None, closed_until=None, now=NOW)
    engine.dispose()


def test_what_is_decided_on_a_locked_row_is_not_overtaken(engine: sa.Engine, database_url: str) -> None:
    """Several processes read, decide and write, from a row that is not there yet on: no decision is lost."""
    in_processes(_raise_limit, [(database_url,)] * 4)
    gate = read_gate(engine, "github")
    assert gate is not None
    assert gate.limit == 4 * ROUNDS
