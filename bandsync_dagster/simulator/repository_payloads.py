"""The shapes of REST's answers about accounts and repositories, nested and long-winded as GitHub's are.

Shapes follow GitHub's OpenAPI description. `base` is the public address of the API, because clients follow the URLs in
what they get. Pull requests, runs and jobs are in `payloads`.
"""

from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

from bandsync_dagster.simulator.records import (
    Repository,
    User,
)
from bandsync_dagster.simulator.registry import Registry

Payload = dict[str, Any]

USER_URLS = {
    "followers_url": "/followers",
    "following_url": "/following{/other_user}",
    "gists_url": "/gists{/gist_id}",
    "starred_url": "/starred{/owner}{/repo}",
    "subscriptions_url": "/subscriptions",
    "organizations_url": "/orgs",
    "repos_url": "/repos",
    "events_url": "/events{/privacy}",
    "received_events_url": "/received_events",
}
REPOSITORY_URLS = {
    "archive_url": "/{archive_format}{/ref}",
    "assignees_url": "/assignees{/user}",
    "blobs_url": "/git/blobs{/sha}",
    "branches_url": "/branches{/branch}",
    "collaborators_url": "/collaborators{/collaborator}",
    "comments_url": "/comments{/number}",
    "commits_url": "/commits{/sha}",
    "compare_url": "/compare/{base}...{head}",
    "contents_url": "/contents/{+path}",
    "contributors_url": "/contributors",
    "deployments_url": "/deployments",
    "downloads_url": "/downloads",
    "events_url": "/events",
    "forks_url": "/forks",
    "git_commits_url": "/git/commits{/sha}",
    "git_refs_url": "/git/refs{/sha}",
    "git_tags_url": "/git/tags{/sha}",
    "hooks_url": "/hooks",
    "issue_comment_url": "/issues/comments{/number}",
    "issue_events_url": "/issues/events{/number}",
    "issues_url": "/issues{/number}",
    "keys_url": "/keys{/key_id}",
    "labels_url": "/labels{/name}",
    "languages_url": "/languages",
    "merges_url": "/merges",
    "milestones_url": "/milestones{/number}",
    "notifications_url": "/notifications{?since,all,participating}",
    "pulls_url": "/pulls{/number}",
    "releases_url": "/releases{/id}",
    "stargazers_url": "/stargazers",
    "statuses_url": "/statuses/{sha}",
    "subscribers_url": "/subscribers",
    "subscription_url": "/subscription",
    "tags_url": "/tags",
    "teams_url": "/teams",
    "trees_url": "/git/trees{/sha}",
}
NOTHING_COUNTED = (
    *("forks_count", "stargazers_count", "watchers_count", "open_issues_count", "forks", "open_issues", "watchers"),
)


def moment(time: datetime | None) -> str | None:
    """Return a time as REST spells it."""
    return None if time is None else time.isoformat().replace("+00:00", "Z")


