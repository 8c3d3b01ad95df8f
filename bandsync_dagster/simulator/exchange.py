"""What passes between the HTTP side of the simulated GitHub and its REST endpoints: a call, an answer, a refusal."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bandsync_dagster.simulator.tokens import Caller

DOCS = "https://docs.github.com/rest"


@dataclass(frozen=True, slots=True)
class Call:
    """A REST request: the path below the API's address, whoever asks, and the public address for links."""

    path: str
    query: Mapping[str, str]
    caller: Caller
    base: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A REST response before limits, ETags and faults have their say. `body` is None where there is none."""

    status: int
    body: Any
    headers: dict[str, str] = field(default_factory=dict)


class Refused(Exception):
    """Ends a request early with this answer."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


def message(status: int, text: str, **headers: str) -> Answer:
    """Return an answer in the form of GitHub's error bodies."""
    body = {"message": text, "documentation_url": DOCS, "status": str(status)}
    return Answer(status, body, {name.replace("_", "-"): value for name, value in headers.items()})


NOT_FOUND = message(404, "Not Found")
