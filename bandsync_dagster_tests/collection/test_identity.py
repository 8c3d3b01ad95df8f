"""Which repository a name means: asked once, believed for a day, recognised when renamed, gone or given anew."""

from datetime import timedelta

import httpx
import pytest

from bandsync_dagster.collection.collector import Deferred, RunIdentity
from bandsync_dagster.collection.scan import IdentityError, Scan
from bandsync_dagster.github.errors import Blocked, NotFound
from bandsync_dagster.github.models import Change
from bandsync_dagster.store.repositories import mark_repository
from bandsync_dagster_tests.collection.collecting import PAGES, SECOND, Collecting, all_rows
from bandsync_dagster_tests.collection.small_github import SmallGitHub, collect_pages, described, rows_of
from bandsync_dagster_tests.store.builders import REPOSITORY, change

OTHER = REPOSITORY + 1
ASKED = "/repos/acme/pool"
AGAIN = RunIdentity("run-2", "run-2")
THIRD = RunIdentity("run-3", "run-3")


def test_an_unknown_repository_is_asked_for_once_and_then_known(collect: Collecting, github: SmallGitHub) -> None:
    """Every further stage and sync of the day costs no request for it."""
    collect(collect_pages(0))
    assert github.log == [ASKED]
    collect(collect_pages(0), AGAIN)
    assert github.log == [ASKED]
    assert collect.repositories == {REPOSITORY: ("acme/pool", "active")}


def test_a_name_means_the_same_in_any_case_and_github_s_spelling_is_stored(
    collect: Collecting, github: SmallGitHub
) -> None:
    """Whoever writes ACME/Pool gets acme/pool, and it isn't marked as renamed."""
    collect(collect_pages(0), name="ACME/Pool")
    collect(collect_pages(0), AGAIN, name="Acme/POOL")
    assert github.log == ["/repos/ACME/Pool"]
    assert collect.repositories == {REPOSITORY: ("acme/pool", "active")}


@pytest.mark.parametrize(("hours", "asked"), [(24, 1), (25, 2)])
def test_the_store_is_believed_for_a_day(collect: Collecting, github: SmallGitHub, hours: int, asked: int) -> None:
    """After that GitHub is asked again, and its answer is good for another day."""
    collect(collect_pages(0))
    github.time.advance(hours * 3600)
    collect(collect_pages(0), AGAIN)
    collect(collect_pages(0), THIRD)
    assert github.log == [ASKED] * asked


@pytest.mark.parametrize("state", ["gone", "blocked", "renamed"])
def test_a_repository_in_doubt_is_asked_for_and_active_again_if_it_is_there(
    collect: Collecting, github: SmallGitHub, state: str
) -> None:
    """A mark is not a sentence: access may be given back."""
    collect(collect_pages(0))
    mark_repository(collect.engine, REPOSITORY, state, "said so", now=github.time.clock())
    collect(collect_pages(0), AGAIN)
    assert github.log == [ASKED, ASKED]
    assert collect.repositories == {REPOSITORY: ("acme/pool", "active")}


def test_a_renamed_repository_keeps_its_rows_and_checkpoint(collect: Collecting, github: SmallGitHub) -> None:
    """Its old name still leads to it; it goes on where it was, under its new name, and is marked."""
    collect(collect_pages(3))
    github.repositories["acme/pool"] = described(full_name="acme/lake")
    github.repositories["acme/lake"] = described(full_name="acme/lake")
    github.time.advance(30 * 3600)
    github.log.clear()
    result = collect(run=AGAIN)
    assert github.log == [ASKED, "/repos/acme/lake", *(f"/pages/{number}" for number in range(3, PAGES))]
    assert collect.repositories == {REPOSITORY: ("acme/lake", "renamed")}
    assert (result.repository_id, result.rows) == (REPOSITORY, 18)


def test_a_rename_noticed_on_a_page_is_stored_and_used_at_once(collect: Collecting) -> None:
    """GraphQL follows renames silently: the answer's own name is what counts."""
    names: list[str] = []

    async def algorithm(scan: Scan) -> None:
        scan.recognise(REPOSITORY, "acme/lake")
        names.append(scan.repository.full_name)

    collect(algorithm)
    assert names == ["acme/lake"]
    assert collect.repositories == {REPOSITORY: ("acme/lake", "renamed")}


async def collect_recognising(scan: Scan) -> None:
    """Collect one row of whatever repository GitHub means by the name, if it is the expected one."""
    answer = await scan.client.get(f"/repos/{scan.repository.full_name}")
    scan.recognise(answer.data["id"])

    await scan.put(
        [Change(**change(1, id=scan.repository.id * 10, repository_id=scan.repository.id))], position={"next": 0}
    )


