"""The step the three stages share: collect one stage of one repository and say how it went. No collecting here."""

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any, Literal

import dagster as dg
from pydantic import Field

from bandsync_dagster.collection.collector import Deferred, StageOptions, StageResult
from bandsync_dagster.deferral import defer, identity
from bandsync_dagster.github.errors import GitHubError, TransientError
from bandsync_dagster.partitions import RepositoryKey, repositories_partitions
from bandsync_dagster.resources import Services
from bandsync_dagster.settings import Settings
from bandsync_dagster.step_retries import StepRetries
from bandsync_dagster.tags import POOL


def stage_asset(*, deps: Sequence[str], kinds: set[str]) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Make an asset of a stage: one run per repository, in the pool, and without output when it is deferred."""
    return dg.asset(
        deps=deps,
        kinds=kinds,
        partitions_def=repositories_partitions,
        pool=POOL,
        group_name="delivery",
        owners=["team:delivery"],
        output_required=False,
    )


class Detail(Enum):
    """How much of each job is collected (Dagster's run config takes an Enum and no Literal)."""

    BASIC = "basic"
    FULL = "full"


_DETAILS: dict[Detail, Literal["basic", "full"]] = {Detail.BASIC: "basic", Detail.FULL: "full"}


class CollectConfig(dg.Config):
    """How one run collects; what is left out comes from the settings."""

    full_refresh: bool = Field(
        default=False, description="Collect everything again from the start. Rows already stored are kept and updated."
    )
    history_days: int | None = Field(
        default=None, ge=1, description="How many days back a first collection goes. Left out: all of the history."
    )
    detail: Detail | None = Field(
        default=None,
        description="`full` adds runner, labels, queue time and steps to each job, at one request per workflow run.",
    )

    def options(self, settings: Settings) -> StageOptions:
        """Complete this with the settings."""
        return StageOptions(
            full_refresh=self.full_refresh,
            history_days=self.history_days or settings.history_days,
            detail=settings.detail if self.detail is None else _DETAILS[self.detail],
        )


def collect_stage(
    context: dg.AssetExecutionContext, stage: str, config: CollectConfig, services: Services
) -> Iterator[dg.MaterializeResult[Any]]:
    """Collect a stage of the run's repository; yield its materialization, or nothing when it was deferred."""
    key = _key(context)
    with StepRetries():
        try:
            result = services.collector().collect(
                stage, str(key), identity(context.run), config.options(services.settings)
            )
        except Deferred as deferral:
            defer(context, services, deferral)
            return
        except TransientError:
            raise
        except GitHubError as error:
            raise dg.Failure(f"{key}: {error}", allow_retries=False) from error
        context.log.info(_sentence(key, result))
        yield dg.MaterializeResult(metadata=stage_metadata(result))


def _key(context: dg.AssetExecutionContext) -> RepositoryKey:
    """Read the partition's key; Dagster lets people add partitions with any name."""
    try:
        return RepositoryKey.parse(context.partition_key)
    except ValueError as error:
        raise dg.Failure(str(error), allow_retries=False) from error


def stage_metadata(result: StageResult) -> dict[str, dg.MetadataValue[Any]]:
    """Return what the Dagster UI shows of a collected stage."""
    numbers = {
        "records": result.collected,
        "created": result.created,
        "updated": result.updated,
        "unchanged": result.unchanged,
        "requests": result.requests,
        "points": result.points,
        "deferrals": result.deferrals,
        "sync": result.sync_id,
        "dagster/row_count": result.rows,
    }
    return {
        **{name: dg.MetadataValue.int(value) for name, value in numbers.items()},
        "outcome": dg.MetadataValue.text(result.outcome),
        "repository": dg.MetadataValue.text(result.full_name),
        "pipeline": dg.MetadataValue.json(dict(result.metrics)),
    }


def _sentence(key: RepositoryKey, result: StageResult) -> str:
    return (
        f"{key}: {result.collected} {result.stage} collected ({result.created} created, {result.updated} updated, "
        f"{result.unchanged} unchanged) for {result.requests} requests and {result.points} points."
    )
