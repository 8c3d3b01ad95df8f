"""The quota ledger in the database, shared by all processes: nothing is sent that was not reserved here first.

The rules are those of the client's ledger in memory, and a test holds both to the same behaviour. Each decision is made
on rows that are locked until it is written down, so five processes that each see two requests left do not send five.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

import sqlalchemy as sa

from bandsync_dagster.store.engine import reading, writing
from bandsync_dagster.store.schema import quota_reservations as reservations
from bandsync_dagster.store.schema import quotas
from bandsync_dagster.store.statements import insert_into

# GitHub does not say when within its second the reset takes place.
RESET_MARGIN = timedelta(seconds=1)
# Two readings of one window may give resets this far apart: times are in whole seconds, and clocks are compared.
SAME_WINDOW = timedelta(seconds=2)
# A request that nobody settled (its process was killed) stops counting after this long.
RESERVATION_LIFE = timedelta(minutes=2)

# Secondary limits concern a token, not a bucket; this bucket's row counts them.
_STRIKES_BUCKET = "core"


class Reading(Protocol):
    """What one response said of one bucket."""

    @property
    def bucket(self) -> str: ...  # noqa: D102
    @property
    def limit(self) -> int: ...  # noqa: D102
    @property
    def remaining(self) -> int: ...  # noqa: D102
    @property
    def reset_at(self) -> datetime: ...  # noqa: D102


class Granted(Protocol):
    """Leave to send one request."""

    @property
    def fingerprint(self) -> str: ...  # noqa: D102
    @property
    def reservation(self) -> int | None: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Grant:
    """Leave to send one request with the token of this fingerprint."""

    fingerprint: str
    reservation: int | None = None


@dataclass(slots=True)
class _Bucket:
    """One bucket of one token as the database has it, and the rules. `limit` is None until a response told it."""

    fingerprint: str
    unlimited: bool = False
    limit: int | None = None
    remaining: int | None = None
    reset_at: datetime | None = None
    closed_until: datetime | None = None
    reserved: int = 0

    def closed(self, now: datetime) -> bool:
        return self.closed_until is not None and self.closed_until > now

    def full(self, now: datetime) -> bool:
        """Whether a new window has begun, of which nothing has been read yet."""
        return self.reset_at is None or self.reset_at + RESET_MARGIN <= now

    def spare(self, share: float, now: datetime) -> float:
        """Return what may be spent: what is left, less what is kept back and what is on its way."""
        if self.unlimited or self.limit is None:
            return float("inf")
        left = self.limit if self.full(now) else self.remaining or 0
        return left - int(share * self.limit) - self.reserved

    def grants(self, cost: int, share: float, now: datetime) -> bool:
        """Tell whether twice the cost is left; a full window always lets one request through, however small it is."""
        needed = 2 * cost if self.limit is None else max(min(2 * cost, self.limit - int(share * self.limit)), 1)
        return not self.closed(now) and self.spare(share, now) >= needed

    def opens_at(self, now: datetime) -> datetime:
        """Return when a request that cannot be granted now can be tried."""
        if self.closed_until is not None and self.closed(now):
            return self.closed_until
        if self.reset_at is not None and not self.full(now):
            return self.reset_at + RESET_MARGIN
        # Only requests on their way stand in the way: they are settled within moments.
        return now + RESET_MARGIN

    def read(self, reading: Reading, now: datetime) -> None:
        """Take over a reading. Within one window what is left only falls; an older window says nothing."""
        newer = True
        if self.limit is not None and self.reset_at is not None and not self.full(now):
            if reading.reset_at < self.reset_at - SAME_WINDOW:
                return
            newer = reading.reset_at > self.reset_at + SAME_WINDOW
        if newer or self.remaining is None:
            self.remaining, self.reset_at = reading.remaining, reading.reset_at
        else:
            self.remaining = min(self.remaining, reading.remaining)
        self.limit, self.unlimited = reading.limit, False

    def read_nothing(self, cost: int) -> None:
        """Take note of a response without limits: the host has none, unless it has told some before."""
        if self.limit is None:
            self.unlimited = True
        else:
            self.remaining = max((self.remaining or 0) - cost, 0)


class SqlQuotaLedger:
    """Who may send what, for everybody on the same tokens and the same database."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def reserve(
        self, fingerprints: Sequence[str], bucket: str, cost: int, *, share: float, now: datetime
    ) -> Grant | datetime:
        """Grant a request to the token with most left, or say when one can be tried."""
        with writing(self._engine) as connection:
            states = _locked(connection, fingerprints, bucket, now)
            able = [state for state in states if state.grants(cost, share, now)]
            if not able:
                return min(state.opens_at(now) for state in states)
            chosen = max(able, key=lambda state: state.spare(share, now))
            if chosen.unlimited:
                return Grant(chosen.fingerprint)
            return Grant(chosen.fingerprint, _reserve(connection, chosen.fingerprint, bucket, cost, now))

    def opens_at(self, fingerprints: Sequence[str], bucket: str, *, share: float, now: datetime) -> datetime | None:
        """Return when a request of cost 1 can be tried; None if it would be granted now."""
        with reading(self._engine) as connection:
            states = _states(connection, fingerprints, bucket, now, lock=False)
        known = {state.fingerprint for state in states}
        if known != set(fingerprints) or any(state.grants(1, share, now) for state in states):
            return None
        return min(state.opens_at(now) for state in states)

    def settle(self, grant: Granted, bucket: str, reading: Reading | None, *, now: datetime) -> None:
        """Replace the reservation by what the response said; None if it said nothing of limits."""
        told = reading if reading is not None and reading.limit > 0 else None
        of = bucket if told is None else told.bucket
        with writing(self._engine) as connection:
            (state,) = _locked(connection, [grant.fingerprint], of, now)
            cost = _drop(connection, grant, of, now)
            if told is None:
                state.read_nothing(cost)
            else:
                state.read(told, now)
            _save(connection, state, of, now)
            _forgive(connection, grant.fingerprint, now)

    def release(self, grant: Granted, bucket: str, *, now: datetime) -> None:
        """Drop the reservation: there was no answer, or one that says nothing of the quota."""
        with writing(self._engine) as connection:
            _drop(connection, grant, bucket, now)

    def close(
        self, grant_or_fingerprint: Granted | str, bucket: str, until: datetime, *, now: datetime, kind: str
    ) -> None:
        """Send nothing more with this token to this bucket until then, or longer if it is closed for longer."""
        del kind  # Closed is closed.
        given = grant_or_fingerprint
        fingerprint = given if isinstance(given, str) else given.fingerprint
        with writing(self._engine) as connection:
            (state,) = _locked(connection, [fingerprint], bucket, now)
            latest = max(until, state.closed_until or until)
            connection.execute(_update(fingerprint, bucket).values(closed_until=latest, observed_at=now))

    def strike(self, fingerprint: str, *, now: datetime) -> int:
        """Count one more secondary limit that came without `retry-after`, and return how many in a row that makes.

        While the token is closed for one, others are its echoes from requests that were on their way: not counted.
        """
        with writing(self._engine) as connection:
            (state,) = _locked(connection, [fingerprint], _STRIKES_BUCKET, now)
            echo = 1 if state.closed(now) else 0
            more = sa.case((quotas.c.strikes == 0, 1), else_=quotas.c.strikes + 1 - echo)
            statement = _update(fingerprint, _STRIKES_BUCKET).values(strikes=more, observed_at=now)
            return connection.execute(statement.returning(quotas.c.strikes)).scalar_one()


