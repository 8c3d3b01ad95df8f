"""How moments, spans and the like are put into words, the same wherever a person reads them."""

from datetime import datetime


def moment(at: datetime, now: datetime) -> str:
    """Say when something happens: as local time, and from now. `at 14:32:10 (in 23 min)`."""
    local = at.astimezone()
    day = "" if local.date() == now.astimezone().date() else f"{local:%Y-%m-%d} "
    return f"at {day}{local:%H:%M:%S} ({_from_now((at - now).total_seconds())})"


def limit_reached(bucket: str) -> str:
    """Say why nobody asks GitHub: true of a quota that is used up as of a secondary limit, with much of it left."""
    return f"GitHub's {bucket} limit is reached"


def counted(number: int, one: str, several: str) -> str:
    """Say how many: `1 run`, `1,200 runs`."""
    return f"{number:,} {one if number == 1 else several}"


def sentence(text: str) -> str:
    """Return the text as a sentence begins: with a capital, whatever else is in it unchanged."""
    return text[:1].upper() + text[1:]


def _from_now(seconds: float) -> str:
    return "now" if seconds <= 0 else f"in {span(seconds)}"


def span(seconds: float) -> str:
    """Say how long, with the two largest units at most: `45 s`, `23 min`, `1 h 05 min`."""
    whole = round(seconds)
    if whole < 60:  # noqa: PLR2004  (seconds in a minute)
        return f"{whole} s"
    minutes = round(seconds / 60)
    if minutes < 60:  # noqa: PLR2004  (minutes in an hour)
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60:02d} min"
