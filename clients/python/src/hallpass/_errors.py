"""What can go wrong, one class for each thing that a caller can do about it."""

from __future__ import annotations


class HallpassError(Exception):
    """Every error of this package."""


class Busy(HallpassError):
    """The lock is not free, and was only tried."""


class LockTimeout(HallpassError, TimeoutError):
    """The lock was not free in time."""


class LockLost(HallpassError):
    """The lock is not held any more, though it was not released: others may have it."""


class Unreachable(HallpassError, ConnectionError):
    """The agent cannot be reached, or has gone. What was asked for may have happened; a lease that it made ends by itself."""


class ApiError(HallpassError):
    """The agent has refused a request."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        #: The status of HTTP: 400 not understood, 401 a token is needed, 403 not allowed, 429 too many, 503 no locks now.
        self.status = status
