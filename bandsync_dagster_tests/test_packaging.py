"""What is installed, and what importing it does: nothing. And the files a deployment starts from."""

import ast
import configparser
import pkgutil
import re
import shutil
import subprocess
import sys
import sysconfig
import textwrap
import zipfile
from importlib import metadata, resources
from pathlib import Path

import dagster_postgres
import pytest
import sqlalchemy as sa
import yaml
from dagster_postgres.utils import get_conn_string

import bandsync_dagster

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "bandsync_dagster"
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))

# Scripts rather than modules: Alembic runs the one in the middle of a migration, Python the other.
SCRIPTS = {"bandsync_dagster.store.migrations.env", "bandsync_dagster.cli.__main__"}

# Names of distributions that import under another name.
DISTRIBUTIONS = {"jwt": "pyjwt", "graphql": "graphql-core"}


def modules() -> list[str]:
    """Return the names of all modules of the package."""
    found = pkgutil.walk_packages(bandsync_dagster.__path__, prefix="bandsync_dagster.")
    return [module.name for module in found if module.name not in SCRIPTS]


IMPORTS = textwrap.dedent(
    """
    import importlib, os, socket, sys

    def refuse(*args, **kwargs):
        raise AssertionError("importing opened a socket")

    # Other people's modules may do as they like; ours come afterwards, one by one.
    import alembic.command, dagster, graphql, httpx, rich.console, starlette.applications, uvicorn

    socket.socket.connect = socket.socket.connect_ex = socket.create_connection = socket.getaddrinfo = refuse

    class Environment(dict):
        def asked(self, name):
            frame = sys._getframe(2)
            while frame.f_globals["__name__"] == "os":  # os.getenv
                frame = frame.f_back
            if frame.f_globals["__name__"].startswith("bandsync_dagster"):
                raise AssertionError(f"{frame.f_globals['__name__']} read {name} when it was imported")

        def __getitem__(self, name):
            self.asked(name)
            return super().__getitem__(name)

        def get(self, name, default=None):
            self.asked(name)
            return super().get(name, default)

        def __contains__(self, name):
            self.asked(name)
            return super().__contains__(name)

    os.environ = Environment(os.environ)
    watched = []

    def watch(event, arguments):
        if event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
            watched.append(f"opened {arguments[0]} to write")
        if event in ("sqlite3.connect", "subprocess.Popen", "os.mkdir", "socket.bind"):
            watched.append(f"{event} {arguments}")

    sys.dont_write_bytecode = True
    sys.addaudithook(watch)
    for name in sys.argv[1:]:
        importlib.import_module(name)
    assert not watched, watched
    """
)


