"""One GitHub, asked over REST and GraphQL. Which URL, which headers, and what an answer holds.

How a request gets through belongs to `exchange`, and the endpoints and documents to `rest` and `graphql`.
"""

import asyncio
import random
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version
from types import TracebackType
from typing import Any

import httpx

from bandsync_dagster.clock import Clock, utc_now
from bandsync_dagster.github.auth import Anonymous, Credential
from bandsync_dagster.github.errors import RequestRefused
from bandsync_dagster.github.exchange import Answer, Call, Exchange, Manners, Spent, points_of
from bandsync_dagster.github.payload import Fields
from bandsync_dagster.github.quota import QuotaLedger
from bandsync_dagster.github.redaction import redact

API_VERSION = "2022-11-28"
PUBLIC_URL = "https://api.github.com"

_MOST_REDIRECTS = 5
# GitHub itself ends a request after 10 s; the rest is for slow networks and Enterprise servers.
_TIMEOUT = httpx.Timeout(connect=10, read=30, write=10, pool=60)
_LINK = re.compile(r'<([^<>]*)>[^<>]*?;\s*rel="?([A-Za-z]+)"?')


@dataclass(frozen=True, slots=True)
class RestAnswer:
    """An answer of the REST API.

    Attributes:
        endpoint: What was asked, for errors about `data`.
        status: 2xx, or 304 when the given ETag is still good; then `data` is None.
        etag: To be given back with the token of this `fingerprint`: ETags differ by token.
        links: The URLs of the `Link` header by relation.
        moved: Whether a permanent redirect was followed: the thing has a new name.
    """

    endpoint: str
    status: int
    data: Any
    etag: str | None
    fingerprint: str
    links: Mapping[str, str]
    moved: bool


@dataclass(frozen=True, slots=True)
class GraphQLFault:
    """One entry of `errors` beside the data; `path` leads to the null it caused."""

    type: str
    path: tuple[str | int, ...]
    message: str


@dataclass(frozen=True, slots=True)
class GraphQLAnswer:
    """The data of a query, with nulls where a fault says why, and the points it cost."""

    endpoint: str
    data: Fields
    errors: tuple[GraphQLFault, ...]
    cost: int


