"""Which repositories there are: sources as people write them, what GitHub lists for them, and the marks in the store.

A failed read is not an empty list: a source's listing is None when it could not be read, and only a listing that was
read can show that a repository is gone.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from functools import partial
from typing import Literal

import sqlalchemy as sa

from bandsync_dagster.collection.outage import persist_here
from bandsync_dagster.github.client import GitHubClient
from bandsync_dagster.github.errors import (
    BadCredentials,
    Blocked,
    Forbidden,
    GitHubError,
    NotFound,
    RateLimited,
)
from bandsync_dagster.github.models import Repository
from bandsync_dagster.github.rest import fetch_owner_kind, fetch_repository, iterate_repositories
from bandsync_dagster.repository_key import RepositoryKey
from bandsync_dagster.store.queries import StoredRepository, list_repositories
from bandsync_dagster.store.repositories import mark_repository, upsert_repositories

SourceKind = Literal["org", "user", "repo"]
_HOW_TO_WRITE = "write org:NAME, user:NAME or repo:OWNER/NAME"


class DiscoveryError(Exception):
    """Sources could not be read; one line for each problem, saying what to do.

    Attributes:
        problems: The lines.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Source:
    """Where repositories come from: an organisation, a user, or one repository by its name."""

    kind: SourceKind
    name: str

    @classmethod
    def parse(cls, text: str) -> "Source":
        """Read `org:NAME`, `user:NAME` or `repo:OWNER/NAME`.

        Raises:
            ValueError: The text is none of these; the message says how to write it.
        """
        kind, _, name = text.strip().partition(":")
        if kind == "repo":
            return cls("repo", str(RepositoryKey.parse(name)))
        if kind not in ("org", "user") or not _is_owner(name):
            raise ValueError(f"{text!r} is not a source: {_HOW_TO_WRITE}")
        return cls("org" if kind == "org" else "user", name)

    @property
    def folded(self) -> str:
        """Equal for all spellings of one source."""
        return str(self).lower()

    def __str__(self) -> str:
        """Print the source as it is written."""
        return f"{self.kind}:{self.name}"


def parse_sources(texts: Iterable[str]) -> list[Source]:
    """Read sources, each once however often and in whatever case it is written.

    Raises:
        DiscoveryError: Some can't be read, or there are none; it names all of them.
    """
    sources: dict[str, Source] = {}
    problems: list[str] = []
    for text in texts:
        source = _parse_or_note(text, problems)
        if source is not None:
            sources.setdefault(source.folded, source)
    if problems:
        raise DiscoveryError(*problems)
    if not sources:
        raise DiscoveryError(f"there are no sources, so there is nothing to collect: {_HOW_TO_WRITE}")
    return list(sources.values())


def _parse_or_note(text: str, problems: list[str]) -> Source | None:
    try:
        return Source.parse(text)
    except ValueError as error:
        problems.append(str(error))
        return None


def _is_owner(name: str) -> bool:
    try:
        RepositoryKey.parse(f"{name}/x")
    except ValueError:
        return False
    return "/" not in name


@dataclass(frozen=True, slots=True)
class SourceFilter:
    """Which of the listed repositories are wanted. A repository that is a source by itself always is.

    Attributes:
        include: Patterns of `owner/name` as in a shell, case ignored; with none, all are wanted.
        exclude: Patterns of those that are not.
        archived: Whether archived ones are wanted.
        forks: Whether forks are wanted.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    archived: bool = True
    forks: bool = False

    def wants(self, repository: Repository) -> bool:
        """Tell whether the repository is wanted."""
        if (repository.archived and not self.archived) or (repository.fork and not self.forks):
            return False
        name = repository.full_name.lower()
        included = not self.include or _matches(name, self.include)
        return included and not _matches(name, self.exclude)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern.lower()) for pattern in patterns)


@dataclass(frozen=True, slots=True)
class Discovery:
    """What the sources hold at one moment.

    Attributes:
        listings: Per source all it lists, wanted or not; None if it could not be read.
        repositories: The wanted ones, each once, in the order of the sources.
        problems: One line for each source that could not be read, saying what to do.
    """

    listings: Mapping[Source, Sequence[Repository] | None]
    repositories: Sequence[Repository]
    problems: tuple[str, ...] = ()

    @property
    def keys(self) -> list[str]:
        """The wanted repositories' names as GitHub spells them."""
        return [repository.full_name for repository in self.repositories]


async def discover(client: GitHubClient, sources: Sequence[Source], wanted: SourceFilter) -> Discovery:
    """List the sources. One that can't be read doesn't keep the others from it.

    Raises:
        RateLimited: GitHub's quota is used up; nothing that was listed so far is returned.
        DiscoveryError: GitHub refuses the token, which concerns all sources alike.
    """
    problems: list[str] = []
    listings = {source: await _listing_or_note(client, source, problems) for source in sources}
    return Discovery(listings, _wanted_once(listings, wanted), tuple(problems))


