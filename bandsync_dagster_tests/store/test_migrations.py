"""The schema: what the migrations make is what the tables say, whoever upgrades, and however many at once."""

import importlib
import warnings
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from bandsync_dagster.store.engine import create_store_engine, migration_config, reading, upgrade, writing
from bandsync_dagster.store.errors import StoreRefused, StoreTooNew
from bandsync_dagster.store.schema import metadata, stage_status
from bandsync_dagster_tests.store.processes import in_processes


def test_the_migrations_create_what_the_tables_say(engine: sa.Engine) -> None:
    """No table, column, type, default, index or constraint differs between the schema and a migrated database."""
    with warnings.catch_warnings(), reading(engine) as connection:
        # SQLite cannot tell what an index on an expression is on; PostgreSQL compares them.
        warnings.filterwarnings("ignore", message="Skipped unsupported reflection of expression-based index")
        warnings.filterwarnings("ignore", message="autogenerate skipping metadata-specified expression-based index")
        context = MigrationContext.configure(connection, opts={"compare_server_default": True})
        assert compare_metadata(context, metadata) == []


def test_the_view_has_the_columns_the_code_reads(engine: sa.Engine) -> None:
    """`stage_status` is there for people who query, with the columns the project itself reads."""
    found = {column["name"] for column in sa.inspect(engine).get_columns("stage_status")}
    assert found == {column.name for column in stage_status.columns}


def test_partial_indexes_have_their_condition(engine: sa.Engine) -> None:
    """The comparison above ignores the conditions of indexes."""
    for table, name in (("syncs", "ix_syncs_unfinished"), ("verifications", "ix_verifications_unfinished")):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Skipped unsupported reflection of expression-based index")
            (found,) = (index for index in sa.inspect(engine).get_indexes(table) if index["name"] == name)
        assert found["dialect_options"]


def test_upgrading_again_changes_nothing(engine: sa.Engine) -> None:
    """Every start upgrades; only the first does anything."""
    with writing(engine) as connection:
        connection.exec_driver_sql("INSERT INTO gates VALUES ('github', 'open', 5, NULL, NULL, '2026-01-01')")
    upgrade(engine)
    with reading(engine) as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM gates").scalar_one() == 1


def _upgrade(url: str) -> list[str]:
    engine = create_store_engine(url)
    upgrade(engine)
    with reading(engine) as connection:
        found = list(connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalars())
    engine.dispose()
    return found


def test_several_processes_may_upgrade_an_empty_database_at_once(empty_database_url: str) -> None:
    """Whoever comes first makes the schema, once; the others find it made."""
    head = ScriptDirectory.from_config(migration_config()).get_current_head()
    assert in_processes(_upgrade, [(empty_database_url,)] * 4) == [[head]] * 4


def test_a_database_of_a_newer_release_is_refused(engine: sa.Engine) -> None:
    """An older release does not touch what it does not understand, and says what to do."""
    with writing(engine) as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StoreTooNew, match=r"revision 9999.*newer.*upgrade bandsync-dagster") as refused:
        upgrade(engine)
    assert "\n" not in str(refused.value)


def test_an_upgrade_that_fails_leaves_nothing_behind(empty_database_url: str) -> None:
    """A table of somebody else's with one of our names: the database is as it was."""
    engine = create_store_engine(empty_database_url)
    with writing(engine) as connection:
        connection.exec_driver_sql("CREATE TABLE gates (owner TEXT)")
    with pytest.raises(StoreRefused, match="already exists"):
        upgrade(engine)
    assert sa.inspect(engine).get_table_names() == ["gates"]
    engine.dispose()


def test_each_revision_follows_one_before_it() -> None:
    """The history is a line: one start, one head, every step in between."""
    script = ScriptDirectory.from_config(migration_config())
    assert len(script.get_heads()) == 1
    assert len(script.get_bases()) == 1


def test_importing_the_migrations_does_nothing() -> None:
    """Alembic's entry is a module of the package like any other: only Alembic runs it."""
    importlib.import_module("bandsync_dagster.store.migrations.env")


def test_a_path_with_a_percent_sign_is_no_placeholder(tmp_path: Path) -> None:
    """Alembic's configuration substitutes percent signs; the database's path is none of its business."""
    path = tmp_path / "100%(here)s.db"
    engine = create_store_engine(f"sqlite:///{path}")
    upgrade(engine)
    engine.dispose()
    assert path.exists()
