"""The `bandsync` command: what people type, what they see, and the local Dagster deployment behind it."""


def main() -> None:
    """Run the command."""
    # Here and not above: the child processes (`cli.child`) start from this package and must not load all of this.
    from bandsync_dagster.cli.errors import INTERRUPTED  # noqa: PLC0415

    try:
        # Loading Dagster takes seconds. Nothing has begun yet that would have to be stopped.
        from bandsync_dagster.cli.commands import bandsync  # noqa: PLC0415
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    bandsync()
