"""The time, as a value that can be handed in. The only place that asks the machine for it."""

from collections.abc import Callable
from datetime import datetime, timezone

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """Return the present moment as an aware datetime in UTC."""
    return datetime.now(timezone.utc)
