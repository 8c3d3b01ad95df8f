"""What the documentation says, compared with what the code does. Wording is nobody's business here; facts are."""

import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import sqlalchemy as sa

from bandsync_dagster import automation
from bandsync_dagster.cli.commands import bandsync
from bandsync_dagster.settings import Settings
from bandsync_dagster.simulator import World, generate
from bandsync_dagster.store.repositories import upsert_repositories
from bandsync_dagster.store.schema import STAGE_TABLES, metadata, stage_status, syncs
from bandsync_dagster.store.syncs import TRANSITIONS, start_sync

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
LARGEST_IMAGE = 300_000
# Folders that tools make; everything else in a checkout is the project's own.
NOT_OURS = re.compile(r"(^|/)(\.|build/|dist/|[^/]*\.egg-info|__pycache__|history/|schedules/|storage/|logs/)")


def text_of(path: Path) -> str:
    """Return a page's text."""
    return path.read_text(encoding="utf-8")


def section(page: str, heading: str) -> str:
    """Return what is under a heading, up to the next one of its level or above."""
    level = heading.partition(" ")[0]
    _, _, rest = text_of(ROOT / page).partition(f"\n{heading}\n")
    assert rest, f"{page} has no heading {heading!r}"
    return re.split(rf"^#{{1,{len(level)}}} ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def rows(text: str) -> list[list[str]]:
    """Return the cells of a page's tables, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    rules = [number for number, row in enumerate(cells) if set("".join(row)) <= set("-: ")]
    heads = {number - 1 for number in rules}
    return [row for number, row in enumerate(cells) if number not in heads | set(rules)]


def unquoted(cell: str) -> str | None:
    """Return the code a cell consists of; None when it is anything else."""
    found = re.fullmatch(r"`([^`]*)`", cell)
    return found[1] if found else None


def fenced(text: str, language: str) -> list[str]:
    """Return the blocks of code of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


class Recorded(Mapping[str, str]):
    """An empty environment that remembers which variables it was asked for."""

    def __init__(self) -> None:
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> str:
        """Remember the name, and have nothing."""
        self.asked.add(name)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        """Nothing is set."""
        return iter(())

    def __len__(self) -> int:
        """Nothing is set."""
        return 0


def setting_rows() -> list[list[str]]:
    """Return the rows of README's table of settings."""
    return rows(section("README.md", "## Settings"))


def test_the_readme_lists_every_setting_and_no_other() -> None:
    """A variable that the settings read is in README's table, once; a variable in the table is read."""
    environment = Recorded()
    Settings.from_mapping(environment)
    assert sorted(environment.asked) == sorted(unquoted(row[0]) or "" for row in setting_rows())


def test_the_defaults_in_the_readme_are_the_settings_own() -> None:
    """Setting a variable to the default that README names changes nothing."""
    defaults = {unquoted(row[0]) or "": unquoted(row[1]) for row in setting_rows()}
    named = {name: default for name, default in defaults.items() if default}
    assert len(named) > 8
    assert Settings.from_mapping(named) == Settings.from_mapping({})


def test_the_readme_lists_every_command_and_no_other() -> None:
    """README's table of commands is what `bandsync --help` lists."""
    listed = [unquoted(row[0]) for row in rows(section("README.md", "## Collect your own"))]
    assert listed == [f"bandsync {name}" for name in sorted(bandsync.commands)]


def shell_lines() -> list[tuple[str, str]]:
    """Return every command in the pages' shell blocks with the page it is on."""
    blocks = [(page.name, block) for page in PAGES for block in fenced(text_of(page), "sh")]
    lines = [(name, line.partition(" #")[0]) for name, block in blocks for line in block.splitlines()]
    return [(name, part.strip()) for name, line in lines for part in re.split(r"&&|;", line)]


@pytest.mark.parametrize(("page", "line"), [found for found in shell_lines() if found[1].startswith("bandsync ")])
def test_commands_in_the_pages_can_be_typed(page: str, line: str) -> None:
    """Each `bandsync …` in a shell block names a command there is, with options that it takes."""
    _, name, *words = line.split()
    assert name in bandsync.commands, f"{page}: {line}"
    options = {option for parameter in bandsync.commands[name].params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options, f"{page}: {line}"


def test_the_arrows_of_a_sync_are_those_that_are_enforced() -> None:
    """The table in docs/lifecycle.md has exactly the transitions that the store allows."""
    written = [row[:3] for row in rows(section("docs/lifecycle.md", "## A sync"))]
    enforced = [[event, source, arrow.target] for event, arrow in TRANSITIONS.items() for source in arrow.sources]
    assert written[0] == ["start", "", "running"]
    assert sorted(written[1:]) == sorted(enforced)


def test_the_gate_page_names_each_state_of_the_gate() -> None:
    """Every state that the gate is ever written with is in the table of its arrows, and no other."""
    source = text_of(ROOT / "bandsync_dagster" / "gate.py")
    states = set(re.findall(r'state="(\w+)"', source))
    table = rows(section("docs/lifecycle.md", "## The gate"))
    assert {row[1] for row in table} | {row[2] for row in table} == states


def test_the_operations_page_lists_everything_that_runs_by_itself() -> None:
    """Schedules and sensors in docs/operations.md are those that there are."""
    listed = [unquoted(row[0]) for row in rows(section("docs/operations.md", "## Schedules and sensors"))]
    assert sorted(map(str, listed)) == sorted(each.name for each in (*automation.schedules, *automation.sensors))


@pytest.mark.parametrize("table", [*metadata.sorted_tables, stage_status], ids=lambda table: table.name)
def test_every_column_is_described(table: sa.FromClause) -> None:
    """Docs/data.md describes each table's columns, in the table's own order, and no others."""
    described = [unquoted(row[0]) for row in rows(section("docs/data.md", f"### `{table.name}`"))]
    named = [column.name for column in table.columns]
    if table is stage_status:
        # A view: its order is written down in the migration only.
        described, named = sorted(map(str, described)), sorted(named)
    assert described == named


def test_no_table_is_described_that_is_not_there() -> None:
    """Docs/data.md has a section for each table and the view."""
    described = re.findall(r"^### `(\w+)`$", text_of(ROOT / "docs" / "data.md"), flags=re.MULTILINE)
    assert sorted(described) == sorted([*metadata.tables, stage_status.name])


@pytest.fixture(scope="module")
def world() -> World:
    """A world in which every question has an answer: jobs run again, and runs for the last commit of a change."""
    world = generate(repositories=8, rerun_share=0.3)
    repository = world.repository("acme/alto")
    for change in repository.changes[-2:]:
        world.add_run(repository, head_sha=change.head_sha)
    return world


@pytest.fixture
def collected(engine: sa.Engine, world: World) -> sa.Engine:
    """A database that holds the truth about the world, as collected with all detail."""
    truth, now = world.truth(detail="full"), world.clock()
    upsert_repositories(engine, truth["repositories"], now=now)
    start_sync(engine, repository_id=None, full_name="acme/x", stage="jobs", root_run_id="r", run_id="r", now=now)
    with engine.begin() as connection:
        written = connection.execute(sa.select(syncs.c.id)).scalar_one()
        for stage, table in STAGE_TABLES.items():
            found = [{**row, "first_sync_id": written, "last_sync_id": written} for row in truth[stage]]
            connection.execute(table.insert(), found)
    return engine


QUERIES = dict(
    re.findall(
        r"^### ([^\n]+)\n+```sql\n(.*?)^```$", text_of(ROOT / "docs" / "data.md"), flags=re.MULTILINE | re.DOTALL
    )
)


def answer(engine: sa.Engine, question: str) -> list[dict[str, Any]]:
    """Return what a query of docs/data.md finds; on SQLite with the one change that the page asks for."""
    query = QUERIES[question]
    if engine.dialect.name == "sqlite":
        hours = re.compile(r"extract\(epoch FROM ([\w.]+) - ([\w.]+)\) / 3600")
        query = hours.sub(r"(julianday(\1) - julianday(\2)) * 24", query)
    with engine.connect() as connection:
        return [dict(row) for row in connection.execute(sa.text(query)).mappings()]


@pytest.mark.parametrize("question", QUERIES)
def test_queries_in_the_documentation_find_something(question: str, collected: sa.Engine) -> None:
    """Each query of docs/data.md runs on both kinds of database, and finds what the world has of it."""
    assert answer(collected, question)


def hours_by_repository(world: World, since: str, until: str) -> dict[str, list[float]]:
    """Return the hours between two times of the world's merged changes by people, by repository."""
    names = {row["id"]: row["full_name"] for row in world.truth()["repositories"]}
    hours: dict[str, list[float]] = defaultdict(list)
    for change in world.truth()["changes"]:
        if change["state"] == "merged" and not change["author_is_bot"] and change[since] and change[until]:
            hours[names[change["repository_id"]]].append((change[until] - change[since]).total_seconds() / 3600)
    return hours


@pytest.mark.parametrize(
    ("question", "since", "until"),
    [
        ("Lead time: from the first commit to the merge", "first_commit_at", "merged_at"),
        (
            "Review time: from opening to the first review, and what was merged without one",
            "created_at",
            "first_review_at",
        ),
    ],
)
def test_medians_in_the_documentation_are_medians(
    question: str, since: str, until: str, collected: sa.Engine, world: World
) -> None:
    """The queries' way to a median, which SQL has no portable word for, finds what Python's does."""
    found = {row["full_name"]: float(row["median_hours"]) for row in answer(collected, question)}
    hours = hours_by_repository(world, since, until)
    assert len(hours) > 3
    assert found == {name: pytest.approx(median(values), abs=0.06) for name, values in hours.items()}


def links() -> list[tuple[str, str]]:
    """Return every relative link of every page."""
    found = [(page, link) for page in PAGES for link in re.findall(r"\]\(([^)\s]+)\)", text_of(page))]
    return [(str(page.relative_to(ROOT)), link) for page, link in found if "://" not in link]


@pytest.mark.parametrize(("page", "link"), links())
def test_links_lead_somewhere(page: str, link: str) -> None:
    """Each relative link names a file that is there, and each anchor a heading on that page."""
    file, _, anchor = link.partition("#")
    target = (ROOT / page).parent / file if file else ROOT / page
    assert target.exists()
    if anchor:
        headings = re.findall(r"^#+ (.+)$", text_of(target), flags=re.MULTILINE)
        assert anchor in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_pictures_are_shown_and_small() -> None:
    """Each picture in docs/images is on a page, is a PNG, and doesn't weigh down a clone."""
    pages = "".join(map(text_of, PAGES))
    pictures = list((ROOT / "docs" / "images").iterdir())
    assert pictures
    for picture in pictures:
        assert picture.name in pages
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert picture.stat().st_size < LARGEST_IMAGE


def tracked_files() -> list[Path]:
    """Return the project's files: those git knows, or all that look like it where there is no git."""
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S607
    if listing.returncode == 0:
        return [ROOT / name for name in listing.stdout.splitlines()]
    found = (path for path in ROOT.rglob("*") if path.is_file())
    return [path for path in found if not NOT_OURS.search(str(path.relative_to(ROOT)))]


def test_nothing_names_a_place_on_somebodys_machine() -> None:
    """No file names a folder of the machine it was written on, or where packages come from there."""
    # Put together here, so that this file does not name them either.
    places = ["/" + "work/", "/" + "root/", "/" + "Users/", "/" + "tmp/", "@ file" + ":", "index" + "-url"]
    places += ["pypi" + ".org", "pythonhosted" + ".org", "registry." + "npmjs"]
    forbidden = re.compile(r"(?<![\w.])(" + "|".join(map(re.escape, places)) + ")")
    text = {".md", ".py", ".toml", ".txt", ".yaml", ".env", ".service", ".sh", ""}
    named = [
        f"{path.relative_to(ROOT)}: {found.group()}"
        for path in tracked_files()
        if path.suffix in text and path.is_file()
        for found in forbidden.finditer(text_of(path))
    ]
    assert named == []
