"""Pages, links and the `created` filter."""

from datetime import datetime, timezone

import pytest

from bandsync_dagster.simulator.listing import NoInterval, Page, parse_created


def _at(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=timezone.utc)  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, Page(1, 30)),
        ({"page": "3", "per_page": "50"}, Page(3, 50)),
        ({"per_page": "1000"}, Page(1, 100)),
        ({"page": "0", "per_page": "0"}, Page(1, 1)),
        ({"page": "-1", "per_page": "many"}, Page(1, 30)),
    ],
)
def test_sizes_are_clamped_and_never_refused(query: dict[str, str], expected: Page) -> None:
    """As GitHub does with sizes beyond 100 and with nonsense."""
    assert Page.of(query) == expected


def test_a_list_of_one_page_has_no_links() -> None:
    """Not even to itself."""
    assert Page(1, 30).links("http://x", {}, 30) == {}


def test_links_lead_to_the_neighbours_and_the_ends() -> None:
    """With the query as it was, but for the page."""
    links = Page(2, 10).links("http://x/y", {"created": ">=2026-01-01", "page": "2"}, 35)["link"]
    assert links.split(", ") == [
        '<http://x/y?created=%3E%3D2026-01-01&page=1>; rel="prev"',
        '<http://x/y?created=%3E%3D2026-01-01&page=3>; rel="next"',
        '<http://x/y?created=%3E%3D2026-01-01&page=4>; rel="last"',
        '<http://x/y?created=%3E%3D2026-01-01&page=1>; rel="first"',
    ]


@pytest.mark.parametrize(
    ("text", "since", "until"),
    [
        ("2026-01-02T03:04:05Z..2026-01-02T03:04:09Z", _at(2026, 1, 2, 3, 4, 5), _at(2026, 1, 2, 3, 4, 9)),
        ("2026-01-02..2026-01-03", _at(2026, 1, 2), _at(2026, 1, 3, 23, 59, 59)),
        ("*..2026-01-02", None, _at(2026, 1, 2, 23, 59, 59)),
        ("2026-01-02T00:00:01+01:00..*", _at(2026, 1, 1, 23, 0, 1), None),
        ("2026-01-02T00:00:01 01:00..*", _at(2026, 1, 1, 23, 0, 1), None),
        (">2026-01-02", _at(2026, 1, 3), None),
        (">=2026-01-02", _at(2026, 1, 2), None),
        ("<2026-01-02", None, _at(2026, 1, 1, 23, 59, 59)),
        ("<=2026-01-02T03:04:05Z", None, _at(2026, 1, 2, 3, 4, 5)),
        ("<2026-01-02T03:04:05Z", None, _at(2026, 1, 2, 3, 4, 4)),
        ("2026-01-02", _at(2026, 1, 2), _at(2026, 1, 2, 23, 59, 59)),
        ("2026-01-02T03:04:05Z", _at(2026, 1, 2, 3, 4, 5), _at(2026, 1, 2, 3, 4, 5)),
    ],
)
def test_created_means_an_interval_with_both_ends(text: str, since: datetime | None, until: datetime | None) -> None:
    """To the second; a day means all of its seconds."""
    assert parse_created(text) == (since, until)


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2026-13-01", ">", "2026-01-02..", "..", ">9999-12-31", ">=2026-01-02..2026-01-03"]
)
def test_other_texts_are_no_times(text: str) -> None:
    """They are told apart from an empty interval."""
    with pytest.raises(NoInterval):
        parse_created(text)
