"""REST endpoints over a world: a request in, an answer out. No HTTP server, tokens' buckets, ETags or faults here.

Behaviour follows GitHub's documentation and what was observed of it: filtered lists of runs end silently after 1,000
results, unfiltered ones refuse beyond 40,000, renames answer 301, and what may not be seen answers 404.
"""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from bandsync_dagster.simulator import run_listing
from bandsync_dagster.simulator.exchange import DOCS, NOT_FOUND, Answer, Call, Refused, message
from bandsync_dagster.simulator.listing import Page
from bandsync_dagster.simulator.payloads import Painter
from bandsync_dagster.simulator.records import Repository, Run, User
from bandsync_dagster.simulator.repository_payloads import moment
from bandsync_dagster.simulator.world import World

SSO_URL = "https://github.com/orgs/{0}/sso?authorization_request=simulated"


class Rest:
    """Answers REST requests; the caller holds the world's lock."""

    def __init__(self, world: World) -> None:
        self.world = world

    def answer(self, call: Call) -> Answer:
        """Return the answer to a GET request."""
        try:
            for pattern, handle in ROUTES:
                match = re.fullmatch(pattern, call.path)
                if match is not None:
                    return handle(self, call, **match.groupdict())
        except Refused as refused:
            return refused.answer
        return NOT_FOUND

    def paint(self, call: Call) -> Painter:
        """Return what makes the payloads of one request."""
        return Painter(self.world, call.base)

    # Who may see what

    def find(self, call: Call, full_name: str, rest: str = "") -> Repository:
        """Return the repository with this name, or refuse: 301 if it moved, 404 if it can't be seen."""
        moved = self.world.find_moved(full_name)
        if moved is not None and self._visible(call, moved):
            raise Refused(_moved(call, moved, rest))
        repository = self.world.find_repository(full_name)
        return self._admit(call, repository)

    def find_by_id(self, call: Call, number: str) -> Repository:
        """Return the repository with this id, or refuse."""
        return self._admit(call, self.world.repositories.get(int(number)))

    def _visible(self, call: Call, repository: Repository) -> bool:
        private = repository.private and (call.caller.anonymous or not self._installed(call, repository.owner))
        return not (repository.gone or private)

    def _installed(self, call: Call, owner: User) -> bool:
        app = call.caller.app
        return app is None or app.account.lower() == owner.login.lower()

    def _admit(self, call: Call, repository: Repository | None) -> Repository:
        if repository is None or not self._visible(call, repository):
            raise Refused(NOT_FOUND)
        if repository.blocked:
            raise Refused(_blocked(repository))
        if repository.saml:
            raise Refused(_saml(repository))
        return repository

    # Accounts and lists of repositories

    def user(self, call: Call, login: str) -> Answer:
        """GET /users/{login}."""
        user = self._account(login)
        return Answer(200, self.paint(call).account(user, len(self._owned(call, user, public=True))))

    def organisation(self, call: Call, login: str) -> Answer:
        """GET /orgs/{login}."""
        user = self._account(login, "Organization")
        return Answer(200, self.paint(call).organisation(user, len(self._owned(call, user, public=True))))

    def _account(self, login: str, type_name: str | None = None) -> User:
        user = self.world.user(login)
        if user is None or type_name not in (None, user.type):
            raise Refused(NOT_FOUND)
        return user

    def _owned(self, call: Call, user: User, *, public: bool) -> list[Repository]:
        owned = [r for r in self.world.owned_by(user.login) if self._visible(call, r)]
        return [r for r in owned if not (public and r.private)]

    def organisation_repositories(self, call: Call, login: str) -> Answer:
        """GET /orgs/{login}/repos."""
        owned = self._owned(call, self._account(login, "Organization"), public=False)
        return self._repositories(call, owned, default_sort="created")

    def user_repositories(self, call: Call, login: str) -> Answer:
        """GET /users/{login}/repos: the public ones only."""
        return self._repositories(call, self._owned(call, self._account(login), public=True), default_sort="full_name")

    def own_repositories(self, call: Call) -> Answer:
        """GET /user/repos: all the token can see."""
        if call.caller.anonymous:
            return message(401, "Requires authentication")
        seen = [r for r in self.world.repositories.values() if self._visible(call, r)]
        return self._repositories(call, seen, default_sort="full_name")

    def installation_repositories(self, call: Call) -> Answer:
        """GET /installation/repositories: what the App was granted."""
        app = call.caller.app
        if app is None:
            return message(403, "You must authenticate with an installation access token to list its repositories.")
        owned = self.world.owned_by(app.account)
        answer = self._repositories(call, owned, default_sort="full_name")
        body = {"total_count": len(owned), "repository_selection": "all", "repositories": answer.body}
        return Answer(200, body, answer.headers)

    def _repositories(self, call: Call, repositories: list[Repository], *, default_sort: str) -> Answer:
        kinds: dict[str, Callable[[Repository], bool]] = {
            "public": lambda repository: not repository.private,
            "private": lambda repository: repository.private,
            "forks": lambda repository: repository.fork,
            "sources": lambda repository: not repository.fork,
        }
        kept = [r for r in repositories if kinds.get(call.query.get("type", "all"), lambda _: True)(r)]
        sort = call.query.get("sort", default_sort)
        descending = call.query.get("direction", "asc" if sort == "full_name" else "desc") == "desc"
        kept.sort(key=lambda repository: _sort_key(repository, sort), reverse=descending)
        page, paint = Page.of(call.query), self.paint(call)
        items = [paint.repository(repository) for repository in kept[page.start : page.stop]]
        return Answer(200, items, page.links(call.base + call.path, call.query, len(kept)))

    # Below a repository

    def below_name(self, call: Call, owner: str, name: str, rest: str) -> Answer:
        """GET /repos/{owner}/{name}/..."""
        return self._below(call, self.find(call, f"{owner}/{name}", rest), rest)

    def below_id(self, call: Call, number: str, rest: str) -> Answer:
        """GET /repositories/{id}/..."""
        return self._below(call, self.find_by_id(call, number), rest)

    def _below(self, call: Call, repository: Repository, rest: str) -> Answer:
        for pattern, handle in REPOSITORY_ROUTES:
            match = re.fullmatch(pattern, rest)
            if match is not None:
                if rest.startswith("/actions"):
                    _admit_actions(repository, rest)
                return handle(self, call, repository, **match.groupdict())
        return NOT_FOUND

    def one_repository(self, call: Call, repository: Repository) -> Answer:
        """GET /repos/{owner}/{name}."""
        return Answer(200, self.paint(call).full_repository(repository))

    def changes(self, call: Call, repository: Repository) -> Answer:
        """GET .../pulls."""
        if not repository.has_pull_requests:
            return NOT_FOUND
        state, updated = call.query.get("state", "open"), call.query.get("sort") == "updated"
        listed = repository.changes_by_update if updated else repository.changes
        kept = [change for change in listed if state in ("all", "open" if change.state == "open" else "closed")]
        if call.query.get("direction", "desc") == "desc":
            kept.reverse()
        page, paint = Page.of(call.query), self.paint(call)
        items = [paint.change(change) for change in kept[page.start : page.stop]]
        url = f"{call.base}/repositories/{repository.id}/pulls"
        return Answer(200, items, page.links(url, call.query, len(kept)))

    def change(self, call: Call, repository: Repository, number: str) -> Answer:
        """GET .../pulls/{number}."""
        change = repository.changes_by_number.get(int(number))
        return NOT_FOUND if change is None else Answer(200, self.paint(call).full_change(change))

    # Actions

    def runs(self, call: Call, repository: Repository) -> Answer:
        """GET .../actions/runs."""
        page = Page.of(call.query)
        found = run_listing.select(repository, call.query, page)
        paint, with_pulls = self.paint(call), call.query.get("exclude_pull_requests", "false") != "true"
        pulls = run_listing.pull_requests_of(repository) if with_pulls else {}
        items = [paint.run(run, run.attempt, pulls.get(run.head_sha, [])) for run in found.runs]
        url = f"{call.base}/repositories/{repository.id}/actions/runs"
        body = {"total_count": found.total, "workflow_runs": items}
        return Answer(200, body, page.links(url, call.query, found.total))

    def _run(self, repository: Repository, number: str) -> Run:
        run = self.world.runs.get(int(number))
        if run is None or run.repository_id != repository.id:
            raise Refused(NOT_FOUND)
        return run

    def run(self, call: Call, repository: Repository, number: str) -> Answer:
        """GET .../actions/runs/{id}."""
        run = self._run(repository, number)
        return Answer(200, self.paint(call).run(run, run.attempt, []))

    def attempt(self, call: Call, repository: Repository, number: str, attempt: str) -> Answer:
        """GET .../actions/runs/{id}/attempts/{n}."""
        run = self._run(repository, number)
        if not 1 <= int(attempt) <= len(run.attempts):
            return NOT_FOUND
        return Answer(200, self.paint(call).run(run, run.attempts[int(attempt) - 1], []))

    def run_jobs(self, call: Call, repository: Repository, number: str) -> Answer:
        """GET .../actions/runs/{id}/jobs: of the latest attempt that has any, or of all."""
        run = self._run(repository, number)
        if call.query.get("filter", "latest") == "all":
            return self._jobs(call, repository, f"/actions/runs/{number}/jobs", run.jobs)
        latest = next((attempt.jobs for attempt in reversed(run.attempts) if attempt.jobs), [])
        return self._jobs(call, repository, f"/actions/runs/{number}/jobs", latest)

    def attempt_jobs(self, call: Call, repository: Repository, number: str, attempt: str) -> Answer:
        """GET .../actions/runs/{id}/attempts/{n}/jobs."""
        run = self._run(repository, number)
        if not 1 <= int(attempt) <= len(run.attempts):
            return NOT_FOUND
        path = f"/actions/runs/{number}/attempts/{attempt}/jobs"
        return self._jobs(call, repository, path, run.attempts[int(attempt) - 1].jobs)

    def _jobs(self, call: Call, repository: Repository, path: str, jobs: list[Any]) -> Answer:
        page, paint = Page.of(call.query), self.paint(call)
        body = {"total_count": len(jobs), "jobs": [paint.job(job) for job in jobs[page.start : page.stop]]}
        return Answer(200, body, page.links(f"{call.base}/repositories/{repository.id}{path}", call.query, len(jobs)))

    def job(self, call: Call, repository: Repository, number: str) -> Answer:
        """GET .../actions/jobs/{id}."""
        job = self.world.jobs.get(int(number))
        if job is None or self.world.runs[job.run_id].repository_id != repository.id:
            return NOT_FOUND
        return Answer(200, self.paint(call).job(job))


