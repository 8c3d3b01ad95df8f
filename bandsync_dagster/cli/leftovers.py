"""What an earlier command left in Dagster's storage when it was killed or the machine went down.

Only called while the home folder is ours and no daemon runs in it: so nobody works on any run it finds.
"""

from collections import Counter
from typing import Final

import dagster as dg

from bandsync_dagster.tags import COLLECTION

_QUEUED: Final = [dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.QUEUED]
_BEGUN: Final = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]


def settle_leftovers(instance: dg.DagsterInstance) -> Counter[str]:
    """End the runs that a lost command started; count what was done.

    Runs of a collection belong to their command and are cancelled: a new collection launches its own. Other runs
    that had begun are reported as failed, so that Dagster starts them again; queued ones just stay queued.
    """
    done: Counter[str] = Counter()
    for record in instance.get_run_records(dg.RunsFilter(statuses=[*_QUEUED, *_BEGUN])):
        run = record.dagster_run
        if COLLECTION in run.tags or run.status == dg.DagsterRunStatus.CANCELING:
            instance.report_run_canceled(run, message="bandsync: the command that launched this run was ended.")
            done["cancelled"] += 1
        elif run.status in _BEGUN:
            instance.report_run_failed(run, message="bandsync: the process of this run was lost.")
            done["failed"] += 1
    return done
