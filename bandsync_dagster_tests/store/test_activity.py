"""What looks at the repositories' activity leave in the store."""

from datetime import timedelta

import sqlalchemy as sa

from bandsync_dagster.store.activity import Look, latest_looks, record_activity
from bandsync_dagster.store.repositories import upsert_repositories
from bandsync_dagster_tests.store.builders import HOUR, NOW, REPOSITORY, repository


def test_the_latest_look_at_each_repository_is_kept(engine: sa.Engine) -> None:
    """One row each: what was found, or None for nothing. A repository that was left out keeps its own."""
    assert latest_looks(engine) == {}
    record_activity(engine, {1: "new workflow runs", 2: None}, now=NOW)
    record_activity(engine, {1: None, 3: "new or changed pull requests"}, now=NOW + HOUR)
    assert latest_looks(engine) == {
        1: Look(NOW + HOUR, None),
        2: Look(NOW, None),
        3: Look(NOW + HOUR, "new or changed pull requests"),
    }
    record_activity(engine, {}, now=NOW + 2 * HOUR)
    assert len(latest_looks(engine)) == 3


def test_an_earlier_look_that_ends_later_changes_nothing(engine: sa.Engine) -> None:
    """Two may overlap; the one that began first may have seen less."""
    record_activity(engine, {1: "new workflow runs"}, now=NOW)
    record_activity(engine, {1: None}, now=NOW - timedelta(seconds=1))
    assert latest_looks(engine) == {1: Look(NOW, "new workflow runs")}


def test_a_discovery_leaves_the_look_as_it_is(engine: sa.Engine) -> None:
    """Listing a repository again says nothing about its activity."""
    upsert_repositories(engine, [repository()], now=NOW)
    record_activity(engine, {REPOSITORY: None}, now=NOW)
    upsert_repositories(engine, [repository()], now=NOW + HOUR)
    assert latest_looks(engine) == {REPOSITORY: Look(NOW, None)}


def test_reasons_are_cleaned_as_every_text_is(engine: sa.Engine) -> None:
    """PostgreSQL takes no NUL."""
    record_activity(engine, {1: "new\x00 runs"}, now=NOW)
    assert latest_looks(engine)[1].reasons == "new runs"
