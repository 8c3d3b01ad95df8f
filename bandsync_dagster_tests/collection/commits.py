"""Trouble at chosen commits and statements. Before a commit nothing of its transaction is stored, after it all is."""

import itertools
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

Strike = Callable[[], None]


def strike_at(engine: sa.Engine, number: int, strike: Strike, *, after: bool) -> None:
    """Call `strike` at the n-th commit of this engine, counted from 0: before it takes effect, or right after.

    What the strike raises is what the driver would raise, so SQLAlchemy and the store treat it as such.
    """
    commit = engine.dialect.do_commit
    numbers = itertools.count()

    def do_commit(connection: Any) -> None:
        mine = next(numbers) == number
        if mine and not after:
            strike()
        commit(connection)
        if mine and after:
            strike()

    engine.dialect.do_commit = do_commit  # pyright: ignore[reportAttributeAccessIssue]


def strike_while(engine: sa.Engine, strikes: Callable[[], bool], strike: Strike) -> None:
    """Call `strike` before every commit for as long as `strikes` says so."""
    commit = engine.dialect.do_commit

    def do_commit(connection: Any) -> None:
        if strikes():
            strike()
        commit(connection)

    engine.dialect.do_commit = do_commit  # pyright: ignore[reportAttributeAccessIssue]


def strike_at_statement(engine: sa.Engine, number: int, strike: Strike) -> None:
    """Call `strike` in place of the n-th statement of this engine, counted from 0 and from here on."""
    execute = engine.dialect.do_execute
    numbers = itertools.count()

    def do_execute(*arguments: Any) -> None:
        if next(numbers) == number:
            strike()
        execute(*arguments)

    engine.dialect.do_execute = do_execute  # pyright: ignore[reportAttributeAccessIssue]


def lose_connection(engine: sa.Engine) -> Strike:
    """Return a strike that raises what the engine's driver raises when the server goes away or is locked."""
    texts = {"sqlite": "database is locked", "postgresql": "server closed the connection unexpectedly"}
    text = texts[engine.dialect.name]

    def strike() -> None:
        raise engine.dialect.loaded_dbapi.OperationalError(text)

    return strike


def count_commits(engine: sa.Engine) -> list[int]:
    """Count the commits of an engine from here on, in a list of one number."""
    counted = [0]

    def count(_connection: sa.Connection) -> None:
        counted[0] += 1

    event.listen(engine, "commit", count)
    return counted
