"""Alembic's entry: runs the migrations on the connection `store.engine.upgrade` holds. Nothing else belongs here."""

from alembic import context

from bandsync_dagster.store.schema import metadata


def run() -> None:
    """Run the migrations in the transaction of the connection given."""
    context.configure(
        connection=context.config.attributes["connection"],
        target_metadata=metadata,
        # True for SQLite too, whose transactions `store.engine` begins itself: a failed upgrade leaves no half schema.
        transactional_ddl=True,
    )
    with context.begin_transaction():
        context.run_migrations()


# The name Alembic loads this file by; importing the module as part of the package does nothing.
if __name__ == "env_py":
    run()
