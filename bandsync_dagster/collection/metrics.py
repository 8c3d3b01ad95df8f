"""What a pipeline tells about itself: sizes, ages, waits, retries. Only arithmetic."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

_SUMS = ("batches", "rows", "age_seconds", "waits", "wait_seconds", "retries")
_EXTREMES = ("rows_max", "age_max", "deepest_queue")


@dataclass(slots=True)
class PipelineMetrics:
    """Sums and extremes of one pipeline; those of a deferred sync's earlier parts can be added.

    Attributes:
        batches: Batches that left the queue.
        rows: Rows in them.
        rows_min: Rows in the smallest.
        rows_max: Rows in the largest.
        age_seconds: Sum over batches of how long the oldest row had waited.
        age_max: The longest of these.
        waits: How often a producer had to wait for the writer.
        wait_seconds: For how long in all.
        deepest_queue: The most rows and job totals that waited at once.
        retries: Attempts to write that were repeated because the store was away.
    """

    batches: int = 0
    rows: int = 0
    rows_min: int = 0
    rows_max: int = 0
    age_seconds: float = 0.0
    age_max: float = 0.0
    waits: int = 0
    wait_seconds: float = 0.0
    deepest_queue: int = 0
    retries: int = 0

    def queued(self, rows: int) -> None:
        """Note how many rows and job totals wait."""
        self.deepest_queue = max(self.deepest_queue, rows)

    def waited(self, seconds: float) -> None:
        """Note that a producer had to wait."""
        self.waits += 1
        self.wait_seconds += seconds

    def batched(self, rows: int, age: float) -> None:
        """Note that a batch left the queue."""
        self.rows_min = rows if self.batches == 0 else min(self.rows_min, rows)
        self.rows_max = max(self.rows_max, rows)
        self.batches += 1
        self.rows += rows
        self.age_seconds += age
        self.age_max = max(self.age_max, age)

    def retried(self) -> None:
        """Note that a batch is about to be written again."""
        self.retries += 1

    def as_dict(self, earlier: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the numbers with their averages; `earlier` is such a dictionary of the same sync's earlier part."""
        total = self if not earlier else self._added_to(earlier)
        batches = max(total.batches, 1)
        averages = {"rows_avg": round(total.rows / batches, 1), "age_avg": round(total.age_seconds / batches, 3)}
        return asdict(total) | averages

    def _added_to(self, earlier: Mapping[str, Any]) -> "PipelineMetrics":
        """Return the numbers of both parts together."""
        before = PipelineMetrics(**{f.name: earlier.get(f.name, f.default) for f in fields(PipelineMetrics)})
        summed = {name: getattr(before, name) + getattr(self, name) for name in _SUMS}
        highest = {name: max(getattr(before, name), getattr(self, name)) for name in _EXTREMES}
        smallest = [part.rows_min for part in (before, self) if part.batches]
        return PipelineMetrics(**summed, **highest, rows_min=min(smallest, default=0))
