"""What the commands read from the database."""

from datetime import timedelta

import pytest
import sqlalchemy as sa

from bandsync_dagster.cli.facts import BucketQuota, bucket_quotas, read_facts, read_what_can_be
from bandsync_dagster.store.engine import create_store_engine
from bandsync_dagster.store.schema import quotas
from bandsync_dagster.store.writes import write_batch
from bandsync_dagster_tests.store.builders import HOUR, NOW, batch, begin, change


def insert(engine: sa.Engine, fingerprint: str, bucket: str = "core", **fields: object) -> None:
    """Store what is known of a bucket of a token."""
    row = {"fingerprint": fingerprint, "bucket": bucket, "observed_at": NOW} | fields
    with engine.begin() as connection:
        connection.execute(quotas.insert().values(**row))


def test_the_quota_of_several_tokens_adds_up(engine: sa.Engine) -> None:
    """Work goes on as long as one token has something left, so they are shown as one."""
    insert(engine, "a", limit_=5000, remaining=100, reset_at=NOW + HOUR, closed_until=NOW + HOUR)
    insert(engine, "b", limit_=15000, remaining=7000, reset_at=NOW + HOUR)
    assert bucket_quotas(engine, NOW) == [BucketQuota("core", 7100, 20000, 2, closed_until=None)]


def test_a_bucket_is_closed_when_it_is_for_every_token(engine: sa.Engine) -> None:
    """It opens again as soon as the first token does."""
    insert(engine, "a", limit_=5000, remaining=0, reset_at=NOW + HOUR, closed_until=NOW + HOUR)
    insert(engine, "b", limit_=5000, remaining=0, reset_at=NOW + HOUR, closed_until=NOW + 2 * HOUR)
    assert bucket_quotas(engine, NOW)[0].closed_until == NOW + HOUR


def test_a_window_that_has_ended_counts_as_full(engine: sa.Engine) -> None:
    """GitHub has refilled it, though nobody has asked since."""
    insert(engine, "a", limit_=5000, remaining=3, reset_at=NOW - timedelta(seconds=1))
    assert bucket_quotas(engine, NOW) == [BucketQuota("core", 5000, 5000, 1)]


def test_a_token_that_was_replaced_is_no_longer_counted(engine: sa.Engine) -> None:
    """Not seen for a day while another one was; a bucket that a token in use has not needed lately counts."""
    old = NOW - timedelta(days=1)
    insert(engine, "replaced", limit_=5000, remaining=3, reset_at=old, observed_at=old)
    insert(engine, "used", limit_=5000, remaining=10, reset_at=NOW + HOUR)
    insert(engine, "used", "graphql", limit_=5000, remaining=10, reset_at=old, observed_at=old)
    assert bucket_quotas(engine, NOW) == [
        BucketQuota("core", 10, 5000, 1),
        BucketQuota("graphql", 5000, 5000, 1),
    ]


def test_a_host_without_limits_is_unlimited_and_an_unknown_bucket_is_not_shown(engine: sa.Engine) -> None:
    """Never heard of and without a limit are two things."""
    insert(engine, "a", "core", unlimited=True)
    insert(engine, "a", "graphql")
    assert bucket_quotas(engine, NOW) == [BucketQuota("core", 0, None, 1)]


@pytest.mark.usefixtures("backend")
def test_facts_hold_the_syncs_of_the_given_runs_only(engine: sa.Engine) -> None:
    """Another collection in the same database is none of this one's business."""
    mine = begin(engine, root_run_id="mine")
    begin(engine, "jobs", root_run_id="other")
    write_batch(engine, batch(mine, 1, [change(1), change(2)]), now=NOW)
    facts = read_facts(engine, ["mine", "unknown"], NOW)
    assert [sync.stage for sync in facts.syncs] == ["changes"]
    assert facts.records == 2
    assert facts.gate is None
    assert read_facts(engine, [], NOW).syncs == []


@pytest.mark.parametrize("backend", ["postgresql"])
def test_while_the_database_is_away_the_last_facts_stand_with_the_reason(engine: sa.Engine) -> None:
    """The display goes on; and what is read once it is back has no reason any more."""
    write_batch(engine, batch(begin(engine, root_run_id="mine"), 1, [change(1)]), now=NOW)
    facts = read_facts(engine, ["mine"], NOW)
    nowhere = create_store_engine("postgresql://127.0.0.1:1/history")
    for _ in range(2):
        facts = read_what_can_be(nowhere, ["mine"], NOW, last=facts)
        assert facts.records == 1
        assert (facts.trouble or "").startswith("the PostgreSQL database history on 127.0.0.1:1 is not available: ")
    assert read_what_can_be(engine, ["mine"], NOW, last=facts).trouble is None
