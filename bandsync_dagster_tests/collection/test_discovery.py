"""Sources, filters, and what a listing may and may not say about the repositories in the store."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from bandsync_dagster.collection.discovery import (
    Discovery,
    DiscoveryError,
    Source,
    SourceFilter,
    discover,
    parse_sources,
    record_discovery,
)
from bandsync_dagster.github.auth import PersonalToken
from bandsync_dagster.github.client import GitHubClient
from bandsync_dagster.github.errors import RateLimited
from bandsync_dagster.github.quota import MemoryLedger
from bandsync_dagster.store.schema import repositories
from bandsync_dagster_tests.collection.small_github import described
from bandsync_dagster_tests.collection.time_by_hand import EPOCH, TimeByHand
from bandsync_dagster_tests.store.builders import stored

EVERYTHING = SourceFilter(forks=True)


@dataclass
class Owners:
    """A GitHub of organisations and users, each with repositories.

    Attributes:
        kinds: What each login is.
        listed: The repositories of each login.
        refusals: Answers to give instead, by path.
        page_size: How many repositories come at once.
    """

    kinds: dict[str, str] = field(default_factory=dict[str, str])
    listed: dict[str, list[dict[str, Any]]] = field(default_factory=dict[str, list[dict[str, Any]]])
    refusals: dict[str, httpx.Response] = field(default_factory=dict[str, httpx.Response])
    page_size: int = 100

    def discover(self, *sources: str, wanted: SourceFilter = EVERYTHING) -> Discovery:
        """List sources through a real client."""
        return asyncio.run(self._discover(parse_sources(sources), wanted))

    async def _discover(self, sources: Sequence[Source], wanted: SourceFilter) -> Discovery:
        time = TimeByHand()
        async with GitHubClient(
            credentials=[PersonalToken("secret")],
            ledger=MemoryLedger(),
            clock=time.clock,
            transport=httpx.MockTransport(self.answer),
            sleep=time.sleep_at_once,
        ) as client:
            return await discover(client, sources, wanted)

    def answer(self, request: httpx.Request) -> httpx.Response:
        """Answer a request as GitHub does."""
        path = request.url.path
        if path in self.refusals:
            return self.refusals[path]
        listing = re.fullmatch(r"/(orgs|users)/([^/]+)/repos", path)
        if listing:
            return self._list(request, listing[1], listing[2].lower())
        if path.startswith("/users/"):
            return self._describe(path.removeprefix("/users/").lower())
        return self._single(path.removeprefix("/repos/").lower())

    def _list(self, request: httpx.Request, plural: str, login: str) -> httpx.Response:
        if login not in self.kinds or (plural == "orgs" and self.kinds[login] != "Organization"):
            return httpx.Response(404, json={"message": "Not Found"})
        page = int(request.url.params.get("page", "1"))
        rows = self.listed.get(login, [])
        last = page * self.page_size >= len(rows)
        following = str(request.url.copy_merge_params({"page": page + 1}))
        headers = {} if last else {"link": f'<{following}>; rel="next"'}
        return httpx.Response(200, headers=headers, json=rows[(page - 1) * self.page_size : page * self.page_size])

    def _describe(self, login: str) -> httpx.Response:
        if login not in self.kinds:
            return httpx.Response(404, json={"message": "Not Found"})
        return httpx.Response(200, json={"login": login, "type": self.kinds[login]})

    def _single(self, name: str) -> httpx.Response:
        for row in self.listed.get(name.partition("/")[0], []):
            if row["full_name"].lower() == name:
                return httpx.Response(200, json=row)
        return httpx.Response(404, json={"message": "Not Found"})


@pytest.fixture
def github() -> Owners:
    """An organisation with four repositories and a user with one."""
    acme = [
        described(1, "Acme/Pool"),
        described(2, "Acme/old", archived=True),
        described(3, "Acme/copy", fork=True),
        described(4, "Acme/docs"),
    ]
    return Owners(
        kinds={"acme": "Organization", "octocat": "User"},
        listed={"acme": acme, "octocat": [described(9, "octocat/hi")]},
    )


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("org:acme", "org", "acme"),
        ("user:octo-cat", "user", "octo-cat"),
        ("repo:acme/pool.js", "repo", "acme/pool.js"),
        ("  org:acme ", "org", "acme"),
        ("user:corp_emu", "user", "corp_emu"),
    ],
)
def test_a_source_is_read_and_printed(text: str, kind: str, name: str) -> None:
    """It prints as it is written."""
    source = Source.parse(text)
    assert (source.kind, source.name, str(source)) == (kind, name, text.strip())


@pytest.mark.parametrize(
    "text",
    ["", "acme", "acme/pool", "org:", "org:acme/pool", "org:a b", "ORG:acme", "team:acme", "user:../x", "org:acme\n/x"],
)
def test_what_is_no_source_is_refused_with_the_ways_to_write_one(text: str) -> None:
    """The message quotes the input."""
    with pytest.raises(ValueError, match=r"write org:NAME, user:NAME or repo:OWNER/NAME") as raised:
        Source.parse(text)
    assert repr(text) in str(raised.value)


@pytest.mark.parametrize(
    "text", ["repo:acme", "repo:acme/", "repo:/pool", "repo:a/b/c", "repo:acme/..", "repo:a/b...c"]
)
def test_what_is_no_repository_is_refused_with_an_example(text: str) -> None:
    """The message says what a repository's name looks like."""
    with pytest.raises(ValueError, match="write owner/name"):
        Source.parse(text)


