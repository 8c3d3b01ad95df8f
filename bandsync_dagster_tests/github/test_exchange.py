"""How a request gets through: the two defences, several tokens, retries."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import httpx
import pytest

from bandsync_dagster.github.auth import Anonymous, PersonalToken, fingerprint_of
from bandsync_dagster.github.client import GitHubClient, RestAnswer
from bandsync_dagster.github.errors import (
    BadCredentials,
    ConnectionLost,
    Forbidden,
    QueryTooLarge,
    RateLimited,
    RequestRefused,
    ServerError,
    TransientError,
)
from bandsync_dagster.github.quota import Grant, MemoryLedger
from bandsync_dagster_tests.github.surroundings import NOON, Stage, answer, quota_headers

PRIMARY = {"message": "API rate limit exceeded for user ID 7."}
SECONDARY = {"message": "You have exceeded a secondary rate limit."}
HALF_AN_HOUR = timedelta(minutes=30)
SECOND = timedelta(seconds=1)
BAD_GATEWAY = "<html><h1>502 Bad Gateway</h1></html>"


def ok(remaining: int = 4000, **headers: object) -> httpx.Response:
    """Return an answer that passed."""
    return answer({"fine": True}, quota_headers(remaining, **headers))  # type: ignore[arg-type]


def primary(status: int = 403, **headers: str) -> httpx.Response:
    """Return an answer of the primary limit."""
    return answer(PRIMARY, {**quota_headers(0), **headers}, status)


def secondary(status: int = 403, **headers: str) -> httpx.Response:
    """Return an answer of a secondary limit."""
    return answer(SECONDARY, {**quota_headers(4000), **headers}, status)


async def ask(client: GitHubClient, *, divisible: bool = False) -> object:
    """Ask a query."""
    return await client.query("query { x }", {}, name="things", divisible=divisible)


class Cut(httpx.AsyncByteStream):
    """A body that ends before it is complete."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield a part, and fail."""
        yield b'{"data": {"x"'
        raise httpx.RemoteProtocolError("peer closed connection without sending complete message body")


class Endless(httpx.AsyncByteStream):
    """A body of a megabyte at a time, without end."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield for ever."""
        while True:
            yield b" " * 2**20


class TestFirstDefence:
    """Requests that would meet the limit are not sent."""

    def test_an_answer_that_leaves_nothing_is_used_and_then_nothing_is_sent(self, stage: Stage) -> None:
        """`remaining: 0` on a success is data, and the end."""
        client = stage.client([ok(0)])

        async def twice(client: GitHubClient) -> RestAnswer:
            first = await client.get("/x")
            with pytest.raises(RateLimited) as caught:
                await client.get("/x")
            assert (caught.value.bucket, caught.value.kind) == ("core", "reserve")
            assert caught.value.resume_at == NOON + HALF_AN_HOUR + SECOND
            return first

        assert stage.run(client, twice).data == {"fine": True}
        assert len(stage.requests) == 1

    def test_the_share_of_people_is_never_touched(self, stage: Stage) -> None:
        """5 % of 100 are kept back, and one request to spare: the 94th is the last."""
        left = iter(range(99, 0, -1))

        async def all_that_go(client: GitHubClient) -> int:
            with contextlib.suppress(RateLimited):
                while True:
                    await client.get("/x")
            return len(stage.requests)

        assert stage.run(stage.client(lambda _: ok(next(left), limit=100)), all_that_go) == 94

    @pytest.mark.parametrize("headers", [{}, quota_headers(0, limit=0)])
    def test_a_host_without_limits_never_waits(self, stage: Stage, headers: dict[str, str]) -> None:
        """No headers, or 0 of 0, is unlimited and not exhausted."""

        async def many(client: GitHubClient) -> None:
            for _ in range(20):
                await client.get("/x")

        stage.run(stage.client(lambda _: answer({}, headers)), many)
        assert stage.naps == []

    def test_core_used_up_leaves_graphql_alone(self, stage: Stage) -> None:
        """The buckets are separate."""

        async def both(client: GitHubClient) -> None:
            await client.get("/x")
            with pytest.raises(RateLimited):
                await client.get("/x")
            await ask(client)

        stage.run(stage.client([ok(0), answer({"data": {}}, quota_headers(9, bucket="graphql"))]), both)
        assert [request.method for request in stage.requests] == ["GET", "POST"]

    def test_a_short_wait_is_waited_out_in_place(self, stage: Stage) -> None:
        """Under five seconds a deferral is not worth it."""

        async def twice(client: GitHubClient) -> RestAnswer:
            await client.get("/x")
            return await client.get("/x")

        answers = [ok(0, resets_in=3), ok(4999, now=NOON + timedelta(seconds=4))]
        assert stage.run(stage.client(answers), twice).status == 200
        assert stage.naps == [4.0]

    def test_free_requests_are_sent_although_nothing_is_left(self, stage: Stage) -> None:
        """`GET /rate_limit` is not counted by GitHub."""

        async def twice(client: GitHubClient) -> None:
            await client.get("/x")
            await client.get("/rate_limit", cost=0)

        stage.run(stage.client([ok(0), ok(0)]), twice)
        assert len(stage.requests) == 2


