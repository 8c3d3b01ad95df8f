"""`up`: Dagster with its UI in the home folder, until Ctrl-C."""

from collections.abc import Mapping

from rich.console import Console

from bandsync_dagster.cli.errors import INTERRUPTED, Interrupted
from bandsync_dagster.cli.interrupts import Interrupts, heeding_signals
from bandsync_dagster.cli.local import BEGUN, Local, local_dagster
from bandsync_dagster.cli.progress import Display
from bandsync_dagster.clock import Clock, utc_now
from bandsync_dagster.settings import Settings
from bandsync_dagster.wording import counted

WATCH_SECONDS = 1.0


def serve_ui(
    settings: Settings, environment: Mapping[str, str], port: int, console: Console, clock: Clock = utc_now
) -> int:
    """Run Dagster until somebody asks to stop; return the exit code.

    Raises:
        CommandError: It does not come up, or one of its processes ends.
        StoreError: The database cannot be used.
    """
    display = Display(console, clock)
    with heeding_signals() as interrupts:
        try:
            display.start()
            with local_dagster(
                settings, environment, interrupts, port=port, while_waiting=lambda: display.show("Starting Dagster")
            ) as local:
                display.stop()
                _welcome(settings, local, console)
                watch(local, interrupts)
                _wind_up(local, interrupts, console)
        except Interrupted:
            return INTERRUPTED
        finally:
            display.stop()
    return 0


def watch(local: Local, interrupts: Interrupts) -> None:
    """Let Dagster work until somebody asks to stop.

    Raises:
        BrokenOffError: One of its processes ended.
    """
    try:
        while True:
            local.processes.ensure_alive()
            interrupts.pause(WATCH_SECONDS)
    except Interrupted:
        return


def _welcome(settings: Settings, local: Local, console: Console) -> None:
    console.print(f"Dagster UI: {local.webserver.url}   (Ctrl-C stops everything)", style="bold", highlight=False)
    console.print(f"Home folder: {settings.home}", highlight=False)
    if settings.sources:
        console.print(f"Sources: {' '.join(settings.sources)}", highlight=False)
    else:
        console.print("No sources: nothing new is discovered. Name them here or in BANDSYNC_SOURCES.", style="yellow")
    console.print("The schedules are off until you switch them on in the UI, under Automation.")


def _wind_up(local: Local, interrupts: Interrupts, console: Console) -> None:
    """End the runs that are being worked on; queued ones wait for the next time."""
    console.print("Stopping …")
    ended = local.end_runs(interrupts, tags={}, statuses=BEGUN, show=lambda _alive: None)
    if ended:
        told = counted(ended, "run was", "runs were")
        console.print(f"{told} cancelled; what was fetched is stored. Queued runs stay queued.", highlight=False)
