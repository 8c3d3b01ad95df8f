"""Which runs a listing returns: filters, order, and the caps that make it incomplete without a word.

Sources: GitHub docs, "List workflow runs for a repository" (1,000 results for each filtered search); GitHub changelog
of 25 September 2026 (counts beyond 2,500 are lower bounds); the cap of unfiltered lists at 40,000 was observed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bandsync_dagster.simulator.exchange import Refused, message
from bandsync_dagster.simulator.listing import NoInterval, Page, parse_created
from bandsync_dagster.simulator.records import Change, Repository, Run

FILTERED_CAP = 1_000
COUNTED = 2_500
UNFILTERED_CAP = 40_000
FILTERS = ("actor", "branch", "check_suite_id", "created", "event", "head_sha", "status")

BEYOND_CAP = message(422, "In order to keep the API fast for everyone, pagination is limited for this resource.")
BAD_CREATED = message(422, "Validation Failed: created is not a valid date or range of dates.")


@dataclass(frozen=True, slots=True)
class Selection:
    """One page of runs, newest first, and the total that GitHub gives with it."""

    runs: list[Run]
    total: int


def select(repository: Repository, query: Mapping[str, str], page: Page) -> Selection:
    """Return the page of runs that a query asks for.

    Raises:
        Refused: It asks for more than GitHub pages through, or for a time that is none.
    """
    if repository.actions != "enabled":
        return Selection([], 0)
    if any(name in query for name in FILTERS):
        return _filtered(repository, query, page)
    if page.stop > UNFILTERED_CAP:
        raise Refused(BEYOND_CAP)
    return Selection(_newest_first(repository.runs, page), min(len(repository.runs), UNFILTERED_CAP))


def _filtered(repository: Repository, query: Mapping[str, str], page: Page) -> Selection:
    start, stop = _created(repository, query.get("created"))
    criteria = {name: query[name] for name in FILTERS if name in query and name != "created"}
    found = repository.runs[start:stop]
    if criteria:
        found = [run for run in found if _matches(run, criteria)]
    allowed = found[-FILTERED_CAP:]
    return Selection(_newest_first(allowed, page), min(len(found), COUNTED))


def _created(repository: Repository, text: str | None) -> tuple[int, int]:
    if text is None:
        return 0, len(repository.runs)
    try:
        since, until = parse_created(text)
    except NoInterval:
        raise Refused(BAD_CREATED) from None
    return repository.runs_created(since, until)


def _newest_first(runs: list[Run], page: Page) -> list[Run]:
    """Take a page from the end of a list that is sorted oldest first."""
    stop, start = len(runs) - page.start, max(0, len(runs) - page.stop)
    return runs[start:stop][::-1] if stop > 0 else []


def _matches(run: Run, criteria: Mapping[str, str]) -> bool:
    values = {
        "actor": (run.actor.login if run.actor else None,),
        "branch": (run.head_branch,),
        "check_suite_id": (str(run.suite_id),),
        "event": (run.event,),
        "head_sha": (run.head_sha,),
        "status": (run.attempt.status, run.attempt.conclusion),
    }
    return all(wanted in values[name] for name, wanted in criteria.items())


def pull_requests_of(repository: Repository) -> dict[str, list[Change]]:
    """Return the open changes by their head commits: what GitHub lists with a run, whatever started it."""
    by_commit: dict[str, list[Change]] = {}
    for change in _open(repository.changes):
        by_commit.setdefault(change.head_sha, []).append(change)
    return by_commit


def _open(changes: Iterable[Change]) -> Iterable[Change]:
    return (change for change in changes if change.state == "open")
