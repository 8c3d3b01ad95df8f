"""A GitHub's state over time: what is added to it, what happens to it, and what is true in it at any moment.

Every mutation takes the world's lock, so a world may change while it is served. Times have GitHub's resolution of one
second. Whatever a call doesn't give is drawn from the world's own seeded random numbers.
"""

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Literal

from bandsync_dagster.simulator import truth
from bandsync_dagster.simulator.accounts import FIRST_IDS, Accounts
from bandsync_dagster.simulator.records import (
    Attempt,
    Change,
    Job,
    Repository,
    Review,
    Run,
    User,
    created_order,
    node_id,
    updated_order,
)

CHECKED_AGAIN = frozenset({"failure", "cancelled", "timed_out"})


class World(Accounts):
    """A GitHub that can be served and knows its truth."""

    def truth(self, *, detail: Literal["basic", "full"] = "basic") -> dict[str, list[dict[str, Any]]]:
        """Return every row the store should hold, by table; see `truth.rows`."""
        with self.lock:
            return truth.rows(self, detail=detail)

    # Changes

    def add_change(
        self, repository: Repository, *, at: datetime | None = None, change_id: int | None = None, **values: object
    ) -> Change:
        """Open a change; `values` set any of its fields."""
        with self.lock:
            at, number = at or self.now(), change_id or self.next_id("change")
            fields: dict[str, Any] = {**self._change_defaults(repository, number, at), **values}
            change = Change(**fields)
            self.changes[number] = change
            repository.changes_by_number[change.number] = change
            insort(repository.changes, change, key=created_order)
            insort(repository.changes_by_update, change, key=updated_order)
            self._pushed(repository, at)
            return change

    def _change_defaults(self, repository: Repository, number: int, at: datetime) -> dict[str, Any]:
        draw, newest = self.random, next(reversed(repository.changes_by_number), 0)
        return {
            "id": number,
            "node_id": node_id("PR", number),
            "number": newest + 1,
            "repository_id": repository.id,
            "title": f"Change {newest + 1} of {repository.name}",
            "body": None,
            "state": "open",
            "draft": False,
            "author": repository.owner,
            "base_ref": repository.default_branch,
            "base_sha": self.sha(),
            "head_ref": f"topic-{newest + 1}",
            "head_sha": self.sha(),
            "head_repository_id": repository.id,
            "additions": draw.randrange(2000),
            "deletions": draw.randrange(900),
            "changed_files": draw.randrange(1, 60),
            "commits": draw.randrange(1, 12),
            "comments": draw.randrange(8),
            "review_decision": None,
            "reviews": [],
            "first_commit_at": at - timedelta(seconds=draw.randrange(86_400)),
            "labels": [],
            "created_at": at,
            "updated_at": at,
            "closed_at": None,
            "merged_at": None,
            "merge_commit_sha": None,
            "merged_by": None,
        }

    def touch_change(self, change: Change, *, at: datetime | None = None, **values: object) -> None:
        """Set fields of a change; its `updated_at` moves to `at`, and so does its place in lists by update."""
        with self.lock:
            by_update = self.repositories[change.repository_id].changes_by_update
            del by_update[bisect_left(by_update, updated_order(change), key=updated_order)]
            for name, value in values.items():
                setattr(change, name, value)
            change.updated_at = at or self.now()
            insort(by_update, change, key=updated_order)

    def merge_change(self, change: Change, *, by: User | None = None, at: datetime | None = None) -> None:
        """Merge a change."""
        with self.lock:
            at = at or self.now()
            values = {"state": "merged", "closed_at": at, "merged_at": at, "merge_commit_sha": self.sha()}
            self.touch_change(change, at=at, merged_by=by or change.author, **values)

    def close_change(self, change: Change, *, at: datetime | None = None) -> None:
        """Close a change without merging it."""
        at = at or self.now()
        self.touch_change(change, at=at, state="closed", closed_at=at)

    def review_change(self, change: Change, state: str = "APPROVED", *, at: datetime | None = None) -> Review:
        """Add a review, which touches the change."""
        with self.lock:
            at, number = at or self.now(), self.next_id("review")
            review = Review(number, node_id("PRR", number), change.author, state, at)
            decision = state if state in ("APPROVED", "CHANGES_REQUESTED") else change.review_decision
            self.touch_change(change, at=at, reviews=[*(change.reviews or []), review], review_decision=decision)
            return review

    # Runs

    def add_run(
        self,
        repository: Repository,
        *,
        at: datetime | None = None,
        jobs: int | Sequence[Mapping[str, Any]] = 3,
        conclusion: str | None = "success",
        **values: object,
    ) -> Run:
        """Start a run; with a conclusion it ends at once, without one (None) it is in progress.

        Args:
            repository: Where it runs.
            at: When it was created.
            jobs: How many jobs it has, or the fields of each.
            conclusion: How the run and its jobs end.
            **values: Other fields of the run.
        """
        with self.lock:
            at = at or self.now()
            fields: dict[str, Any] = {**self._run_defaults(repository, at), **values}
            run = Run(**fields)
            self._register_run(repository, run)
            self._start_attempt(run, at, run.actor)
            wanted = [{"name": f"job {n}"} for n in range(jobs)] if isinstance(jobs, int) else jobs
            run.attempt.jobs = [self._new_job(run, at, fields) for fields in wanted]
            if conclusion is not None:
                self.finish_run(run, conclusion)
            return run

    def _run_defaults(self, repository: Repository, at: datetime) -> dict[str, Any]:
        number, suite, run_number = self.next_id("run"), self.next_id("suite"), len(repository.runs) + 1
        return {
            "id": number,
            "node_id": node_id("WFR", number),
            "repository_id": repository.id,
            "suite_id": suite,
            "suite_node_id": node_id("CS", suite),
            "workflow": self.workflow(repository),
            "name": "CI",
            "display_title": f"Run {run_number} of {repository.name}",
            "run_number": run_number,
            "event": "push",
            "head_branch": repository.default_branch,
            "head_sha": self.sha(),
            "head_repository_id": repository.id,
            "actor": repository.owner,
            "created_at": at,
            "attempts": [],
        }

    def _register_run(self, repository: Repository, run: Run) -> None:
        self.runs[run.id] = self.suites[run.suite_id] = run
        insort(repository.runs, run, key=created_order)
        if run.event == "push":
            self._pushed(repository, run.created_at)

    def _start_attempt(self, run: Run, at: datetime, actor: User | None) -> Attempt:
        attempt = Attempt(len(run.attempts) + 1, "in_progress", None, at, at, actor)
        run.attempts.append(attempt)
        return attempt

    def _new_job(self, run: Run, at: datetime, fields: Mapping[str, Any]) -> Job:
        number, runner = self.next_id("job"), self.random.randrange(1, 90)
        values = {
            "id": number,
            "node_id": node_id("CR", number),
            "run_id": run.id,
            "run_attempt": len(run.attempts),
            "name": "job",
            "status": "in_progress",
            "conclusion": None,
            "created_at": at,
            "started_at": at + timedelta(seconds=self.random.randrange(1, 45)),
            "completed_at": None,
            "labels": ["ubuntu-latest"],
            "runner_id": FIRST_IDS["runner"] + runner,
            "runner_name": f"GitHub Actions {runner}",
            "runner_group_id": 0,
            "runner_group_name": "GitHub Actions",
        }
        job = Job(**{**values, **fields})
        self.jobs[job.id] = job
        return job

    def finish_run(self, run: Run, conclusion: str | None = "success", *, at: datetime | None = None) -> None:
        """End the latest attempt; jobs that have no conclusion yet end with the run's."""
        with self.lock:
            attempt, present = run.attempt, at or max(self.now(), run.attempt.run_started_at)
            ends = [attempt.run_started_at]
            for job in attempt.jobs:
                if job.status == "in_progress":
                    self._finish_job(job, conclusion, at=at, present=present)
                ends.append(job.completed_at or job.started_at or attempt.run_started_at)
            attempt.status, attempt.conclusion = "completed", conclusion
            attempt.updated_at = at or min(max(ends) + timedelta(seconds=2), present)

    def _finish_job(self, job: Job, conclusion: str | None, *, at: datetime | None, present: datetime) -> None:
        job.started_at = min(job.started_at or present, present)
        job.completed_at = at or min(job.started_at + timedelta(seconds=self.random.randrange(5, 900)), present)
        job.status, job.conclusion = "completed", job.conclusion or conclusion

    def annotate_run(self, run: Run, *, at: datetime | None = None) -> None:
        """Move only the run's `updated_at`, as a late annotation or the expiry of logs does."""
        with self.lock:
            run.attempt.updated_at = at or self.now()

    def rerun(
        self,
        run: Run,
        *,
        failed_only: bool = False,
        at: datetime | None = None,
        actor: User | None = None,
        conclusion: str | None = "success",
    ) -> Attempt:
        """Run all jobs again, or the failed ones; without a conclusion (None) the attempt stays in progress.

        After a partial re-run the jobs not run again appear once more, with new ids and the same times. An attempt
        starts after the one before it ended: equal times always mean a copy.
        """
        with self.lock:
            at, before = max(at or self.now(), run.attempt.updated_at + timedelta(seconds=1)), run.attempt.jobs
            failed = [job for job in before if job.conclusion in CHECKED_AGAIN]
            again = set(map(id, failed if failed_only and failed else before))
            attempt = self._start_attempt(run, at, actor or run.actor)
            attempt.jobs = [
                self._run_again(run, job, at) if id(job) in again else self._copy(run, job) for job in before
            ]
            if conclusion is not None:
                self.finish_run(run, conclusion)
            return attempt

    def _run_again(self, run: Run, job: Job, at: datetime) -> Job:
        return self._new_job(run, at, {"name": job.name, "labels": job.labels})

    def _copy(self, run: Run, job: Job) -> Job:
        number = self.next_id("job")
        identity = {"id": number, "node_id": node_id("CR", number), "run_attempt": len(run.attempts)}
        self.jobs[number] = replace(job, **identity, copy_of=job.copy_of or job.id)
        return self.jobs[number]

    def delete_run(self, run: Run) -> None:
        """Delete a run and its jobs, as GitHub's retention does."""
        with self.lock:
            runs = self.repositories[run.repository_id].runs
            del runs[bisect_left(runs, created_order(run), key=created_order)]
            del self.runs[run.id], self.suites[run.suite_id]
            for job in run.jobs:
                del self.jobs[job.id]

    def _pushed(self, repository: Repository, at: datetime) -> None:
        repository.pushed_at = max(repository.pushed_at or at, at)
