"""The partitions: one per repository, added by discovery. Nothing that decides which repositories there are."""

import dagster as dg

from bandsync_dagster.repository_key import RepositoryKey

__all__ = ["RepositoryKey", "repositories_partitions"]

repositories_partitions = dg.DynamicPartitionsDefinition(name="repositories")