class TestSecondDefence:
    """A limit answer stops everything that uses the token."""

    @pytest.mark.parametrize("status", [403, 429])
    def test_a_primary_limit_closes_the_bucket_until_its_reset(self, stage: Stage, status: int) -> None:
        """One limit answer, no second request; the other bucket goes on."""

        async def use(client: GitHubClient) -> None:
            for kind in ("primary", "reserve"):
                with pytest.raises(RateLimited) as caught:
                    await client.get("/x")
                assert (caught.value.kind, caught.value.bucket) == (kind, "core")
                assert caught.value.resume_at == NOON + HALF_AN_HOUR + SECOND
            await ask(client)

        stage.run(stage.client([primary(status), answer({"data": {}})]), use)
        assert len(stage.requests) == 2

    @pytest.mark.parametrize("status", [200, 403])
    def test_a_secondary_limit_closes_both_buckets(self, stage: Stage, status: int) -> None:
        """Secondary limits concern all that a token does, REST and GraphQL."""

        async def use(client: GitHubClient) -> None:
            with pytest.raises(RateLimited) as caught:
                await ask(client)
            assert (caught.value.kind, caught.value.bucket) == ("secondary", "graphql")
            assert caught.value.resume_at == NOON + timedelta(seconds=90)
            with pytest.raises(RateLimited):
                await client.get("/x")

        stage.run(stage.client([secondary(status, **{"retry-after": "90"})]), use)
        assert len(stage.requests) == 1

    def test_secondary_limits_without_retry_after_double_the_wait(self, stage: Stage) -> None:
        """A minute, then two, then four, and from the start again after a success."""
        client = stage.client([secondary(), secondary(), secondary(), ok(), secondary()])

        async def limited_for(client: GitHubClient) -> float:
            with pytest.raises(RateLimited) as caught:
                await client.get("/x")
            seconds = (caught.value.resume_at - stage.now).total_seconds()
            stage.now = caught.value.resume_at
            return seconds

        async def use(client: GitHubClient) -> list[float]:
            waits = [await limited_for(client) for _ in range(3)]
            await client.get("/x")
            return [*waits, await limited_for(client)]

        assert stage.run(client, use) == [60, 120, 240, 60]

    def test_another_token_goes_on_at_once(self, stage: Stage) -> None:
        """The call that met the limit is answered by the next token, without a wait."""
        result = stage.get([primary(), ok()], tokens=("ghp_one", "ghp_two"))
        assert result.fingerprint == fingerprint_of("ghp_two")
        assert [request.headers["authorization"] for request in stage.requests] == ["Bearer ghp_one", "Bearer ghp_two"]
        assert stage.naps == []

    def test_only_when_all_tokens_are_closed_is_it_a_rate_limit(self, stage: Stage) -> None:
        """The wait ends with the first token that opens."""
        answers = [secondary(**{"retry-after": "60"}), secondary(**{"retry-after": "40"})]
        with pytest.raises(RateLimited) as caught:
            stage.get(answers, tokens=("ghp_one", "ghp_two"))
        assert caught.value.resume_at == NOON + timedelta(seconds=40)

    def test_a_short_retry_after_is_waited_out_but_not_for_ever(self, stage: Stage) -> None:
        """Patience is for the call as a whole."""
        with pytest.raises(RateLimited):
            stage.get(lambda _: secondary(**{"retry-after": "2"}))
        assert stage.naps == [2.0, 2.0]
        assert len(stage.requests) == 3

    def test_a_limit_answer_costs_no_retry(self, stage: Stage) -> None:
        """All four retries are left after limits that were waited out."""
        answers = [secondary(**{"retry-after": "1"}), *[httpx.Response(500)] * 4, ok()]
        assert stage.get(answers).status == 200

    def test_anonymous_graphql_is_a_missing_token_and_no_wait(self, stage: Stage) -> None:
        """A limit of 0 never resets."""
        refusal = answer(PRIMARY, {"x-ratelimit-limit": "0", "x-ratelimit-remaining": "0"}, 403)
        with pytest.raises(BadCredentials, match="without a token"):
            stage.run(stage.client([refusal], credentials=[]), ask)

    def test_a_missing_permission_is_no_limit_although_nothing_is_left(self, stage: Stage) -> None:
        """Waiting would change nothing; the reading still counts."""
        refusal = answer({"message": "Resource not accessible by integration"}, quota_headers(0), 403)
        client = stage.client([refusal])

        async def use(client: GitHubClient) -> None:
            with pytest.raises(Forbidden, match="Resource not accessible"):
                await client.get("/x")
            with pytest.raises(RateLimited):
                await client.get("/x")

        stage.run(client, use)

    def test_a_clock_that_is_off_does_not_shift_the_wait(self, stage: Stage) -> None:
        """The reset is compared with the server's own clock."""
        ahead = {"date": "Sun, 01 Mar 2026 12:10:00 GMT"}
        with pytest.raises(RateLimited) as caught:
            stage.get([primary(**ahead)])
        assert caught.value.resume_at == NOON + timedelta(minutes=20) + SECOND

    def test_the_client_knows_how_far_its_clock_is_off(self, stage: Stage) -> None:
        """By the last answer that told; none before the first."""
        dated = answer({}, {"date": "Sun, 01 Mar 2026 12:10:00 GMT"})
        client = stage.client([dated, ok()])

        async def use(client: GitHubClient) -> list[timedelta]:
            before = client.skew
            await client.get("/x")
            known = client.skew
            await client.get("/x")
            return [before, known, client.skew]

        assert stage.run(client, use) == [timedelta(0), timedelta(minutes=-10), timedelta(minutes=-10)]


