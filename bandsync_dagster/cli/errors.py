"""How a command ends before its work is done: a message for people, and an exit code. No tracebacks."""

from typing import Final

import click

# Exit codes, beside 0. click itself uses 2 for a command line it cannot read.
INCOMPLETE: Final = 1
REFUSED: Final = 2
INTERRUPTED: Final = 130


class CommandError(click.ClickException):
    """Something a person has to change before anything can be done. Shown as `Error: …`, without a traceback."""

    exit_code = REFUSED


class BrokenOffError(CommandError):
    """Something went wrong on the way: part of the work may be done."""

    exit_code = INCOMPLETE


class Interrupted(Exception):
    """Ctrl-C, or a signal that asks for the same. What was started is being stopped."""