def test_a_name_given_to_another_repository_is_noticed_before_a_row_is_stored_under_the_wrong_one(
    collect: Collecting, github: SmallGitHub
) -> None:
    """The old one is marked, its sync is cancelled and says why, and the new one is collected in the same run."""
    collect(collect_recognising)
    github.repositories["acme/pool"] = described(OTHER)
    github.log.clear()
    result = collect(collect_recognising, AGAIN)
    assert (result.repository_id, result.created) == (OTHER, 1)
    assert sum(sync["requests"] for sync in collect.syncs[1:]) == len(github.log)
    assert [(sync["repository_id"], sync["state"]) for sync in collect.syncs] == [
        (REPOSITORY, "completed"),
        (REPOSITORY, "cancelled"),
        (OTHER, "completed"),
    ]
    assert f"acme/pool is repository {OTHER} now" in collect.syncs[1]["error"]
    assert collect.repositories == {REPOSITORY: ("acme/pool", "gone"), OTHER: ("acme/pool", "active")}


def test_a_name_that_changes_hands_all_the_time_ends_as_an_error(collect: Collecting, github: SmallGitHub) -> None:
    """Three identities in one collection are enough; the step may try again."""
    hands = iter(range(OTHER, OTHER + 100))

    async def pass_on(_request: httpx.Request) -> None:
        github.repositories["acme/pool"] = described(next(hands))

    github.before = pass_on
    with pytest.raises(IdentityError):
        collect(collect_recognising)
    assert [sync["state"] for sync in collect.syncs] == ["cancelled"] * 3
    assert collect.rows == []


def test_a_deferred_sync_whose_name_changed_hands_is_cancelled_and_the_new_repository_collected(
    collect: Collecting, github: SmallGitHub
) -> None:
    """Rows of two repositories never share a sync."""
    github.limited_after = 3
    with pytest.raises(Deferred):
        collect()
    github.limited_after = None
    github.repositories["acme/pool"] = described(OTHER)
    github.time.advance(30 * 3600)
    result = collect(collect_recognising, SECOND)
    assert [(sync["repository_id"], sync["state"]) for sync in collect.syncs] == [
        (REPOSITORY, "cancelled"),
        (OTHER, "completed"),
    ]
    assert result.repository_id == OTHER


def test_a_repository_nobody_has_seen_is_told_as_no_access(collect: Collecting) -> None:
    """GitHub doesn't say whether it exists, so neither do we."""
    with pytest.raises(NotFound):
        collect(name="acme/nothing")
    (sync,) = collect.syncs
    assert (sync["state"], sync["outcome"], sync["repository_id"]) == ("failed", "no_access", None)


def test_a_repository_that_was_there_before_is_told_as_gone(collect: Collecting, github: SmallGitHub) -> None:
    """Its rows stay, and its state says why nothing new comes."""
    collect(collect_pages(2))
    github.repositories.clear()
    github.time.advance(30 * 3600)
    with pytest.raises(NotFound):
        collect(run=AGAIN)
    assert (collect.syncs[1]["outcome"], collect.syncs[1]["repository_id"]) == ("gone", REPOSITORY)
    assert collect.repositories == {REPOSITORY: ("acme/pool", "gone")}
    assert collect.rows == all_rows(2)


def test_a_repository_that_vanishes_while_it_is_collected_is_told_as_gone(
    collect: Collecting, github: SmallGitHub
) -> None:
    """A 404 on one of its pages makes the collector ask for the repository itself."""

    async def algorithm(scan: Scan) -> None:
        await scan.put(rows_of(0), position={"next": 1})
        github.repositories.clear()
        await scan.client.get("/something/of/it")

    with pytest.raises(NotFound):
        collect(algorithm)
    assert collect.syncs[0]["outcome"] == "gone"
    assert collect.repositories == {REPOSITORY: ("acme/pool", "gone")}
    assert (collect.rows, collect.position) == (all_rows(1), {"next": 1})


def test_a_404_on_a_part_of_a_repository_that_is_there_does_not_make_it_gone(collect: Collecting) -> None:
    """It is what the token may not see."""

    async def algorithm(scan: Scan) -> None:
        await scan.client.get("/something/of/it")

    with pytest.raises(NotFound):
        collect(algorithm)
    assert collect.syncs[0]["outcome"] == "no_access"
    assert collect.repositories == {REPOSITORY: ("acme/pool", "active")}


def test_a_blocked_repository_is_marked_with_github_s_reason(collect: Collecting, github: SmallGitHub) -> None:
    """Status 451 means that nobody gets it, token or not."""
    collect(collect_pages(0))

    async def block(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(451, json={"message": "Repository access blocked", "block": {"reason": "dmca"}})

    github.before = block
    github.time.advance(timedelta(days=2).total_seconds())
    with pytest.raises(Blocked):
        collect(run=AGAIN)
    assert collect.syncs[1]["outcome"] == "blocked"
    assert collect.repositories == {REPOSITORY: ("acme/pool", "blocked")}
