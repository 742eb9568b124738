"""The blocking client."""

from __future__ import annotations

import os
import select
import socket
import ssl
import sys
import threading
from contextlib import suppress
from types import TracebackType
from typing import Any, Callable, Dict, List, Optional, Set, Tuple, Type

from . import _address, _clock, _lease
from ._errors import Busy, Unreachable
from ._http import Answer, Reader, Request, path
from ._lease import ANSWER_SECONDS, CONFIRMATIONS_MAX, Lease, Wanted

# The agent closes connections that are idle for a minute.
IDLE_SECONDS = 30.0
IDLE_CONNECTIONS_MAX = 4
# So long the threads wait for another lock to be acquired.
LINGER_SECONDS = 5.0


class Client:
    """The client of one agent. It can be used from any thread.

    `url` is `http://host:port`, `https://host:port` or `unix:/path`; by default it is in HALLPASS_URL, or is the Unix socket of
    this machine's agent. `token` is for agents that want one, by default HALLPASS_TOKEN. `cafile` has the certificates that an
    agent's is signed by, `tls` is a context of your own.
    """

    def __init__(
        self,
        url: Optional[str] = None,
        *,
        token: Optional[str] = None,
        cafile: Optional[str] = None,
        tls: Optional[ssl.SSLContext] = None,
    ) -> None:
        self._address = _address.parse(url, tls, cafile)
        self._token = token or os.environ.get("HALLPASS_TOKEN") or None
        self._lock = threading.Lock()
        self._idle: List[Tuple[socket.socket, float]] = []
        self._is_closed = False
        self._keeper = _Keeper(self)

    def lock(self, name: str, *, shared: bool = False, timeout: Optional[float] = None, ttl: Optional[float] = None) -> Lock:
        """A lock, to be acquired. `timeout` is in seconds, None waits for ever.

        `ttl` is for how long it is held, in seconds, if this process is not heard of any more; the agent may say less, and does
        if its own session is shorter.
        """
        return Lock(self, Wanted(name, shared=shared, timeout=timeout, ttl=ttl))

    def status(self) -> Dict[str, Any]:
        """The agent, its node and its group."""
        return self._ask("GET", "status")

    def members(self) -> List[Dict[str, Any]]:
        """The members of the group."""
        found: List[Dict[str, Any]] = self._ask("GET", "members")["members"]
        return found

    def locks(self, *, prefix: str = "", search: str = "", held: bool = False) -> List[Dict[str, Any]]:
        """The locks that the agent knows of, by name."""
        found: List[Dict[str, Any]] = []
        after: Optional[str] = None
        while True:
            page = self._ask("GET", "locks", prefix=prefix, search=search, held=held, after=after, limit=1000)
            found += page["locks"]
            after = page.get("next")
            if after is None:
                return found

    def lock_info(self, name: str) -> Dict[str, Any]:
        """Who holds a lock, and who waits for it, as far as the agent knows."""
        return self._ask("GET", "locks", name)

    def break_lock(self, name: str) -> None:
        """Takes a lock away from whoever holds it. Returns when nobody does."""
        self._ask("POST", "locks", name, "break")

    def evict(self, member: str, *, ban: bool = False) -> None:
        """Removes a member from the group. Returns when it is out."""
        self._send(Request("POST", path("v1", "members", member, "evict"), {"ban": ban}), 2 * ANSWER_SECONDS).ok()

    def close(self) -> None:
        """Releases what is held, and closes all connections."""
        for held in self._keeper.all():
            with suppress(Unreachable):
                held.release()
        self._keeper.stop()
        with self._lock:
            # What other threads have under way is not kept either.
            self._is_closed = True
            idle, self._idle = self._idle, []
        for connection, _ in idle:
            connection.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<hallpass.Client of {self._address}>"

    def _ask(self, method: str, *names: str, **query: Any) -> Dict[str, Any]:
        found: Dict[str, Any] = self._send(Request(method, path("v1", *names, **query)), 2 * ANSWER_SECONDS).ok()
        return found

    def _send(self, request: Request, patience: Optional[float]) -> Answer:
        """Sends a request and waits for the answer, no longer than `patience` in all. Whatever goes wrong closes the connection, by
        which the agent notices that nobody waits any more."""
        end = None if patience is None else _clock.now() + patience
        connection = self._connection(end)
        try:
            answer = _exchange(connection, request.encode(self._address.authority, self._token), end)
        except BaseException as error:
            connection.close()
            if isinstance(error, OSError) and not isinstance(error, Unreachable):
                raise Unreachable(f"no answer from the agent at {self._address}: {error}") from error
            raise
        with self._lock:
            if answer.can_be_reused and not self._is_closed and len(self._idle) < IDLE_CONNECTIONS_MAX:
                self._idle.append((connection, _clock.now()))
                return answer
        connection.close()
        return answer

    def _connection(self, end: Optional[float]) -> socket.socket:
        while True:
            with self._lock:
                found = self._idle.pop() if self._idle else None
            if found is None:
                return self._connect(end)
            connection, since = found
            # One that has something to read was closed by the agent.
            if _clock.now() - since < IDLE_SECONDS and not select.select([connection], [], [], 0)[0]:
                return connection
            connection.close()

    def _connect(self, end: Optional[float]) -> socket.socket:
        address = self._address
        left = ANSWER_SECONDS if end is None else min(ANSWER_SECONDS, _left(end))
        try:
            if address.path is not None:
                connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                try:
                    connection.settimeout(left)
                    connection.connect(address.path)
                except BaseException:
                    connection.close()
                    raise
                return connection
            connection = socket.create_connection((address.host, address.port), timeout=left)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            keep_alive(connection)
            if address.tls is not None:
                connection = address.tls.wrap_socket(connection, server_hostname=address.host)
            return connection
        except OSError as error:
            raise Unreachable(f"no agent at {address}: {error}") from error


