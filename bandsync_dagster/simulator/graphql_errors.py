"""How GitHub's GraphQL API says no: one exception, and the error entries of a response body.

Types and wording are GitHub's, as observed in public issues; the entry's order of keys too.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from graphql import GraphQLError

_UNKNOWN_FIELD = re.compile(r"Cannot query field '(?P<field>\w+)' on type '(?P<type>\w+)'\.")


class FaultError(Exception):
    """A field that GitHub answers with null and an entry in `errors`.

    Attributes:
        type: The entry's `type`, such as `NOT_FOUND`; None for the errors that GitHub gives none.
        message: The entry's `message`.
        extensions: The entry's `extensions`, such as `saml_failure`.
    """

    def __init__(
        self,
        type: str | None,  # noqa: A002  (GitHub's word)
        message: str,
        *,
        extensions: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.type = type
        self.message = message
        self.extensions = dict(extensions or {})


def not_found_repository(full_name: str) -> FaultError:
    """Return the answer to a repository that does not exist or may not be known of."""
    return FaultError("NOT_FOUND", f"Could not resolve to a Repository with the name '{full_name}'.")


def not_found_account(kind: str, login: str) -> FaultError:
    """Return the answer to an account that does not exist."""
    return FaultError("NOT_FOUND", f"Could not resolve to {kind} with the login of '{login}'.")


def not_found_node(node_id: str) -> FaultError:
    """Return the answer to a global id that resolves to nothing."""
    return FaultError("NOT_FOUND", f"Could not resolve to a node with the global id of '{node_id}'.")


def saml_required() -> FaultError:
    """Return the answer to a token that its organization's single sign-on has not authorised."""
    return FaultError(
        "FORBIDDEN",
        "Resource protected by organization SAML enforcement. You must grant your Personal Access token access to "
        "this organization.",
        extensions={"saml_failure": True},
    )


def blocked() -> FaultError:
    """Return the answer to a repository that GitHub has blocked."""
    return FaultError("FORBIDDEN", "Repository access blocked")


def _locations(error: GraphQLError) -> list[dict[str, int]]:
    return [{"line": place.line, "column": place.column} for place in error.locations or ()]


def refused_document(errors: Sequence[GraphQLError]) -> dict[str, Any]:
    """Return the body for a document that was not executed: it does not parse, or does not fit the schema."""
    return {"errors": [_refused_entry(error) for error in errors]}


def _refused_entry(error: GraphQLError) -> dict[str, Any]:
    unknown = _UNKNOWN_FIELD.match(error.message)
    if unknown is None:
        return {"locations": _locations(error), "message": error.message}
    return {
        "path": ["query", unknown["field"]],
        "extensions": {"code": "undefinedField", "typeName": unknown["type"], "fieldName": unknown["field"]},
        "locations": _locations(error),
        "message": f"Field '{unknown['field']}' doesn't exist on type '{unknown['type']}'",
    }


def field_entry(error: GraphQLError) -> dict[str, Any]:
    """Return the entry for a field that failed.

    Raises:
        Exception: What a resolver of the simulator raised by mistake; it must not pass for an answer of GitHub's.
    """
    cause = error.original_error
    entry: dict[str, Any] = {"path": error.path, "locations": _locations(error), "message": error.message}
    if isinstance(cause, FaultError):
        kind = {} if cause.type is None else {"type": cause.type}
        extensions = {"extensions": cause.extensions} if cause.extensions else {}
        return kind | {"path": error.path} | extensions | entry
    if cause is not None and not isinstance(cause, GraphQLError):
        raise cause
    return entry
