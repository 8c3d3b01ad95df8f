"""Child processes: they can be stopped, and they and all they started end with the command, however that ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATIENCE = 60

# A module that starts a process of its own, as a code server does, says so, and then does nothing until it is stopped.
PARENT = """
import subprocess, sys, threading
subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait()"])
print("ready", flush=True)
threading.Event().wait()
"""

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="process groups are a thing of POSIX")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a module to run."""
    (tmp_path / "parent.py").write_text(PARENT)
    return tmp_path


def start(folder: Path, prefix: str = "") -> subprocess.Popen[str]:
    """Start the module as the command starts its children; return when it is at work."""
    command = f"{prefix} exec '{sys.executable}' -m bandsync_dagster.cli.child parent"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}  # noqa: TID251  (for the child)
    process = subprocess.Popen(  # noqa: S603  (our own interpreter and module)
        ["/bin/sh", "-c", command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def wait_for_the_group(process: subprocess.Popen[str]) -> None:
    """Wait until the process and all it started have ended: their common output has no writer then, and not before."""
    process.communicate(timeout=PATIENCE)


def test_a_child_and_what_it_started_end_when_the_command_vanishes(folder: Path) -> None:
    """A killed command can't say goodbye; the pipe that closes with it does."""
    process = start(folder)
    assert process.stdin is not None
    process.stdin.close()
    process.stdin = None
    wait_for_the_group(process)


def test_a_child_can_be_stopped_though_its_command_ran_in_the_background(folder: Path) -> None:
    """A shell lets background commands ignore SIGINT, and Dagster would then ignore SIGTERM too."""
    process = start(folder, prefix="trap '' INT TERM;")
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(PATIENCE) == -signal.SIGTERM
    os.killpg(process.pid, signal.SIGKILL)
    wait_for_the_group(process)
