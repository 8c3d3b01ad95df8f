"""Names that Dagster's runs, pools and jobs carry, each with who writes and who reads it."""

from typing import Final

# The concurrency pool of every step that talks to GitHub, and its limit while the gate is open. The limit is kept in
# Dagster's storage; `deferral` sets it, Dagster's queue reads it.
POOL: Final = "github"
POOL_LIMIT: Final = 5

# Dagster's own: the repository a run is for. The queue admits one run per value (dagster.yaml).
PARTITION: Final = "dagster/partition"
# Dagster's own: which queued run is launched first (the highest; 0 without it).
PRIORITY: Final = "dagster/priority"

# On a successor: the run whose syncs it continues. Written by `deferral`; read there, by the assets and by
# reconciliation. A re-execution by hand copies the tag but has another parent, so it continues nothing.
SUCCESSOR_OF: Final = "bandsync/successor_of"
# On a deferred run and on its successor: the rate limit resource that was used up, and when to go on (UTC, ISO 8601).
# Written by `deferral`; read by people and by the progress display.
DEFERRED_BUCKET: Final = "bandsync/deferred_bucket"
DEFERRED_UNTIL: Final = "bandsync/deferred_until"
# On a deferred look at the repositories' activity and on its successor: when it began, and what it has cost until then.
# Written and read by the asset `activity`; only a successor goes by it.
ACTIVITY_SO_FAR: Final = "bandsync/activity_so_far"
# On every run of one `bandsync collect`. Written and read by the command.
COLLECTION: Final = "bandsync/collection"

# Asset jobs. None may be called as an asset is: Dagster wants the names of both to differ.
DISCOVERY_JOB: Final = "discovery"
ACTIVITY_JOB: Final = "activity_scan"
COLLECTION_JOB: Final = "collection"
COVERAGE_JOB: Final = "coverage_report"

# What each stage asks GitHub for: the rate limit resources whose exhaustion stops it.
STAGE_BUCKETS: Final = {
    "repositories": frozenset({"core"}),
    "activity": frozenset({"core", "graphql"}),
    "changes": frozenset({"graphql"}),
    "verifications": frozenset({"core"}),
    "jobs": frozenset({"core", "graphql"}),
}
