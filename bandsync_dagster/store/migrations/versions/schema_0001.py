"""The first schema: what is collected, the syncs that collect it, quota, gate, and a view for people who query."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# One row for each repository and stage: how its latest sync ended and why. The second half is for names that GitHub
# never resolved to a repository. Each half looks up the ends of ranges of the index on (repository_id, stage, id).
STAGE_STATUS = """
CREATE VIEW stage_status AS
WITH stages (stage) AS (VALUES ('changes'), ('verifications'), ('jobs'))
SELECT
    repositories.id AS repository_id, repositories.full_name, stages.stage,
    repositories.state AS repository_state, repositories.state_reason AS repository_state_reason,
    syncs.id AS sync_id, syncs.state, syncs.outcome, syncs.error, syncs.bucket, syncs.resume_at,
    syncs.records_collected, syncs.records_created, syncs.records_updated, syncs.records_unchanged,
    syncs.requests, syncs.points, syncs.deferrals, syncs.run_id, syncs.started_at, syncs.finished_at,
    checkpoints.updated_at AS checkpoint_at
FROM repositories
CROSS JOIN stages
LEFT JOIN syncs ON syncs.id = (
    SELECT max(latest.id) FROM syncs AS latest
    WHERE latest.repository_id = repositories.id AND latest.stage = stages.stage
)
LEFT JOIN checkpoints ON checkpoints.repository_id = repositories.id AND checkpoints.stage = stages.stage
UNION ALL
SELECT
    NULL, syncs.full_name, syncs.stage,
    NULL, NULL,
    syncs.id, syncs.state, syncs.outcome, syncs.error, syncs.bucket, syncs.resume_at,
    syncs.records_collected, syncs.records_created, syncs.records_updated, syncs.records_unchanged,
    syncs.requests, syncs.points, syncs.deferrals, syncs.run_id, syncs.started_at, syncs.finished_at,
    NULL