class GitHubClient:
    """Sends requests under the quota. An async context manager; one client belongs to one event loop.

    Args:
        base_url: The REST API's; with `…/api/v3` (GitHub Enterprise Server) GraphQL is at `…/api/graphql`.
        credentials: Any number; none means anonymous. The one with most quota left is used.
        ledger: Grants requests, shared with everybody on the same tokens.
        clock: Tells the time.
        share: The part of each limit that is left to people using the same token.
        transport: Sends the requests instead of the network.
        sleep: Waits, between attempts only.
        concurrency: The most requests in flight.
        patience: The seconds one call may wait for quota in place; beyond that it raises RateLimited.
        deadline: The seconds after which a request that is still being answered is given up.
        jitter: A number from 0 to 1 that spreads retries.
        on_close: Called when nothing more will be asked: calls to the ledger that were given up need not go on.

    Raises:
        ValueError: The base URL is none.
    """

    def __init__(
        self,
        *,
        base_url: str = PUBLIC_URL,
        credentials: Sequence[Credential],
        ledger: QuotaLedger,
        clock: Clock = utc_now,
        share: float = 0.05,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        concurrency: int = 4,
        patience: float = 5.0,
        deadline: float = 120.0,
        jitter: Callable[[], float] = random.random,
        on_close: Callable[[], object] = lambda: None,
    ) -> None:
        self.base_url = _base_url(base_url)
        self._http = httpx.AsyncClient(transport=transport, timeout=_TIMEOUT, headers=_headers())
        by_fingerprint = {credential.fingerprint: credential for credential in credentials or [Anonymous()]}
        manners = Manners(share, concurrency, patience, deadline, jitter, sleep)
        self._exchange = Exchange(
            http=self._http, credentials=by_fingerprint, ledger=ledger, clock=clock, manners=manners
        )
        self._fingerprints = tuple(by_fingerprint)
        self.clock = clock
        self._on_close = on_close

    @property
    def spent(self) -> Spent:
        """What this client has used up so far."""
        return self._exchange.spent

    @property
    def skew(self) -> timedelta:
        """How far this machine's clock is ahead of GitHub's; zero before the first answer."""
        return self._exchange.skew

    async def __aenter__(self) -> "GitHubClient":  # noqa: PYI034 - `Self` is new in Python 3.11
        """Return the client, ready to use."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the connections."""
        self._on_close()
        await self._http.aclose()

    def __repr__(self) -> str:
        """Show the URL and the fingerprints, never a token."""
        return f"GitHubClient({self.base_url}, tokens {', '.join(self._fingerprints)})"

    async def get(
        self,
        path_or_url: str,
        params: Mapping[str, str | int] | None = None,
        *,
        etag: Callable[[str], str | None] | None = None,
        cost: int = 1,
    ) -> RestAnswer:
        """Ask the REST API.

        Args:
            path_or_url: A path below the base URL, starting with a slash, or a URL that GitHub gave in a `Link` header.
            params: The query.
            etag: Returns the ETag known for the token of a fingerprint, if any.
            cost: 1, or 0 for what GitHub does not count.

        Raises:
            RateLimited: Nothing more may be sent for longer than this client waits in place.
            GitHubError: Anything else that is not an answer.
        """
        url = self._resolve(self.base_url, path_or_url)
        url = url.copy_merge_params(params) if params else url
        endpoint = f"GET {url.path}"
        moved = False
        for _ in range(_MOST_REDIRECTS + 1):
            answer = await self._exchange.send(Call(endpoint, "GET", url, "core", cost, etag=etag))
            if answer.verdict.kind != "moved":
                return _rest_answer(endpoint, answer, moved=moved)
            # GitHub docs, "Best practices for using the REST API": only a permanent redirect means a new name.
            moved = moved or answer.status in (httpx.codes.MOVED_PERMANENTLY, httpx.codes.PERMANENT_REDIRECT)
            url = self._resolve(url, answer.headers["location"])
        raise RequestRefused(f"{endpoint}: redirects without end", httpx.codes.LOOP_DETECTED)

    async def query(
        self, document: str, variables: Mapping[str, Any], *, cost: int = 1, name: str = "", divisible: bool = False
    ) -> GraphQLAnswer:
        """Ask the GraphQL API.

        Args:
            document: The query; with `rateLimit { cost }` in it the true cost is counted.
            variables: Its variables.
            cost: What it is expected to cost, in points.
            name: What to call it in errors.
            divisible: Whether the caller can ask for less. Then QueryTooLarge is raised at once and not after retries.

        Raises:
            RateLimited: Nothing more may be sent for longer than this client waits in place.
            QueryTooLarge: GitHub gave up on the size of the query.
            GitHubError: Anything else that is not an answer, including one without any data.
        """
        endpoint = f"POST /graphql ({name})" if name else "POST /graphql"
        body = {"query": document, "variables": dict(variables)}
        url = graphql_url(self.base_url)
        answer = await self._exchange.send(Call(endpoint, "POST", url, "graphql", cost, body=body, divisible=divisible))
        if answer.verdict.kind != "ok":
            raise RequestRefused(
                f"{endpoint}: redirected elsewhere; is {self.base_url} the URL of GitHub's API?", answer.status
            )
        whole = Fields(endpoint, "", answer.document)
        faults = [self._fault(entry) for entry in whole.objects("errors")] if "errors" in whole else []
        return GraphQLAnswer(endpoint, whole.fields("data"), tuple(faults), points_of(answer.document, cost))

    def _fault(self, entry: Fields) -> GraphQLFault:
        path = entry.items("path") if "path" in entry else []
        steps = tuple(step for step in path if isinstance(step, str | int))
        return GraphQLFault(
            entry.optional_text("type") or "", steps, self._exchange.redact(entry.optional_text("message") or "")
        )

    def _resolve(self, base: httpx.URL, reference: str) -> httpx.URL:
        """Return the URL meant by a path, a `Link` or a `Location`; refuse one the token must not be sent to."""
        try:
            below = base is self.base_url and reference.startswith("/")
            url = httpx.URL(f"{base}{reference}") if below else base.join(reference)
        except (httpx.InvalidURL, ValueError):
            raise RequestRefused(f"GitHub named a URL that is none: {redact(reference)[:200]!r}", 0) from None
        if _origin(url) != _origin(self.base_url) or url.userinfo:
            raise RequestRefused(
                f"refused to send the token to {url.scheme}://{url.host}{f':{url.port}' if url.port else ''}, which is "
                f"not {self.base_url}; if it is the same server, set the GitHub URL accordingly",
                0,
            )
        return url


def graphql_url(base_url: httpx.URL) -> httpx.URL:
    """Return where GraphQL is for a REST base URL (GitHub Enterprise Server docs, "Forming calls with GraphQL")."""
    path = base_url.path.rstrip("/")
    above = path.removesuffix("/v3") if path.endswith("/api/v3") else path
    return base_url.copy_with(path=f"{above}/graphql")


def _base_url(text: str) -> httpx.URL:
    try:
        url = httpx.URL(text.strip().rstrip("/"))
    except (httpx.InvalidURL, ValueError):
        raise ValueError(f"{redact(text)!r} is not a URL") from None
    if url.scheme not in ("https", "http") or not url.host or url.userinfo or url.query:
        raise ValueError(
            f"{redact(text)!r} is not the URL of a GitHub API, such as {PUBLIC_URL} or https://HOST/api/v3"
        )
    return url


def user_agent(distribution: str = "bandsync-dagster") -> str:
    """Return the name GitHub knows this client by; it rejects requests without one."""
    try:
        return f"bandsync/{version(distribution)}"
    except PackageNotFoundError:
        return "bandsync/checkout"


def _headers() -> dict[str, str]:
    return {
        "Accept": "application/vnd.github+json",
        "User-Agent": user_agent(),
        "X-GitHub-Api-Version": API_VERSION,
    }


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _rest_answer(endpoint: str, answer: Answer, *, moved: bool) -> RestAnswer:
    links = {relation: url for url, relation in _LINK.findall(answer.headers.get("link", ""))}
    etag = answer.headers.get("etag")
    return RestAnswer(endpoint, answer.status, answer.document, etag, answer.fingerprint, links, moved)
