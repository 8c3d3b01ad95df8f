"""Writing `repositories`: what a listing or a look at one of them says. Reading them is in `queries`."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from bandsync_dagster.store.engine import writing
from bandsync_dagster.store.rows import Row, clean_row, clean_text
from bandsync_dagster.store.schema import repositories
from bandsync_dagster.store.statements import excluded, insert_into


def upsert_repositories(engine: sa.Engine, rows: Sequence[Mapping[str, Any]], *, now: datetime) -> None:
    """Store repositories as just seen. Identity is the id: a renamed one keeps its row.

    Seeing one brings it back from `gone`; any other state stays (GitHub goes on listing what it has blocked).
    """
    seen = {row["id"]: row for row in (_seen(given, now) for given in rows)}
    if not seen:
        return
    with writing(engine) as connection:
        statement = insert_into(connection, repositories)
        back = repositories.c.state == "gone"
        set_ = excluded(statement, "id", "first_seen_at") | {
            "state": sa.case((back, "active"), else_=repositories.c.state),
            "state_reason": sa.case((back, None), else_=repositories.c.state_reason),
            # A listing may leave it out.
            "has_pull_requests": sa.func.coalesce(
                statement.excluded.has_pull_requests, repositories.c.has_pull_requests
            ),
        }
        statement = statement.on_conflict_do_update(index_elements=["id"], set_=set_)
        connection.execute(statement, [seen[repository_id] for repository_id in sorted(seen)])


def _seen(row: Mapping[str, Any], now: datetime) -> Row:
    seen = {"state": "active", "first_seen_at": now, "last_seen_at": now}
    return clean_row(repositories, {**row, **seen})


def mark_repository(engine: sa.Engine, repository_id: int, state: str, reason: str | None, *, now: datetime) -> None:
    """Say how a repository stands: `active`, `renamed`, `gone` or `blocked`, and why.

    `last_seen_at` moves only with a state that means it was there to be seen.
    """
    values: dict[str, Any] = {"state": state, "state_reason": None if reason is None else clean_text(reason)}
    if state != "gone":
        values["last_seen_at"] = now
    with writing(engine) as connection:
        connection.execute(repositories.update().where(repositories.c.id == repository_id).values(**values))
