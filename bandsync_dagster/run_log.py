"""What the package logs, shown among a run's own lines. Nothing here says what is logged."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

_PACKAGE = "bandsync_dagster"


class _RunLog(logging.Handler):
    """Passes on what is logged to the log of a run."""

    def __init__(self, log: logging.Logger) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Log it once more. Where Dagster's own storage is away too, only the process's standard error has it."""
        try:
            self._log.log(record.levelno, record.getMessage())
        except Exception:  # noqa: BLE001  (as in every handler: what can't be told must not end what is being done)
            self.handleError(record)


@contextmanager
def shown_in_run(context: dg.InitResourceContext) -> Iterator[None]:
    """Show what the package logs inside of the block in the run's log, unless the instance is set up to do so."""
    if context.run is None or context.log is None or _is_captured(context.instance):
        yield
        return
    package = logging.getLogger(_PACKAGE)
    handler = _RunLog(context.log)
    package.addHandler(handler)
    try:
        yield
    finally:
        package.removeHandler(handler)


def _is_captured(instance: dg.DagsterInstance | None) -> bool:
    """Tell whether `managed_python_loggers` in dagster.yaml has Dagster show it already."""
    return instance is not None and not {"root", _PACKAGE}.isdisjoint(instance.managed_python_loggers)
