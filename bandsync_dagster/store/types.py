"""Column types that SQLite and PostgreSQL spell differently."""

from datetime import datetime, timezone

import sqlalchemy as sa


class UtcDateTime(sa.types.TypeDecorator[datetime]):
    """An aware datetime, kept in UTC: `timestamptz` on PostgreSQL, naive UTC text on SQLite."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        """Convert to UTC; a naive datetime is a programming error."""
        if value is None:
            return None
        if value.tzinfo is None:
            msg = f"naive datetime {value!r}: every time in the store is aware"
            raise ValueError(msg)
        value = value.astimezone(timezone.utc)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:  # noqa: ARG002  (SQLAlchemy's signature)
        """Return the time as aware UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=timezone.utc) if value.tzinfo is None else value.astimezone(timezone.utc)