class RepositoryPainter:
    """Makes payloads for one request. What it made for a repository or account it uses again."""

    def __init__(self, world: Registry, base: str) -> None:
        self.world, self.base = world, base
        self._made: dict[tuple[str, int], Payload] = {}

    def _once(self, kind: str, number: int, make: Callable[[], Payload]) -> Payload:
        key = (kind, number)
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    # Accounts

    def user(self, user: User | None) -> Payload | None:
        """Return a `simple-user`."""
        return None if user is None else self._once("user", user.id, lambda: self._user(user))

    def _user(self, user: User) -> Payload:
        url = f"{self.base}/users/{user.login}"
        return {
            "login": user.login,
            "id": user.id,
            "node_id": user.node_id,
            "avatar_url": f"https://avatars.githubusercontent.com/u/{user.id}?v=4",
            "gravatar_id": "",
            "url": url,
            "html_url": f"https://github.com/{user.login}",
            **{name: url + path for name, path in USER_URLS.items()},
            "type": user.type,
            "user_view_type": "public",
            "site_admin": False,
        }

    def account(self, user: User, public_repositories: int) -> Payload:
        """Return a `public-user`, which is how organisations answer here too."""
        known_since = moment(self._known_since(user))
        about = dict.fromkeys(("name", "company", "blog", "location", "email", "hireable", "bio", "twitter_username"))
        counts = {"public_repos": public_repositories, "public_gists": 0, "followers": 0, "following": 0}
        return self._user(user) | about | counts | {"created_at": known_since, "updated_at": known_since}

    def organisation(self, user: User, public_repositories: int) -> Payload:
        """Return an `organization-full`."""
        url, known_since = f"{self.base}/orgs/{user.login}", moment(self._known_since(user))
        paths = ("repos", "events", "hooks", "issues")
        return {
            **{name: self._user(user)[name] for name in ("login", "id", "node_id", "avatar_url", "html_url", "type")},
            "url": url,
            **{f"{path}_url": f"{url}/{path}" for path in paths},
            "members_url": f"{url}/members{{/member}}",
            "public_members_url": f"{url}/public_members{{/member}}",
            "description": "",
            "has_organization_projects": True,
            "has_repository_projects": True,
            "public_repos": public_repositories,
            **dict.fromkeys(("public_gists", "followers", "following"), 0),
            "created_at": known_since,
            "updated_at": known_since,
            "archived_at": None,
        }

    def _known_since(self, user: User) -> datetime:
        times = [repository.created_at for repository in self.world.owned_by(user.login)]
        return min(times, default=datetime(2020, 1, 1, tzinfo=timezone.utc))

    # Repositories

    def minimal(self, repository: Repository) -> Payload:
        """Return a repository as it is nested in runs: names and URLs only."""
        return self._once("minimal", repository.id, lambda: self._minimal(repository))

    def _minimal(self, repository: Repository) -> Payload:
        url = f"{self.base}/repos/{repository.full_name}"
        return {
            "id": repository.id,
            "node_id": repository.node_id,
            "name": repository.name,
            "full_name": repository.full_name,
            "private": repository.private,
            "owner": self.user(repository.owner),
            "html_url": f"https://github.com/{repository.full_name}",
            "description": None,
            "fork": repository.fork,
            "url": url,
            **{name: url + path for name, path in REPOSITORY_URLS.items()},
        }

    def repository(self, repository: Repository) -> Payload:
        """Return a repository as it is listed, and nested in pull requests."""
        return self._once("repository", repository.id, lambda: self._repository(repository))

    def _repository(self, repository: Repository) -> Payload:
        page = f"github.com/{repository.full_name}"
        return {
            **self._minimal(repository),
            "git_url": f"git://{page}.git",
            "ssh_url": f"git@github.com:{repository.full_name}.git",
            "clone_url": f"https://{page}.git",
            "svn_url": f"https://{page}",
            **dict.fromkeys(("mirror_url", "homepage", "language", "license")),
            **dict.fromkeys(NOTHING_COUNTED, 0),
            "size": repository.size,
            "default_branch": repository.default_branch,
            "is_template": False,
            "topics": [],
            **dict.fromkeys(("has_issues", "has_projects", "has_wiki"), True),
            **dict.fromkeys(("has_pages", "has_discussions", "has_downloads"), False),
            "has_pull_requests": repository.has_pull_requests,
            "pull_request_creation_policy": "all",
            "archived": repository.archived,
            "disabled": repository.disabled,
            "visibility": repository.visibility,
            "pushed_at": moment(repository.pushed_at),
            "created_at": moment(repository.created_at),
            "updated_at": moment(repository.updated_at),
            "permissions": {"admin": False, "maintain": False, "push": False, "triage": False, "pull": True},
            "allow_forking": True,
            "web_commit_signoff_required": False,
        }

    def full_repository(self, repository: Repository) -> Payload:
        """Return a `full-repository`."""
        extra: Payload = {"network_count": 0, "subscribers_count": 0, "temp_clone_token": None}
        if repository.owner.type == "Organization":
            extra["organization"] = self.user(repository.owner)
        return self.repository(repository) | extra
