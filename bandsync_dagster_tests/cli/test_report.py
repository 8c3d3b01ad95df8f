"""How a collection's end is told, and that nothing incomplete is called complete."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from bandsync_dagster.cli.report import Report, build_report, print_report, why_incomplete
from bandsync_dagster.cli.tracking import track, tracks
from bandsync_dagster.cli.webserver import Run
from bandsync_dagster.collection.forecast import Cost
from bandsync_dagster.store.syncs import Sync
from bandsync_dagster_tests.cli.collections import complete_syncs, run, sync


def report(runs: list[Run], syncs: list[Sync]) -> Report:
    """Return the report of one repository's runs."""
    return build_report({"acme/pool": track(runs)}, syncs, 83)


def printed(told: Report, width: int = 80) -> str:
    """Return the report as it is printed on a terminal of this width."""
    console = Console(file=io.StringIO(), width=width)
    print_report(console, told)
    return console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


def test_a_run_and_three_completed_stages_are_complete() -> None:
    """The normal end, with what was collected and what it cost."""
    told = report([run(1, started=100.0, ended=105.0)], complete_syncs())
    assert told.is_complete
    text = printed(told)
    assert "acme/pool" in text
    assert "10 (+3)" in text
    told_in_words = " ".join(text.split())
    assert "Complete in 1:23: 1 repository, 9 new records, for 12 requests and 3 GraphQL points" in told_in_words


@pytest.mark.parametrize("status", ["FAILURE", "CANCELED", "QUEUED"])
def test_a_run_that_did_not_end_well_is_not_complete(status: str) -> None:
    """Even when every stage says that it is: its asset checks may have refused what was collected."""
    assert not report([run(1, status=status)], complete_syncs()).is_complete


@pytest.mark.parametrize("state", ["running", "deferred", "failed", "cancelled"])
def test_a_green_run_with_an_incomplete_stage_is_not_complete(state: str) -> None:
    """A deferred run is green and lacks something; so might one that lost a stage."""
    syncs = [*complete_syncs()[:2], sync(3, "jobs", state=state)]
    assert not report([run(1)], syncs).is_complete


def test_a_green_run_without_any_sync_is_not_complete() -> None:
    """Nothing collected is not the same as nothing to collect."""
    told = report([run(1)], [])
    assert not told.is_complete
    assert why_incomplete(told.rows[0]) == "changes, verifications, jobs not collected"


def test_a_repository_without_a_run_is_not_complete() -> None:
    """What was never launched is missing."""
    told = build_report(tracks(["acme/pool"], []), [], 1)
    assert not told.is_complete
    assert "no run was launched" in printed(told)


def test_the_latest_sync_of_a_stage_counts() -> None:
    """A retried stage has two syncs, and the first one's end is history."""
    syncs = [sync(1, "changes", state="failed", error="boom"), *complete_syncs()]
    assert report([run(1)], syncs).is_complete


def test_syncs_of_other_collections_do_not_count() -> None:
    """What an earlier collection completed says nothing about this one."""
    assert not report([run(1)], complete_syncs(root_run_id="run-0")).is_complete


def test_the_error_of_a_stage_is_told() -> None:
    """A person learns from the report why, without opening a log."""
    syncs = [*complete_syncs()[:2], sync(3, "jobs", state="failed", outcome="failed", error="GitHub has blocked it")]
    assert "acme/pool: GitHub has blocked it" in printed(report([run(1, status="FAILURE")], syncs))


def test_what_a_run_could_not_note_in_the_database_is_told_in_dagsters_words() -> None:
    """A full disk takes no error either: the run knows it, and the report says it."""
    runs, syncs = [run(1, status="FAILURE")], [*complete_syncs()[:2], sync(3, "jobs", state="running")]
    (row,) = report(runs, syncs).rows
    assert row.is_unexplained
    assert why_incomplete(row) == "its run failed"
    assert why_incomplete(replace(row, failure="the disk is full")) == "the disk is full"
    (noted,) = report(runs, [sync(3, "jobs", state="failed", error="GitHub has blocked it")]).rows
    assert not noted.is_unexplained


def test_nothing_to_collect_is_complete() -> None:
    """An empty organisation is a success with zeros."""
    told = build_report({}, [], 2, listing_requests=1)
    assert told.is_complete
    text = " ".join(printed(told).split())
    assert "Complete in 0:02: 0 repositories, 0 new records" in text
    assert "for 0 requests and 0 GraphQL points besides 1 request to list the sources." in text


def test_incomplete_repositories_are_listed_first_and_never_cut_off() -> None:
    """Among a thousand repositories the one that needs attention is on top."""
    keys = [f"acme/r{number:04d}" for number in range(1_000)]
    runs = [run(number, key, "FAILURE" if number == 999 else "SUCCESS") for number, key in enumerate(keys)]
    syncs = [one for number in range(1_000) for one in complete_syncs(root_run_id=f"run-{number}")]
    text = printed(build_report(tracks(keys, runs), syncs, 5))
    first = next(line for line in text.splitlines() if line.startswith("acme/"))
    assert first.startswith("acme/r0999")
    assert "… and 940 more" in text
    assert "1 of 1,000 repositories is missing something" in " ".join(text.split())


def test_the_table_fits_a_narrow_terminal() -> None:
    """On 80 columns no line is cut or broken."""
    text = printed(report([run(1)], complete_syncs(records_collected=10)))
    row = next(line for line in text.splitlines() if line.startswith("acme/pool"))
    assert row.rstrip().endswith("complete")


def test_a_forecast_is_compared_with_what_was_spent() -> None:
    """Per bucket: changes come by GraphQL, verifications by REST, and a job's requests are one point each or REST."""
    syncs = [
        sync(1, "changes", requests=2, points=6),
        sync(2, "verifications", requests=3, points=0),
        sync(3, "jobs", requests=5, points=4),
    ]
    told = build_report({"acme/pool": track([run(1)])}, syncs, 1, Cost(core=9, graphql=8))
    assert told.spent == Cost(core=4, graphql=10)
    text = " ".join(printed(told).split())
    assert "Forecast: 9 core requests, 8 graphql points. Spent: 4 core requests, 10 graphql points." in text


def test_the_totals_stay_on_one_line_of_a_narrow_terminal() -> None:
    """The columns of numbers leave few characters for names; the last line must not break like a long name."""
    keys = ["acme/alto", "acme/bass"]
    runs = [run(1, "acme/alto", started=0.0, ended=65.0), run(2, "acme/bass", started=0.0, ended=65.0)]
    syncs = [
        sync(3 * number + place, stage, root_run_id=f"run-{number + 1}", records_created=313, records_collected=1_313)
        for number in (0, 1)
        for place, stage in enumerate(("changes", "verifications", "jobs"), 1)
    ]
    lines = printed(build_report(tracks(keys, runs), syncs, 83)).splitlines()
    (totals,) = [line.split() for line in lines if line.startswith("total")]
    assert totals == ["total", "2,626", "2,626", "2,626", "24"]
