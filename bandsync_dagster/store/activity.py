"""What the latest look at the repositories' activity found: which have anything to collect, and which have not."""

from collections.abc import Mapping
from datetime import datetime

import sqlalchemy as sa

from bandsync_dagster.store.engine import reading, writing
from bandsync_dagster.store.rows import clean_text
from bandsync_dagster.store.schema import activity, repositories
from bandsync_dagster.store.statements import excluded, insert_into


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
        set_ = excluded(statement, "repository_id")
        connection.execute(statement.on_conflict_do_update(index_elements=["repository_id"], set_=set_), rows)


def unchanged_repositories(engine: sa.Engine, *, since: datetime) -> set[str]:
    """Return the lower-case names of the repositories that a look since then found unchanged."""
    statement = (
        sa.select(sa.func.lower(repositories.c.full_name))
        .join_from(activity, repositories, activity.c.repository_id == repositories.c.id)
        .where(activity.c.checked_at >= since, activity.c.reasons.is_(None), repositories.c.state == "active")
    )
    with reading(engine) as connection:
        return set(connection.execute(statement).scalars())
