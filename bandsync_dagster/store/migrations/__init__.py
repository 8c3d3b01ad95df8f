"""The history of the schema, run by Alembic. `env.py` is its entry; each revision is a module in `versions`."""
