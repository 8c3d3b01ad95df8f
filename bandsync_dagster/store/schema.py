"""The tables, in SQLAlchemy Core. Migrations create them; nothing here connects to a database.

Times are UTC. Ids from GitHub are BIGINT: run and job ids passed 2^31 long ago. Nothing has a CHECK on a value that
GitHub chooses; the one CHECK is on `syncs.state`, which is ours.
"""

import sqlalchemy as sa

from bandsync_dagster.store.types import UtcDateTime

# SQL NULL for what is not known, never JSON's own null: people write `IS NULL`.
Json = sa.JSON(none_as_null=True)

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

STAGES = ("changes", "verifications", "jobs")
SYNC_STATES = ("running", "deferred", "completed", "failed", "cancelled")

# SQLite counts rows by itself only for a column declared INTEGER PRIMARY KEY.
_own_id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

repositories = sa.Table(
    "repositories",
    metadata,
    sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("node_id", sa.Text, nullable=False),
    sa.Column("full_name", sa.Text, nullable=False),
    sa.Column("private", sa.Boolean, nullable=False),
    sa.Column("visibility", sa.Text),
    sa.Column("archived", sa.Boolean, nullable=False),
    sa.Column("disabled", sa.Boolean, nullable=False),
    sa.Column("fork", sa.Boolean, nullable=False),
    sa.Column("has_pull_requests", sa.Boolean),
    sa.Column("default_branch", sa.Text),
    sa.Column("created_at", UtcDateTime),
    sa.Column("pushed_at", UtcDateTime),
    # active; renamed (its partition key is an old name); gone (not listed, or 404); blocked (451 or terms of service)
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("state_reason", sa.Text),
    sa.Column("first_seen_at", UtcDateTime, nullable=False),
    sa.Column("last_seen_at", UtcDateTime, nullable=False),
)

