"""The pipeline by itself: when batches leave, who waits for whom, and what happens when the sink refuses."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from bandsync_dagster.collection.pipeline import Page, Pipeline, PipelineOptions
from bandsync_dagster.store.errors import RowRejected, StoreUnavailable
from bandsync_dagster_tests.collection.sinks import RecordingSink, away, ids, page
from bandsync_dagster_tests.collection.time_by_hand import TimeByHand

Scenario = Callable[[RecordingSink, TimeByHand], Awaitable[None]]


def play(scenario: Scenario) -> RecordingSink:
    """Run a scenario with a fresh sink and a fresh time."""

    async def run() -> RecordingSink:
        sink = RecordingSink()
        await scenario(sink, TimeByHand())
        return sink

    return asyncio.run(run())


async def breathe(turns: int = 20) -> None:
    """Let everything run that can run without a thread and without time passing."""
    for _ in range(turns):
        await asyncio.sleep(0)


def pipeline(sink: RecordingSink, time: TimeByHand, *, size: int = 10, age: float = 5.0, queue: int = 100) -> Pipeline:
    """Return a pipeline on a time moved by hand."""
    options = PipelineOptions(max_size=size, max_age=age, queue_size=queue)
    return Pipeline(sink, options, sleep=time.sleep, timer=time.timer)


async def fill(pipe: Pipeline, *pages: Page, flush: bool = False, then: Exception | None = None) -> None:
    """Put pages through a pipeline from start to end; `then` is raised inside its block."""
    async with pipe:
        for one in pages:
            await pipe.put(one)
        if flush:
            await pipe.flush()
        if then is not None:
            raise then


def test_a_full_batch_leaves_at_once_and_a_page_is_cut_where_it_is_full() -> None:
    """Ten rows make a batch of ten, whatever pages they came in."""

    async def scenario(sink: RecordingSink, time: TimeByHand) -> None:
        async with pipeline(sink, time) as pipe:
            await pipe.put(page(0, 7, position=1))
            await pipe.put(page(7, 7, position=2))
            await sink.attempted(1)
            assert ids(sink.attempts) == [list(range(10))]

    sink = play(scenario)
    assert ids(sink.written) == [list(range(10)), list(range(10, 14))]


def test_a_position_leaves_with_the_last_row_of_its_page_and_not_before() -> None:
    """A batch that ends inside a page claims only the page before it."""

    async def scenario(sink: RecordingSink, time: TimeByHand) -> None:
        async with pipeline(sink, time) as pipe:
            await pipe.put(page(0, 7, position=1))
            await pipe.put(page(7, 7, position=2))

    assert [batch.position for batch in play(scenario).written] == [{"at": 1}, {"at": 2}]


def test_job_totals_leave_with_the_last_row_of_their_page() -> None:
    """That a verification's jobs are complete is never stored before the last of them."""
    total = {"verification_id": 1, "run_attempt": 1, "total": 12, "detail": "basic"}

    async def scenario(sink: RecordingSink, time: TimeByHand) -> None:
        async with pipeline(sink, time) as pipe:
            await pipe.put(Page([{"id": n} for n in range(12)], None, [total]))

    assert [list(batch.job_totals) for batch in play(scenario).written] == [[], [total]]


def test_a_page_without_a_position_leaves_the_one_before_it_in_force() -> None:
    """None means nothing is claimed; it doesn't take a claim back."""

    async def scenario(sink: RecordingSink, time: TimeByHand) -> None:
        async with pipeline(sink, time) as pipe:
            await pipe.put(page(0, 2, position=1))
            await pipe.put(page(2, 2))

    assert [batch.position for batch in play(scenario).written] == [{"at": 1}]


def test_an_empty_page_still_brings_its_position() -> None:
    """A listing with nothing new moves the checkpoint too."""

    async def scenario(sink: RecordingSink, time: TimeByHand) -> None:
        async with pipeline(sink, time) as pipe:
            await pipe.put(page(0, 0, position=9))

    written = play(scenario).written
    assert [(len(batch.rows), batch.position) for batch in written] == [(0, {"at": 9})]


