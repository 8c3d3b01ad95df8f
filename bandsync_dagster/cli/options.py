"""The options that several commands share, and how they win over the environment."""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from sqlalchemy.engine import make_url

from bandsync_dagster.cli.errors import CommandError
from bandsync_dagster.resources import make_credentials
from bandsync_dagster.settings import DEFAULT_GITHUB_URL, Settings, SettingsError

Command = TypeVar("Command", bound=Callable[..., Any])

# The environment variable that each option stands for.
VARIABLES: Final = {
    "home": "BANDSYNC_HOME",
    "database_url": "BANDSYNC_DATABASE_URL",
    "github_url": "BANDSYNC_GITHUB_URL",
    "include": "BANDSYNC_INCLUDE",
    "exclude": "BANDSYNC_EXCLUDE",
    "archived": "BANDSYNC_ARCHIVED",
    "forks": "BANDSYNC_FORKS",
    "history_days": "BANDSYNC_HISTORY_DAYS",
    "detail": "BANDSYNC_DETAIL",
    "sources": "BANDSYNC_SOURCES",
}


def _together(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


sources_argument = click.argument("sources", nargs=-1, metavar="[SOURCE]...")

home_option = click.option(
    "--home",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the database, Dagster's own files and logs.  [BANDSYNC_HOME; default: ~/.bandsync]",
)
database_option = click.option(
    "--database-url",
    metavar="URL",
    help="Database for what is collected: sqlite:////absolute/path.db or postgresql://USER@HOST/NAME. A password"
    " belongs into the variable, where other users of this machine don't see it.  [BANDSYNC_DATABASE_URL; default:"
    " bandsync.db in the home folder]",
)
github_option = click.option(
    "--github-url",
    metavar="URL",
    help="Address of the REST API; for GitHub Enterprise Server https://HOST/api/v3."
    f"  [BANDSYNC_GITHUB_URL; default: {DEFAULT_GITHUB_URL}]",
)
where_options = _together(home_option, database_option)

filter_options = _together(
    click.option(
        "--include",
        multiple=True,
        metavar="PATTERN",
        help="Only repositories whose owner/name matches, as in a shell: 'acme/api-*'. May be repeated."
        "  [BANDSYNC_INCLUDE]",
    ),
    click.option(
        "--exclude",
        multiple=True,
        metavar="PATTERN",
        help="No repositories whose owner/name matches. May be repeated.  [BANDSYNC_EXCLUDE]",
    ),
    click.option(
        "--archived/--no-archived",
        default=None,
        help="With or without archived repositories.  [BANDSYNC_ARCHIVED; default: with]",
    ),
    click.option("--forks/--no-forks", default=None, help="With or without forks.  [BANDSYNC_FORKS; default: without]"),
)

depth_options = _together(
    click.option(
        "--history-days",
        type=click.IntRange(min=1),
        metavar="DAYS",
        help="How many days back a first collection goes.  [BANDSYNC_HISTORY_DAYS; default: all of the history]",
    ),
    click.option(
        "--detail",
        type=click.Choice(["basic", "full"]),
        help="'full' adds runner, labels, queue time and steps to each job, at one request per workflow run instead"
        " of one for a hundred.  [BANDSYNC_DETAIL; default: basic]",
    ),
)


def environment_with(given: Mapping[str, object]) -> dict[str, str]:
    """Return the environment as the options leave it: an option that was given wins over its variable."""
    environment = dict(os.environ)  # noqa: TID251  (the command line's place to read it)
    for name, value in given.items():
        if value not in (None, ()):
            environment[VARIABLES[name]] = _as_text(value)
    return environment


def settings_from(environment: Mapping[str, str]) -> Settings:
    """Read the settings.

    Raises:
        CommandError: Some values cannot be used.
    """
    try:
        return Settings.from_mapping(environment)
    except SettingsError as error:
        raise CommandError(str(error)) from error


def require_credentials(settings: Settings) -> None:
    """Refuse to talk to GitHub itself without a token: GraphQL is not open to anonymous callers.

    Raises:
        CommandError: There is no token and no GitHub App, or the App's key cannot be used.
    """
    if settings.github_url == DEFAULT_GITHUB_URL and not settings.tokens and settings.app is None:
        raise CommandError(
            "No token. Set GITHUB_TOKEN to a personal access token that may read the repositories' metadata, pull"
            " requests and actions (https://github.com/settings/tokens), or set GITHUB_APP_ID,"
            " GITHUB_APP_INSTALLATION_ID and GITHUB_APP_PRIVATE_KEY_FILE. To look around without one: bandsync demo"
        )
    try:
        make_credentials(settings)
    except SettingsError as error:
        raise CommandError(str(error)) from error


def require_database(settings: Settings) -> None:
    """Refuse to make a new database for somebody who only wants to look at one.

    Raises:
        CommandError: The settings mean an SQLite file that is not there.
    """
    url = make_url(settings.database_url)
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").is_file():
        raise CommandError(
            f"There is no database at {url.database} yet. Collect something first, or say where it is with --home or"
            " --database-url."
        )


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ",".join(map(str, value))
    return str(value)
