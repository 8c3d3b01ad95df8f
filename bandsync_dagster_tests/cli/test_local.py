"""What is told when a local deployment breaks off."""

from pathlib import Path

import pytest

from bandsync_dagster.cli.errors import BrokenOffError
from bandsync_dagster.cli.local import told_with_the_disk


@pytest.mark.parametrize(("free", "is_full"), [(0, True), (500_000, True), (50_000_000, False)])
def test_a_full_disk_is_named_and_not_only_what_it_did_to_dagster(free: int, *, is_full: bool) -> None:
    """That a webserver answers 500 helps nobody; its words are still there for whoever wants them."""
    error = BrokenOffError("Dagster's webserver does not answer: 500")
    told = told_with_the_disk(error, free, Path("/home/me/.bandsync")).message
    assert told.startswith("The disk that /home/me/.bandsync is on is full. Free space") == is_full
    assert "Dagster's webserver does not answer: 500" in told
