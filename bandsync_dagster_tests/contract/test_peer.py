"""A peer that many people use, the Singer tap for GitHub, collecting from the simulator.

It is installed into an environment of its own: it pins what we leave open, and brings a pytest plugin.
"""

import json
import os
import subprocess
import venv
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from bandsync_dagster.simulator.generation import generate
from bandsync_dagster.simulator.server import SimulatedGitHub

PEER = "meltanolabs-tap-github==1.30.1"
NAME = "acme/alto"
# Its streams, our tables, and the fields that both have under the same name. It loses the attempt of a job.
STREAMS = {
    "repositories": ("repositories", ("id", "node_id", "full_name", "private", "archived")),
    "pull_requests": ("changes", ("id", "node_id", "number", "draft", "created_at", "updated_at", "merged_at")),
    "workflow_runs": ("verifications", ("id", "node_id", "run_number", "run_attempt", "event", "status", "head_sha")),
    "workflow_run_jobs": ("jobs", ("id", "node_id", "status", "conclusion", "completed_at")),
}
pytestmark = [pytest.mark.network, pytest.mark.timeout(900)]
Records = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def tap(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the peer's command."""
    home = tmp_path_factory.mktemp("peer")
    venv.create(home, with_pip=True)
    programs = home / ("Scripts" if os.name == "nt" else "bin")
    pip = [programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PEER]
    subprocess.run(pip, check=True, capture_output=True, timeout=800)  # noqa: S603  (a fixed command)
    return programs / "tap-github"


@pytest.fixture
def server() -> Iterator[SimulatedGitHub]:
    """Serve without asking for a token: the peer checks its tokens with api.github.com, whatever its address is."""
    with SimulatedGitHub(generate(repositories=2, changes=130, runs=40), open_access=True) as running:
        yield running


def run(folder: Path, *command: str | Path) -> str:
    """Run the peer in an empty environment, so without the tokens of whoever runs the tests; return what it prints."""
    nothing = {"HOME": str(folder)}
    done = subprocess.run(command, env=nothing, capture_output=True, text=True, timeout=120, check=False)  # noqa: S603  (as above)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def collect(tap: Path, folder: Path, url: str) -> Records:
    """Let the peer collect one repository, and return its records by stream."""
    config, catalog = folder / "config.json", folder / "catalog.json"
    config.write_text(json.dumps({"api_url_base": url, "repositories": [NAME], "start_date": "2020-01-01T00:00:00Z"}))
    known = json.loads(run(folder, tap, "--config", config, "--discover"))
    for stream in known["streams"]:
        (whole,) = (entry for entry in stream["metadata"] if not entry["breadcrumb"])
        whole["metadata"]["selected"] = stream["tap_stream_id"] in STREAMS
    catalog.write_text(json.dumps(known))
    records: Records = defaultdict(list)
    for line in run(folder, tap, "--config", config, "--catalog", catalog).splitlines():
        message = json.loads(line)
        if message["type"] == "RECORD":
            records[message["stream"]].append(message["record"])
    return records


def test_a_peer_collects_the_truth(tap: Path, server: SimulatedGitHub, tmp_path: Path) -> None:
    """Repositories, pull requests, runs and jobs of all attempts: nothing missing, nothing twice."""
    records = collect(tap, tmp_path, server.url)
    home = server.world.repository(NAME).id
    truth = server.world.truth()
    for stream, (table, fields) in STREAMS.items():
        expected = [row for row in truth[table] if row.get("repository_id", row["id"]) == home]
        found = sorted(records[stream], key=lambda record: record["id"])
        assert [[moment(record.get(name)) for name in fields] for record in found] == [
            [row[name] for name in fields] for row in expected
        ]


def moment(value: Any) -> Any:
    """Read a time; the zero time stands for none."""
    if not isinstance(value, str) or "T" not in value or not value.endswith("Z"):
        return value
    time = datetime.strptime(value, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    return None if time.year < 2000 else time
