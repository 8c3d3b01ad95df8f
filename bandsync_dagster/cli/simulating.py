"""`simulate`: the simulated GitHub as a server of its own."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from bandsync_dagster.cli.errors import CommandError, Interrupted
from bandsync_dagster.cli.interrupts import heeding_signals
from bandsync_dagster.simulator import DEFAULT_TOKEN, Limits, SimulatedGitHub, World, generate, recorded

_HOUR = 3600.0


@dataclass(frozen=True)
class SimulatorOptions:
    """What `simulate` was asked for; the fields are its options."""

    host: str
    port: int
    owner: str
    repositories: int
    changes: int
    runs: int
    seed: int
    recorded: Path | None
    core: int
    graphql: int
    window: float
    unlimited: bool
    latency: float
    tokens: Sequence[str]

    def world(self) -> World:
        """Make the world to be served.

        Raises:
            CommandError: The folder does not hold recorded answers.
        """
        if self.recorded is None:
            return generate(
                self.seed,
                owner=self.owner,
                repositories=self.repositories,
                changes=self.changes,
                runs=self.runs,
            )
        try:
            return recorded(self.recorded)
        except (OSError, ValueError, KeyError) as error:
            raise CommandError(f"{self.recorded} does not hold recorded answers: {error}") from error

    def served(self) -> dict[str, Any]:
        """Return how the world is served."""
        limits = None if self.unlimited else Limits(core=self.core, graphql=self.graphql, window=self.window)
        return {
            "limits": limits,
            "latency": (self.latency / 10, self.latency) if self.latency else None,
            "tokens": tuple(self.tokens) or (DEFAULT_TOKEN,),
            "open_access": not self.tokens,
        }


def run_simulator(options: SimulatorOptions, console: Console) -> None:
    """Serve until somebody asks to stop.

    Raises:
        CommandError: The port is in use, or there are no recorded answers.
    """
    server = SimulatedGitHub(options.world(), host=options.host, port=options.port, **options.served())
    with heeding_signals() as interrupts, _listening(server, options):
        source = "repo:acme/pool" if options.recorded else f"org:{options.owner}"
        token = options.tokens[0] if options.tokens else DEFAULT_TOKEN
        console.print(f"A simulated GitHub listens at {server.url} (Ctrl-C stops it). For example:", highlight=False)
        command = f"GITHUB_TOKEN={token} bandsync collect {source} --github-url {server.url}"
        console.print(f"  {command}", style="cyan", highlight=False, soft_wrap=True)
        with suppress(Interrupted):
            while True:
                interrupts.pause(_HOUR)


@contextmanager
def _listening(server: SimulatedGitHub, options: SimulatorOptions) -> Iterator[None]:
    with ExitStack() as stack:
        try:
            stack.enter_context(server)
        except OSError as error:
            where = f"{options.host}:{options.port}"
            raise CommandError(f"Cannot listen on {where}: {error.strerror}. Give another with --port.") from error
        yield