def test_nothing_is_written_when_nothing_was_put() -> None:
    """No batch, no transaction."""

    async def scenario(sink: RecordingSink, time: TimeByHand) -> None:
        async with pipeline(sink, time):
            pass

    assert play(scenario).attempts == []


def test_a_batch_leaves_when_its_oldest_row_is_old_enough_although_nothing_arrives() -> None:
    """Age alone is reason enough, and only the full age is."""

    async def scenario(sink: RecordingSink, time: TimeByHand) -> None:
        async with pipeline(sink, time, age=5.0) as pipe:
            await pipe.put(page(0, 3))
            await breathe()
            time.advance(4.9)
            await breathe()
            assert sink.attempts == []
            time.advance(0.1)
            await sink.attempted(1)
            assert ids(sink.attempts) == [[0, 1, 2]]

    play(scenario)


def test_age_is_counted_from_the_oldest_row_and_not_from_the_last_arrival() -> None:
    """A steady trickle cannot keep a batch from leaving."""

    async def scenario(sink: RecordingSink, time: TimeByHand) -> None:
        async with pipeline(sink, time, age=5.0) as pipe:
            for n in range(3):
                await pipe.put(page(n, 1))
                await breathe()
                time.advance(2.0)
            await sink.attempted(1)
            assert ids(sink.attempts) == [[0, 1, 2]]

    play(scenario)


def test_a_slow_writer_makes_the_producer_wait_and_batches_stay_in_order() -> None:
    """While one batch is being written the queue fills; put returns only when the next page has room."""

    async def scenario(sink: RecordingSink, time: TimeByHand) -> None:
        sink.open.clear()
        async with pipeline(sink, time, size=10, queue=20) as pipe:
            await pipe.put(page(0, 10))
            await sink.attempted(1)
            await pipe.put(page(10, 10))
            waiting = asyncio.ensure_future(pipe.put(page(20, 10)))
            await breathe()
            assert not waiting.done()
            sink.open.set()
            await waiting

    sink = play(scenario)
    assert ids(sink.written) == [list(range(10)), list(range(10, 20)), list(range(20, 30))]


def test_job_totals_without_rows_make_the_producer_wait_too() -> None:
    """Thousands of workflow runs without a job must not pile up in memory either."""

    async def scenario(sink: RecordingSink, time: TimeByHand) -> None:
        sink.open.clear()
        totals = [{"verification_id": n, "run_attempt": 1, "total": 0, "detail": "basic"} for n in range(10)]
        async with pipeline(sink, time, size=10, queue=20) as pipe:
            await pipe.put(Page([], None, totals))
            await sink.attempted(1)
            await pipe.put(Page([], None, totals))
            waiting = asyncio.ensure_future(pipe.put(Page([], None, totals)))
            await breathe()
            assert not waiting.done()
            sink.open.set()
            await waiting

    assert sum(len(batch.job_totals) for batch in play(scenario).written) == 30


def test_only_one_batch_is_being_written_at_a_time() -> None:
    """The second batch is not tried before the first one is through."""

    async def scenario(sink: RecordingSink, time: TimeByHand) -> None:
        sink.open.clear()
        async with pipeline(sink, time, size=5) as pipe:
            await pipe.put(page(0, 20))
            await sink.attempted(1)
            await breathe()
            assert len(sink.attempts) == 1
            sink.open.set()

    assert [len(batch.rows) for batch in play(scenario).written] == [5, 5, 5, 5]


def test_a_waiting_producer_makes_a_batch_leave_that_is_not_full() -> None:
    """With a queue that is full of less than a batch nobody waits for age."""

    async def scenario(sink: RecordingSink, time: TimeByHand) -> None:
        async with pipeline(sink, time, size=10, queue=10) as pipe:
            await pipe.put(page(0, 6))

    assert ids(play(scenario).written) == [list(range(6))]


