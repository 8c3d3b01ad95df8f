"""The stages and how each is collected. Only this table."""

from collections.abc import Awaitable, Callable, Mapping

from bandsync_dagster.collection.changes import collect_changes
from bandsync_dagster.collection.jobs import collect_jobs
from bandsync_dagster.collection.scan import Scan
from bandsync_dagster.collection.verifications import collect_verifications

Algorithm = Callable[[Scan], Awaitable[None]]

ALGORITHMS: Mapping[str, Algorithm] = {
    "changes": collect_changes,
    "verifications": collect_verifications,
    "jobs": collect_jobs,
}