def _locked(connection: sa.Connection, fingerprints: Iterable[str], bucket: str, now: datetime) -> list[_Bucket]:
    """Return the buckets in the order given, their rows locked, and made where they were missing."""
    wanted = list(dict.fromkeys(fingerprints))
    states = _states(connection, wanted, bucket, now, lock=True)
    if len(states) < len(wanted):
        rows = [{"fingerprint": one, "bucket": bucket, "observed_at": now} for one in sorted(wanted)]
        connection.execute(insert_into(connection, quotas).on_conflict_do_nothing(), rows)
        states = _states(connection, wanted, bucket, now, lock=True)
    return sorted(states, key=lambda state: wanted.index(state.fingerprint))


def _states(
    connection: sa.Connection, fingerprints: Sequence[str], bucket: str, now: datetime, *, lock: bool
) -> list[_Bucket]:
    statement = (
        sa.select(*(quotas.c[name] for name in ("fingerprint", "unlimited", "limit_", "remaining", "reset_at")))
        .add_columns(quotas.c.closed_until)
        .where(quotas.c.fingerprint.in_(fingerprints), quotas.c.bucket == bucket)
        .order_by(quotas.c.fingerprint)
    )
    rows = connection.execute(statement.with_for_update() if lock else statement).all()
    # Only now: what was reserved before the locks were held is then committed, and seen.
    reserved = _reserved(connection, fingerprints, bucket, now)
    return [_Bucket(*row, reserved=reserved.get(row.fingerprint, 0)) for row in rows]


def _reserved(connection: sa.Connection, fingerprints: Sequence[str], bucket: str, now: datetime) -> dict[str, int]:
    statement = (
        sa.select(reservations.c.fingerprint, sa.func.sum(reservations.c.cost))
        .where(reservations.c.fingerprint.in_(fingerprints), reservations.c.bucket == bucket)
        .where(reservations.c.expires_at > now)
        .group_by(reservations.c.fingerprint)
    )
    return {fingerprint: int(cost) for fingerprint, cost in connection.execute(statement)}


def _reserve(connection: sa.Connection, fingerprint: str, bucket: str, cost: int, now: datetime) -> int:
    row = {"fingerprint": fingerprint, "bucket": bucket, "cost": cost, "expires_at": now + RESERVATION_LIFE}
    return connection.execute(reservations.insert().values(row).returning(reservations.c.id)).scalar_one()


def _drop(connection: sa.Connection, grant: Granted, bucket: str, now: datetime) -> int:
    """Delete a reservation, and those of the same bucket that nobody will settle any more; return its cost."""
    expired = (reservations.c.fingerprint == grant.fingerprint) & (reservations.c.bucket == bucket)
    expired &= reservations.c.expires_at <= now
    own = reservations.c.id == (grant.reservation or 0)
    statement = reservations.delete().where(own | expired).returning(reservations.c.id, reservations.c.cost)
    return dict(connection.execute(statement).tuples().all()).get(grant.reservation or 0, 0)


def _update(fingerprint: str, bucket: str) -> sa.Update:
    return quotas.update().where(quotas.c.fingerprint == fingerprint, quotas.c.bucket == bucket)


def _save(connection: sa.Connection, state: _Bucket, bucket: str, now: datetime) -> None:
    told = {"limit_": state.limit, "remaining": state.remaining, "reset_at": state.reset_at}
    values = told | {"unlimited": state.unlimited, "observed_at": now}
    connection.execute(_update(state.fingerprint, bucket).values(**values))


def _forgive(connection: sa.Connection, fingerprint: str, now: datetime) -> None:
    """Start counting strikes anew after a success, unless it was on its way before the token was closed."""
    is_open = sa.or_(quotas.c.closed_until.is_(None), quotas.c.closed_until <= now)
    statement = _update(fingerprint, _STRIKES_BUCKET).where(quotas.c.strikes > 0, is_open)
    connection.execute(statement.values(strikes=0))