def test_flush_returns_once_everything_put_is_written() -> None:
    """What was put can be read back from the store afterwards."""

    async def scenario(sink: RecordingSink, time: TimeByHand) -> None:
        async with pipeline(sink, time, size=10) as pipe:
            await pipe.put(page(0, 3))
            await pipe.flush()
            assert ids(sink.written) == [[0, 1, 2]]

    play(scenario)


def test_settle_returns_once_everything_put_is_written() -> None:
    """A producer that asks for the next page only then has nothing in memory that could be lost."""

    async def scenario(sink: RecordingSink, time: TimeByHand) -> None:
        async with pipeline(sink, time) as pipe:
            for number in range(3):
                await pipe.put(page(number, 1))
                await pipe.settle()
                assert len(sink.written) == number + 1

    play(scenario)


def test_settle_lasts_no_longer_than_a_batch_may_age() -> None:
    """A store that lags behind doesn't keep quota unused; what it has not taken stays queued and is written later."""

    async def scenario(sink: RecordingSink, time: TimeByHand) -> None:
        sink.open.clear()
        async with pipeline(sink, time, age=2.0) as pipe:
            await pipe.put(page(0, 1))
            settling = asyncio.ensure_future(pipe.settle())
            await sink.attempted(1)
            assert not settling.done()
            time.advance(2.0)
            await settling
            assert sink.written == []
            sink.open.set()
        assert len(sink.written) == 1

    play(scenario)


def test_settle_tells_that_the_writer_gave_up() -> None:
    """Nobody goes on asking GitHub for what can't be stored."""

    async def scenario(sink: RecordingSink, time: TimeByHand) -> None:
        sink.refusals = [RowRejected("changes", 1, "id", "is wrong")]
        async with pipeline(sink, time) as pipe:
            await pipe.put(page(0, 1))
            await pipe.settle()
            raise AssertionError("settled")

    with pytest.raises(RowRejected):
        play(scenario)


def test_the_store_is_tried_again_after_2_4_8_16_and_32_seconds_with_the_same_batch() -> None:
    """The number stays the same, so that the store recognises a batch whose answer was lost."""
    time = TimeByHand()

    async def run() -> RecordingSink:
        sink = RecordingSink()
        sink.refusals = [away() for _ in range(5)]
        async with Pipeline(sink, sleep=time.sleep_at_once, timer=time.timer) as pipe:
            await pipe.put(page(0, 3, position=1))
            await pipe.flush()
        assert pipe.metrics.retries == 5
        return sink

    sink = asyncio.run(run())
    assert [wait for wait in time.slept if wait in (4.0, 8.0, 16.0, 32.0)] == [4.0, 8.0, 16.0, 32.0]
    assert len(sink.attempts) == 6
    assert all(attempt is sink.attempts[0] for attempt in sink.attempts)
    assert sink.written == [sink.attempts[0]]


def test_a_store_that_stays_away_ends_the_block_and_everything_fetched_is_set_aside_in_order() -> None:
    """After the sixth refusal the batch, and the queue behind it, go to the sink's other place."""
    time = TimeByHand()

    async def run() -> RecordingSink:
        sink = RecordingSink()
        sink.refusals = [away() for _ in range(6)]
        options = PipelineOptions(max_size=5, queue_size=100)
        with pytest.raises(StoreUnavailable):
            await fill(Pipeline(sink, options, sleep=time.sleep_at_once, timer=time.timer), page(0, 12, position=1))
        return sink

    sink = asyncio.run(run())
    assert sink.written == []
    assert ids(sink.kept) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11]]
    assert [batch.position for batch in sink.kept] == [None, None, {"at": 1}]


