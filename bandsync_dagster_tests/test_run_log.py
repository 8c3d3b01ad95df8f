"""What the package logs, as the Dagster UI shows it: in a real run whose database is away for a moment."""

import logging
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from bandsync_dagster.definitions import build_defs
from bandsync_dagster.resources import Services, open_services
from bandsync_dagster.run_log import _RunLog
from bandsync_dagster.settings import Settings
from bandsync_dagster.simulator import DEFAULT_TOKEN, SimulatedGitHub, generate
from bandsync_dagster.tags import COLLECTION_JOB
from bandsync_dagster_tests.collection.commits import lose_connection, strike_at

NAME = "acme/alto"


@pytest.fixture
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Services]:
    """The services that a run in this process opens by itself, on an SQLite file."""
    with SimulatedGitHub(generate(9, repositories=1, changes=3, runs=3)) as github:
        environment = {
            "BANDSYNC_HOME": str(tmp_path / "home"),
            "BANDSYNC_GITHUB_URL": github.url,
            "GITHUB_TOKEN": DEFAULT_TOKEN,
        }
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        services = open_services(Settings.from_mapping(environment))
        yield services
        services.engine.dispose()
        open_services.cache_clear()


@pytest.mark.parametrize("managed", ["", "python_logs: {managed_python_loggers: [root]}"], ids=["by itself", "managed"])
def test_an_outage_is_told_once_in_the_log_of_the_run(services: Services, tmp_path: Path, managed: str) -> None:
    """Whether or not the instance is set up to show what Python modules log; and the run succeeds."""
    home = tmp_path / "dagster"
    home.mkdir()
    (home / "dagster.yaml").write_text(f"telemetry: {{enabled: false}}\n{managed}\n")
    strike_at(services.engine, 3, lose_connection(services.engine), after=False)
    with dg.DagsterInstance.from_config(str(home)) as instance:
        instance.add_dynamic_partitions("repositories", [NAME])
        job = build_defs().resolve_job_def(COLLECTION_JOB)
        result = job.execute_in_process(partition_key=NAME, instance=instance)
        assert result.success
        warnings = [e.user_message for e in instance.all_logs(result.run_id) if e.level == logging.WARNING]
    failed, over = warnings
    assert "is not available: database is locked; end whatever keeps it locked. Attempt 1 of 6 (" in failed
    assert failed.endswith("failed; the next is in 2 s.")
    assert over.startswith("The database answers again: attempt 2 of 6 (")


def test_a_run_log_that_is_away_too_does_not_end_what_is_being_done(capsys: pytest.CaptureFixture[str]) -> None:
    """Dagster's own records may be on the same server: the line is then on the process's standard error alone."""

    class _Away(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise ConnectionError(record.getMessage())

    log = logging.Logger("a run's")  # noqa: LOG001  (nobody else's)
    log.addHandler(_Away())
    record = logging.LogRecord("bandsync_dagster", logging.WARNING, __file__, 1, "%s is away", ("the database",), None)
    _RunLog(log).handle(record)
    assert "the database is away" in capsys.readouterr().err
