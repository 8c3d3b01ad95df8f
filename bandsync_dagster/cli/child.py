"""What runs first in each child process of a local deployment: `python -m bandsync_dagster.cli.child MODULE …`.

It makes sure of two things and then becomes MODULE:

- The signals mean what they say. A command started in the background of a script inherits an ignored SIGINT, and
  Dagster gives SIGTERM whatever SIGINT has: such a process could not be stopped.
- It does not outlive the command. The command holds the other end of our standard input; when that closes, for
  whatever reason, this process and all it started end too. That needs no help from the operating system and works
  after a SIGKILL.
"""

import os
import runpy
import signal
import sys
import threading

# Time for run workers to write what they have fetched, once they are told to stop.
GRACE_SECONDS = 20.0


def main() -> None:
    """Become the module named on the command line."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, name="end-with-parent", daemon=True).start()
    module = sys.argv[1]
    sys.argv = sys.argv[1:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _end_with_parent() -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    _signal_group(signal.SIGTERM)
    threading.Event().wait(GRACE_SECONDS)
    _signal_group(signal.SIGKILL if sys.platform != "win32" else signal.SIGTERM)


def _signal_group(number: int) -> None:
    """Signal this process and those it started. They share a group, as the command starts each child with its own."""
    if sys.platform == "win32":
        os.kill(os.getpid(), number)
    else:
        os.killpg(os.getpgrp(), number)


if __name__ == "__main__":
    main()