def test_importing_does_no_io_and_reads_no_environment(tmp_path: Path) -> None:
    """Every module can be imported with nothing set, without a network, and without leaving a trace."""
    names = modules()
    assert len(names) > 80
    command = [sys.executable, "-W", "ignore", "-c", IMPORTS, *names]
    environment = {"PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)  # noqa: S603  (our own interpreter)
    assert done.returncode == 0, done.stderr[-3000:]
    assert list(tmp_path.iterdir()) == []


def test_dagster_postgres_is_the_release_that_belongs_to_dagster() -> None:
    """It is 0.29, and not 0.11, which pip prefers wherever it may: that one does not pin Dagster, nor start with it."""
    assert re.match(r"0\.29\.\d+$", dagster_postgres.__version__)
    assert f"dagster=={metadata.version('dagster')}" in (metadata.requires("dagster-postgres") or [])


def test_dagster_and_the_store_mean_the_same_driver() -> None:
    """The URLs that dagster-postgres builds name no driver; SQLAlchemy takes psycopg2, which is installed."""
    url = get_conn_string("user", "password", "host", "database")
    assert url.startswith("postgresql://")
    engine = sa.create_engine(url)
    assert engine.driver == "psycopg2"
    assert metadata.version("psycopg2-binary")


def imported() -> set[str]:
    """Return the top-level names that the package imports and that are not Python's own or its own."""
    found: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                found.add(node.module.partition(".")[0])
    return found - sys.stdlib_module_names - {"bandsync_dagster"}


def test_everything_imported_is_a_declared_dependency() -> None:
    """Nothing is imported that is only there because another package happens to bring it."""
    listed = re.search(r"^dependencies = \[\n(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.DOTALL | re.MULTILINE)
    assert listed
    declared = set(re.findall(r'^ +"([\w-]+)', listed[1], flags=re.MULTILINE))
    assert {DISTRIBUTIONS.get(name, name) for name in imported()} <= declared


@pytest.fixture(scope="module")
def wheel_content(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Return the names of the files in a wheel built from the project's sources, and from nothing else."""
    sources, built = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("built")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    shutil.copytree(PACKAGE, sources / "bandsync_dagster", ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", str(built), str(sources)]
    subprocess.run(command, check=True, capture_output=True, timeout=280)  # noqa: S603  (our own interpreter)
    (wheel,) = built.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


@pytest.mark.network
def test_the_wheel_has_every_file_of_the_package(wheel_content: set[str]) -> None:
    """Migrations, Dagster's templates, the simulated GitHub's schema and the mark for types are in it."""
    ours = {
        str(path.relative_to(ROOT)) for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    }
    packed = {name for name in wheel_content if ".dist-info/" not in name}
    assert packed == ours
    assert any(name.endswith("licenses/LICENSE") for name in wheel_content)


def test_both_instance_files_differ_in_the_storage_only() -> None:
    """What holds for Dagster on SQLite holds on PostgreSQL, and the checkout's own file is the packaged one."""
    folder = resources.files("bandsync_dagster") / "deployment"
    local = (folder / "dagster.yaml").read_text(encoding="utf-8")
    postgresql = yaml.safe_load((folder / "dagster-postgresql.yaml").read_text(encoding="utf-8"))
    assert postgresql.pop("storage") == {"postgres": {"postgres_url": {"env": "DAGSTER_POSTGRES_URL"}}}
    assert postgresql == yaml.safe_load(local)
    assert (ROOT / "dagster.yaml").read_text(encoding="utf-8") == local


def service(unit: Path) -> configparser.SectionProxy:
    """Return the [Service] section of a unit; keys may occur twice there."""
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # pyright: ignore[reportAttributeAccessIssue]
    parser.read(unit, encoding="utf-8")
    return parser["Service"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_units_start_commands_that_are_installed(unit: Path) -> None:
    """Each unit's command is one that installing the package brings, with options that it has."""
    program, *words = service(unit)["ExecStart"].split()
    options = [word for word in words if word.startswith("--")]
    subcommands = words[: words.index(options[0])]
    command = [str(Path(sysconfig.get_path("scripts")) / Path(program).name), *subcommands, "--help"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603  (a command of the units)
    assert {option for option in options if option not in shown.stdout} == set()


def test_the_workspace_finds_the_code_server_where_its_unit_starts_it() -> None:
    """Port and location name in deploy/workspace.yaml are those of the code server's unit."""
    words = service(ROOT / "deploy" / "systemd" / "bandsync-code.service")["ExecStart"].split()
    (entry,) = yaml.safe_load((ROOT / "deploy" / "workspace.yaml").read_text(encoding="utf-8"))["load_from"]
    server = entry["grpc_server"]
    assert words[words.index("--port") + 1] == str(server["port"])
    assert words[words.index("--host") + 1] == server["host"]
    assert words[words.index("--location-name") + 1] == server["location_name"]


@pytest.mark.parametrize("name", ["bandsync.env", "dagster.env"])
def test_environment_files_name_variables_that_are_read(name: str) -> None:
    """Each variable in deploy/*.env is one of the settings, or of Dagster and its instance file."""
    lines = (ROOT / "deploy" / name).read_text(encoding="utf-8").splitlines()
    named = {line.partition("=")[0] for line in lines if line and not line.startswith("#")}
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    known = set(re.findall(r"^\| `(\w+)`", readme, flags=re.MULTILINE)) | {"DAGSTER_HOME", "DAGSTER_POSTGRES_URL"}
    assert named
    assert named <= known
