"""`python -m bandsync_dagster.cli`, for where the `bandsync` script is not on the path."""

from bandsync_dagster.cli import main

if __name__ == "__main__":
    main()