class TestRetries:
    """Passing problems are waited out, a bounded number of times."""

    @pytest.mark.parametrize(
        "trouble",
        [
            httpx.Response(500, text="Server Error"),
            httpx.Response(502, html=BAD_GATEWAY),
            httpx.Response(503, headers=quota_headers(0), json=PRIMARY),
            httpx.Response(200, html="<html>login</html>"),
            httpx.Response(200, text='{"cut": '),
            httpx.Response(200, content=b"\xff\xfe{"),
            httpx.Response(200, content=b"[" * 100_000),
            httpx.Response(204),
            httpx.ConnectError("refused"),
            httpx.ConnectTimeout("slow"),
            httpx.ReadTimeout("slow"),
            httpx.ReadError("reset"),
            httpx.RemoteProtocolError("Server disconnected without sending a response."),
            httpx.DecodingError("not gzip"),
        ],
        ids=str,
    )
    def test_a_passing_problem_is_tried_again(self, stage: Stage, trouble: httpx.Response | Exception) -> None:
        """Whatever the trouble, the answer after it is the answer."""
        assert stage.get([trouble, ok()]).data == {"fine": True}
        assert stage.naps == [2.0]

    def test_four_retries_doubling_and_then_the_error(self, stage: Stage) -> None:
        """2, 4, 8 and 16 seconds, five requests in all."""
        with pytest.raises(ServerError, match=r"GET /x: .*502"):
            stage.get(lambda _: httpx.Response(502, html=BAD_GATEWAY))
        assert stage.naps == [2.0, 4.0, 8.0, 16.0]
        assert len(stage.requests) == 5

    def test_no_answer_at_all_is_a_lost_connection(self, stage: Stage) -> None:
        """The error says what happened on the way."""
        with pytest.raises(ConnectionLost, match="ConnectError: refused"):
            stage.get([httpx.ConnectError("refused")] * 5)

    def test_jitter_spreads_retries_by_up_to_a_quarter(self, stage: Stage) -> None:
        """Workers that failed together do not come back together."""
        stage.get([httpx.Response(500), ok()], jitter=lambda: 1.0)
        assert stage.naps == [2.5]

    def test_a_retry_after_on_a_5xx_is_respected_within_a_minute(self, stage: Stage) -> None:
        """A server that says when to come back is believed, but not for a day."""
        answers = [
            httpx.Response(503, headers={"retry-after": "20"}),
            httpx.Response(503, headers={"retry-after": "9999"}),
            ok(),
        ]
        stage.get(answers)
        assert stage.naps == [20.0, 60.0]

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 422, 451])
    def test_a_refusal_is_not_tried_again(self, stage: Stage, status: int) -> None:
        """Asking again changes nothing."""
        with pytest.raises(Exception, match=f"status {status}") as caught:
            stage.get([answer({"message": "no"}, status=status)])
        assert not isinstance(caught.value, TransientError)

    @pytest.mark.parametrize(
        "trouble",
        [
            httpx.Response(502, html=BAD_GATEWAY),
            httpx.Response(504),
            httpx.Response(200, json={"data": {"x": None}, "errors": [{"type": "RESOURCE_LIMITS_EXCEEDED"}]}),
            httpx.Response(200, stream=Cut()),
            httpx.ReadTimeout("slow"),
        ],
        ids=str,
    )
    def test_a_query_that_was_too_large_is_handed_back_at_once_if_it_can_be_divided(
        self, stage: Stage, trouble: httpx.Response | Exception
    ) -> None:
        """GitHub takes extra points for each query it has to end, so the same size is not tried again."""
        with pytest.raises(QueryTooLarge):
            stage.run(stage.client([trouble]), lambda client: ask(client, divisible=True))
        assert len(stage.requests) == 1

    @pytest.mark.parametrize("trouble", [httpx.Response(502, html=BAD_GATEWAY), httpx.ReadTimeout("slow")], ids=str)
    def test_a_query_for_one_item_is_tried_again(self, stage: Stage, trouble: httpx.Response | Exception) -> None:
        """What cannot be divided may still have met a passing problem."""
        stage.run(stage.client([trouble, answer({"data": {}})]), ask)
        assert stage.naps == [2.0]

    def test_a_connection_that_never_was_says_nothing_of_the_size(self, stage: Stage) -> None:
        """A refused connection is retried, also for a query that could be divided."""
        answers = [httpx.ConnectError("refused"), answer({"data": {}})]
        stage.run(stage.client(answers), lambda client: ask(client, divisible=True))
        assert stage.naps == [2.0]

    def test_an_answer_larger_than_anything_github_sends_is_cut_off(self, stage: Stage) -> None:
        """Memory stays bounded whatever a server sends."""
        with pytest.raises(QueryTooLarge, match="64 MB"):
            stage.run(stage.client([httpx.Response(200, stream=Endless())]), lambda client: ask(client, divisible=True))

    def test_an_answer_that_never_ends_is_given_up(self, stage: Stage) -> None:
        """A server that trickles bytes cannot hang a worker."""

        async def hang(request: httpx.Request) -> httpx.Response:
            stage.requests.append(request)
            await asyncio.Event().wait()
            raise AssertionError(request)

        client = GitHubClient(
            credentials=[],
            ledger=stage.ledger,
            clock=stage.clock,
            sleep=stage.sleep,
            transport=httpx.MockTransport(hang),
            deadline=0.01,
        )
        with pytest.raises(ConnectionLost, match="TimeoutError"):
            stage.run(client, lambda client: client.get("/x"))
        assert len(stage.requests) == 5