def test_a_put_after_the_writer_gave_up_raises_and_its_page_is_set_aside_too() -> None:
    """What was paid for with quota is kept, also the page that came too late."""

    async def scenario(sink: RecordingSink, time: TimeByHand) -> None:
        sink.refusals = [away()]
        options = PipelineOptions(max_size=5, queue_size=100, backoff=())
        pipe = Pipeline(sink, options, sleep=time.sleep, timer=time.timer)

        async def put_twice() -> None:
            async with pipe:
                with pytest.raises(StoreUnavailable):
                    await put_and_flush(page(0, 5))
                await pipe.put(page(5, 5))

        async def put_and_flush(one: Page) -> None:
            await pipe.put(one)
            await pipe.flush()

        with pytest.raises(StoreUnavailable):
            await put_twice()
        assert ids(sink.kept) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]

    play(scenario)


def test_a_row_the_store_objects_to_is_not_tried_again_and_nothing_is_set_aside() -> None:
    """Waiting doesn't mend a wrong value, and it would be refused again tomorrow."""

    async def scenario(sink: RecordingSink, time: TimeByHand) -> None:
        sink.refusals = [RowRejected("changes", 1, "id", "is not a whole number")]
        with pytest.raises(RowRejected):
            await fill(pipeline(sink, time), page(0, 3))
        assert (len(sink.attempts), sink.kept, time.slept.count(2.0)) == (1, [], 0)

    play(scenario)


def test_an_error_of_the_producer_goes_on_after_everything_put_is_written() -> None:
    """What was fetched before a KeyError is stored with its checkpoint."""

    async def scenario(sink: RecordingSink, time: TimeByHand) -> None:
        with pytest.raises(KeyError, match="boom"):
            await fill(pipeline(sink, time), page(0, 3, position=1), then=KeyError("boom"))
        assert ids(sink.written) == [[0, 1, 2]]

    play(scenario)


def test_the_writers_error_replaces_the_producers_because_rows_are_missing() -> None:
    """A deferral must not be told when what was fetched could not be stored."""

    async def scenario(sink: RecordingSink, time: TimeByHand) -> None:
        sink.refusals = [RowRejected("changes", 1, "id", "is wrong")]
        with pytest.raises(RowRejected) as raised:
            await fill(pipeline(sink, time), page(0, 3), then=KeyError("boom"))
        assert isinstance(raised.value.__context__, KeyError)

    play(scenario)


async def wait_forever() -> None:
    """Stand for a request that GitHub doesn't answer."""
    await asyncio.Event().wait()


async def leave() -> None:
    """Go straight to the end of the block."""


@pytest.mark.parametrize(
    ("busy_with", "refusals", "held_up"),
    [
        ("fetching", [], False),
        ("putting", [], True),
        ("flushing", [], True),
        ("flushing", [away()], False),
        ("leaving", [], True),
    ],
)
def test_a_cancelled_collection_writes_what_it_has_fetched(
    busy_with: str, refusals: list[Exception | None], *, held_up: bool
) -> None:
    """Wherever the cancellation strikes, every page handed over is written, in order, with the last position."""

    async def scenario(sink: RecordingSink, time: TimeByHand) -> None:
        pipe = pipeline(sink, time, size=10, queue=20)
        activities: dict[str, Callable[[], Awaitable[None]]] = {
            "fetching": wait_forever,
            "putting": lambda: pipe.put(page(10, 20, position=2)),
            "flushing": pipe.flush,
            "leaving": leave,
        }

        async def collect() -> None:
            async with pipe:
                await pipe.put(page(0, 10, position=1))
                await activities[busy_with]()
                if busy_with != "leaving":
                    await wait_forever()

        sink.refusals.extend(refusals)
        if held_up:
            sink.open.clear()
        task = asyncio.ensure_future(collect())
        await sink.attempted(1)
        await breathe()
        task.cancel()
        await breathe()
        sink.open.set()
        while not task.done():
            time.advance(2.0)
            await asyncio.sleep(0)
        assert task.cancelled()

    sink = play(scenario)
    put, position = (30, {"at": 2}) if busy_with == "putting" else (10, {"at": 1})
    assert [row for batch in ids(sink.written) for row in batch] == list(range(put))
    assert sink.written[-1].position == position


