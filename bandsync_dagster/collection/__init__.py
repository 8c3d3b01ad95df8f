"""How a stage of a repository is collected: the three algorithms, the pipeline, the life of a sync. No Dagster here."""