def test_all_invalid_sources_are_named_at_once() -> None:
    """One line for each, so that nobody corrects them one by one."""
    with pytest.raises(DiscoveryError) as raised:
        parse_sources(["org:acme", "acme", "repo:pool"])
    assert [line.split(" ")[0] for line in raised.value.problems] == ["'acme'", "'pool'"]
    assert str(raised.value).count("\n") == 1


def test_no_sources_at_all_is_a_mistake_that_says_how_to_give_some() -> None:
    """Collecting nothing because nothing was asked for must not look like success."""
    with pytest.raises(DiscoveryError, match="no sources"):
        parse_sources([])


def test_a_source_given_twice_counts_once() -> None:
    """In whatever case it is written."""
    assert [str(source) for source in parse_sources(["org:acme", "org:Acme", "org:acme"])] == ["org:acme"]


def test_repositories_come_once_in_github_s_spelling(github: Owners) -> None:
    """However many sources list them and however these are spelled."""
    found = github.discover("repo:ACME/POOL", "org:acme", "repo:acme/pool", "user:octocat")
    assert found.keys == ["Acme/Pool", "Acme/old", "Acme/copy", "Acme/docs", "octocat/hi"]
    assert found.problems == ()


def test_every_page_of_a_listing_is_read(github: Owners) -> None:
    """The `Link` header is followed to its end."""
    github.page_size = 1
    assert len(github.discover("org:acme").keys) == 4


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (SourceFilter(), ["Pool", "old", "docs"]),
        (SourceFilter(archived=False), ["Pool", "docs"]),
        (SourceFilter(forks=True), ["Pool", "old", "copy", "docs"]),
        (SourceFilter(include=("ACME/p*", "*/docs")), ["Pool", "docs"]),
        (SourceFilter(exclude=("acme/*o*",)), []),
        (SourceFilter(include=("acme/*",), exclude=("acme/old",)), ["Pool", "docs"]),
    ],
)
def test_filters_choose_among_what_is_listed(github: Owners, wanted: SourceFilter, names: list[str]) -> None:
    """Patterns ignore case; what is excluded is excluded even if it is included too."""
    assert github.discover("org:acme", wanted=wanted).keys == [f"Acme/{name}" for name in names]


def test_a_repository_named_by_itself_is_wanted_whatever_the_filters_say(github: Owners) -> None:
    """Somebody who names an archived fork means it."""
    found = github.discover("repo:acme/copy", wanted=SourceFilter(exclude=("*",), archived=False))
    assert found.keys == ["Acme/copy"]


def test_an_empty_organisation_is_a_success_with_nothing_in_it(github: Owners) -> None:
    """Nothing there is not the same as not read."""
    github.listed["acme"] = []
    found = github.discover("org:acme")
    assert (found.keys, found.problems) == ([], ())
    assert list(found.listings.values()) == [[]]


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("org:octocat", "org:octocat: octocat is a user: write user:octocat"),
        ("user:acme", "user:acme: acme is an organisation: write org:acme"),
        ("org:nope", "org:nope: GitHub knows no organisation of this name: check the spelling"),
        ("user:nope", "user:nope: GitHub knows no user of this name: check the spelling"),
        ("repo:acme/nope", "repo:acme/nope: GitHub knows no repository of this name: check the spelling"),
    ],
)
def test_a_source_github_does_not_know_gets_a_line_that_says_what_to_do(github: Owners, source: str, line: str) -> None:
    """The other sources are listed all the same."""
    found = github.discover(source, "repo:acme/pool")
    assert len(found.problems) == 1
    assert found.problems[0].startswith(line)
    assert found.keys == ["Acme/Pool"]
    assert found.listings[Source.parse(source)] is None


def body(message: str, **more: object) -> dict[str, object]:
    """Return the body of a refusal."""
    return {"message": message, **more}


@pytest.mark.parametrize(
    ("status", "answer", "says"),
    [
        (403, body("Resource not accessible by personal access token"), "the token may not read it"),
        (451, body("Repository access blocked", block={"reason": "dmca"}), "GitHub has blocked it (dmca)"),
        (502, body("Server Error"), "could not be read, so nothing is known of it this time"),
        (200, body("no list"), "could not be read, so nothing is known of it this time"),
    ],
)
def test_a_source_that_cannot_be_read_is_told_apart_from_an_empty_one(
    github: Owners, status: int, answer: dict[str, object], says: str
) -> None:
    """Its listing is None, and one line says what is the matter."""
    github.refusals["/orgs/acme/repos"] = httpx.Response(status, json=answer)
    found = github.discover("org:acme", "user:octocat")
    assert found.listings[Source("org", "acme")] is None
    assert [line for line in found.problems if says in line and line.startswith("org:acme: ")] == [*found.problems]
    assert found.keys == ["octocat/hi"]


