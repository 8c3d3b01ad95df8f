"""Fields are read strictly: the right type, or an error that names endpoint and field."""

from collections.abc import Callable
from datetime import datetime, timezone

import pytest

from bandsync_dagster.github.errors import PayloadError
from bandsync_dagster.github.payload import Fields, decode

ENDPOINT = "GET /repos/acme/pool"


def fields(**values: object) -> Fields:
    """Return an object found at `items[3]`."""
    return Fields(ENDPOINT, "items[3]", values)


WRONG = [
    (Fields.integer, [None, True, 1.5, "1", [], {}, 2**63, -(2**63)]),
    (Fields.big_integer, [None, True, 1.5, "", "1.5", "٣", "9" * 19, "1" * 20, []]),
    (Fields.text, [None, 1, True, [], {}]),
    (Fields.full_name, [None, 1, "", "pool", "acme/", "/pool", "acme/pool/x", "../pool", "acme/..", "a b/pool"]),
    (Fields.boolean, [None, 0, 1, "true", []]),
    (
        Fields.time,
        [
            None,
            0,
            "",
            "2026-01-01",
            "2026-01-01T00:00:00",
            "2026-13-01T00:00:00Z",
            "2026-W01-1T00:00:00Z",
            "0001-01-01T00:00:00+08:00",
            "9999-12-31T23:59:59-08:00",
            "2026-01-01T00:00:00Z\n",
            "٢026-01-01T00:00:00Z",
        ],
    ),
    (Fields.fields, [None, 1, "x", []]),
    (Fields.items, [None, {}, "x", 1]),
    (Fields.objects, [None, {}, [1], [None], [{}, []]]),
    (Fields.texts, [None, ["a", 1], [None], "a"]),
]


@pytest.mark.parametrize(("read", "value"), [(read, value) for read, values in WRONG for value in values])
def test_a_value_of_the_wrong_kind_is_named(read: Callable[[Fields, str], object], value: object) -> None:
    """The error says where it was and what was asked."""
    with pytest.raises(PayloadError) as caught:
        read(fields(thing=value), "thing")
    assert caught.value.endpoint == ENDPOINT
    assert caught.value.field.startswith("items[3].thing")


@pytest.mark.parametrize("read", [read for read, _ in WRONG])
def test_a_missing_field_is_named(read: Callable[[Fields, str], object]) -> None:
    """Missing is told apart from null."""
    with pytest.raises(PayloadError, match=r"items\[3\].thing is missing"):
        read(fields(), "thing")


@pytest.mark.parametrize("value", [None, 1, "x", []])
def test_an_answer_that_is_no_object_is_named(value: object) -> None:
    """The whole answer may be of the wrong kind."""
    with pytest.raises(PayloadError, match="whole answer"):
        Fields(ENDPOINT, "", value)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=timezone.utc)),
        ("2026-01-31t12:00:00z", datetime(2026, 1, 31, 12, tzinfo=timezone.utc)),
        ("2026-01-31T12:00:00+00:00", datetime(2026, 1, 31, 12, tzinfo=timezone.utc)),
        ("2020-01-20T09:42:40.000-08:00", datetime(2020, 1, 20, 17, 42, 40, tzinfo=timezone.utc)),
        ("2021-02-18T14:59:13.5+0800", datetime(2021, 2, 18, 6, 59, 13, 500_000, tzinfo=timezone.utc)),
        ("2021-02-18T14:59:13.123456789Z", datetime(2021, 2, 18, 14, 59, 13, 123_456, tzinfo=timezone.utc)),
    ],
)
def test_times_become_utc(text: str, moment: datetime) -> None:
    """Every form GitHub sends is understood, on every Python version alike."""
    assert fields(at=text).time("at") == moment
    assert fields(at=text).time("at").utcoffset() == timezone.utc.utcoffset(None)


def test_a_time_before_github_existed_is_no_time() -> None:
    """`0001-01-01T00:00:00Z` is how a check run says that it never started."""
    assert fields(at="0001-01-01T00:00:00Z").optional_time("at") is None


@pytest.mark.parametrize(
    "read",
    [
        Fields.optional_integer,
        Fields.optional_text,
        Fields.optional_boolean,
        Fields.optional_time,
        Fields.optional_fields,
        Fields.optional_texts,
    ],
)
def test_an_optional_field_may_be_null_or_missing_but_not_wrong(read: Callable[[Fields, str], object]) -> None:
    """Leniency about absence is none about types."""
    assert read(fields(), "thing") is None
    assert read(fields(thing=None), "thing") is None
    with pytest.raises(PayloadError):
        read(fields(thing=object()), "thing")


def test_a_big_integer_may_be_a_string_or_a_number() -> None:
    """GraphQL's BigInt is a string; servers that send a number are understood too."""
    assert fields(id="34359738368").big_integer("id") == fields(id=34359738368).big_integer("id") == 34359738368


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b'{"a":',
        b"\xff\xfe\xfa",
        '{"a": "é"}'.encode("latin-1"),
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"1" * 5_000 + b"x",
    ],
    ids=["empty", "html", "cut", "no encoding", "latin-1", "deep list", "deep object", "long number"],
)
def test_a_body_that_is_no_json_is_a_value_error(body: bytes) -> None:
    """Cut, HTML, another encoding, nested too deeply: one kind of error for all."""
    with pytest.raises(ValueError, match=r"^not JSON"):
        decode(body)
