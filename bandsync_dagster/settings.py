"""Every environment variable bandsync knows, checked and typed.

Reads nothing by itself: the caller hands in the environment. What the values do is said where they are used.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar
from urllib.parse import urlsplit

from bandsync_dagster.store.engine import read_url
from bandsync_dagster.store.errors import StoreMisconfigured

__all__ = ["DEFAULT_GITHUB_URL", "AppSettings", "Settings", "SettingsError"]

DEFAULT_GITHUB_URL = "https://api.github.com"
DEFAULT_HOME = "~/.bandsync"

Detail = Literal["basic", "full"]
T = TypeVar("T")

_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


class SettingsError(ValueError):
    """Settings that cannot be used: one line for each, naming the variable and what to set it to.

    Attributes:
        problems: The lines. None of them holds a token, a key or a password.
    """

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class AppSettings:
    """A GitHub App's installation. Exactly one of `private_key` and `private_key_file` is set."""

    app_id: str
    installation_id: str
    private_key: str | None = field(default=None, repr=False)
    private_key_file: Path | None = None


@dataclass(frozen=True)
class Settings:
    """What the environment says, with the defaults filled in.

    Attributes:
        home: The folder of everything a local deployment keeps.
        database_url: Where the collected data goes, as SQLAlchemy writes it.
        github_url: The REST API's address, without a slash at the end.
        tokens: Personal access tokens, each once.
        app: A GitHub App used beside the tokens.
        sources: What to collect, such as `org:octo-org`; `collection.discovery` reads them.
        include: Patterns of `owner/name`; with none, every repository is wanted.
        exclude: Patterns of `owner/name` that are not wanted.
        archived: Whether archived repositories of an organisation or user are collected.
        forks: Whether forks of an organisation or user are collected.
        reserve: The share of each rate limit left to others who use the same token.
        history_days: How far back a first collection goes; None is as far as GitHub remembers.
        detail: How much of a job is collected: `full` adds runner, labels, queue time and steps at one request a run.
        batch_size: Rows in one transaction.
        batch_age: Seconds that rows wait for a batch to fill, and that the next request waits for a slow database.
        queue_size: Rows fetched but not yet written, at most; no fewer than `batch_size`.
        spool: Where batches go that the database does not take; None is nowhere.
        max_runtime: Seconds after which a repository's run is ended.
    """

    home: Path
    database_url: str = field(repr=False)
    github_url: str = DEFAULT_GITHUB_URL
    tokens: tuple[str, ...] = field(default=(), repr=False)
    app: AppSettings | None = None
    sources: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    archived: bool = True
    forks: bool = False
    reserve: float = 0.05
    history_days: int | None = None
    detail: Detail = "basic"
    batch_size: int = 500
    batch_age: float = 2.0
    queue_size: int = 2000
    spool: Path | None = None
    max_runtime: int = 7200

    @classmethod
    def from_mapping(cls, environment: Mapping[str, str]) -> "Settings":
        """Read the settings from an environment. A variable that is empty counts as not set.

        Raises:
            SettingsError: Some values cannot be used; it names all of them at once.
        """
        read = _Reader(environment)
        home = Path(read.text("BANDSYNC_HOME") or DEFAULT_HOME).expanduser()
        settings = cls(
            home=home,
            database_url=read.value("BANDSYNC_DATABASE_URL", _database_url, f"sqlite:///{home / 'bandsync.db'}"),
            github_url=read.value("BANDSYNC_GITHUB_URL", _github_url, DEFAULT_GITHUB_URL),
            tokens=read.tokens(),
            app=read.app(),
            sources=read.names("BANDSYNC_SOURCES"),
            include=read.names("BANDSYNC_INCLUDE"),
            exclude=read.names("BANDSYNC_EXCLUDE"),
            archived=read.value("BANDSYNC_ARCHIVED", _switch, cls.archived),
            forks=read.value("BANDSYNC_FORKS", _switch, cls.forks),
            reserve=read.value("BANDSYNC_RESERVE", _share, cls.reserve),
            history_days=read.value("BANDSYNC_HISTORY_DAYS", _whole, cls.history_days),
            detail=read.value("BANDSYNC_DETAIL", _detail, cls.detail),
            batch_size=read.value("BANDSYNC_BATCH_SIZE", _whole, cls.batch_size),
            batch_age=read.value("BANDSYNC_BATCH_AGE", _seconds, cls.batch_age),
            queue_size=read.value("BANDSYNC_QUEUE_SIZE", _whole, cls.queue_size),
            spool=read.value("BANDSYNC_SPOOL", _folder, home / "spool"),
            max_runtime=read.value("BANDSYNC_MAX_RUNTIME", _whole, cls.max_runtime),
        )
        if settings.queue_size < settings.batch_size:
            read.problems.append(
                f"BANDSYNC_QUEUE_SIZE: {settings.queue_size} rows are fewer than a batch of {settings.batch_size};"
                " raise it, or lower BANDSYNC_BATCH_SIZE"
            )
        if read.problems:
            raise SettingsError(tuple(read.problems))
        return settings


