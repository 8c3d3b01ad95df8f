"""The home folder: made once, left alone afterwards, and used by one command at a time."""

import stat
import subprocess
import sys
from importlib import resources
from pathlib import Path

import dagster as dg
import pytest
import yaml

from bandsync_dagster.cli.errors import CommandError
from bandsync_dagster.cli.home import Home
from bandsync_dagster_tests.conftest import PostgresDatabases

ROOT = Path(__file__).parents[2]
TEMPLATES = Path(str(resources.files("bandsync_dagster"))) / "deployment"

HOLDER = """
import sys
from pathlib import Path
from bandsync_dagster.cli.home import Home
with Home(Path(sys.argv[1])).occupied():
    print("occupied", flush=True)
    sys.stdin.read()
"""


def test_a_new_home_has_a_dagster_instance_that_starts(tmp_path: Path) -> None:
    """Whatever is in the template, Dagster must be able to read it, and the queue must keep runs of one key apart."""
    home = Home(tmp_path / "new" / "home")
    home.prepare()
    assert stat.S_IMODE(home.folder.stat().st_mode) == 0o700
    with dg.DagsterInstance.from_config(str(home.dagster)) as instance:
        settings = instance.get_concurrency_config()
        assert settings.pool_config.pool_granularity.value == "run"
        (limit,) = settings.run_queue_config.tag_concurrency_limits
        assert (limit["key"], limit["limit"]) == ("dagster/partition", 1)
        assert not instance.telemetry_enabled
        assert instance.run_monitoring_enabled
        assert instance.run_retries_max_retries == 2


def test_the_instance_file_for_postgresql_starts_too(
    tmp_path: Path, postgres: PostgresDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other template keeps Dagster's records in PostgreSQL, with the password in the environment only."""
    url = postgres.create()
    monkeypatch.setenv("DAGSTER_POSTGRES_URL", url)
    template = (TEMPLATES / "dagster-postgresql.yaml").read_text()
    (tmp_path / "dagster.yaml").write_text(template)
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert type(instance.run_storage).__name__ == "PostgresRunStorage"
        instance.event_log_storage.set_concurrency_slots("github", 5)
        assert instance.event_log_storage.get_concurrency_info("github").slot_count == 5
    postgres.drop(url)


def test_both_instance_files_and_the_one_of_a_bare_checkout_say_the_same() -> None:
    """They differ in the storage alone."""
    local = yaml.safe_load((TEMPLATES / "dagster.yaml").read_text())
    postgresql = yaml.safe_load((TEMPLATES / "dagster-postgresql.yaml").read_text())
    assert postgresql.pop("storage") == {"postgres": {"postgres_url": {"env": "DAGSTER_POSTGRES_URL"}}}
    assert local == postgresql == yaml.safe_load((ROOT / "dagster.yaml").read_text())


def test_preparing_a_home_again_keeps_what_is_there(tmp_path: Path) -> None:
    """The instance file is the user's to change."""
    home = Home(tmp_path)
    home.prepare()
    (home.dagster / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    home.prepare()
    assert (home.dagster / "dagster.yaml").read_text() == "telemetry: {enabled: false}\n"


def test_a_home_that_cannot_be_made_is_one_clear_message(tmp_path: Path) -> None:
    """A file where the folder should be, as after a typing mistake."""
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandError, match=r"home folder .*file.* cannot be used: .* Give another with --home"):
        Home(tmp_path / "file").prepare()


def test_a_home_that_cannot_be_locked_is_the_same_message(tmp_path: Path) -> None:
    """Somebody else's home may be there and readable, and still take no lock."""
    home = Home(tmp_path)
    (tmp_path / "lock").mkdir()
    with pytest.raises(CommandError, match=r"cannot be used: .* Give another with --home"), home.occupied():
        pass


def test_a_home_in_use_is_refused_and_free_again_when_its_user_is_killed(tmp_path: Path) -> None:
    """Two daemons on one instance would do everything twice; a lock that outlives its owner would block for ever."""
    home = Home(tmp_path)
    home.prepare()
    with subprocess.Popen(  # noqa: S603  (our own interpreter)
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"occupied\n"
        with pytest.raises(CommandError, match="Another bandsync command is working in"), home.occupied():
            pytest.fail("two commands in one home")
        holder.kill()
        holder.wait()
    with home.occupied():
        pass


def test_own_entries_are_only_what_bandsync_made(tmp_path: Path) -> None:
    """What a demo removes before it starts must never be somebody's own file."""
    home = Home(tmp_path)
    home.prepare()
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "bandsync.db").write_text("")
    assert {entry.name for entry in home.own_entries()} == {"dagster", "logs", "bandsync.db"}