class WatchedLedger(MemoryLedger):
    """A ledger that tells how many reservations are open."""

    def open(self) -> int:
        """Return how many requests are on their way."""
        return sum(len(bucket.reservations) for bucket in self._buckets.values())


@pytest.mark.parametrize(
    "what",
    [
        ok(),
        primary(),
        secondary(),
        httpx.Response(500),
        httpx.Response(404),
        httpx.Response(200, text="<html>"),
        httpx.Response(200, stream=Cut()),
        httpx.ConnectError("refused"),
        RuntimeError("a bug in the transport"),
        asyncio.CancelledError(),
    ],
    ids=str,
)
def test_no_reservation_outlives_its_request(stage: Stage, what: httpx.Response | Exception) -> None:
    """Whatever happens to a request, what it had reserved is free again."""
    stage.ledger = WatchedLedger()
    try:
        stage.get([what] * 5)
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - each case raises its own
        assert not isinstance(error, IndexError)  # noqa: PT017 - the answers did not run out
    assert stage.ledger.open() == 0


def test_a_5xx_without_headers_does_not_make_a_bucket_unlimited(stage: Stage) -> None:
    """The page of a load balancer says nothing of GitHub's limits."""

    async def use(client: GitHubClient) -> None:
        with pytest.raises(ServerError):
            await client.get("/x")

    stage.run(stage.client([httpx.Response(502, html=BAD_GATEWAY)] * 5), use)
    fresh = stage.ledger.reserve([fingerprint_of("ghp_one")], "core", 1, share=0, now=NOON)
    assert isinstance(fresh, Grant)
    assert not stage.ledger._buckets[fingerprint_of("ghp_one"), "core"].unlimited


