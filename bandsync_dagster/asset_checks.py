"""What must be true of a collected stage. Checks read committed totals from the store and send nothing to GitHub.

Three checks of each stage are blocking: with wrong counters nothing that builds on them may run. One only reports:
it compares with a total that GitHub gave in passing, which may have moved since.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from bandsync_dagster.partitions import repositories_partitions
from bandsync_dagster.resources import Services
from bandsync_dagster.step_retries import StepRetries
from bandsync_dagster.store import queries, status
from bandsync_dagster.store.queries import CounterFacts
from bandsync_dagster.store.schema import STAGES
from bandsync_dagster.store.syncs import Sync


@dataclass(frozen=True)
class Claim:
    """One thing to be true of a stage's counters: its name, what it says, and the two numbers that must be equal."""

    name: str
    description: str
    expected: str
    actual: str

    def holds(self, numbers: Mapping[str, int]) -> dg.AssetCheckResult:
        """Compare the two numbers."""
        return dg.AssetCheckResult(
            passed=numbers[self.expected] == numbers[self.actual],
            metadata={self.expected: numbers[self.expected], self.actual: numbers[self.actual]},
        )


NOTHING_COLLECTED = dg.AssetCheckResult(passed=True, description="Nothing was collected of this repository yet.")

CLAIMS = (
    Claim(
        "every_record_counted_once",
        "The latest sync's collected records are exactly those it created, updated and found unchanged.",
        "collected",
        "created_updated_unchanged",
    ),
    Claim(
        "rows_equal_created",
        "What all syncs of this repository created adds up to the rows in the table: none lost, none doubled.",
        "created_by_all_syncs",
        "rows_in_table",
    ),
    Claim(
        "rows_carry_their_sync",
        "The rows that carry the latest sync as their first are exactly as many as it says it created.",
        "created_by_latest_sync",
        "rows_first_written_by_it",
    ),
)


def counter_numbers(facts: CounterFacts, sync: Sync) -> dict[str, int]:
    """Return the numbers that the claims compare; `sync` is the latest one."""
    return {
        "collected": sync.records_collected,
        "created_updated_unchanged": sync.records_created + sync.records_updated + sync.records_unchanged,
        "created_by_all_syncs": facts.created_by_all,
        "rows_in_table": facts.rows,
        "created_by_latest_sync": sync.records_created,
        "rows_first_written_by_it": facts.rows_of_latest,
    }


def build_asset_checks() -> list[dg.AssetChecksDefinition]:
    """Build the checks of all stages, and the one of `coverage`."""
    with warnings.catch_warnings():
        # Partitioned checks are a preview in Dagster 1.13, to which pyproject.toml keeps.
        warnings.simplefilter("ignore", dg.PreviewWarning)
        return _build()


def _build() -> list[dg.AssetChecksDefinition]:
    blocking = [_blocking_check(stage, claim) for stage in STAGES for claim in CLAIMS]
    return [*blocking, *(_total_check(stage) for stage in STAGES), every_repository_reached]


def _blocking_check(stage: str, claim: Claim) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=stage,
        name=claim.name,
        description=claim.description,
        blocking=True,
        partitions_def=repositories_partitions,
    )
    def check(context: dg.AssetCheckExecutionContext, services: dg.ResourceParam[Services]) -> dg.AssetCheckResult:
        facts = _counter_facts(services, context.partition_key, stage)
        return claim.holds(counter_numbers(facts, facts.latest)) if facts.latest else NOTHING_COLLECTED

    return check


def _counter_facts(services: Services, key: str, stage: str) -> CounterFacts:
    """Read a stage's counters. A check that fails means that they are wrong, and not that the database is away."""
    with StepRetries():
        return services.patiently(queries.counter_facts, key, stage)


def _total_check(stage: str) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=stage,
        name="rows_match_github",
        description="The rows in the table against the total GitHub gave in passing. Reports only: totals move, and "
        "rows that GitHub has deleted since are kept.",
        partitions_def=repositories_partitions,
    )
    def check(context: dg.AssetCheckExecutionContext, services: dg.ResourceParam[Services]) -> dg.AssetCheckResult:
        facts = _counter_facts(services, context.partition_key, stage)
        return _against_github(facts.rows, facts.latest) if facts.latest else NOTHING_COLLECTED

    return check


def _against_github(rows: int, sync: Sync) -> dg.AssetCheckResult:
    facts = sync.metrics or {}
    total = facts.get("github_total")
    if total is None or not facts.get("github_total_exact"):
        return dg.AssetCheckResult(
            passed=True, description="GitHub gave no exact total this time.", metadata={"rows_in_table": rows}
        )
    return dg.AssetCheckResult(
        passed=rows >= total,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"rows_in_table": rows, "github_total": total},
    )


@dg.asset_check(
    asset="coverage", description="Every repository in the partitions is completely collected, in all three stages."
)
def every_repository_reached(
    context: dg.AssetCheckExecutionContext, services: dg.ResourceParam[Services]
) -> dg.AssetCheckResult:
    """Fail while a repository is deferred, failed or missing, and say which."""
    keys = context.instance.get_dynamic_partitions(repositories_partitions.name or "")
    missing = list(services.patiently(status.uncovered, keys))
    return dg.AssetCheckResult(
        passed=not missing,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"repositories": len(keys), "not_reached": len(missing), "which": _table(missing)},
    )


def _table(missing: Sequence[Any]) -> dg.TableMetadataValue:
    # Dagster reads the columns off the first record, unless it is told: there may be none.
    schema = dg.TableSchema(columns=[dg.TableColumn(name) for name in ("repository", "stage", "state", "reason")])
    return dg.MetadataValue.table(list(_records(missing)), schema=schema)


def _records(missing: Sequence[Any]) -> Iterator[dg.TableRecord]:
    for gap in missing[:200]:
        yield dg.TableRecord(
            {"repository": gap.full_name, "stage": gap.stage, "state": gap.state, "reason": gap.reason or ""}
        )
