"""What reached the simulated GitHub: one line per request, to count and to assert on."""

import re
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any


@dataclass(slots=True)
class LoggedRequest:
    """One request. `status` is 0 while it is being answered; `cost` is what it took from its bucket."""

    number: int
    time: datetime
    method: str
    path: str
    query: dict[str, str]
    fingerprint: str
    bucket: str
    document: str | None = None
    cost: int = 0
    status: int = 0
    limited: str | None = None
    fault: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the line for other processes."""
        return asdict(self) | {"time": self.time.isoformat()}


class RequestLog:
    """All requests since the start or the last `clear`, in the order they arrived."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: list[LoggedRequest] = []

    def add(self, make: Callable[[int], LoggedRequest]) -> LoggedRequest:
        """Add a request, numbered from 1."""
        with self._lock:
            request = make(len(self._requests) + 1)
            self._requests.append(request)
            return request

    def requests(self) -> list[LoggedRequest]:
        """Return the requests so far."""
        with self._lock:
            return list(self._requests)

    def clear(self) -> None:
        """Forget all requests."""
        with self._lock:
            self._requests.clear()

    def count(self, *, path: str | None = None, **fields: object) -> int:
        """Count requests whose path has a match for `path` and whose other fields have these values."""
        return sum(
            (path is None or re.search(path, request.path) is not None)
            and all(getattr(request, name) == value for name, value in fields.items())
            for request in self.requests()
        )

    def spent(self, bucket: str) -> int:
        """Return what all requests together took from a bucket."""
        return sum(request.cost for request in self.requests() if request.bucket == bucket)

    def summary(self) -> dict[str, Any]:
        """Return counts per bucket, status, document, limit answer and fault, and the points per bucket."""
        requests = self.requests()
        fields = ("bucket", "status", "document", "limited", "fault")
        counts = {name: Counter(str(getattr(request, name)) for request in requests) for name in fields}
        return {
            "requests": len(requests),
            "spent": {bucket: self.spent(bucket) for bucket in sorted({request.bucket for request in requests})},
            **{f"by_{name}": dict(count) for name, count in counts.items()},
        }