def test_no_more_requests_are_in_flight_than_allowed(stage: Stage) -> None:
    """GitHub limits concurrent requests; so does the client."""
    flying: list[int] = [0, 0]

    async def handle(_: httpx.Request) -> httpx.Response:
        flying[0] += 1
        flying[1] = max(flying)
        await asyncio.sleep(0)
        flying[0] -= 1
        return ok()

    async def use(client: GitHubClient) -> None:
        await asyncio.gather(*(client.get("/x") for _ in range(20)))

    client = GitHubClient(
        credentials=[Anonymous()],
        ledger=stage.ledger,
        clock=stage.clock,
        transport=httpx.MockTransport(handle),
        concurrency=3,
    )
    stage.run(client, use)
    assert flying == [0, 3]


def test_several_clients_on_one_ledger_do_not_send_what_only_one_may(stage: Stage) -> None:
    """What one client learns, all know."""
    stage.run(stage.client([ok(0)]), lambda client: client.get("/x"))
    with pytest.raises(RateLimited):
        stage.get([])


def test_a_bad_token_is_named_by_its_fingerprint(stage: Stage) -> None:
    """With several tokens, somebody has to know which one to replace."""
    with pytest.raises(BadCredentials, match=PersonalToken("ghp_one").fingerprint):
        stage.get([answer({"message": "Bad credentials"}, status=401)])


def test_a_redirect_without_a_target_is_refused(stage: Stage) -> None:
    """There is nowhere to go."""
    with pytest.raises(RequestRefused):
        stage.get([httpx.Response(302)])


def test_the_wait_of_a_rate_limit_is_in_utc(stage: Stage) -> None:
    """Whoever defers needs an unambiguous time."""
    with pytest.raises(RateLimited) as caught:
        stage.get([primary()])
    assert isinstance(caught.value.resume_at, datetime)
    assert caught.value.resume_at.utcoffset() == timedelta(0)