syncs = sa.Table(
    "syncs",
    metadata,
    sa.Column("id", _own_id, primary_key=True),
    # Null when GitHub would not even say which repository the name means; the name is always there.
    sa.Column("repository_id", sa.BigInteger),
    sa.Column("full_name", sa.Text, nullable=False),
    sa.Column("stage", sa.Text, nullable=False),
    # The run that started the sync's chain of deferrals, and the one that works (or last worked) on it.
    sa.Column("root_run_id", sa.Text, nullable=False),
    sa.Column("run_id", sa.Text, nullable=False, index=True),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("records_collected", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("records_created", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("records_updated", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("records_unchanged", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("requests", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("points", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("deferrals", sa.BigInteger, nullable=False, server_default="0"),
    # The number of the last batch written: a batch sent again after an unclear commit is recognised by it.
    sa.Column("last_batch", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("resume_at", UtcDateTime),
    sa.Column("bucket", sa.Text),
    # How it ended, in one word (complete, no_access, blocked, gone, disabled, skipped, failed, ...), and why.
    sa.Column("outcome", sa.Text),
    sa.Column("error", sa.Text),
    sa.Column("metrics", Json),
    sa.Column("started_at", UtcDateTime, nullable=False),
    sa.Column("finished_at", UtcDateTime),
    # The last sign of life of the process that works on it.
    sa.Column("heartbeat_at", UtcDateTime),
    # The id last: the latest sync of a stage is the end of a range.
    sa.Index(None, "repository_id", "stage", "id"),
    sa.CheckConstraint(f"state IN {SYNC_STATES}", name="state"),
    # Without it SQLite gives the id of a deleted last row to the next one.
    sqlite_autoincrement=True,
)


def _sync_columns() -> list[sa.Column[int]]:
    """Which sync created a row, and which wrote it last."""
    return [
        sa.Column("first_sync_id", sa.BigInteger, nullable=False, index=True),
        sa.Column("last_sync_id", sa.BigInteger, nullable=False, index=True),
    ]


changes = sa.Table(
    "changes",
    metadata,
    sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("repository_id", sa.BigInteger, nullable=False, index=True),
    sa.Column("node_id", sa.Text, nullable=False),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("title", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("draft", sa.Boolean, nullable=False),
    sa.Column("author_login", sa.Text),
    sa.Column("author_id", sa.BigInteger),
    sa.Column("author_type", sa.Text),
    sa.Column("author_is_bot", sa.Boolean),
    sa.Column("base_ref", sa.Text, nullable=False),
    sa.Column("base_sha", sa.Text, nullable=False),
    sa.Column("head_ref", sa.Text, nullable=False),
    sa.Column("head_sha", sa.Text, nullable=False, index=True),
    sa.Column("additions", sa.BigInteger, nullable=False),
    sa.Column("deletions", sa.BigInteger, nullable=False),
    sa.Column("changed_files", sa.BigInteger, nullable=False),
    sa.Column("commits", sa.BigInteger, nullable=False),
    sa.Column("comments", sa.BigInteger, nullable=False),
    sa.Column("reviews", sa.BigInteger),
    sa.Column("review_decision", sa.Text),
    sa.Column("first_review_at", UtcDateTime),
    sa.Column("first_commit_at", UtcDateTime),
    sa.Column("labels", Json, nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("updated_at", UtcDateTime, nullable=False),
    sa.Column("closed_at", UtcDateTime),
    sa.Column("merged_at", UtcDateTime),
    sa.Column("merge_commit_sha", sa.Text),
    sa.Column("merged_by_login", sa.Text),
    sa.Column("merged_by_id", sa.BigInteger),
    sa.Column("html_url", sa.Text, nullable=False),
    *_sync_columns(),
)

verifications = sa.Table(
    "verifications",
    metadata,
    sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("repository_id", sa.BigInteger, nullable=False),
    sa.Column("node_id", sa.Text, nullable=False),
    sa.Column("name", sa.Text),
    sa.Column("display_title", sa.Text),
    sa.Column("path", sa.Text),
    sa.Column("run_number", sa.BigInteger, nullable=False),
    sa.Column("run_attempt", sa.BigInteger, nullable=False),
    sa.Column("event", sa.Text, nullable=False),
    sa.Column("status", sa.Text),
    sa.Column("conclusion", sa.Text),
    sa.Column("workflow_id", sa.BigInteger, nullable=False),
    sa.Column("check_suite_id", sa.BigInteger),
    sa.Column("check_suite_node_id", sa.Text),
    sa.Column("head_branch", sa.Text),
    sa.Column("head_sha", sa.Text, nullable=False, index=True),
    sa.Column("actor_login", sa.Text),
    sa.Column("actor_id", sa.BigInteger),
    sa.Column("actor_type", sa.Text),
    sa.Column("actor_is_bot", sa.Boolean),
    sa.Column("triggering_actor_login", sa.Text),
    sa.Column("triggering_actor_id", sa.BigInteger),
    sa.Column("head_repository_id", sa.BigInteger),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("updated_at", UtcDateTime, nullable=False),
    sa.Column("run_started_at", UtcDateTime),
    sa.Column("html_url", sa.Text, nullable=False),
    *_sync_columns(),
    # In the order of time, and of ids within a second.
    sa.Index(None, "repository_id", "created_at", "id"),
)

# GitHub's names differ in more than case.
sa.Index("ix_repositories_name", sa.func.lower(repositories.c.full_name))
sa.Index("ix_syncs_name", sa.func.lower(syncs.c.full_name), syncs.c.stage, syncs.c.id)

# The few that are not over, among the very many that are.
UNFINISHED_SYNC = sa.text("state IN ('running', 'deferred')")
sa.Index(
    "ix_syncs_unfinished",
    syncs.c.state,
    sqlite_where=UNFINISHED_SYNC,
    postgresql_where=UNFINISHED_SYNC,
)
UNFINISHED_VERIFICATION = sa.text("(status IS NULL OR status <> 'completed')")
sa.Index(
    "ix_verifications_unfinished",
    verifications.c.repository_id,
    verifications.c.created_at,
    verifications.c.id,
    sqlite_where=UNFINISHED_VERIFICATION,
    postgresql_where=UNFINISHED_VERIFICATION,
)

# What is known of a verification's jobs: the attempt they were collected at and the total GitHub gave. Kept apart from
# `verifications` so that writing it never counts as an update of a verification.
job_totals = sa.Table(
    "job_totals",
    metadata,
    sa.Column("verification_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("repository_id", sa.BigInteger, nullable=False, index=True),
    sa.Column("run_attempt", sa.BigInteger, nullable=False),
    sa.Column("total", sa.BigInteger, nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
    # Jobs that had not finished under a finished run: when to ask again, and how often that was done. Null when done.
    sa.Column("retry_at", UtcDateTime),
    sa.Column("retries", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("collected_at", UtcDateTime, nullable=False),
)

jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("repository_id", sa.BigInteger, nullable=False, index=True),
    sa.Column("verification_id", sa.BigInteger, nullable=False, index=True),
    sa.Column("run_attempt", sa.BigInteger, nullable=False),
    sa.Column("node_id", sa.Text),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("conclusion", sa.Text),
    sa.Column("created_at", UtcDateTime),
    sa.Column("started_at", UtcDateTime),
    sa.Column("completed_at", UtcDateTime),
    sa.Column("html_url", sa.Text),
    sa.Column("labels", Json),
    sa.Column("runner_id", sa.BigInteger),
    sa.Column("runner_name", sa.Text),
    sa.Column("runner_group_id", sa.BigInteger),
    sa.Column("runner_group_name", sa.Text),
    sa.Column("steps", Json),
    sa.Column("copy_of", sa.BigInteger),
    *_sync_columns(),
)

checkpoints = sa.Table(
    "checkpoints",
    metadata,
    sa.Column("repository_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("stage", sa.Text, primary_key=True),
    sa.Column("position", Json, nullable=False),
    sa.Column("sync_id", sa.BigInteger, nullable=False),
    sa.Column("updated_at", UtcDateTime, nullable=False),
)

# The latest look at which repositories have anything new. `reasons` is null where there was nothing to collect.
activity = sa.Table(
    "activity",
    metadata,
    sa.Column("repository_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("checked_at", UtcDateTime, nullable=False),
    sa.Column("reasons", sa.Text),
)

# Per token (its fingerprint, never the token) and bucket. `limit` is null until a response told it; a host that
# reports no limits is `unlimited`.
quotas = sa.Table(
    "quotas",
    metadata,
    sa.Column("fingerprint", sa.Text, primary_key=True),
    sa.Column("bucket", sa.Text, primary_key=True),
    sa.Column("unlimited", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("limit", sa.BigInteger, key="limit_"),
    sa.Column("remaining", sa.BigInteger),
    sa.Column("reset_at", UtcDateTime),
    sa.Column("closed_until", UtcDateTime),
    # How many secondary limits came in a row without `retry-after`: the wait doubles with each.
    sa.Column("strikes", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("observed_at", UtcDateTime, nullable=False),
)

# Costs of requests that are on their way. One left behind by a killed process stops counting at `expires_at`.
quota_reservations = sa.Table(
    "quota_reservations",
    metadata,
    sa.Column("id", _own_id, primary_key=True),
    sa.Column("fingerprint", sa.Text, nullable=False),
    sa.Column("bucket", sa.Text, nullable=False),
    sa.Column("cost", sa.BigInteger, nullable=False),
    sa.Column("expires_at", UtcDateTime, nullable=False),
    sa.Index(None, "fingerprint", "bucket"),
    sqlite_autoincrement=True,
)

# The project-wide stop, one row per Dagster pool. States: open, closed, opening.
gates = sa.Table(
    "gates",
    metadata,
    sa.Column("pool", sa.Text, primary_key=True),
    sa.Column("state", sa.Text, nullable=False),
    # The pool's limit while open: what it goes back to.
    sa.Column("limit", sa.BigInteger, nullable=False, key="limit_"),
    sa.Column("bucket", sa.Text),
    sa.Column("closed_until", UtcDateTime),
    sa.Column("changed_at", UtcDateTime, nullable=False),
)

STAGE_TABLES = {"changes": changes, "verifications": verifications, "jobs": jobs}

# A view, not a table (the migrations create it): one row for each repository and stage, how its latest sync ended and
# why. A stage that was never collected has a row without sync; a name GitHub never resolved has no repository_id.
stage_status = sa.table(
    "stage_status",
    *(sa.column(name, sa.BigInteger) for name in ("repository_id", "sync_id", "requests", "points", "deferrals")),
    *(sa.column(f"records_{name}", sa.BigInteger) for name in ("collected", "created", "updated", "unchanged")),
    *(sa.column(name, sa.Text) for name in ("full_name", "stage", "repository_state", "repository_state_reason")),
    *(sa.column(name, sa.Text) for name in ("state", "outcome", "error", "bucket", "run_id")),
    *(sa.column(name, UtcDateTime) for name in ("resume_at", "started_at", "finished_at", "checkpoint_at")),
)
