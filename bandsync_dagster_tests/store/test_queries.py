"""What the rest of the project asks of the store."""

from datetime import datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from bandsync_dagster.store import queries
from bandsync_dagster.store.engine import reading, writing
from bandsync_dagster.store.queries import CounterFacts, JobShortfall, pending_verifications, unfinished_verifications
from bandsync_dagster.store.schema import verifications
from bandsync_dagster.store.syncs import complete_sync, defer_sync, fail_sync
from bandsync_dagster.store.writes import write_batch
from bandsync_dagster_tests.store.builders import HOUR, NOW, REPOSITORY, batch, begin, change, job, verification

SECOND = timedelta(seconds=1)


def store_verifications(engine: sa.Engine, *rows: dict[str, Any]) -> None:
    """Write verifications."""
    write_batch(engine, batch(begin(engine, "verifications"), 1, rows), now=NOW)


def note(engine: sa.Engine, number: int, **fields: Any) -> None:
    """Note that the jobs of a verification were collected."""
    total = {"verification_id": verification(number)["id"], "run_attempt": 1, "total": 1, "detail": "basic"} | fields
    write_batch(engine, batch(begin(engine, "jobs"), 1, [], job_totals=[total]), now=NOW)


def pending(engine: sa.Engine, detail: Any = "basic", limit: int = 100, **fields: Any) -> list[int]:
    """Return the numbers of the pending verifications."""
    found = pending_verifications(engine, REPOSITORY, now=NOW, limit=limit, detail=detail, **fields)
    return [one.id - verification(0)["id"] for one in found]


def test_verifications_without_jobs_are_pending_newest_first(engine: sa.Engine) -> None:
    """Of this repository alone, whatever their status."""
    store_verifications(engine, *(verification(number) for number in (1, 3)), verification(2, status="in_progress"))
    assert pending(engine) == [3, 2, 1]
    assert pending(engine, limit=2) == [3, 2]
    assert pending_verifications(engine, 5, now=NOW, limit=9, detail="basic") == []


def test_a_pending_verification_says_what_is_needed_to_ask(engine: sa.Engine) -> None:
    """Attempt, check suite, when it began, and how often it was asked in vain."""
    store_verifications(engine, verification(1, run_attempt=2, run_started_at=NOW, conclusion="failure"))
    note(engine, 1, run_attempt=2, retry_at=NOW, retries=3)
    (found,) = pending_verifications(engine, REPOSITORY, now=NOW, limit=9, detail="basic")
    assert (found.run_attempt, found.status, found.conclusion, found.retries) == (2, "completed", "failure", 3)
    assert (found.check_suite_node_id, found.run_started_at) == ("CS_1", NOW)
    assert found.created_at == verification(1)["created_at"]


@pytest.mark.parametrize(
    ("noted", "detail", "is_pending"),
    [
        ({}, "basic", False),
        ({}, "full", True),
        ({"detail": "full"}, "full", False),
        ({"detail": "full"}, "basic", False),
        ({"run_attempt": 1, "detail": "full", "retries": 5}, "basic", False),
        ({"retry_at": NOW}, "basic", True),
        ({"retry_at": NOW + SECOND}, "basic", False),
    ],
)
def test_what_makes_a_collected_verification_pending_again(
    engine: sa.Engine, noted: dict[str, Any], detail: str, is_pending: bool
) -> None:
    """More detail wanted, or the time to ask again; nothing else."""
    store_verifications(engine, verification(1))
    note(engine, 1, **noted)
    assert pending(engine, detail) == ([1] if is_pending else [])


@pytest.mark.parametrize(("began", "is_pending"), [(NOW - SECOND, False), (NOW, True), (NOW + SECOND, True)])
def test_what_a_sync_has_asked_for_is_due_again_in_the_next_one(
    engine: sa.Engine, began: datetime, *, is_pending: bool
) -> None:
    """A run still going on is asked for by each sync, but not again by one that goes on after a deferral."""
    store_verifications(engine, verification(1))
    note(engine, 1, retry_at=NOW)
    assert pending(engine, since=began) == ([1] if is_pending else [])


def test_a_new_attempt_is_pending_from_the_start(engine: sa.Engine) -> None:
    """What was tried for the attempt before does not count."""
    store_verifications(engine, verification(1, run_attempt=2))
    note(engine, 1, run_attempt=1, retries=4, retry_at=NOW + HOUR)
    (found,) = pending_verifications(engine, REPOSITORY, now=NOW, limit=9, detail="basic")
    assert found.retries == 0


