"""The SQL database: schema, migrations, the one write path and the queries. Knows neither Dagster nor GitHub's API."""
