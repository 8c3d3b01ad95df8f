"""What the settings cannot tell until they are used: folders and keys."""

from pathlib import Path

import pytest

from bandsync_dagster.resources import make_credentials, open_services
from bandsync_dagster.settings import Settings, SettingsError
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
