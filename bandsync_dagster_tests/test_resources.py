"""What the settings cannot tell until they are used: folders and keys."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bandsync_dagster.resources import Services, make_credentials, open_services
from bandsync_dagster.settings import Settings, SettingsError
from bandsync_dagster.store.engine import create_store_engine
from bandsync_dagster.store.errors import StoreMisconfigured


def test_a_database_whose_folder_cannot_be_made_is_misconfigured(tmp_path: Path) -> None:
    """One line that names the file, as for any other database that cannot be used."""
    (tmp_path / "file").touch()
    url = f"sqlite:///{tmp_path / 'file' / 'data' / 'bandsync.db'}"
    with pytest.raises(StoreMisconfigured, match=r"bandsync.db cannot be made: .*; check the database URL"):
        open_services(Settings.from_mapping({"BANDSYNC_DATABASE_URL": url}))


@pytest.mark.parametrize("content", [None, b"no key", b"\xff\xfe"])
def test_a_key_file_that_holds_no_key_is_named(tmp_path: Path, content: bytes | None) -> None:
    """Missing, another file or a binary one: the message names the variable, and shows nothing of the content."""
    file = tmp_path / "app.pem"
    if content is not None:
        file.write_bytes(content)
    app = {"GITHUB_APP_ID": "1", "GITHUB_APP_INSTALLATION_ID": "2", "GITHUB_APP_PRIVATE_KEY_FILE": str(file)}
    with pytest.raises(SettingsError, match="GITHUB_APP_PRIVATE_KEY") as raised:
        make_credentials(Settings.from_mapping(app))
    assert "no key" not in str(raised.value)


def test_a_process_that_is_to_end_does_not_wait_for_a_database_that_is_away(tmp_path: Path) -> None:
    """Calls to the quota ledger wait in threads, for up to 62 s; with the client they end."""
    engine = create_store_engine("postgresql://127.0.0.1:1/history")
    services = Services(Settings(home=tmp_path, database_url="", tokens=("secret",)), engine)

    async def ask_and_change_ones_mind() -> None:
        failed = asyncio.Event()
        loop = asyncio.get_running_loop()
        with told_of_outages(lambda _record: loop.call_soon_threadsafe(failed.set)):
            async with services.client() as client:
                asking = asyncio.ensure_future(client.get("/rate_limit"))
                await failed.wait()
                asking.cancel()

    started = time.monotonic()
    asyncio.run(ask_and_change_ones_mind())
    assert time.monotonic() - started < 30


@contextmanager
def told_of_outages(tell: Callable[[logging.LogRecord], object]) -> Iterator[None]:
    """Call something whenever an outage is logged."""

    class _Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            tell(record)

    handler = _Told()
    log = logging.getLogger("bandsync_dagster.collection.outage")
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