def test_pending_verifications_can_be_paged_through(engine: sa.Engine) -> None:
    """Behind the last one of the page before, also among those of one second."""
    rows = [verification(number, created_at=NOW - number // 3 * SECOND) for number in range(10)]
    store_verifications(engine, *rows)
    pages: list[list[int]] = []
    before = None
    while page := pending_verifications(engine, REPOSITORY, now=NOW, limit=4, detail="basic", before=before):
        pages.append([one.id - verification(0)["id"] for one in page])
        before = (page[-1].created_at, page[-1].id)
    assert pages == [[2, 1, 0, 5], [4, 3, 8, 7], [6, 9]]


def fill(engine: sa.Engine, count: int) -> None:
    """Store very many verifications, all of which have their jobs, in a repository among others of the same size."""
    store_verifications(engine, verification(0, created_at=NOW - 1000 * HOUR))
    names = [column.name for column in verifications.columns]
    changed = {"id": "id + n", "run_number": "n", "repository_id": f"{REPOSITORY} + n - 2 * (n / 2)"}
    changed["created_at"] = (
        "created_at + n * interval '1 second'"
        if engine.dialect.name == "postgresql"
        else "datetime(created_at, n || ' seconds')"
    )
    columns = ", ".join(changed.get(name, name) for name in names)
    with writing(engine) as connection:
        connection.exec_driver_sql(
            f"WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count}) "
            f"INSERT INTO verifications ({', '.join(names)}) SELECT {columns} FROM verifications, numbers"
        )
        connection.exec_driver_sql(
            "INSERT INTO job_totals (verification_id, repository_id, run_attempt, total, detail, collected_at) "
            "SELECT id, repository_id, run_attempt, 3, 'basic', created_at FROM verifications"
        )
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("ANALYZE")


def plan(engine: sa.Engine, question: Any) -> str:
    """Return how the database answers the one statement of a question."""
    sent: list[tuple[str, Any]] = []

    def record(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        sent.append((statement, parameters))

    sa.event.listen(engine, "before_cursor_execute", record)
    question()
    sa.event.remove(engine, "before_cursor_execute", record)
    statement, parameters = sent[-1]
    explain = "EXPLAIN " if engine.dialect.name == "postgresql" else "EXPLAIN QUERY PLAN "
    with reading(engine) as connection:
        rows = connection.exec_driver_sql(explain + statement, parameters).all()
    return "\n".join(str(row[-1]) for row in rows)


def test_pending_verifications_are_found_among_very_many(engine: sa.Engine) -> None:
    """With 100,000 in the table the index gives them in order: nothing is sorted, no other repository is read."""
    fill(engine, 100_000)
    store_verifications(
        engine, *(verification(200_000 + number, created_at=NOW + number * SECOND) for number in range(20))
    )
    last = verification(200_010, created_at=NOW + 10 * SECOND)
    for before in (None, (last["created_at"], last["id"])):

        def ask(before: Any = before) -> None:
            found = pending(engine, limit=5, before=before)
            assert found == [200_000 + number for number in (range(19, 14, -1) if before is None else range(9, 4, -1))]

        steps = plan(engine, ask)
        assert "ix_verifications_repository_id_created_at_id" in steps
        assert "Seq Scan on verifications" not in steps
        assert "SCAN verifications" not in steps
        assert "Sort" not in steps
        assert "B-TREE" not in steps


def test_unfinished_verifications_are_found_by_their_own_index(engine: sa.Engine) -> None:
    """The few that are not over, among the many that are."""
    fill(engine, 20_000)
    rows = [
        verification(90_001, status="queued", conclusion=None),
        verification(90_002, status=None, conclusion=None),
        verification(90_003, status="in_progress", repository_id=REPOSITORY, run_started_at=NOW),
        verification(90_004),
    ]
    store_verifications(engine, *rows)
    found = unfinished_verifications(engine, REPOSITORY)
    assert [one.id - verification(0)["id"] for one in found] == [90_001, 90_002, 90_003]
    assert found[-1].run_started_at == NOW
    assert "ix_verifications_unfinished" in plan(engine, lambda: unfinished_verifications(engine, REPOSITORY))


def test_unfinished_syncs_are_those_that_somebody_must_end(engine: sa.Engine) -> None:
    """Running and deferred ones, of all stages and repositories."""
    running, deferred, completed = begin(engine), begin(engine, "jobs"), begin(engine)
    defer_sync(engine, deferred.id, resume_at=NOW + HOUR, bucket="core", now=NOW)
    complete_sync(engine, completed.id, now=NOW)
    assert [sync.id for sync in queries.unfinished_syncs(engine)] == [running.id, deferred.id]


def test_the_checkpoint_is_where_the_last_batch_left_it(engine: sa.Engine) -> None:
    """Of each stage on its own; None before the first."""
    assert queries.checkpoint(engine, REPOSITORY, "changes") is None
    sync = begin(engine)
    for number in (1, 2):
        write_batch(engine, batch(sync, number, []), now=NOW)
    assert queries.checkpoint(engine, REPOSITORY, "changes") == {"batch": 2}
    assert queries.checkpoint(engine, REPOSITORY, "jobs") is None
    assert queries.checkpoint(engine, 5, "changes") is None


def test_the_facts_of_the_checks_agree_with_the_table(engine: sa.Engine) -> None:
    """Over several syncs, of this stage and this repository alone."""
    first, second = begin(engine), begin(engine)
    write_batch(engine, batch(first, 1, [change(1), change(2)]), now=NOW)
    write_batch(engine, batch(second, 1, [change(2), change(3)]), now=NOW)
    other = begin(engine, repository_id=5, full_name="acme/other")
    write_batch(engine, batch(other, 1, [change(9, repository_id=5)], repository_id=5), now=NOW)
    facts = queries.counter_facts(engine, "Acme/Pool", "changes")
    assert facts == CounterFacts(queries.find_sync(engine, second.id), created_by_all=3, rows=3, rows_of_latest=1)
    assert queries.row_count(engine, REPOSITORY, "changes") == 3


def test_there_are_no_facts_of_what_was_never_collected(engine: sa.Engine) -> None:
    """No sync: nothing to compare. A sync that never found its repository: zeros."""
    assert queries.counter_facts(engine, "acme/pool", "changes") == CounterFacts(None)
    sync = begin(engine, repository_id=None)
    assert queries.counter_facts(engine, "acme/pool", "changes") == CounterFacts(sync)


def test_the_latest_sync_is_the_one_started_last(engine: sa.Engine) -> None:
    """Under that name in any case, of that stage."""
    begin(engine)
    latest = begin(engine)
    begin(engine, "jobs")
    assert queries.latest_sync(engine, "ACME/pool", "changes") == latest
    assert queries.latest_sync(engine, "acme/pool", "verifications") is None


def test_the_syncs_of_a_run_are_those_it_works_on(engine: sa.Engine) -> None:
    """A run has one for each stage it has begun."""
    ours = [begin(engine), begin(engine, "jobs")]
    begin(engine, run_id="run-2")
    assert queries.syncs_of_run(engine, "run-1") == ours
    assert queries.syncs_of_run(engine, "run-3") == []


def test_a_sync_that_is_not_there_is_none(engine: sa.Engine) -> None:
    """Asking is no error."""
    assert queries.find_sync(engine, 4711) is None


def test_jobs_that_are_missing_are_counted(engine: sa.Engine) -> None:
    """Fewer stored than GitHub said there are; a verification without jobs is complete with none."""
    sync = begin(engine, "jobs")
    totals = [
        {"verification_id": number, "run_attempt": 1, "total": total, "detail": "basic"}
        for number, total in ((1, 2), (2, 2), (3, 0), (4, 1))
    ]
    rows = [job(1, verification_id=1), job(2, verification_id=1), job(3, verification_id=2)]
    write_batch(engine, batch(sync, 1, rows, job_totals=totals), now=NOW)
    assert queries.job_shortfalls(engine, REPOSITORY) == [JobShortfall(4, 0, 1), JobShortfall(2, 1, 2)]
    assert queries.job_shortfalls(engine, 5) == []


def test_a_failed_sync_still_counts_what_it_created(engine: sa.Engine) -> None:
    """Its rows are in the table, so its counters are in the sum."""
    sync = begin(engine)
    write_batch(engine, batch(sync, 1, [change(1)]), now=NOW)
    fail_sync(engine, sync.id, outcome="failed", error="x", now=NOW)
    facts = queries.counter_facts(engine, "acme/pool", "changes")
    assert (facts.created_by_all, facts.rows, facts.rows_of_latest) == (1, 1, 1)
