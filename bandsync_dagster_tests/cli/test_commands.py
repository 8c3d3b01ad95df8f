"""What people type, and what they are told when it cannot be done: one clear line, no traceback, exit code 2."""

from collections.abc import Mapping
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from bandsync_dagster.cli.commands import bandsync
from bandsync_dagster.cli.options import VARIABLES
from bandsync_dagster.simulator import SimulatedGitHub, generate

COMMANDS = ["collect", "demo", "up", "status", "gate", "forecast", "simulate"]
APP = {"GITHUB_APP_ID": "1", "GITHUB_APP_INSTALLATION_ID": "2", "GITHUB_APP_PRIVATE_KEY_FILE": "/no/such.pem"}


def run(home: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> Result:
    """Run the command in this process with an environment that says nothing but where its home is."""
    neutral: dict[str, str | None] = dict.fromkeys([*VARIABLES.values(), "GITHUB_TOKEN", "GITHUB_TOKENS"])
    own = neutral | {"BANDSYNC_HOME": str(home)} | dict(environment or {})
    return CliRunner().invoke(bandsync, arguments, env=own, catch_exceptions=False)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(tmp_path: Path, command: str) -> None:
    """`--help` is the manual: each option says what it does."""
    result = run(tmp_path, command, "--help")
    assert result.exit_code == 0
    context = bandsync.make_context("bandsync", [], resilient_parsing=True)
    found = bandsync.get_command(context, command)
    assert found is not None
    assert found.help
    assert all(option.help for option in found.params if isinstance(option, click.Option))


def test_the_overview_names_every_command_and_fits_a_terminal(tmp_path: Path) -> None:
    """A newcomer sees what there is, and the lines to start with are kept as they are written."""
    text = run(tmp_path, "--help").output
    assert all(f"  {command} " in text for command in COMMANDS)
    assert "\n    bandsync demo " in text
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize(
    ("arguments", "environment", "told"),
    [
        (["collect"], {}, "there are no sources"),
        (["collect", "acme"], {}, "'acme' is not a source: write org:NAME, user:NAME or repo:OWNER/NAME"),
        (["collect", "repo:acme"], {}, "write owner/name"),
        (["collect", "org:acme"], {}, "No token. Set GITHUB_TOKEN"),
        (["forecast", "org:acme"], {}, "No token. Set GITHUB_TOKEN"),
        (["collect", "org:acme"], APP, "GITHUB_APP_PRIVATE_KEY_FILE: /no/such.pem cannot be read"),
        (
            ["collect", "org:acme"],
            {**APP, "GITHUB_APP_PRIVATE_KEY_FILE": "", "GITHUB_APP_PRIVATE_KEY": "none"},
            "private key is no RSA key",
        ),
        (["collect", "org:acme"], {"BANDSYNC_RESERVE": "2"}, "BANDSYNC_RESERVE: '2' is out of range"),
        (["collect", "org:acme", "--github-url", "github.com"], {}, "write https://api.github.com"),
        (["collect", "org:acme", "--history-days", "0"], {}, "Invalid value for '--history-days'"),
        (["up", "acme"], {}, "'acme' is not a source"),
        (["status"], {}, "There is no database at"),
        (["gate"], {}, "There is no database at"),
        (["gate", "shut"], {}, "'shut' is not one of 'show', 'open', 'close'"),
    ],
)
def test_what_cannot_be_done_is_told_in_one_line(
    tmp_path: Path, arguments: list[str], environment: dict[str, str], told: str
) -> None:
    """Before anything is started or made, and without a traceback."""
    result = run(tmp_path / "home", *arguments, environment=environment)
    assert result.exit_code == 2
    assert told in " ".join(result.output.split())
    assert "Traceback" not in result.output
    assert not (tmp_path / "home").exists()


def test_options_win_over_the_environment(tmp_path: Path) -> None:
    """What was typed last counts: here the other of two databases, which is not there."""
    result = run(
        tmp_path,
        "status",
        "--database-url",
        "sqlite:////nowhere/b.db",
        environment={"BANDSYNC_DATABASE_URL": "sqlite:////nowhere/a.db"},
    )
    assert "/nowhere/b.db" in result.output


def test_a_forecast_tells_the_cost_of_what_the_sources_mean_now(tmp_path: Path) -> None:
    """It asks for totals only, and says what even that has cost."""
    with SimulatedGitHub(generate(repositories=3, changes=20, runs=30, awkward=False)) as github:
        token = {"GITHUB_TOKEN": "simulated-token"}
        result = run(tmp_path, "forecast", "org:acme", "--github-url", github.url, environment=token)
        asked = github.spent("core")
    assert result.exit_code == 0, result.output
    text = " ".join(result.output.split())
    assert "3 repositories" in text
    assert "It fits into the present window of quota" in text
    assert asked <= 6


def test_a_forecast_of_an_unknown_organisation_says_so(tmp_path: Path) -> None:
    """The problem is named beside what could be read."""
    with SimulatedGitHub(generate(repositories=1, awkward=False)) as github:
        token = {"GITHUB_TOKEN": "simulated-token"}
        result = run(tmp_path, "forecast", "org:nobody", "--github-url", github.url, environment=token)
    assert "org:nobody: GitHub knows no organisation of this name" in " ".join(result.output.split())


def test_a_bad_token_is_refused_without_being_shown(tmp_path: Path) -> None:
    """GitHub's refusal becomes one line; the token is in none."""
    with SimulatedGitHub(generate(repositories=1, awkward=False)) as github:
        token = {"GITHUB_TOKEN": "not-the-right-one"}
        result = run(tmp_path, "forecast", "org:acme", "--github-url", github.url, environment=token)
    assert result.exit_code == 2
    assert "GitHub refuses the token" in result.output
    assert "not-the-right-one" not in result.output


def test_a_demo_never_clears_a_folder_that_is_not_its_own(tmp_path: Path) -> None:
    """Somebody's home folder with real data in it, named by mistake."""
    (tmp_path / "bandsync.db").write_text("precious")
    result = run(tmp_path, "demo", "--home", str(tmp_path))
    assert result.exit_code == 2
    assert "is not empty and not from an earlier demo" in result.output
    assert (tmp_path / "bandsync.db").read_text() == "precious"
