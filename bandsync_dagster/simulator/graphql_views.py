"""What GraphQL sees of a world: small views that join a record with its repository. One class per GraphQL type.

Accounts and repositories need none: the records themselves are what GraphQL sees.
"""

from dataclasses import dataclass
from datetime import datetime

from bandsync_dagster.simulator import records


@dataclass(slots=True, eq=False)
class PullRequest:
    """A change in its repository."""

    change: records.Change
    repository: records.Repository


@dataclass(slots=True, eq=False)
class WorkflowRun:
    """A run in its repository."""

    run: records.Run
    repository: records.Repository


@dataclass(slots=True, eq=False)
class CheckSuite:
    """The check suite of a run."""

    run: records.Run
    repository: records.Repository


@dataclass(slots=True, eq=False)
class CheckRun:
    """The check run of a job."""

    job: records.Job
    run: records.Run
    repository: records.Repository


@dataclass(slots=True, eq=False)
class Workflow:
    """A workflow in its repository."""

    workflow: records.Workflow
    repository: records.Repository


@dataclass(slots=True, eq=False)
class PullRequestReview:
    """A review of a change."""

    review: records.Review
    pull: PullRequest


@dataclass(slots=True, eq=False)
class Label:
    """A label of a repository."""

    label: records.Label
    repository: records.Repository


@dataclass(slots=True, eq=False)
class Commit:
    """A commit: of its time only one is known."""

    oid: str
    date: datetime
    repository: records.Repository


@dataclass(slots=True, eq=False)
class PullRequestCommit:
    """One of the commits of a change."""

    commit: Commit
    pull: PullRequest


@dataclass(slots=True, eq=False)
class Ref:
    """A branch."""

    name: str
    repository: records.Repository


@dataclass(frozen=True, slots=True)
class App:
    """An app; GitHub Actions is the only one with check suites here."""

    id: int
    node_id: str
    name: str
    slug: str


GITHUB_ACTIONS = App(15368, "MDM6QXBwMTUzNjg=", "GitHub Actions", "github-actions")


def type_name(view: object) -> str:
    """Return the GraphQL type of a view or record; accounts know theirs."""
    return view.type if isinstance(view, records.User) else type(view).__name__


def graphql_login(user: records.User) -> str:
    """Return the login as GraphQL spells it: bots without REST's `[bot]`."""
    return user.login.removesuffix("[bot]") if user.type == "Bot" else user.login
