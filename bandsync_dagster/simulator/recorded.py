"""A world out of recorded REST payloads: what was recorded is served as it was; what REST does not tell is derived.

The lists of changes that were recorded lack some numbers that GraphQL gives (additions, comments, ...). They follow
from the head commit, so that they are the same every time.
"""

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from bandsync_dagster.clock import Clock, utc_now
from bandsync_dagster.simulator.records import Attempt, Change, Job, Repository, Run, User, Workflow, created_order
from bandsync_dagster.simulator.world import World

FULL_NAME = "acme/pool"

Payload = dict[str, Any]


def recorded(folder: Path | str, *, clock: Clock = utc_now) -> World:
    """Load `pull_requests.json`, `workflow_runs.json` and `jobs.json` as the repository `acme/pool`.

    An item that was recorded twice (a listing can do that) is there once, as it was seen last.
    """
    changes, runs, jobs = (_load(Path(folder) / f"{name}.json") for name in ("pull_requests", "workflow_runs", "jobs"))
    world = World(clock=clock)
    repository = _add_repository(world, changes[0]["base"]["repo"])
    for payload in {payload["id"]: payload for payload in changes}.values():
        _add_change(world, repository, payload)
    for payload in {payload["id"]: payload for payload in runs}.values():
        _add_run(world, repository, payload)
    for payload in {payload["id"]: payload for payload in jobs}.values():
        _add_job(world, payload)
    for index in (repository.changes, repository.runs):
        index.sort(key=created_order)
    return world


def _load(path: Path) -> list[Payload]:
    return json.loads(path.read_text(encoding="utf-8"))


def _time(text: str | None) -> datetime | None:
    return None if text is None else _known_time(text)


def _known_time(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)


def _user(world: World, payload: Payload | None) -> User | None:
    if payload is None:
        return None
    known = world.user(payload["login"])
    if known is not None:
        return known
    user = world.add_user(payload["login"], payload["type"], user_id=payload["id"])
    user.node_id = payload["node_id"]
    world.remember_node(user.type, user)
    return user


def _add_repository(world: World, payload: Payload) -> Repository:
    world.add_user(FULL_NAME.partition("/")[0], "Organization")
    fields = ("node_id", "private", "visibility", "archived", "disabled", "fork", "default_branch", "size")
    times = {name: _known_time(payload[name]) for name in ("created_at", "updated_at", "pushed_at")}
    values = {name: payload[name] for name in fields}
    repository = world.add_repository(payload["full_name"], repository_id=payload["id"], **values, **times)
    world.remember_node("Repository", repository)
    return repository


def _add_change(world: World, repository: Repository, payload: Payload) -> Change:
    merged, head, base = payload["merged_at"] is not None, payload["head"], payload["base"]
    values: Payload = {name: payload[name] for name in ("node_id", "number", "title", "body", "draft")}
    values |= {name: _time(payload[name]) for name in ("updated_at", "closed_at", "merged_at")}
    values |= {
        "state": "merged" if merged else payload["state"],
        "author": _user(world, payload["user"]),
        "base_ref": base["ref"],
        "base_sha": base["sha"],
        "head_ref": head["ref"],
        "head_sha": head["sha"],
        "head_repository_id": head["repo"] and head["repo"]["id"],
        "merge_commit_sha": payload["merge_commit_sha"],
        "labels": [world.label(repository, label["name"], label["color"]) for label in payload["labels"]],
        "payload": payload,
        **_derived(head["sha"]),
    }
    at, pushed = _known_time(payload["created_at"]), repository.pushed_at
    change = world.add_change(repository, at=at, change_id=payload["id"], first_commit_at=at, **values)
    repository.pushed_at = pushed
    world.remember_node("PullRequest", change)
    return change


def _derived(sha: str) -> Mapping[str, int]:
    names = ("additions", "deletions", "changed_files", "commits", "comments")
    return {name: int(sha[2 * place : 2 * place + 2], 16) + (name == "commits") for place, name in enumerate(names)}


def _add_run(world: World, repository: Repository, payload: Payload) -> Run:
    workflow = _workflow(repository, payload)
    names = ("id", "node_id", "name", "run_number", "event", "head_branch", "head_sha")
    run = Run(
        **{name: payload[name] for name in names},
        repository_id=repository.id,
        suite_id=payload["check_suite_id"],
        suite_node_id=payload["check_suite_node_id"],
        workflow=workflow,
        display_title=payload.get("display_title"),
        head_repository_id=payload["head_repository"] and payload["head_repository"]["id"],
        actor=_user(world, payload["actor"]),
        created_at=_known_time(payload["created_at"]),
        attempts=[_attempt(world, payload, number) for number in range(1, payload["run_attempt"] + 1)],
        payload=payload,
    )
    world.runs[run.id] = world.suites[run.suite_id] = run
    repository.runs.append(run)
    world.remember_node("WorkflowRun", run)
    world.remember_node("CheckSuite", run, run.suite_node_id)
    return run


def _workflow(repository: Repository, payload: Payload) -> Workflow:
    for workflow in repository.workflows:
        if workflow.id == payload["workflow_id"]:
            return workflow
    workflow = Workflow(payload["workflow_id"], f"W_{payload['workflow_id']}", payload["name"], payload["path"])
    repository.workflows.append(workflow)
    return workflow


def _attempt(world: World, payload: Payload, number: int) -> Attempt:
    """Return one attempt; of those before the last, nothing was recorded but that they were."""
    return Attempt(
        number=number,
        status=payload["status"],
        conclusion=payload["conclusion"],
        run_started_at=_known_time(payload["run_started_at"]),
        updated_at=_known_time(payload["updated_at"]),
        triggering_actor=_user(world, payload["triggering_actor"]),
    )


def _add_job(world: World, payload: Payload) -> Job:
    run = world.runs[payload["run_id"]]
    names = ("id", "node_id", "run_id", "run_attempt", "name", "status", "conclusion", "labels", "steps", "runner_id")
    names += ("runner_name", "runner_group_id", "runner_group_name")
    values = {name: payload[name] for name in names}
    values |= {name: _time(payload.get(name)) for name in ("created_at", "started_at", "completed_at")}
    job = Job(**values, payload=payload)
    run.attempts[job.run_attempt - 1].jobs.append(job)
    world.jobs[job.id] = job
    world.remember_node("CheckRun", job)
    return job