FROM syncs
WHERE syncs.id IN (
    SELECT max(unresolved.id) FROM syncs AS unresolved
    WHERE unresolved.repository_id IS NULL
    GROUP BY lower(unresolved.full_name), unresolved.stage
)
AND NOT EXISTS (SELECT 1 FROM repositories WHERE lower(repositories.full_name) = lower(syncs.full_name))
"""


def upgrade() -> None:
    """Create everything."""
    _create_repositories()
    _create_syncs()
    _create_changes()
    _create_verifications()
    _create_job_totals()
    _create_jobs()
    _create_checkpoints()
    _create_activity()
    _create_quotas()
    _create_quota_reservations()
    _create_gates()
    op.execute(STAGE_STATUS)


def _create_repositories() -> None:
    op.create_table(
        "repositories",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("node_id", sa.Text(), nullable=False),
        sa.Column("full_name", sa.Text(), nullable=False),
        sa.Column("private", sa.Boolean(), nullable=False),
        sa.Column("visibility", sa.Text()),
        sa.Column("archived", sa.Boolean(), nullable=False),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.Column("fork", sa.Boolean(), nullable=False),
        sa.Column("has_pull_requests", sa.Boolean()),
        sa.Column("default_branch", sa.Text()),
        sa.Column("created_at", sa.DateTime(timezone=True)),
        sa.Column("pushed_at", sa.DateTime(timezone=True)),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("state_reason", sa.Text()),
        sa.Column("first_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_repositories")),
    )
    op.create_index("ix_repositories_name", "repositories", [sa.text("lower(full_name)")])


def _create_syncs() -> None:
    op.create_table(
        "syncs",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("repository_id", sa.BigInteger()),
        sa.Column("full_name", sa.Text(), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("root_run_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("records_collected", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("records_created", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("records_updated", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("records_unchanged", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("requests", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("points", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("deferrals", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("last_batch", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("resume_at", sa.DateTime(timezone=True)),
        sa.Column("bucket", sa.Text()),
        sa.Column("outcome", sa.Text()),
        sa.Column("error", sa.Text()),
        sa.Column("metrics", sa.JSON(none_as_null=True)),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True)),
        sa.Column("heartbeat_at", sa.DateTime(timezone=True)),
        sa.CheckConstraint(
            "state IN ('running', 'deferred', 'completed', 'failed', 'cancelled')", name=op.f("ck_syncs_state")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_syncs")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_syncs_repository_id_stage_id", "syncs", ["repository_id", "stage", "id"])
    op.create_index("ix_syncs_run_id", "syncs", ["run_id"])
    op.create_index("ix_syncs_name", "syncs", [sa.text("lower(full_name)"), "stage", "id"])
    op.create_index(
        "ix_syncs_unfinished",
        "syncs",
        ["state"],
        sqlite_where=sa.text("state IN ('running', 'deferred')"),
        postgresql_where=sa.text("state IN ('running', 'deferred')"),
    )


def _create_changes() -> None:
    op.create_table(
        "changes",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("repository_id", sa.BigInteger(), nullable=False),
        sa.Column("node_id", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("draft", sa.Boolean(), nullable=False),
        sa.Column("author_login", sa.Text()),
        sa.Column("author_id", sa.BigInteger()),
        sa.Column("author_type", sa.Text()),
        sa.Column("author_is_bot", sa.Boolean()),
        sa.Column("base_ref", sa.Text(), nullable=False),
        sa.Column("base_sha", sa.Text(), nullable=False),
        sa.Column("head_ref", sa.Text(), nullable=False),
        sa.Column("head_sha", sa.Text(), nullable=False),
        sa.Column("additions", sa.BigInteger(), nullable=False),
        sa.Column("deletions", sa.BigInteger(), nullable=False),
        sa.Column("changed_files", sa.BigInteger(), nullable=False),
        sa.Column("commits", sa.BigInteger(), nullable=False),
        sa.Column("comments", sa.BigInteger(), nullable=False),
        sa.Column("reviews", sa.BigInteger()),
        sa.Column("review_decision", sa.Text()),
        sa.Column("first_review_at", sa.DateTime(timezone=True)),
        sa.Column("first_commit_at", sa.DateTime(timezone=True)),
        sa.Column("labels", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("closed_at", sa.DateTime(timezone=True)),
        sa.Column("merged_at", sa.DateTime(timezone=True)),
        sa.Column("merge_commit_sha", sa.Text()),
        sa.Column("merged_by_login", sa.Text()),
        sa.Column("merged_by_id", sa.BigInteger()),
        sa.Column("html_url", sa.Text(), nullable=False),
        sa.Column("first_sync_id", sa.BigInteger(), nullable=False),
        sa.Column("last_sync_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_changes")),
    )
    op.create_index("ix_changes_first_sync_id", "changes", ["first_sync_id"])
    op.create_index("ix_changes_head_sha", "changes", ["head_sha"])
    op.create_index("ix_changes_last_sync_id", "changes", ["last_sync_id"])
    op.create_index("ix_changes_repository_id", "changes", ["repository_id"])


def _create_verifications() -> None:
    op.create_table(
        "verifications",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("repository_id", sa.BigInteger(), nullable=False),
        sa.Column("node_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text()),
        sa.Column("display_title", sa.Text()),
        sa.Column("path", sa.Text()),
        sa.Column("run_number", sa.BigInteger(), nullable=False),
        sa.Column("run_attempt", sa.BigInteger(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("status", sa.Text()),
        sa.Column("conclusion", sa.Text()),
        sa.Column("workflow_id", sa.BigInteger(), nullable=False),
        sa.Column("check_suite_id", sa.BigInteger()),
        sa.Column("check_suite_node_id", sa.Text()),
        sa.Column("head_branch", sa.Text()),
        sa.Column("head_sha", sa.Text(), nullable=False),
        sa.Column("actor_login", sa.Text()),
        sa.Column("actor_id", sa.BigInteger()),
        sa.Column("actor_type", sa.Text()),
        sa.Column("actor_is_bot", sa.Boolean()),
        sa.Column("triggering_actor_login", sa.Text()),
        sa.Column("triggering_actor_id", sa.BigInteger()),
        sa.Column("head_repository_id", sa.BigInteger()),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("run_started_at", sa.DateTime(timezone=True)),
        sa.Column("html_url", sa.Text(), nullable=False),
        sa.Column("first_sync_id", sa.BigInteger(), nullable=False),
        sa.Column("last_sync_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_verifications")),
    )
    op.create_index("ix_verifications_first_sync_id", "verifications", ["first_sync_id"])
    op.create_index("ix_verifications_head_sha", "verifications", ["head_sha"])
    op.create_index("ix_verifications_last_sync_id", "verifications", ["last_sync_id"])
    op.create_index(
        "ix_verifications_repository_id_created_at_id", "verifications", ["repository_id", "created_at", "id"]
    )
    op.create_index(
        "ix_verifications_unfinished",
        "verifications",
        ["repository_id", "created_at", "id"],
        sqlite_where=sa.text("(status IS NULL OR status <> 'completed')"),
        postgresql_where=sa.text("(status IS NULL OR status <> 'completed')"),
    )


def _create_job_totals() -> None:
    op.create_table(
        "job_totals",
        sa.Column("verification_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("repository_id", sa.BigInteger(), nullable=False),
        sa.Column("run_attempt", sa.BigInteger(), nullable=False),
        sa.Column("total", sa.BigInteger(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("retry_at", sa.DateTime(timezone=True)),
        sa.Column("retries", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("collected_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("verification_id", name=op.f("pk_job_totals")),
    )
    op.create_index("ix_job_totals_repository_id", "job_totals", ["repository_id"])


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("repository_id", sa.BigInteger(), nullable=False),
        sa.Column("verification_id", sa.BigInteger(), nullable=False),
        sa.Column("run_attempt", sa.BigInteger(), nullable=False),
        sa.Column("node_id", sa.Text()),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("conclusion", sa.Text()),
        sa.Column("created_at", sa.DateTime(timezone=True)),
        sa.Column("started_at", sa.DateTime(timezone=True)),
        sa.Column("completed_at", sa.DateTime(timezone=True)),
        sa.Column("html_url", sa.Text()),
        sa.Column("labels", sa.JSON(none_as_null=True)),
        sa.Column("runner_id", sa.BigInteger()),
        sa.Column("runner_name", sa.Text()),
        sa.Column("runner_group_id", sa.BigInteger()),
        sa.Column("runner_group_name", sa.Text()),
        sa.Column("steps", sa.JSON(none_as_null=True)),
        sa.Column("copy_of", sa.BigInteger()),
        sa.Column("first_sync_id", sa.BigInteger(), nullable=False),
        sa.Column("last_sync_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )
    op.create_index("ix_jobs_first_sync_id", "jobs", ["first_sync_id"])
    op.create_index("ix_jobs_last_sync_id", "jobs", ["last_sync_id"])
    op.create_index("ix_jobs_repository_id", "jobs", ["repository_id"])
    op.create_index("ix_jobs_verification_id", "jobs", ["verification_id"])


def _create_checkpoints() -> None:
    op.create_table(
        "checkpoints",
        sa.Column("repository_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("position", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("sync_id", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "stage", name=op.f("pk_checkpoints")),
    )


def _create_activity() -> None:
    op.create_table(
        "activity",
        sa.Column("repository_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("checked_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("reasons", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("repository_id", name=op.f("pk_activity")),
    )


def _create_quotas() -> None:
    op.create_table(
        "quotas",
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("bucket", sa.Text(), nullable=False),
        sa.Column("unlimited", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("limit", sa.BigInteger()),
        sa.Column("remaining", sa.BigInteger()),
        sa.Column("reset_at", sa.DateTime(timezone=True)),
        sa.Column("closed_until", sa.DateTime(timezone=True)),
        sa.Column("strikes", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("observed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("fingerprint", "bucket", name=op.f("pk_quotas")),
    )


def _create_quota_reservations() -> None:
    op.create_table(
        "quota_reservations",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("bucket", sa.Text(), nullable=False),
        sa.Column("cost", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_quota_reservations")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_quota_reservations_fingerprint_bucket", "quota_reservations", ["fingerprint", "bucket"])


def _create_gates() -> None:
    op.create_table(
        "gates",
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("limit", sa.BigInteger(), nullable=False),
        sa.Column("bucket", sa.Text()),
        sa.Column("closed_until", sa.DateTime(timezone=True)),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("pool", name=op.f("pk_gates")),
    )
