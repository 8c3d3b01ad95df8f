"""The shapes of REST's answers about pull requests, runs and jobs.

Shapes follow GitHub's OpenAPI description. What was recorded is served as it was. Accounts and repositories, which are
nested in all of them, are in `repository_payloads`.
"""

from typing import Any

from bandsync_dagster.simulator.oddities import ZERO_TIME
from bandsync_dagster.simulator.records import Attempt, Change, Job, Label, Run, change_url, job_url, run_url
from bandsync_dagster.simulator.repository_payloads import RepositoryPainter, moment
from bandsync_dagster.simulator.steps import steps_of

Payload = dict[str, Any]


class Painter(RepositoryPainter):
    """Makes payloads for one request. What it made for a repository or account it uses again."""

    # Pull requests

    def change(self, change: Change) -> Payload:
        """Return a `pull-request-simple`, as lists have it."""
        if change.payload is not None:
            return change.payload
        repository = self.world.repositories[change.repository_id]
        url, page = f"{self.base}/repos/{repository.full_name}", change_url(repository, change)
        links = self._change_links(url, change)
        return {
            "url": links["self"],
            "id": change.id,
            "node_id": change.node_id,
            "html_url": page,
            "diff_url": f"{page}.diff",
            "patch_url": f"{page}.patch",
            "issue_url": links["issue"],
            "number": change.number,
            "state": "open" if change.state == "open" else "closed",
            "locked": False,
            "title": change.title,
            "user": self.user(change.author),
            "body": change.body,
            **{name: moment(getattr(change, name)) for name in ("created_at", "updated_at", "closed_at", "merged_at")},
            "merge_commit_sha": change.merge_commit_sha,
            "assignee": None,
            **{name: [] for name in ("assignees", "requested_reviewers", "requested_teams")},
            "labels": [self._label(url, label) for label in change.labels],
            "milestone": None,
            "draft": change.draft,
            **{f"{name}_url": links[name] for name in ("commits", "review_comments", "review_comment", "comments")},
            "statuses_url": links["statuses"],
            "head": self._branch(change.head_repository_id, change.head_ref, change.head_sha),
            "base": self._branch(change.repository_id, change.base_ref, change.base_sha),
            "_links": {name: {"href": link} for name, link in {**links, "html": page}.items()},
            "author_association": "CONTRIBUTOR",
            "auto_merge": None,
            "active_lock_reason": None,
        }

    def _change_links(self, url: str, change: Change) -> dict[str, str]:
        pull, issue = f"{url}/pulls/{change.number}", f"{url}/issues/{change.number}"
        return {
            "self": pull,
            "issue": issue,
            "comments": f"{issue}/comments",
            "review_comments": f"{pull}/comments",
            "review_comment": f"{url}/pulls/comments{{/number}}",
            "commits": f"{pull}/commits",
            "statuses": f"{url}/statuses/{change.head_sha}",
        }

    def _label(self, url: str, label: Label) -> Payload:
        about: Payload = {"id": label.id, "node_id": label.node_id, "url": f"{url}/labels/{label.id}"}
        never = {"description": None, "archived_at": None, "archived_by": None}
        return about | {"name": label.name, "color": label.color, "default": False} | never

    def _branch(self, repository_id: int | None, ref: str, sha: str) -> Payload:
        """Return head or base; of a deleted fork only the names are left."""
        repository = None if repository_id is None else self.world.repositories.get(repository_id)
        if repository is None or repository.gone:
            return {"label": ref, "ref": ref, "sha": sha, "user": None, "repo": None}
        label = f"{repository.owner.login}:{ref}"
        user, repo = self.user(repository.owner), self.repository(repository)
        return {"label": label, "ref": ref, "sha": sha, "user": user, "repo": repo}

    def full_change(self, change: Change) -> Payload:
        """Return a `pull-request`, with what only the single one has."""
        numbers = ("comments", "commits", "additions", "deletions", "changed_files")
        return self.change(change) | {
            "merged": change.state == "merged",
            "mergeable": None,
            "rebaseable": None,
            "mergeable_state": "unknown",
            "merged_by": self.user(change.merged_by),
            "review_comments": 0,
            "maintainer_can_modify": False,
            **{name: getattr(change, name) for name in numbers},
        }

    # Runs and jobs

    def run(self, run: Run, attempt: Attempt, pull_requests: list[Change]) -> Payload:
        """Return a `workflow-run` at one of its attempts."""
        if run.payload is not None and attempt is run.attempt:
            return run.payload
        repository = self.world.repositories[run.repository_id]
        url = f"{self.base}/repos/{repository.full_name}"
        head = None if run.head_repository_id is None else self.world.repositories.get(run.head_repository_id)
        return {
            "id": run.id,
            "name": run.name,
            "node_id": run.node_id,
            "head_branch": run.head_branch,
            "head_sha": run.head_sha,
            "path": run.workflow.path,
            "display_title": run.display_title,
            "run_number": run.run_number,
            "event": run.event,
            "status": attempt.status,
            "conclusion": attempt.conclusion,
            "workflow_id": run.workflow.id,
            "check_suite_id": run.suite_id,
            "check_suite_node_id": run.suite_node_id,
            "html_url": run_url(repository, run),
            "pull_requests": [self._pull_reference(url, change) for change in pull_requests],
            "created_at": moment(run.created_at),
            "updated_at": moment(attempt.updated_at),
            "actor": self.user(run.actor),
            "run_attempt": attempt.number,
            "referenced_workflows": [],
            "run_started_at": moment(attempt.run_started_at),
            "triggering_actor": self.user(attempt.triggering_actor),
            **self._run_links(url, run, attempt),
            "head_commit": self._commit(run),
            "repository": self.minimal(repository),
            "head_repository": None if head is None else self.minimal(head),
        }

    def _run_links(self, url: str, run: Run, attempt: Attempt) -> Payload:
        its_url = f"{url}/actions/runs/{run.id}"
        past = attempt is not run.attempt
        own = f"{its_url}/attempts/{attempt.number}" if past else its_url
        earlier = f"{its_url}/attempts/{attempt.number - 1}" if attempt.number > 1 else None
        return {
            "url": its_url,
            "jobs_url": f"{own}/jobs",
            "logs_url": f"{own}/logs",
            "check_suite_url": f"{url}/check-suites/{run.suite_id}",
            "artifacts_url": f"{its_url}/artifacts",
            "cancel_url": f"{its_url}/cancel",
            "rerun_url": f"{its_url}/rerun",
            "previous_attempt_url": earlier,
            "workflow_url": f"{url}/actions/workflows/{run.workflow.id}",
        }

    def _commit(self, run: Run) -> Payload:
        person = {"name": "Somebody", "email": "somebody@example.com"}
        message, time = run.display_title, moment(run.created_at)
        about: Payload = {"id": run.head_sha, "tree_id": run.head_sha[::-1], "message": message, "timestamp": time}
        return about | {"author": person, "committer": person}

    def _pull_reference(self, url: str, change: Change) -> Payload:
        repository = self.world.repositories[change.repository_id]
        place = {"id": repository.id, "url": url, "name": repository.name}
        about: Payload = {"id": change.id, "number": change.number, "url": f"{url}/pulls/{change.number}"}
        about["head"] = {"ref": change.head_ref, "sha": change.head_sha, "repo": place}
        return about | {"base": {"ref": change.base_ref, "sha": change.base_sha, "repo": place}}

    def job(self, job: Job) -> Payload:
        """Return a `job`. A start that never was is the zero time: the field can't be null."""
        if job.payload is not None:
            return job.payload
        run = self.world.runs[job.run_id]
        repository = self.world.repositories[run.repository_id]
        url = f"{self.base}/repos/{repository.full_name}"
        return {
            "id": job.id,
            "run_id": run.id,
            "workflow_name": run.workflow.name,
            "head_branch": run.head_branch,
            "run_url": f"{url}/actions/runs/{run.id}",
            "run_attempt": job.run_attempt,
            "node_id": job.node_id,
            "head_sha": run.head_sha,
            "url": f"{url}/actions/jobs/{job.id}",
            "html_url": job_url(repository, job),
            "status": job.status,
            "conclusion": job.conclusion,
            "created_at": moment(job.created_at),
            "started_at": moment(job.started_at or ZERO_TIME),
            "completed_at": moment(job.completed_at),
            "name": job.name,
            "steps": steps_of(job),
            "check_run_url": f"{url}/check-runs/{job.id}",
            "labels": job.labels,
            "runner_id": job.runner_id,
            "runner_name": job.runner_name,
            "runner_group_id": job.runner_group_id,
            "runner_group_name": job.runner_group_name,
        }