def _sort_key(repository: Repository, sort: str) -> Any:  # noqa: ANN401  (times or names, never mixed)
    if sort == "full_name":
        return repository.full_name.lower()
    times = {"created": repository.created_at, "updated": repository.updated_at}
    time = times.get(sort, repository.pushed_at)
    return (time is not None, time, repository.id)


def _moved(call: Call, repository: Repository, rest: str) -> Answer:
    query = f"?{urlencode(call.query)}" if call.query else ""
    url = f"{call.base}/repositories/{repository.id}{rest}{query}"
    body = {"message": "Moved Permanently", "url": url, "documentation_url": DOCS}
    return Answer(301, body, {"location": url})


def _blocked(repository: Repository) -> Answer:
    notice = f"https://github.com/github/{repository.blocked}/blob/master/notice.md"
    block = {"reason": repository.blocked, "created_at": moment(repository.updated_at), "html_url": notice}
    status = 451 if repository.blocked == "dmca" else 403
    return Answer(status, {"message": "Repository access blocked", "block": block})


def _saml(repository: Repository) -> Answer:
    text = (
        "Resource protected by organization SAML enforcement. You must grant your Personal Access token access to"
        " this organization."
    )
    return message(403, text, x_github_sso=f"required; url={SSO_URL.format(repository.owner.login)}")


