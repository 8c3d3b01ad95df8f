"""Times as checkpoints hold them, and what counts as settled. Pure arithmetic."""

from datetime import datetime, timedelta, timezone

# A row may become visible a little after the time it carries: nothing younger is vouched for.
SETTLE = timedelta(minutes=2)
SECOND = timedelta(seconds=1)


def to_text(moment: datetime | None) -> str | None:
    """Return the moment as JSON holds it."""
    return None if moment is None else moment.astimezone(timezone.utc).isoformat()


def from_text(text: str | None) -> datetime | None:
    """Return the moment that `to_text` wrote."""
    return None if text is None else datetime.fromisoformat(text)


def required(text: str) -> datetime:
    """Return the moment that `to_text` wrote of one that was there."""
    return datetime.fromisoformat(text)


def settled_before(now: datetime) -> datetime:
    """Return the latest whole second that is settled at `now`."""
    return (now - SETTLE).replace(microsecond=0)


def days_before(now: datetime, days: int | None) -> datetime | None:
    """Return the moment so many days ago, on a whole second; None for no bound."""
    return None if days is None else (now - timedelta(days=days)).replace(microsecond=0)
