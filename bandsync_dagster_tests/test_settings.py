"""The settings: what the environment may say, and what people are told when it says something else."""

from pathlib import Path

import pytest

from bandsync_dagster.settings import AppSettings, Settings, SettingsError


def read(**environment: str) -> Settings:
    """Read settings from an environment that has a home folder of its own."""
    return Settings.from_mapping({"BANDSYNC_HOME": "/srv/bandsync", **environment})


def problems(**environment: str) -> tuple[str, ...]:
    """Return what is said about an environment that cannot be used."""
    with pytest.raises(SettingsError) as caught:
        read(**environment)
    assert str(caught.value) == "\n".join(caught.value.problems)
    return caught.value.problems


def test_an_empty_environment_gives_the_documented_defaults() -> None:
    """Nobody has to set anything to start, and a variable that is empty counts as not set."""
    settings = read(GITHUB_TOKEN="", BANDSYNC_FORKS=" ")
    assert settings == Settings(
        home=Path("/srv/bandsync"),
        database_url="sqlite:////srv/bandsync/bandsync.db",
        spool=Path("/srv/bandsync/spool"),
    )
    assert settings.github_url == "https://api.github.com"
    assert (settings.reserve, settings.history_days, settings.detail) == (0.05, None, "basic")
    assert (settings.archived, settings.forks) == (True, False)


def test_the_home_folder_is_that_of_the_user_unless_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """`~` is understood in the default, as in what people write."""
    monkeypatch.setenv("HOME", "/home/somebody")
    assert Settings.from_mapping({}).home == Path("/home/somebody/.bandsync")
    assert Settings.from_mapping({"BANDSYNC_HOME": "~/data"}).home == Path("/home/somebody/data")


def test_every_variable_arrives() -> None:
    """Each variable is read into the field it is documented for."""
    settings = read(
        GITHUB_TOKEN="one",
        GITHUB_TOKENS="two, three,two,",
        BANDSYNC_GITHUB_URL="https://github.example.com/api/v3/",
        BANDSYNC_DATABASE_URL="postgresql://user:secret@db/bandsync",
        BANDSYNC_SOURCES="org:acme, user:octo\n repo:acme/pool org:acme",
        BANDSYNC_INCLUDE="acme/*",
        BANDSYNC_EXCLUDE="*/attic *-old",
        BANDSYNC_ARCHIVED="no",
        BANDSYNC_FORKS="Yes",
        BANDSYNC_RESERVE="0.2",
        BANDSYNC_HISTORY_DAYS="30",
        BANDSYNC_DETAIL="full",
        BANDSYNC_BATCH_SIZE="10",
        BANDSYNC_BATCH_AGE="0.5",
        BANDSYNC_QUEUE_SIZE="20",
        BANDSYNC_SPOOL="/var/spool/bandsync",
        BANDSYNC_MAX_RUNTIME="600",
    )
    assert settings == Settings(
        home=Path("/srv/bandsync"),
        tokens=("one", "two", "three"),
        github_url="https://github.example.com/api/v3",
        database_url="postgresql://user:secret@db/bandsync",
        sources=("org:acme", "user:octo", "repo:acme/pool"),
        include=("acme/*",),
        exclude=("*/attic", "*-old"),
        archived=False,
        forks=True,
        reserve=0.2,
        history_days=30,
        detail="full",
        batch_size=10,
        batch_age=0.5,
        queue_size=20,
        spool=Path("/var/spool/bandsync"),
        max_runtime=600,
    )


def test_the_spool_can_be_switched_off() -> None:
    """Whoever does not want data in local files says so."""
    assert read(BANDSYNC_SPOOL="off").spool is None


