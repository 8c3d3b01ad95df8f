"""`demo`: a collection against the simulated GitHub, in a home folder of its own, and what to look at afterwards."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from rich import box
from rich.console import Console
from rich.table import Table

from bandsync_dagster.cli.collecting import Order, carry_out
from bandsync_dagster.cli.errors import CommandError
from bandsync_dagster.cli.home import Home
from bandsync_dagster.cli.options import settings_from
from bandsync_dagster.settings import DEFAULT_HOME, Settings
from bandsync_dagster.simulator import DEFAULT_TOKEN, Limits, SimulatedGitHub, generate
from bandsync_dagster.store.engine import create_store_engine, reading

_OWNER: Final = "acme"
_MARK: Final = "demo"
# About what GitHub takes at its best.
_LATENCY: Final = (0.05, 0.3)
# So little that a machine which is quick enough uses it up once, and waits half a minute for the next window.
_LIMITS: Final = Limits(graphql=22, window=40.0)
# As many as a small machine collects in a minute and a half, processes and waiting included.
_REPOSITORIES: Final = 8
_OWN_VARIABLES: Final = ("GITHUB_", "BANDSYNC_", "DAGSTER_")

_QUERY: Final = """\
SELECT r.full_name AS repository, count(*) AS merged,
       round(avg(julianday(c.merged_at) - julianday(c.created_at)) * 24, 1) AS hours_to_merge
FROM changes c JOIN repositories r ON r.id = c.repository_id
WHERE c.state = 'merged' GROUP BY r.full_name ORDER BY hours_to_merge DESC LIMIT 5"""


def run_demo(folder: Path | None, environment: Mapping[str, str], console: Console) -> int:
    """Collect some simulated repositories into a fresh home folder; return the exit code.

    Raises:
        CommandError: The folder holds something else than an earlier demo.
    """
    usual = Path(environment.get("BANDSYNC_HOME") or DEFAULT_HOME) / "demo"
    home = Home((folder or usual).expanduser().absolute())
    _make_fresh(home)
    console.print(
        f"Collecting {_REPOSITORIES} repositories of a simulated GitHub. Its quota is small on purpose: when it is used"
        " up, work waits for the next window and then goes on where it stopped.\n"
    )
    world = generate(owner=_OWNER, repositories=_REPOSITORIES)
    with SimulatedGitHub(world, limits=_LIMITS, latency=_LATENCY) as github:
        own = _own_environment(environment, home, github.url)
        settings = settings_from(own)
        code, report = carry_out(Order(settings, own), console)
    if report is not None and report.is_complete:
        _show_result(settings, console)
    return code


def _own_environment(environment: Mapping[str, str], home: Home, github_url: str) -> dict[str, str]:
    """Return the environment without any setting for the real GitHub: a demo must not touch it."""
    neutral = {name: value for name, value in environment.items() if not name.startswith(_OWN_VARIABLES)}
    return {
        **neutral,
        "BANDSYNC_HOME": str(home.folder),
        "BANDSYNC_GITHUB_URL": github_url,
        "BANDSYNC_SOURCES": f"org:{_OWNER}",
        "BANDSYNC_FORKS": "true",
        "GITHUB_TOKEN": DEFAULT_TOKEN,
    }


def _make_fresh(home: Home) -> None:
    """Remove what an earlier demo left, and nothing else."""
    mark = home.folder / _MARK
    if home.folder.exists() and any(home.folder.iterdir()) and not mark.exists():
        raise CommandError(f"{home.folder} is not empty and not from an earlier demo. Give a new folder with --home.")
    home.prepare()
    mark.write_text("Made by `bandsync demo`, which starts by removing what is in this folder.\n", encoding="utf-8")
    with home.occupied():
        for entry in home.own_entries():
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink(missing_ok=True)


def _show_result(settings: Settings, console: Console) -> None:
    engine = create_store_engine(settings.database_url)
    with reading(engine) as connection:
        result = connection.execute(sa.text(_QUERY))
        table = Table(*result.keys(), box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
        for row in result:
            table.add_row(*map(str, row))
    engine.dispose()
    console.print(f"\nEverything is in an SQLite database, {sa.make_url(settings.database_url).database}. For example")
    console.print(f"\n{_QUERY};\n", style="cyan", highlight=False, soft_wrap=True)
    console.print(table)
    console.print("\nHave a closer look:", style="bold")
    _print_hint(console, f"bandsync status --all --home {settings.home}", "every repository and stage")
    _print_hint(console, f"bandsync up --home {settings.home}", "the Dagster UI, with every run of this demo")
    console.print("\nThen collect your own:", style="bold")
    _print_hint(console, "GITHUB_TOKEN=… bandsync collect repo:OWNER/NAME", "or org:NAME, user:NAME")


def _print_hint(console: Console, command: str, purpose: str) -> None:
    console.print(f"  [cyan]{command}[/]\n      {purpose}", highlight=False, soft_wrap=True)
