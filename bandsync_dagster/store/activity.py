"""What the latest look at each repository found. What follows from it is decided in `collection.activity`."""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa

from bandsync_dagster.store.engine import reading, writing
from bandsync_dagster.store.rows import clean_text
from bandsync_dagster.store.schema import activity
from bandsync_dagster.store.statements import excluded, insert_into


class Look(NamedTuple):
    """When a repository was looked at, and why it was worth collecting then; None where nothing was to be collected."""

    checked_at: datetime
    reasons: str | None


def record_activity(engine: sa.Engine, found: Mapping[int, str | None], *, now: datetime) -> None:
    """Store what was found of each repository, by id: why it is worth collecting, or None where it is unchanged."""
    if not found:
        return
    rows = [
        {"repository_id": id_, "checked_at": now, "reasons": None if reasons is None else clean_text(reasons)}
        for id_, reasons in sorted(found.items())
    ]
    with writing(engine) as connection:
        statement = insert_into(connection, activity)
        statement = statement.on_conflict_do_update(
            index_elements=["repository_id"],
            set_=excluded(statement, "repository_id"),
            # Two looks may overlap: the one that began later knows better.
            where=activity.c.checked_at <= statement.excluded.checked_at,
        )
        connection.execute(statement, rows)


def latest_looks(engine: sa.Engine) -> dict[int, Look]:
    """Return the latest look at each repository, by id."""
    statement = sa.select(activity.c.repository_id, activity.c.checked_at, activity.c.reasons)
    with reading(engine) as connection:
        return {repository_id: Look(*look) for repository_id, *look in connection.execute(statement)}