def keep_alive(connection: socket.socket) -> None:
    """Lets the system notice within a minute that the other machine is gone, while a request waits for a lock."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _exchange(connection: socket.socket, request: bytes, end: Optional[float]) -> Answer:
    connection.settimeout(None if end is None else _left(end))
    connection.sendall(request)
    reader, answer = Reader(), None
    while answer is None:
        connection.settimeout(None if end is None else _left(end))
        answer = reader.feed(connection.recv(65536))
    return answer


def _left(end: float) -> float:
    left = end - _clock.now()
    if left <= 0:
        raise socket.timeout("timed out")
    return left


class Lock:
    """A lock of the group, which can be acquired any number of times, one after the other or in several threads."""

    def __init__(self, client: Client, wanted: Wanted) -> None:
        self._client = client
        self._wanted = wanted
        self._entered = threading.local()

    @property
    def name(self) -> str:
        return self._wanted.name

    def acquire(self) -> Held:
        """Waits for the lock. Raises LockTimeout if there is a timeout."""
        return self._acquire(self._wanted)

    def try_acquire(self) -> Optional[Held]:
        """The lock if it is free now, else None."""
        wanted = self._wanted
        try:
            return self._acquire(Wanted(wanted.name, shared=wanted.shared, tries=True, ttl=wanted.ttl))
        except Busy:
            return None

    def _acquire(self, wanted: Wanted) -> Held:
        sent = _clock.now()
        lease = wanted.granted(self._client._send(wanted.request(), wanted.patience()), sent)
        held = Held(self._client, lease)
        try:
            # It may have waited for long: only an answer to something that was sent lately says until when it is held.
            for _ in range(CONFIRMATIONS_MAX):
                if lease.is_fresh():
                    break
                sent = _clock.now()
                lease.confirm(self._client._send(lease.keepalive(), ANSWER_SECONDS), sent)
            else:
                raise Unreachable(f"'{wanted.name}' was granted, but the agent answers too slowly to hold it")
        except BaseException:
            held._forget()
            raise
        self._client._keeper.add(held)
        return held

    def __enter__(self) -> Held:
        held = self.acquire()
        stack: List[Held] = getattr(self._entered, "stack", [])
        stack.append(held)
        self._entered.stack = stack
        return held

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self._entered.stack.pop().__exit__(kind, error, trace)


class Held:
    """A lock that is held, until it is released or lost. It can be released by any thread."""

    def __init__(self, client: Client, lease: Lease) -> None:
        self._client = client
        self._lease = lease
        self._lost = threading.Event()
        self._released = False
        self._callbacks: List[Callable[[Held], None]] = []
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The lock's name."""
        return self._lease.name

    @property
    def shared(self) -> bool:
        return self._lease.shared

    @property
    def fence(self) -> int:
        """A number that only grows from holder to holder: let a storage refuse writes with a smaller one."""
        return self._lease.fence

    @property
    def lost(self) -> bool:
        """True if it is not held any more, though it was not released. By this process's clock; nobody else has it before."""
        return not self._released and self._is_lost()

    @property
    def at_risk(self) -> bool:
        """Still held, but the agent is out of touch with its group, or an operator has broken the lock: come to an end."""
        return self._lease.is_at_risk

    @property
    def broken(self) -> bool:
        """An operator has broken the lock: it will be lost."""
        return self._lease.is_broken

    def valid_for(self) -> float:
        """For how many more seconds it is held for certain, if nothing is heard of the agent."""
        return 0.0 if self._released else self._lease.left()

    def wait_lost(self, timeout: Optional[float] = None) -> bool:
        """Waits until it is lost; false if it is not by then, or is released meanwhile."""
        self._lost.wait(timeout)
        return self.lost

    def on_lost(self, callback: Callable[[Held], None]) -> None:
        """Calls this when it is lost, at once if it is already, in a thread of the client: it is to be quick."""
        with self._lock:
            if not self._lost.is_set():
                self._callbacks.append(callback)
                return
        if self.lost:
            callback(self)

    def check(self) -> None:
        """Raises LockLost if it is lost."""
        if self.lost:
            raise self._lease.lost()

    def release(self) -> bool:
        """Gives the lock back. False if it was lost before, or released."""
        with self._lock:
            if self._released:
                return False
            was_lost, self._released = self._is_lost(), True
        self._client._keeper.remove(self)
        self._lost.set()
        was_there = self._forget()
        return was_there and not was_lost

    def __enter__(self) -> Held:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        was_lost = self.lost
        self.release()
        # What was done under the lock may not have been alone. An error of the block's own says more.
        if was_lost and kind is None:
            raise self._lease.lost()

    def __repr__(self) -> str:
        state = "released" if self._released else "lost" if self.lost else "held"
        return f"<hallpass.Held {self.name!r} fence {self.fence}, {state}>"

    def _is_lost(self) -> bool:
        return self._lost.is_set() or self._lease.is_lost()

    def _forget(self) -> bool:
        """Ends the lease. If the agent cannot be reached, it ends by itself."""
        try:
            return _lease.released(self._client._send(self._lease.release(), ANSWER_SECONDS))
        except Unreachable:
            return False

    def _tell_lost(self) -> None:
        with self._lock:
            if self._released or self._lost.is_set():
                return
            self._lost.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback(self)
            except Exception:
                # The others are to be called, too, and those of other locks.
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))


