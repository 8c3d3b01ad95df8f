"""GitHub's API as bandsync uses it: requests, quota, typed errors, parsed rows. Knows neither Dagster nor the store."""