def test_a_github_app_is_read_with_its_key_or_the_file_of_it() -> None:
    """A key that a secret store squeezed into one line is a key again."""
    common = {"GITHUB_APP_ID": "12", "GITHUB_APP_INSTALLATION_ID": "34"}
    with_key = read(**common, GITHUB_APP_PRIVATE_KEY=r"-----BEGIN\nabc\n-----END")
    assert with_key.app == AppSettings("12", "34", private_key="-----BEGIN\nabc\n-----END")
    with_file = read(**common, GITHUB_APP_PRIVATE_KEY_FILE="/run/secrets/key.pem")
    assert with_file.app == AppSettings("12", "34", private_key_file=Path("/run/secrets/key.pem"))


@pytest.mark.parametrize(
    ("variable", "value", "remedy"),
    [
        ("GITHUB_TOKEN", "ghp abc", "copy the token again"),
        ("GITHUB_TOKENS", "ghp_abc,ghp_\u00e9", "copy the token again"),
        ("GITHUB_APP_ID", "12", "set all three, or none"),
        ("BANDSYNC_GITHUB_URL", "api.github.com", "write https://api.github.com"),
        ("BANDSYNC_GITHUB_URL", "https://github.com", "write https://api.github.com"),
        ("BANDSYNC_GITHUB_URL", "https://user:secret@github.example.com/api/v3", "set GITHUB_TOKEN"),
        ("BANDSYNC_DATABASE_URL", "bandsync.db", "write sqlite:////var/lib/bandsync/bandsync.db or postgresql://"),
        (
            "BANDSYNC_DATABASE_URL",
            "mysql://user:secret@db/bandsync",
            "write sqlite:////var/lib/bandsync/bandsync.db or postgresql://",
        ),
        ("BANDSYNC_DATABASE_URL", "postgresql+asyncpg://user:secret@db/bandsync", "or postgresql://"),
        ("BANDSYNC_DATABASE_URL", "sqlite://", "in memory cannot be shared"),
        ("BANDSYNC_DATABASE_URL", "postgresql://user:pass@secret@db/bandsync", "write it %40"),
        ("BANDSYNC_ARCHIVED", "maybe", "write true or false"),
        ("BANDSYNC_RESERVE", "1", "from 0 to below 1"),
        ("BANDSYNC_RESERVE", "nan", "from 0 to below 1"),
        ("BANDSYNC_HISTORY_DAYS", "0", "leave it unset"),
        ("BANDSYNC_BATCH_SIZE", "-5", "leave it unset"),
        ("BANDSYNC_BATCH_AGE", "0", "seconds above 0"),
        ("BANDSYNC_QUEUE_SIZE", "499", "fewer than a batch of 500; raise it"),
        ("BANDSYNC_MAX_RUNTIME", "2h", "leave it unset"),
        ("BANDSYNC_DETAIL", "everything", "write basic or full"),
    ],
)
def test_a_bad_value_gives_one_line_with_the_variable_and_the_remedy(variable: str, value: str, remedy: str) -> None:
    """People learn which variable it is and what to write instead, and see no secret on the way."""
    (line,) = problems(**{variable: value})
    assert line.startswith(f"{variable}: ")
    assert remedy in line
    assert "\n" not in line
    assert "secret" not in line
    assert "ghp" not in line


def test_all_bad_values_are_told_at_once() -> None:
    """Nobody has to start three times to learn of three mistakes."""
    told = problems(BANDSYNC_RESERVE="x", BANDSYNC_DETAIL="y", GITHUB_TOKEN="a b")
    assert {line.split(":")[0] for line in told} == {"BANDSYNC_RESERVE", "BANDSYNC_DETAIL", "GITHUB_TOKEN"}


def test_printing_settings_shows_no_secret() -> None:
    """Settings may end up in a log or a traceback."""
    settings = read(
        GITHUB_TOKENS="hidden-1,hidden-2",
        GITHUB_APP_ID="12",
        GITHUB_APP_INSTALLATION_ID="34",
        GITHUB_APP_PRIVATE_KEY="hidden-key",
        BANDSYNC_DATABASE_URL="postgresql://user:hidden-password@db/bandsync",
    )
    assert "hidden" not in repr(settings)
