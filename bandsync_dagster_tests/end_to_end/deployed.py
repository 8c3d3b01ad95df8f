"""bandsync as it runs in production, against a simulated GitHub: real daemon, queue, code server and webserver."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import dagster as dg
import sqlalchemy as sa

from bandsync_dagster.cli.local import Local
from bandsync_dagster.cli.webserver import Launch, Run
from bandsync_dagster.simulator import SimulatedGitHub, World
from bandsync_dagster.store.queries import syncs_of_run
from bandsync_dagster.store.schema import STAGE_TABLES, STAGES, syncs
from bandsync_dagster.store.syncs import Sync
from bandsync_dagster.tags import COLLECTION_JOB, DISCOVERY_JOB, PARTITION
from bandsync_dagster_tests.collection.simulated import assert_same_rows

# Generous: these machines are slow and busy, and nothing here measures time.
PATIENCE = 600.0
POLL = 0.25
UNFINISHED = ("NOT_STARTED", "QUEUED", "STARTING", "STARTED", "CANCELING")
_OWN_COLUMNS = {"first_sync_id", "last_sync_id"}

Answer = TypeVar("Answer")

_BACKFILL = """
mutation Backfill($parameters: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $parameters) {
    __typename
    ... on LaunchBackfillSuccess { backfillId }
    ... on PythonError { message }
  }
}
"""
_BACKFILL_STATUS = """
query Status($id: String!) {
  partitionBackfillOrError(backfillId: $id) { __typename ... on PartitionBackfill { status } }
}
"""
_CANCEL_BACKFILL = """
mutation Cancel($id: String!) { cancelPartitionBackfill(backfillId: $id) { __typename } }
"""
_CHECKS = """
query Checks($stage: [String!]!) {
  assetNodeOrError(assetKey: {path: $stage}) {
    ... on AssetNode {
      assetChecksOrError {
        ... on AssetChecks {
          checks {
            name
            partitionStatuses {
              ... on AssetCheckDefaultPartitionStatuses { succeededPartitions failedPartitions }
            }
          }
        }
      }
    }
  }
}
"""


def wait_for(what: str, look: Callable[[], Answer | None], patience: float = PATIENCE) -> Answer:
    """Look again and again until there is an answer; say what was missing when there is none in time."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if answer := look():
            return answer
        time.sleep(POLL)  # noqa: TID251  (between two looks at other processes)
    raise AssertionError(f"waited {patience:.0f} s in vain for {what}")


@dataclass
class Deployed:
    """A deployment at work, and the simulated GitHub it collects from."""

    local: Local
    github: SimulatedGitHub

    @property
    def world(self) -> World:
        """The world that is collected."""
        return self.github.world

    @property
    def instance(self) -> dg.DagsterInstance:
        """Dagster's instance, seen from outside."""
        return self.local.instance

    @property
    def engine(self) -> sa.Engine:
        """The store."""
        return self.local.services.engine

    @property
    def names(self) -> list[str]:
        """The repositories of the world."""
        return [repository.full_name for repository in self.world.repositories.values()]

    def discover(self) -> Run:
        """Run a discovery to its end."""
        return self.finish(self.launch(DISCOVERY_JOB))

    def collect(self, name: str, **tags: str) -> Run:
        """Run the collection of one repository to its end."""
        return self.finish(self.launch(COLLECTION_JOB, **{PARTITION: name}, **tags))

    def use_up(self, *buckets: Literal["core", "graphql"]) -> None:
        """Spend all of a window of quota that begins now, as somebody else who has the token."""
        self.github.reset_limits()
        for bucket in buckets:
            self.github.spend(bucket, 10**6)

    def launch(self, job: str, **tags: str) -> str:
        """Put a run into the queue, as the Dagster UI does; return its id."""
        return self.local.webserver.launch([Launch(job, tags)])[0]

    def finish(self, run_id: str) -> Run:
        """Wait for a run to end."""
        return wait_for(f"run {run_id} to end", lambda: self._ended(run_id))

    def _ended(self, run_id: str) -> Run | None:
        return next((run for run in self.runs() if run.id == run_id and run.status not in UNFINISHED), None)

    def runs(self, statuses: Sequence[str] = (), **tags: str) -> list[Run]:
        """Return runs as the webserver lists them, newest first."""
        return self.local.webserver.runs(tags, statuses)

    def backfill(self, names: Iterable[str], assets: Sequence[str] = STAGES) -> str:
        """Launch a backfill, as the Dagster UI does; return its id."""
        parameters = {"partitionNames": list(names), "assetSelection": [{"path": [asset]} for asset in assets]}
        answer = self.ask(_BACKFILL, parameters=parameters)["launchPartitionBackfill"]
        assert answer["__typename"] == "LaunchBackfillSuccess", answer
        return answer["backfillId"]

    def backfill_status(self, backfill_id: str) -> str:
        """Return how a backfill stands, in the webserver's words."""
        return self.ask(_BACKFILL_STATUS, id=backfill_id)["partitionBackfillOrError"]["status"]

    def finish_backfill(self, backfill_id: str) -> str:
        """Wait for a backfill to end; return how it did."""
        return wait_for(f"backfill {backfill_id} to end", lambda: self._ended_backfill(backfill_id))

    def _ended_backfill(self, backfill_id: str) -> str | None:
        status = self.backfill_status(backfill_id)
        return status if status not in {"REQUESTED", "CANCELING", "FAILING"} else None

    def cancel_backfill(self, backfill_id: str) -> None:
        """Cancel a backfill, as the Dagster UI does."""
        self.ask(_CANCEL_BACKFILL, id=backfill_id)

    def failed_checks(self) -> dict[str, list[str]]:
        """Return the partitions of each asset check that the webserver shows as failed."""
        return {
            f"{stage}:{check['name']}": check["partitionStatuses"]["failedPartitions"]
            for stage in STAGES
            for check in self.ask(_CHECKS, stage=[stage])["assetNodeOrError"]["assetChecksOrError"]["checks"]
            if check["partitionStatuses"]["failedPartitions"]
        }

    def ask(self, document: str, **variables: object) -> Mapping[str, Any]:
        """Ask the webserver over its GraphQL API."""
        return self.local.webserver._ask(document, variables)

    def syncs(self) -> list[Sync]:
        """Return all syncs."""
        with self.engine.connect() as connection:
            runs = connection.execute(sa.select(syncs.c.run_id).distinct()).scalars().all()
        return sorted((sync for run in runs for sync in syncs_of_run(self.engine, run)), key=lambda sync: sync.id)

    def table(self, stage: str) -> list[dict[str, Any]]:
        """Return a stage's rows as stored."""
        table = STAGE_TABLES[stage]
        with self.engine.connect() as connection:
            return [dict(row) for row in connection.execute(sa.select(table).order_by(table.c.id)).mappings()]

    def assert_true(self, *without: str) -> None:
        """Assert that all three tables hold the truth, except of the repositories named."""
        excluded = {self.world.repository(name).id for name in without}
        truth = self.world.truth()
        for stage in STAGES:
            stored = [{k: v for k, v in row.items() if k not in _OWN_COLUMNS} for row in self.table(stage)]
            assert_same_rows(
                *([row for row in rows if row["repository_id"] not in excluded] for rows in (stored, truth[stage]))
            )
