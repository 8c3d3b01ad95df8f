"""Storing repositories as they are seen."""

import pytest
import sqlalchemy as sa

from bandsync_dagster.store.errors import RowRejected
from bandsync_dagster.store.queries import find_repository, gone_repositories, list_repositories
from bandsync_dagster.store.repositories import mark_repository, upsert_repositories
from bandsync_dagster_tests.store.builders import HOUR, NOW, REPOSITORY, repository

LATER = NOW + HOUR


def test_a_repository_seen_for_the_first_time_is_active(engine: sa.Engine) -> None:
    """And is found under its name in any case."""
    upsert_repositories(engine, [repository()], now=NOW)
    found = find_repository(engine, "ACME/Pool")
    assert found is not None
    assert (found.id, found.state, found.first_seen_at, found.last_seen_at) == (REPOSITORY, "active", NOW, NOW)
    assert find_repository(engine, "acme/other") is None


def test_seeing_it_again_keeps_when_it_was_first_seen(engine: sa.Engine) -> None:
    """Everything else is as it is now; what a listing leaves out stays known."""
    upsert_repositories(engine, [repository(has_pull_requests=False)], now=NOW)
    upsert_repositories(engine, [repository(archived=True)], now=LATER)
    (found,) = list_repositories(engine)
    assert (found.first_seen_at, found.last_seen_at) == (NOW, LATER)
    assert (found.archived, found.has_pull_requests) == (True, False)


def test_a_renamed_repository_keeps_its_row(engine: sa.Engine) -> None:
    """Identity is the id; the old name finds nothing any more."""
    upsert_repositories(engine, [repository()], now=NOW)
    upsert_repositories(engine, [repository(full_name="acme/lake")], now=LATER)
    assert [(found.id, found.full_name) for found in list_repositories(engine)] == [(REPOSITORY, "acme/lake")]
    assert find_repository(engine, "acme/pool") is None


def test_a_name_that_is_used_again_means_the_one_seen_last(engine: sa.Engine) -> None:
    """The old holder of the name was not seen under its new one yet."""
    upsert_repositories(engine, [repository()], now=NOW)
    upsert_repositories(engine, [repository(5)], now=LATER)
    found = find_repository(engine, "acme/pool")
    assert found is not None
    assert found.id == 5


@pytest.mark.parametrize(
    ("marked", "seen_again"), [("gone", "active"), ("blocked", "blocked"), ("renamed", "renamed"), ("active", "active")]
)
def test_a_listing_brings_back_only_what_was_gone(engine: sa.Engine, marked: str, seen_again: str) -> None:
    """GitHub goes on listing what it has blocked."""
    upsert_repositories(engine, [repository()], now=NOW)
    mark_repository(engine, REPOSITORY, marked, "why\x00", now=NOW)
    assert [(found.state, found.state_reason) for found in list_repositories(engine)] == [(marked, "why")]
    upsert_repositories(engine, [repository()], now=LATER)
    (found,) = list_repositories(engine)
    assert found.state == seen_again
    assert found.state_reason == (None if marked == "gone" else "why")


def test_only_what_was_there_was_seen(engine: sa.Engine) -> None:
    """Marking a repository as gone is no sighting; marking it blocked is one."""
    upsert_repositories(engine, [repository(1, "acme/one"), repository(2, "acme/two")], now=NOW)
    mark_repository(engine, 1, "gone", None, now=LATER)
    mark_repository(engine, 2, "blocked", "dmca", now=LATER)
    assert [found.last_seen_at for found in list_repositories(engine)] == [NOW, LATER]
    assert gone_repositories(engine) == ["acme/one"]


def test_a_listing_that_repeats_a_repository_is_taken_at_its_last_word(engine: sa.Engine) -> None:
    """Pages shift while they are read."""
    upsert_repositories(engine, [repository(), repository(full_name="acme/lake")], now=NOW)
    assert [found.full_name for found in list_repositories(engine)] == ["acme/lake"]


def test_an_empty_listing_stores_nothing(engine: sa.Engine) -> None:
    """An empty organisation is no error."""
    upsert_repositories(engine, [], now=NOW)
    assert list_repositories(engine) == []


def test_a_repository_that_does_not_fit_is_named(engine: sa.Engine) -> None:
    """And none of the listing is stored."""
    with pytest.raises(RowRejected, match="repositories row 2: column archived must be known"):
        upsert_repositories(engine, [repository(1), repository(2, archived=None)], now=NOW)
    assert list_repositories(engine) == []


def test_thousands_are_stored_at_once(engine: sa.Engine) -> None:
    """A large organisation in one call."""
    upsert_repositories(engine, [repository(number, f"acme/r{number}") for number in range(3000)], now=NOW)
    assert len(list_repositories(engine)) == 3000