class _Keeper:
    """Keeps leases alive, and tells when they are lost.

    There are two threads: one that talks to the agent, and one that only looks at the clock, so that an agent that does not
    answer delays nothing. Both end when nothing has been held for a while.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._held: Set[Held] = set()
        self._changed = threading.Condition()
        self._running: Set[str] = set()

    def add(self, held: Held) -> None:
        with self._changed:
            self._held.add(held)
            for run in (self._keep, self._watch):
                if run.__name__ not in self._running:
                    self._running.add(run.__name__)
                    threading.Thread(target=run, name=f"hallpass{run.__name__}", daemon=True).start()
            self._changed.notify_all()

    def remove(self, held: Held) -> None:
        with self._changed:
            self._held.discard(held)
            self._changed.notify_all()

    def all(self) -> List[Held]:
        with self._changed:
            return list(self._held)

    def stop(self) -> None:
        with self._changed:
            self._held.clear()
            self._changed.notify_all()

    def _renew(self, lease: Lease) -> bool:
        """Sends one keepalive. False if it was not answered, or refused."""
        sent = _clock.now()
        try:
            lease.kept(self._client._send(lease.keepalive(), lease.patience()), sent)
        except Unreachable as error:
            lease.unanswered(str(error))
        with self._changed:
            self._changed.notify_all()
        return lease.renewed >= sent

    def _is_over(self, name: str) -> bool:
        """Waits for a while if nothing is held; true if nothing is held then, and the thread is to end. Needs the condition."""
        if not self._held:
            self._changed.wait(LINGER_SECONDS)
        if not self._held:
            self._running.discard(name)
        return not self._held

    def _keep(self) -> None:
        # Those that could not be renewed are tried again after a while, not at once.
        not_before: Dict[Held, float] = {}
        while True:
            with self._changed:
                if self._is_over("_keep"):
                    return
                not_before = {held: time for held, time in not_before.items() if held in self._held}
                due = min(self._held, key=lambda held: self._due(held, not_before))
                wait = self._due(due, not_before) - _clock.now()
                if wait > 0:
                    self._changed.wait(wait)
                    continue
            if not self._renew(due._lease):
                not_before[due] = _clock.now() + due._lease.ttl / 20

    @staticmethod
    def _due(held: Held, not_before: Dict[Held, float]) -> float:
        return max(held._lease.renew_at(), not_before.get(held, 0.0))

    def _watch(self) -> None:
        while True:
            with self._changed:
                if self._is_over("_watch"):
                    return
                lost = [held for held in self._held if held._lease.is_lost()]
                self._held.difference_update(lost)
                if not lost:
                    self._changed.wait(min(held._lease.left() for held in self._held))
                    continue
            for held in lost:
                held._tell_lost()
