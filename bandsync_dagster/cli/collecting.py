"""`collect` from start to end: Dagster up, one collection, the report, Dagster down. `demo` goes the same way."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from rich.console import Console

from bandsync_dagster.cli.collection import Collection, Plan
from bandsync_dagster.cli.errors import INCOMPLETE, INTERRUPTED, Interrupted
from bandsync_dagster.cli.interrupts import Interrupts, heeding_signals
from bandsync_dagster.cli.local import Local, choose_port, local_dagster
from bandsync_dagster.cli.progress import Display
from bandsync_dagster.cli.report import Report, print_report
from bandsync_dagster.cli.serving import watch
from bandsync_dagster.clock import Clock, utc_now
from bandsync_dagster.collection.scan import StageOptions
from bandsync_dagster.settings import Settings
from bandsync_dagster.wording import counted


@dataclass(frozen=True)
class Order:
    """What to collect, and how it is shown.

    Attributes:
        settings: Sources, tokens, folders and the rest.
        environment: The same, as the child processes get it.
        full_refresh: Whether to start again from the beginning.
        forecast: Whether to ask first what it will cost.
        ui: Whether the Dagster UI stays up afterwards.
        port: Where the UI listens; None is any.
    """

    settings: Settings
    environment: Mapping[str, str]
    full_refresh: bool = False
    forecast: bool = False
    ui: bool = False
    port: int | None = None

    def plan(self) -> Plan:
        """Return what the collection is to do."""
        settings = self.settings
        options = StageOptions(self.full_refresh, settings.history_days, settings.detail)
        return Plan(options, settings.max_runtime, self.forecast)


def carry_out(order: Order, console: Console, clock: Clock = utc_now) -> tuple[int, Report | None]:
    """Collect what was ordered; return the exit code, and the report if it came to one.

    Raises:
        CommandError: Nothing could be collected; the message says why.
        StoreError: The database cannot be used.
    """
    display = Display(console, clock)
    with heeding_signals() as interrupts, ExitStack() as stack:
        display.start()
        stack.callback(display.stop)
        try:
            local = stack.enter_context(
                local_dagster(
                    order.settings,
                    order.environment,
                    interrupts,
                    port=choose_port(order.port) if order.ui else None,
                    while_waiting=lambda: display.show("Starting Dagster"),
                )
            )
        except Interrupted:
            return INTERRUPTED, None
        return _collect(order, local, display, interrupts, console)


def _collect(
    order: Order, local: Local, display: Display, interrupts: Interrupts, console: Console
) -> tuple[int, Report | None]:
    if order.ui:
        console.print(f"Dagster UI: {local.webserver.url}", highlight=False)
    collection = Collection(order.plan(), local, display, interrupts)
    try:
        report = collection.run()
    except Interrupted:
        _stop(collection, display, console)
        return INTERRUPTED, None
    display.stop()
    print_report(console, report)
    if order.ui:
        _serve(local, interrupts, console)
    return (0 if report.is_complete else INCOMPLETE), report


def _stop(collection: Collection, display: Display, console: Console) -> None:
    ended = collection.cancel()
    display.stop()
    console.print(
        f"Stopped; {counted(ended, 'run was', 'runs were')} cancelled. Everything fetched so far is stored, and the"
        " same command goes on where this one stopped.",
        highlight=False,
    )


def _serve(local: Local, interrupts: Interrupts, console: Console) -> None:
    console.print(f"The Dagster UI stays at {local.webserver.url} until Ctrl-C.", highlight=False)
    watch(local, interrupts)
