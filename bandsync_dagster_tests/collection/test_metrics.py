"""The numbers a pipeline tells about itself add up over the parts of a deferred sync."""

from hypothesis import given
from hypothesis import strategies as st

from bandsync_dagster.collection.metrics import PipelineMetrics

BATCHES = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 60)), max_size=8)


def measure(batches: list[tuple[int, int]]) -> PipelineMetrics:
    """Return the metrics of a pipeline with these batches."""
    metrics = PipelineMetrics()
    for rows, age in batches:
        metrics.queued(rows)
        metrics.batched(rows, float(age))
        metrics.waited(1.0)
        metrics.retried()
    return metrics


@given(BATCHES, BATCHES)
def test_two_parts_tell_what_one_pipeline_would_have_told(
    first: list[tuple[int, int]], second: list[tuple[int, int]]
) -> None:
    """However a sync is cut by deferrals, its numbers are the same."""
    assert measure(second).as_dict(measure(first).as_dict()) == measure(first + second).as_dict()


def test_other_facts_among_the_earlier_metrics_are_left_to_whoever_noted_them() -> None:
    """Only the pipeline's own numbers are added up."""
    assert measure([(3, 1)]).as_dict({"github_total": 50})["rows"] == 3


def test_averages_of_nothing_are_zero() -> None:
    """A sync without rows has metrics too."""
    numbers = PipelineMetrics().as_dict()
    assert (numbers["rows_avg"], numbers["age_avg"], numbers["batches"]) == (0.0, 0.0, 0)
