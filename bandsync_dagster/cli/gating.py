"""`gate`: the project-wide stop by hand."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import dagster as dg
from rich.console import Console

from bandsync_dagster.cli.errors import CommandError
from bandsync_dagster.cli.progress import gate_text
from bandsync_dagster.gate import close_gate, ensure_pool_limit, open_gate, pool_limit
from bandsync_dagster.resources import Services
from bandsync_dagster.store.gate import read_gate
from bandsync_dagster.tags import POOL


@dataclass(frozen=True)
class GateControl:
    """The two places where a gate is kept: the store, and the pool's limit in Dagster's storage."""

    services: Services
    instance: dg.DagsterInstance

    def show(self, console: Console) -> None:
        """Say how the gate stands, and the pool behind it."""
        text = gate_text(read_gate(self.services.engine, POOL), self.services.clock())
        console.print(text or "Gate: open", highlight=False)
        limit = pool_limit(self.instance)
        places = "not set yet" if limit is None else f"{limit} runs at a time"
        console.print(f"Pool {POOL!r}: {places}", highlight=False)

    def open(self) -> None:
        """Let work go on now."""
        open_gate(self.instance, self.services.engine, now=self.services.clock())

    def close(self, minutes: int) -> None:
        """Hold work back for a while."""
        now = self.services.clock()
        ensure_pool_limit(self.instance)
        until = now + timedelta(minutes=minutes)
        close_gate(self.instance, self.services.engine, bucket=None, until=until, now=now)


@contextmanager
def gate_control(services: Services, dagster_home: Path) -> Iterator[GateControl]:
    """Open Dagster's storage beside the store.

    Raises:
        CommandError: There is no Dagster instance in the folder.
    """
    if not (dagster_home / "dagster.yaml").is_file():
        raise CommandError(
            f"There is no Dagster instance in {dagster_home}. Give the folder of yours with --home or --dagster-home; a"
            " new one is made by `bandsync collect` or `bandsync up`."
        )
    with dg.DagsterInstance.from_config(str(dagster_home)) as instance:
        yield GateControl(services, instance)
