"""What both clients do, without I/O: the steps of each call, the connections that are kept, and the state of a held lock.

A call is a generator. It yields what is to be sent next and is given the answer, or the error; it returns the call's result.
`Client` carries the steps out with sockets and threads, `AsyncClient` in an event loop.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Callable, Dict, Generator, Generic, List, Optional, Protocol, Tuple, Type, TypeVar

from . import _clock
from ._errors import Busy, LockLost, Unreachable
from ._http import Answer, Request, path
from ._lease import ANSWER_SECONDS, Lease, Wanted

# Confirmations of a granted lock before it is given up. More than one is for a process that was paused.
CONFIRMATIONS_MAX = 5
# The agent closes connections that are idle for a minute.
IDLE_SECONDS = 30.0
IDLE_CONNECTIONS_MAX = 4
# Locks on a page of the list.
PAGE_LOCKS = 1000


@dataclass(frozen=True)
class Step:
    """A request to be sent now."""

    request: Request
    # Seconds to wait for the answer; None waits forever.
    patience: Optional[float] = 2 * ANSWER_SECONDS


Result = TypeVar("Result")
Call = Generator[Step, Answer, Result]


def _document(method: str, *names: str, **query: Any) -> Call[Dict[str, Any]]:
    answer = yield Step(Request(method, path("v1", *names, **query)))
    found: Dict[str, Any] = answer.ok()
    return found


def status() -> Call[Dict[str, Any]]:
    return (yield from _document("GET", "status"))


def members() -> Call[List[Dict[str, Any]]]:
    found: List[Dict[str, Any]] = (yield from _document("GET", "members"))["members"]
    return found


def locks(prefix: str, search: str, held: bool) -> Call[List[Dict[str, Any]]]:
    """All pages of the list."""
    found: List[Dict[str, Any]] = []
    after: Optional[str] = None
    while True:
        page = yield from _document("GET", "locks", prefix=prefix, search=search, held=held, after=after, limit=PAGE_LOCKS)
        found += page["locks"]
        after = page.get("next")
        if after is None:
            return found


def lock_info(name: str) -> Call[Dict[str, Any]]:
    return (yield from _document("GET", "locks", name))


def break_lock(name: str) -> Call[None]:
    yield from _document("POST", "locks", name, "break")


def evict(member: str, ban: bool) -> Call[None]:
    answer = yield Step(Request("POST", path("v1", "members", member, "evict"), {"ban": ban}))
    answer.ok()


def ban_key(key: str) -> Call[None]:
    yield from _document("POST", "keys", key, "ban")


def admit_key(key: str) -> Call[None]:
    yield from _document("POST", "keys", key, "admit")


def acquire(wanted: Wanted) -> Call[Lease]:
    """Waits for a lock. Whatever goes wrong after the grant releases it again."""
    sent = _clock.now()
    lease = wanted.granted((yield Step(wanted.request(), wanted.patience())), sent)
    try:
        # The request may have waited for long: only an answer to a recent request says until when the lock is held.
        for _ in range(CONFIRMATIONS_MAX):
            if lease.is_fresh():
                return lease
            sent = _clock.now()
            lease.confirm((yield Step(lease.keepalive(), ANSWER_SECONDS)), sent)
        raise Unreachable(f"'{wanted.name}' was granted, but the agent answers too slowly to hold it")
    except BaseException:
        with suppress(Unreachable):
            yield Step(lease.release(), ANSWER_SECONDS)
        raise


def try_acquire(wanted: Wanted) -> Call[Optional[Lease]]:
    """The lock if it is free now, else None."""
    try:
        return (yield from acquire(replace(wanted, tries=True, timeout=None)))
    except Busy:
        return None


def release(lease: Lease) -> Call[bool]:
    """True if the lease was there until now. If the agent cannot be reached, the lease ends when its time is over."""
    try:
        answer = yield Step(lease.release(), ANSWER_SECONDS)
    except Unreachable:
        return False
    if answer.status != 404:
        answer.ok()
    return answer.status != 404


def renew(lease: Lease) -> Call[bool]:
    """Sends one keepalive. False if it was not answered, or refused: the next one comes after `retry_after`."""
    sent = _clock.now()
    try:
        lease.kept((yield Step(lease.keepalive(), lease.patience())), sent)
    except Unreachable as error:
        lease.unanswered(str(error))
    return lease.renewed >= sent


def retry_after(lease: Lease) -> float:
    """Seconds to wait after a keepalive that failed."""
    return lease.ttl / 20


Connection = TypeVar("Connection")


class IdleConnections(Generic[Connection]):
    """Connections that wait for the next request. Every thread may use them."""

    def __init__(self, is_usable: Callable[[Connection], bool], close: Callable[[Connection], None]) -> None:
        self._is_usable = is_usable
        self._close = close
        self._lock = threading.Lock()
        self._idle: List[Tuple[Connection, float]] = []
        self._is_closed = False

    def __len__(self) -> int:
        with self._lock:
            return len(self._idle)

    def take(self) -> Optional[Connection]:
        """One that can be used, if there is any."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection, since = self._idle.pop()
            if _clock.now() - since < IDLE_SECONDS and self._is_usable(connection):
                return connection
            self._close(connection)

    def put(self, connection: Connection, answer: Answer) -> None:
        """Keeps a connection that has brought this answer, or closes it."""
        with self._lock:
            if answer.can_be_reused and not self._is_closed and len(self._idle) < IDLE_CONNECTIONS_MAX:
                self._idle.append((connection, _clock.now()))
                return
        self._close(connection)

    def close(self) -> None:
        """Closes all of them, and those that are put back later."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for connection, _ in idle:
            self._close(connection)


class Flag(Protocol):
    """As much of an event as the state of a held lock needs."""

    def is_set(self) -> bool: ...


class HeldState:
    """A lock that is held, until it is released or lost."""

    def __init__(self, lease: Lease, ended: Flag) -> None:
        self._lease = lease
        self._ended = ended
        self._released = False

    @property
    def name(self) -> str:
        """The lock's name."""
        return self._lease.name

    @property
    def shared(self) -> bool:
        """Whether others may hold it in shared mode at the same time."""
        return self._lease.shared

    @property
    def fence(self) -> int:
        """A number that only grows from holder to holder: let a storage refuse writes with a smaller one."""
        return self._lease.fence

    @property
    def lost(self) -> bool:
        """True if it is not held any more, though it was not released. This process's clock decides, before anybody else gets it."""
        return not self._released and (self._ended.is_set() or self._lease.is_lost())

    @property
    def at_risk(self) -> bool:
        """Still held, but the agent is out of touch with its group, or an operator has broken the lock: finish the work now."""
        return self._lease.is_at_risk

    @property
    def broken(self) -> bool:
        """An operator has broken the lock: it will be lost."""
        return self._lease.is_broken

    def valid_for(self) -> float:
        """For how many more seconds it is held for certain, if nothing is heard of the agent."""
        return 0.0 if self._released else self._lease.left()

    def check(self) -> None:
        """Raises LockLost if it is lost."""
        if self.lost:
            raise self._lease.lost()

    def __repr__(self) -> str:
        state = "released" if self._released else "lost" if self.lost else "held"
        return f"<hallpass.{type(self).__name__} {self.name!r} fence {self.fence}, {state}>"


# What `__exit__` is given.
ErrorType = Optional[Type[BaseException]]
Trace = Optional[TracebackType]