async def _listing_or_note(client: GitHubClient, source: Source, problems: list[str]) -> Sequence[Repository] | None:
    try:
        return await _listing(client, source)
    except (RateLimited, BadCredentials) as error:
        raise _for_all_sources(error) from error
    except GitHubError as error:
        problems.append(f"{source}: {await _explain(client, source, error)}")
        return None


async def _listing(client: GitHubClient, source: Source) -> Sequence[Repository]:
    if source.kind == "repo":
        return [await fetch_repository(client, source.name)]
    if source.kind == "user" and await fetch_owner_kind(client, source.name) == "org":
        # GitHub would list the public ones only, and nobody would notice that the others are missing.
        raise NotFound(f"{source.name} is an organisation")
    pages = [page async for page in iterate_repositories(client, source.kind, source.name)]
    return [repository for page in pages for repository in page]


def _for_all_sources(error: RateLimited | BadCredentials) -> Exception:
    if isinstance(error, RateLimited):
        return error
    return DiscoveryError(
        f"GitHub refuses the token ({error}): set GITHUB_TOKEN to one that is neither expired nor revoked"
    )


async def _explain(client: GitHubClient, source: Source, error: GitHubError) -> str:
    """Say what a person can do about a source that could not be read."""
    if isinstance(error, NotFound):
        return await _explain_missing(client, source)
    if isinstance(error, Forbidden):
        return f"the token may not read it ({error}): give it access, or authorise it for single sign-on"
    if isinstance(error, Blocked):
        return f"GitHub has blocked it ({error.reason}): remove it from the sources"
    return f"could not be read, so nothing is known of it this time ({error}): try again later"


async def _explain_missing(client: GitHubClient, source: Source) -> str:
    hint = "check the spelling, and that the token may see it"
    if source.kind == "repo":
        return f"GitHub knows no repository of this name: {hint}"
    if await _owner_kind(client, source.name) not in (None, source.kind):
        right, article = ("org", "an organisation") if source.kind == "user" else ("user", "a user")
        return f"{source.name} is {article}: write {right}:{source.name}"
    return f"GitHub knows no {'organisation' if source.kind == 'org' else 'user'} of this name: {hint}"


async def _owner_kind(client: GitHubClient, name: str) -> Literal["org", "user"] | None:
    try:
        return await fetch_owner_kind(client, name)
    except NotFound:
        return None


def _wanted_once(listings: Mapping[Source, Sequence[Repository] | None], wanted: SourceFilter) -> list[Repository]:
    """Return the wanted repositories, each once; names that differ in case only are one name."""
    found: dict[str, Repository] = {}
    for source, listing in listings.items():
        for repository in listing or ():
            if source.kind == "repo" or wanted.wants(repository):
                found.setdefault(repository.full_name.lower(), repository)
    return list(found.values())


def record_discovery(engine: sa.Engine, found: Discovery, *, now: datetime) -> list[str]:
    """Note in the store what there is, and what is gone. Blocks, also for as long as the store is away.

    Gone is what is stored under an owner whose listing was read and doesn't have it. What a filter leaves out is
    listed all the same, so it isn't gone.

    Returns:
        The names of the repositories found to be gone this time.

    Raises:
        StoreError: The store refuses, or stayed away.
    """
    stored = persist_here(partial(list_repositories, engine))
    seen = [asdict(repository) for repository in _to_note(found, stored)]
    persist_here(partial(upsert_repositories, engine, seen, now=now))
    gone = list(_gone(found, stored))
    for repository, reason in gone:
        persist_here(partial(mark_repository, engine, repository.id, "gone", reason, now=now))
    return [repository.full_name for repository, _ in gone]


def _to_note(found: Discovery, stored: Sequence[StoredRepository]) -> list[Repository]:
    """Return the wanted repositories, and of the others those that were wanted once."""
    wanted = {repository.id for repository in found.repositories} | {repository.id for repository in stored}
    return [repository for repository in _listed(found).values() if repository.id in wanted]


def _gone(found: Discovery, stored: Sequence[StoredRepository]) -> Iterator[tuple[StoredRepository, str]]:
    """Yield the stored repositories that a source should list and doesn't, each with the reason to note."""
    listed = _listed(found)
    owners = {
        source.name.lower(): source
        for source, listing in found.listings.items()
        if listing is not None and source.kind != "repo"
    }
    for repository in stored:
        source = owners.get(repository.full_name.partition("/")[0].lower())
        if source is not None and repository.id not in listed and repository.state != "gone":
            yield repository, f"{source} does not list it any more"


def _listed(found: Discovery) -> dict[int, Repository]:
    return {repository.id: repository for listing in found.listings.values() for repository in listing or ()}
