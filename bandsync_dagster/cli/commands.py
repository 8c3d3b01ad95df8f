"""The command line: what can be typed, and its help. Each command hands over to the module that does the work."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from bandsync_dagster.cli.collecting import Order, carry_out
from bandsync_dagster.cli.demo import run_demo
from bandsync_dagster.cli.errors import CommandError
from bandsync_dagster.cli.forecasting import print_forecast
from bandsync_dagster.cli.gating import gate_control
from bandsync_dagster.cli.local import choose_port
from bandsync_dagster.cli.options import (
    depth_options,
    environment_with,
    filter_options,
    github_option,
    require_credentials,
    require_database,
    settings_from,
    sources_argument,
    where_options,
)
from bandsync_dagster.cli.serving import serve_ui
from bandsync_dagster.cli.simulating import SimulatorOptions, run_simulator
from bandsync_dagster.cli.status import print_json, print_status, read_status
from bandsync_dagster.clock import utc_now
from bandsync_dagster.collection.discovery import DiscoveryError, parse_sources
from bandsync_dagster.collection.scan import StageOptions
from bandsync_dagster.github.errors import GitHubError
from bandsync_dagster.resources import open_services
from bandsync_dagster.store.errors import StoreError


class PlainErrors(click.Group):
    """A group whose commands end in one clear line when something outside of the program is wrong."""

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401  (click's signature)
        """Run the command; errors that a person can act on become messages, all others stay tracebacks."""
        try:
            return super().invoke(ctx)
        except (StoreError, GitHubError, DiscoveryError) as error:
            raise CommandError(str(error)) from error


@click.group(cls=PlainErrors, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="bandsync-dagster", prog_name="bandsync")
def bandsync() -> None:
    """Collect the delivery history of GitHub repositories into a SQL database, under GitHub's quota.

    Pull requests become the table `changes`, workflow runs `verifications`, and their jobs `jobs`. When GitHub's
    quota is used up, work waits in a queue and goes on by itself when the quota is back.

    \b
    Start here:
      bandsync demo                     try it against a simulated GitHub: no token, under two minutes
      export GITHUB_TOKEN=…             then collect what is yours:
      bandsync collect org:acme
      bandsync status                   what is in the database, what is missing
      bandsync up                       the Dagster UI: schedules, backfills, reruns

    Every option stands for an environment variable, named in brackets, and wins over it. Tokens are only taken from
    the environment: GITHUB_TOKEN, GITHUB_TOKENS (several, separated by commas), or GITHUB_APP_ID,
    GITHUB_APP_INSTALLATION_ID and GITHUB_APP_PRIVATE_KEY_FILE.
    """  # noqa: D301  (\b is click's mark for lines to keep as they are)


@bandsync.command(short_help="Collect repositories once.")
@sources_argument
@click.option(
    "--full-refresh",
    is_flag=True,
    help="Collect everything again instead of what is new. Rows already stored are kept and updated.",
)
@depth_options
@filter_options
@where_options
@github_option
@click.option(
    "--forecast",
    "with_forecast",
    is_flag=True,
    help="Ask first what it will cost, at one request a repository, and compare at the end.",
)
@click.option("--ui", is_flag=True, help="Show the Dagster UI meanwhile and afterwards, until Ctrl-C.")
@click.option(
    "--port", type=click.IntRange(1, 65535), metavar="PORT", help="Where the UI listens, with --ui.  [default: 3000]"
)
def collect(
    sources: Sequence[str], full_refresh: bool, with_forecast: bool, ui: bool, port: int | None, **given: object
) -> None:
    """Collect repositories once, and come back when everything is there.

    \b
    SOURCE is one of (several may be given; without any, BANDSYNC_SOURCES counts):
      org:NAME          all repositories of an organisation
      user:NAME         all repositories of a user
      repo:OWNER/NAME   one repository

    The first time brings the history, newest first; after that, what is new. When GitHub's quota runs out in between,
    the command waits for it without sending anything, and says until when. Ctrl-C stops in an orderly way: what was
    fetched is stored, and the same command goes on from there.

    Exit code: 0 everything is collected, 1 something failed or is missing (the table says what), 2 nothing could be
    done (the message says why), 130 stopped by Ctrl-C.
    """  # noqa: D301
    environment = environment_with({**given, "sources": sources})
    settings = settings_from(environment)
    parse_sources(settings.sources)
    require_credentials(settings)
    order = Order(settings, environment, full_refresh, with_forecast, ui, port)
    code, _ = carry_out(order, Console())
    sys.exit(code)


@bandsync.command(short_help="Try it against a simulated GitHub.")
@click.option(
    "--home",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="A folder for the demo alone; an earlier demo in it is removed.  [default: demo in the home folder,"
    " ~/.bandsync]",
)
def demo(home: Path | None) -> None:
    """Collect eight repositories of a simulated GitHub: no token, nothing leaves this machine, under two minutes.

    Everything else is real: Dagster, its queue, a database. The simulated quota is so small that it may run out once,
    to show what happens then.
    """
    sys.exit(run_demo(home, environment_with({}), Console()))


@bandsync.command(short_help="Run Dagster with its UI until Ctrl-C.")
@sources_argument
@click.option("--port", type=click.IntRange(1, 65535), metavar="PORT", help="Where the UI listens.  [default: 3000]")
@depth_options
@filter_options
@where_options
@github_option
def up(sources: Sequence[str], port: int | None, **given: object) -> None:
    """Run Dagster with its UI in the home folder, until Ctrl-C.

    For everything that Dagster can do with the same repositories: backfills, schedules, reruns of one repository, the
    history of every run. It listens on this machine only, as it asks nobody for a password.

    SOURCE is what the asset `repositories` lists, as for `bandsync collect`; without any, BANDSYNC_SOURCES counts.
    Ctrl-C ends the runs that are being worked on, after they have stored what they fetched; queued and deferred runs
    wait for the next time.
    """
    environment = environment_with({**given, "sources": sources})
    settings = settings_from(environment)
    if settings.sources:
        parse_sources(settings.sources)
    sys.exit(serve_ui(settings, environment, choose_port(port), Console()))


@bandsync.command(short_help="Show what is in the database, and what is missing.")
@where_options
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON, for programs.")
@click.option("--all", "every_repository", is_flag=True, help="One line for each repository and stage.")
def status(as_json: bool, every_repository: bool, **given: object) -> None:
    """Show what is in the database: syncs, what is missing and why, quota, gate.

    Asks GitHub nothing and starts nothing; also while something is being collected.
    """
    settings = settings_from(environment_with(given))
    require_database(settings)
    found = read_status(open_services(settings).engine, utc_now())
    if as_json:
        print_json(found)
    else:
        print_status(Console(), found, every_repository=every_repository)


@bandsync.command(short_help="Say what a collection will cost.")
@sources_argument
@click.option("--full-refresh", is_flag=True, help="As for a collection that starts again from the beginning.")
@depth_options
@filter_options
@where_options
@github_option
def forecast(sources: Sequence[str], full_refresh: bool, **given: object) -> None:
    """Say what collecting the sources will cost in GitHub's quota, before it is spent.

    Asks for totals only: one GraphQL point for a hundred repositories and one request each. What is in the database
    already is not counted again.
    """
    settings = settings_from(environment_with({**given, "sources": sources}))
    parse_sources(settings.sources)
    require_credentials(settings)
    options = StageOptions(full_refresh=full_refresh, history_days=settings.history_days, detail=settings.detail)
    print_forecast(open_services(settings), options, Console())


@bandsync.command(short_help="Show, open or close the gate.")
@click.argument("action", type=click.Choice(["show", "open", "close"]), default="show")
@click.option(
    "--minutes",
    type=click.IntRange(min=1),
    metavar="N",
    default=60,
    show_default=True,
    help="With close: when the gate opens again by itself.",
)
@where_options
@click.option(
    "--dagster-home",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="The DAGSTER_HOME of a deployment of your own.  [default: the one in the home folder]",
)
def gate(action: str, minutes: int, dagster_home: Path | None, **given: object) -> None:
    """Show, open or close the gate: while it is closed no run starts, and queued runs wait.

    It closes by itself when GitHub's quota is used up, and opens by itself when the quota is back.

    \b
      show    say whether it is open, and if not, until when
      open    open it now; each request still looks at the quota before it is sent
      close   close it for a while, to leave GitHub's quota to others; runs being worked on finish first
    """  # noqa: D301
    settings = settings_from(environment_with(given))
    require_database(settings)
    with gate_control(open_services(settings), dagster_home or settings.home / "dagster") as control:
        if action == "open":
            control.open()
        if action == "close":
            control.close(minutes)
        control.show(Console())


@bandsync.command(short_help="Run a simulated GitHub.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option(
    "--port", type=click.IntRange(0, 65535), metavar="PORT", default=8080, show_default=True, help="0 is any free port."
)
@click.option("--owner", default="acme", show_default=True, help="The organisation that owns the repositories.")
@click.option(
    "--repositories", type=click.IntRange(min=0), metavar="N", default=12, show_default=True, help="How many there are."
)
@click.option(
    "--changes", type=click.IntRange(min=0), metavar="N", default=40, show_default=True, help="Pull requests in each."
)
@click.option(
    "--runs", type=click.IntRange(min=0), metavar="N", default=40, show_default=True, help="Workflow runs in each."
)
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed makes the same world.")
@click.option(
    "--recorded",
    metavar="FOLDER",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Serve recorded answers as acme/pool instead: a folder with pull_requests.json, workflow_runs.json and"
    " jobs.json.",
)
@click.option(
    "--core",
    type=click.IntRange(min=1),
    metavar="N",
    default=5000,
    show_default=True,
    help="REST requests in a window.",
)
@click.option(
    "--graphql", type=click.IntRange(min=1), metavar="N", default=5000, show_default=True, help="Points in a window."
)
@click.option(
    "--window",
    type=click.FloatRange(min=1),
    metavar="SECONDS",
    default=3600.0,
    show_default=True,
    help="Seconds in a quota window.",
)
@click.option("--unlimited", is_flag=True, help="No quota at all, as GitHub Enterprise Server by default.")
@click.option(
    "--latency",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    default=0.0,
    show_default=True,
    help="Seconds an answer takes at most.",
)
@click.option(
    "--token",
    "tokens",
    multiple=True,
    help="A token that is good; others are refused. May be repeated.  [default: simulated-token, or none at all]",
)
def simulate(**options: Any) -> None:  # noqa: ANN401  (what click has parsed)
    """Run a simulated GitHub until Ctrl-C, to try things against that no real one would let you try.

    It answers REST and GraphQL as GitHub does, with quota, pagination, ETags and the odd values that real data has.
    /api/v3 and /api/graphql answer too, in the style of GitHub Enterprise Server.
    """
    run_simulator(SimulatorOptions(**options), Console())
