"""GraphQL payloads in the shape GitHub documents, to be spoilt by tests."""

from typing import Any


def who(login: str = "octo", kind: str = "User", number: int = 7) -> dict[str, Any]:
    """Return an actor."""
    return {"__typename": kind, "login": login, "databaseId": number}


def change_node(number: int = 1, **changes: Any) -> dict[str, Any]:
    """Return a pull request."""
    return {
        "fullDatabaseId": str(3_000_000_000 + number),
        "id": f"PR_{number}",
        "number": number,
        "title": f"change {number}",
        "state": "MERGED",
        "isDraft": False,
        "url": f"https://github.com/acme/pool/pull/{number}",
        "author": who(),
        "mergedBy": who("boss", number=8),
        "baseRefName": "main",
        "baseRefOid": "b" * 40,
        "headRefName": "topic",
        "headRefOid": "a" * 40,
        "additions": 10,
        "deletions": 2,
        "changedFiles": 3,
        "createdAt": "2026-01-01T10:00:00Z",
        "updatedAt": "2026-01-02T10:00:00Z",
        "closedAt": "2026-01-02T09:00:00Z",
        "mergedAt": "2026-01-02T09:00:00Z",
        "mergeCommit": {"oid": "c" * 40},
        "reviewDecision": "APPROVED",
        "comments": {"totalCount": 4},
        "labels": {"nodes": [{"name": "bug"}, {"name": "good first issue"}]},
        "commits": {"totalCount": 5, "nodes": [{"commit": {"authoredDate": "2026-01-01T08:00:00Z"}}]},
        "reviews": {"totalCount": 2, "nodes": [{"submittedAt": "2026-01-01T12:00:00Z"}]},
        **changes,
    }


def changes_data(nodes: list[dict[str, Any] | None], *, has_next: bool = False) -> dict[str, Any]:
    """Return a page of pull requests."""
    return {
        "rateLimit": {"cost": 3},
        "repository": {
            "databaseId": 99,
            "id": "R_99",
            "nameWithOwner": "acme/pool",
            "pullRequests": {
                "totalCount": 1000,
                "pageInfo": {
                    "hasNextPage": has_next,
                    "hasPreviousPage": True,
                    "startCursor": "c0",
                    "endCursor": f"c{len(nodes) - 1}",
                },
                "edges": [{"cursor": f"c{index}", "node": node} for index, node in enumerate(nodes)],
            },
        },
    }


def check_run(number: int, **changes: Any) -> dict[str, Any]:
    """Return a check run."""
    return {
        "databaseId": 100_000_000_000 + number,
        "id": f"CR_{number}",
        "name": f"build {number}",
        "status": "COMPLETED",
        "conclusion": "SUCCESS",
        "startedAt": "2026-01-01T10:00:00Z",
        "completedAt": "2026-01-01T10:05:00Z",
        "detailsUrl": f"https://github.com/acme/pool/actions/runs/1/job/{number}",
        "url": f"https://github.com/acme/pool/runs/{number}",
        **changes,
    }


def suite(
    run_id: int, runs: list[dict[str, Any] | None], *, total: int | None = None, more: bool = False
) -> dict[str, Any]:
    """Return a check suite with its check runs."""
    return {
        "__typename": "CheckSuite",
        "id": f"CS_{run_id}",
        "status": "COMPLETED",
        "workflowRun": {"databaseId": run_id},
        "checkRuns": {
            "totalCount": len(runs) if total is None else total,
            "pageInfo": {"hasNextPage": more, "endCursor": "more" if more else None},
            "nodes": runs,
        },
    }


def activity_node(number: int, **changes: Any) -> dict[str, Any]:
    """Return a repository's activity."""
    return {
        "__typename": "Repository",
        "databaseId": number,
        "id": f"R_{number}",
        "nameWithOwner": f"acme/r{number}",
        "pushedAt": "2026-01-01T10:00:00Z",
        "isArchived": False,
        "pullRequests": {"totalCount": 5, "nodes": [{"updatedAt": "2026-01-02T10:00:00Z"}]},
        **changes,
    }