@pytest.mark.parametrize("back", [True, False])
def test_a_cancelled_collection_does_not_wait_for_a_store_that_is_away(*, back: bool) -> None:
    """One more attempt is made at once; if that fails too, everything fetched is set aside. No time passes."""

    async def scenario(sink: RecordingSink, time: TimeByHand) -> None:
        async def collect() -> None:
            async with pipeline(sink, time, size=10, queue=100) as pipe:
                await pipe.put(page(0, 15, position=1))
                await wait_forever()

        sink.refusals = [away(), None if back else away()]
        task = asyncio.ensure_future(collect())
        await sink.attempted(1)
        while time.slept.count(2.0) == 0:  # noqa: ASYNC110  (nobody tells when a wait begins)
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    sink = play(scenario)
    assert ids(sink.written if back else sink.kept) == [list(range(10)), list(range(10, 15))]
    assert len(sink.attempts) == (3 if back else 2)


def test_a_second_cancellation_does_not_cut_the_final_flush_short() -> None:
    """Pressing Ctrl-C twice loses nothing."""

    async def scenario(sink: RecordingSink, time: TimeByHand) -> None:
        async def collect() -> None:
            async with pipeline(sink, time) as pipe:
                await pipe.put(page(0, 3))
                await asyncio.Event().wait()

        sink.open.clear()
        task = asyncio.ensure_future(collect())
        await breathe()
        for _ in range(3):
            task.cancel()
            await breathe()
        assert not task.done()
        sink.open.set()
        await asyncio.wait([task])
        assert task.cancelled()
        assert ids(sink.written) == [[0, 1, 2]]

    play(scenario)


def test_metrics_say_how_large_and_old_batches_were_and_how_long_producers_waited() -> None:
    """The numbers are those of the scenario, not just positive."""

    async def scenario(sink: RecordingSink, time: TimeByHand) -> None:
        async with pipeline(sink, time, size=10, age=5.0, queue=20) as pipe:
            await pipe.put(page(0, 4))
            await breathe()
            time.advance(5.0)
            await sink.attempted(1)
            await pipe.flush()
            sink.open.clear()
            await pipe.put(page(4, 10))
            await sink.attempted(2)
            waiting = asyncio.ensure_future(pipe.put(page(14, 20)))
            await breathe()
            time.advance(3.0)
            sink.open.set()
            await waiting
        numbers = pipe.metrics.as_dict()
        assert (numbers["batches"], numbers["rows"], numbers["rows_min"], numbers["rows_max"]) == (4, 34, 4, 10)
        assert (numbers["rows_avg"], numbers["deepest_queue"], numbers["retries"]) == (8.5, 20, 0)
        assert (numbers["age_max"], numbers["wait_seconds"], numbers["waits"]) == (5.0, 3.0, 1)

    play(scenario)


@pytest.mark.parametrize(("size", "age", "queue"), [(0, 1.0, 10), (10, 0.0, 10), (10, -1.0, 10), (11, 1.0, 10)])
def test_sizes_with_which_nothing_would_be_written_are_refused(size: int, age: float, queue: int) -> None:
    """The message names the number that is wrong."""
    with pytest.raises(ValueError, match="size"):
        PipelineOptions(max_size=size, max_age=age, queue_size=queue)


def test_a_pipeline_outside_of_its_block_is_a_programming_error() -> None:
    """Nothing would ever be written."""

    async def scenario(sink: RecordingSink, time: TimeByHand) -> None:
        with pytest.raises(RuntimeError, match="before its block"):
            await pipeline(sink, time).put(page(0, 1))

    play(scenario)