def test_a_bad_token_is_told_once_for_all_sources(github: Owners) -> None:
    """With the variable to set, and without the token."""
    refusal = httpx.Response(401, json=body("Bad credentials"))
    github.refusals = {"/orgs/acme/repos": refusal, "/users/octocat": refusal}
    with pytest.raises(DiscoveryError, match="set GITHUB_TOKEN") as raised:
        github.discover("org:acme", "user:octocat")
    assert len(raised.value.problems) == 1
    assert "secret" not in str(raised.value)


def test_a_rate_limit_is_neither_a_problem_nor_an_empty_list(github: Owners) -> None:
    """It is raised, to be deferred like any other."""
    headers = {"x-ratelimit-limit": "60", "x-ratelimit-remaining": "0", "x-ratelimit-resource": "core"}
    headers["x-ratelimit-reset"] = str(int(EPOCH.timestamp()) + 900)
    limited = httpx.Response(403, headers=headers, json=body("API rate limit exceeded for user ID 1."))
    github.refusals["/users/octocat"] = limited
    with pytest.raises(RateLimited):
        github.discover("org:acme", "user:octocat")


def states(engine: sa.Engine) -> dict[str, str]:
    """Return the state of each stored repository."""
    return {row["full_name"]: row["state"] for row in stored(engine, repositories)}


def test_what_is_wanted_is_stored_and_what_is_not_wanted_is_not(engine: sa.Engine, github: Owners) -> None:
    """The store holds what is collected, not what exists."""
    found = github.discover("org:acme", wanted=SourceFilter(archived=False))
    assert record_discovery(engine, found, now=EPOCH) == []
    assert states(engine) == {"Acme/Pool": "active", "Acme/docs": "active"}


def test_a_repository_that_is_not_listed_any_more_is_marked_and_named_once(engine: sa.Engine, github: Owners) -> None:
    """And it is active again as soon as it is listed again."""
    record_discovery(engine, github.discover("org:acme"), now=EPOCH)
    pool = github.listed["acme"].pop(0)
    assert record_discovery(engine, github.discover("org:acme"), now=EPOCH) == ["Acme/Pool"]
    assert record_discovery(engine, github.discover("org:acme"), now=EPOCH) == []
    assert states(engine)["Acme/Pool"] == "gone"
    github.listed["acme"].append(pool)
    record_discovery(engine, github.discover("org:acme"), now=EPOCH)
    assert states(engine)["Acme/Pool"] == "active"


def test_a_listing_that_failed_marks_nothing(engine: sa.Engine, github: Owners) -> None:
    """A bad day at GitHub doesn't delete an organisation."""
    record_discovery(engine, github.discover("org:acme", "user:octocat"), now=EPOCH)
    github.refusals["/orgs/acme/repos"] = httpx.Response(502, json=body("Server Error"))
    github.listed["octocat"] = []
    assert record_discovery(engine, github.discover("org:acme", "user:octocat"), now=EPOCH) == ["octocat/hi"]
    assert states(engine)["Acme/Pool"] == "active"


def test_a_repository_that_is_filtered_out_now_is_neither_gone_nor_outdated(engine: sa.Engine, github: Owners) -> None:
    """It is listed, so it is there; what GitHub says of it is kept up to date."""
    record_discovery(engine, github.discover("org:acme"), now=EPOCH)
    github.listed["acme"][0]["archived"] = True
    assert record_discovery(engine, github.discover("org:acme", wanted=SourceFilter(archived=False)), now=EPOCH) == []
    (pool,) = (row for row in stored(engine, repositories) if row["full_name"] == "Acme/Pool")
    assert (pool["state"], pool["archived"]) == ("active", True)


def test_repositories_of_owners_that_were_not_asked_about_are_left_alone(engine: sa.Engine, github: Owners) -> None:
    """A source that was taken out of the settings says nothing about its repositories."""
    record_discovery(engine, github.discover("org:acme", "user:octocat"), now=EPOCH)
    assert record_discovery(engine, github.discover("user:octocat"), now=EPOCH) == []
    assert set(states(engine).values()) == {"active"}


def test_a_renamed_repository_is_the_same_one_under_its_new_name(engine: sa.Engine, github: Owners) -> None:
    """Identity is the id: nothing is gone."""
    record_discovery(engine, github.discover("org:acme"), now=EPOCH)
    github.listed["acme"][0]["full_name"] = "Acme/Lake"
    assert record_discovery(engine, github.discover("org:acme"), now=EPOCH) == []
    assert "Acme/Pool" not in states(engine)
    assert states(engine)["Acme/Lake"] == "active"