def _admit_actions(repository: Repository, rest: str) -> None:
    """Refuse where Actions are disabled; with `empty` only the list answers, without runs."""
    refusals = {
        "missing": NOT_FOUND,
        "refused": message(403, "GitHub Actions is disabled for this repository."),
        "empty": None if rest == "/actions/runs" else NOT_FOUND,
    }
    refusal = refusals.get(repository.actions)
    if refusal is not None:
        raise Refused(refusal)


ROUTES: list[tuple[str, Callable[..., Answer]]] = [
    (r"/users/(?P<login>[^/]+)", Rest.user),
    (r"/users/(?P<login>[^/]+)/repos", Rest.user_repositories),
    (r"/orgs/(?P<login>[^/]+)", Rest.organisation),
    (r"/orgs/(?P<login>[^/]+)/repos", Rest.organisation_repositories),
    (r"/user/repos", Rest.own_repositories),
    (r"/installation/repositories", Rest.installation_repositories),
    (r"/repos/(?P<owner>[^/]+)/(?P<name>[^/]+)(?P<rest>(?:/.+)?)", Rest.below_name),
    (r"/repositories/(?P<number>\d+)(?P<rest>(?:/.+)?)", Rest.below_id),
]
REPOSITORY_ROUTES: list[tuple[str, Callable[..., Answer]]] = [
    (r"", Rest.one_repository),
    (r"/pulls", Rest.changes),
    (r"/pulls/(?P<number>\d+)", Rest.change),
    (r"/actions/runs", Rest.runs),
    (r"/actions/runs/(?P<number>\d+)", Rest.run),
    (r"/actions/runs/(?P<number>\d+)/jobs", Rest.run_jobs),
    (r"/actions/runs/(?P<number>\d+)/attempts/(?P<attempt>\d+)", Rest.attempt),
    (r"/actions/runs/(?P<number>\d+)/attempts/(?P<attempt>\d+)/jobs", Rest.attempt_jobs),
    (r"/actions/jobs/(?P<number>\d+)", Rest.job),
]
