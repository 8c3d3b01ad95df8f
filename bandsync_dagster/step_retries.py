"""Which errors a step is tried again after, and how often. How to try is the step's own business."""

from types import TracebackType
from typing import Literal

import dagster as dg

STEP_RETRIES = 2
STEP_RETRY_DELAY = 2.0


class StepRetries:
    """Asks Dagster for another attempt when something unexpected is raised inside.

    In place of a `RetryPolicy`, which also starts a cancelled step again: it answers interrupts as if they were
    errors. Interrupts pass through here untouched.
    """

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> Literal[False]:
        """Turn an unexpected error into a request to try again; let everything else pass."""
        final = isinstance(error, dg.Failure) and not error.allow_retries
        if isinstance(error, Exception) and not final:
            raise dg.RetryRequested(max_retries=STEP_RETRIES, seconds_to_wait=STEP_RETRY_DELAY) from error
        return False