class _Reader:
    """Reads variables one by one and remembers what was wrong, so that everything is told at once."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.problems: list[str] = []

    def text(self, name: str) -> str:
        return self._environment.get(name, "").strip()

    def names(self, name: str) -> tuple[str, ...]:
        """Read a list separated by commas or white space; none of what is listed can contain either."""
        return tuple(dict.fromkeys(self.text(name).replace(",", " ").split()))

    def value(self, name: str, parse: Callable[[str], T], default: T) -> T:
        """Read one variable with `parse`, whose ValueError says what the value has to be."""
        text = self.text(name)
        if not text:
            return default
        try:
            return parse(text)
        except ValueError as error:
            self.problems.append(f"{name}: {error}")
            return default

    def tokens(self) -> tuple[str, ...]:
        """Read both token variables. A problem names the variable and never the token."""
        listed = {
            "GITHUB_TOKEN": [self.text("GITHUB_TOKEN")],
            "GITHUB_TOKENS": [part.strip() for part in self.text("GITHUB_TOKENS").split(",")],
        }
        for name, tokens in listed.items():
            if any(not token.isascii() or not token.isprintable() or " " in token for token in tokens):
                self.problems.append(
                    f"{name}: holds a character that no token has; copy the token again"
                    " (several tokens go into GITHUB_TOKENS, separated by commas)"
                )
        return tuple(dict.fromkeys(token for tokens in listed.values() for token in tokens if token))

    def app(self) -> AppSettings | None:
        """Read the four variables of a GitHub App, which only make sense together."""
        app_id, installation_id = self.text("GITHUB_APP_ID"), self.text("GITHUB_APP_INSTALLATION_ID")
        # Many secret stores keep one line only, and write the key's line breaks as \n.
        key = self.text("GITHUB_APP_PRIVATE_KEY").replace("\\n", "\n")
        file = self.text("GITHUB_APP_PRIVATE_KEY_FILE")
        if not (app_id or installation_id or key or file):
            return None
        if not (app_id and installation_id and (key or file)):
            self.problems.append(
                "GITHUB_APP_ID: a GitHub App needs GITHUB_APP_ID, GITHUB_APP_INSTALLATION_ID and one of"
                " GITHUB_APP_PRIVATE_KEY and GITHUB_APP_PRIVATE_KEY_FILE; set all three, or none to use a token"
            )
            return None
        if key:
            return AppSettings(app_id, installation_id, private_key=key)
        return AppSettings(app_id, installation_id, private_key_file=Path(file).expanduser())


def _github_url(text: str) -> str:
    address = urlsplit(text)
    if address.scheme not in {"https", "http"} or not address.hostname or address.query or address.fragment:
        raise ValueError(
            f"not an API's address; write {DEFAULT_GITHUB_URL}, or https://HOST/api/v3 for GitHub Enterprise Server"
        )
    if address.username or address.password:
        raise ValueError("holds a user name or password; remove it and set GITHUB_TOKEN")
    if address.hostname in {"github.com", "www.github.com"}:
        raise ValueError(f"github.com is the web site; write {DEFAULT_GITHUB_URL}, or leave it unset")
    return text.rstrip("/")


def _database_url(text: str) -> str:
    try:
        read_url(text)
    except StoreMisconfigured as error:
        raise ValueError(str(error)) from None
    return text


def _switch(text: str) -> bool:
    if text.lower() not in _WORDS:
        raise ValueError(f"{text!r} is neither on nor off; write true or false")
    return _WORDS[text.lower()]


def _share(text: str) -> float:
    remedy = "write a share of the rate limit from 0 to below 1, such as 0.05"
    share = _number(text, remedy)
    if not 0 <= share < 1:
        raise ValueError(f"{text!r} is out of range; {remedy}")
    return share


def _seconds(text: str) -> float:
    remedy = "write seconds above 0, such as 2.5"
    seconds = _number(text, remedy)
    if seconds <= 0:
        raise ValueError(f"{text!r} is out of range; {remedy}")
    return seconds


def _number(text: str, remedy: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number; {remedy}") from None
    if not math.isfinite(number):
        raise ValueError(f"{text!r} is not a number; {remedy}")
    return number


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) == 0:
        raise ValueError(f"{text!r} is not a whole number of at least 1; write one, or leave it unset for the default")
    return int(text)


def _detail(text: str) -> Detail:
    if text not in {"basic", "full"}:
        raise ValueError(f"{text!r} is not a level of detail; write basic or full")
    return "full" if text == "full" else "basic"


def _folder(text: str) -> Path | None:
    """Read a folder; `off` is none."""
    return None if text.lower() == "off" else Path(text).expanduser()
