"""RepositoryKey: the only parser and printer of `owner/name`. Knows nothing else, so that every layer may use it."""

import re
from dataclasses import dataclass

_OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")


@dataclass(frozen=True, slots=True)
class RepositoryKey:
    """A repository's name as GitHub spells it. GitHub compares names without regard to case; so does `folded`."""

    owner: str
    name: str

    @classmethod
    def parse(cls, text: str) -> "RepositoryKey":
        """Read `owner/name`.

        Raises:
            ValueError: The text is not a repository's name; the message says what one looks like. Three dots in a
                row are refused too: Dagster reads them as a range of partitions.
        """
        owner, slash, name = text.partition("/")
        well_formed = slash and _OWNER.fullmatch(owner) and _NAME.fullmatch(name)
        if not well_formed or name in {".", ".."} or "..." in name:
            raise ValueError(
                f"{text!r} is not a repository: write owner/name as in its address on GitHub, such as octo-org/hello"
            )
        return cls(owner, name)

    @property
    def folded(self) -> str:
        """The key in lower case, equal for all spellings of one name."""
        return str(self).lower()

    def __str__(self) -> str:
        """Print the key as it is used everywhere: `owner/name`."""
        return f"{self.owner}/{self.name}"
