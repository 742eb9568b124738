"""The blocking client."""

from __future__ import annotations

import os
import select
import socket
import ssl
import sys
import threading
from contextlib import suppress
from typing import Any, Callable, Dict, List, Optional, Set

from . import _address, _calls, _clock
from ._address import keep_alive
from ._calls import Call, ErrorType, HeldState, IdleConnections, Result, Trace
from ._errors import Unreachable
from ._http import Answer, Reader, Request
from ._lease import ANSWER_SECONDS, Lease, Wanted

# How long the threads wait for another lock to be acquired before they end.
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
        self._idle: IdleConnections[socket.socket] = IdleConnections(_is_usable, socket.socket.close)
        self._keeper = _Keeper(self)

    def lock(self, name: str, *, shared: bool = False, timeout: Optional[float] = None, ttl: Optional[float] = None) -> Lock:
        """A lock, to be acquired. `timeout` is in seconds, None waits forever.

        `ttl` is for how long it is held, in seconds, if this process is not heard of any more; the agent may say less, and does
        if its own session is shorter.
        """
        return Lock(self, Wanted(name, shared=shared, timeout=timeout, ttl=ttl))

    def status(self) -> Dict[str, Any]:
        """The agent, its node and its group."""
        return self._run(_calls.status())

    def members(self) -> List[Dict[str, Any]]:
        """The members of the group."""
        return self._run(_calls.members())

    def locks(self, *, prefix: str = "", search: str = "", held: bool = False) -> List[Dict[str, Any]]:
        """The locks that the agent knows of, by name."""
        return self._run(_calls.locks(prefix, search, held))

    def lock_info(self, name: str) -> Dict[str, Any]:
        """Who holds a lock, and who waits for it, as far as the agent knows."""
        return self._run(_calls.lock_info(name))

    def break_lock(self, name: str) -> None:
        """Takes a lock from its holder. Returns when nobody holds it."""
        self._run(_calls.break_lock(name))

    def evict(self, member: str, *, ban: bool = False) -> None:
        """Removes a member from the group. Returns when it is out."""
        self._run(_calls.evict(member, ban))

    def ban_key(self, key: str) -> None:
        """Bans a key, given as `members()` shows it. Returns when no member accepts it any more."""
        self._run(_calls.ban_key(key))

    def admit_key(self, key: str) -> None:
        """Lifts the ban on a key."""
        self._run(_calls.admit_key(key))

    def close(self) -> None:
        """Releases what is held, and closes all connections."""
        for held in self._keeper.all():
            with suppress(Unreachable):
                held.release()
        self._keeper.stop()
        self._idle.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<hallpass.Client of {self._address}>"

    def _run(self, call: Call[Result]) -> Result:
        """Carries out the steps of a call."""
        try:
            step = next(call)
            while True:
                try:
                    answer = self._send(step.request, step.patience)
                except BaseException as error:
                    step = call.throw(error)
                else:
                    step = call.send(answer)
        except StopIteration as done:
            result: Result = done.value
            return result

    def _send(self, request: Request, patience: Optional[float]) -> Answer:
        """Sends a request and waits for the answer, no longer than `patience` in all.

        An error closes the connection: by that the agent notices that nobody waits any more.
        """
        end = None if patience is None else _clock.now() + patience
        connection = self._idle.take() or self._connect(end)
        try:
            answer = _exchange(connection, request.encode(self._address.authority, self._token), end)
        except BaseException as error:
            connection.close()
            if isinstance(error, OSError) and not isinstance(error, Unreachable):
                raise Unreachable(f"no answer from the agent at {self._address}: {error}") from error
            raise
        self._idle.put(connection, answer)
        return answer

    def _connect(self, end: Optional[float]) -> socket.socket:
        address = self._address
        try:
            left = ANSWER_SECONDS if end is None else min(ANSWER_SECONDS, _left(end))
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


def _is_usable(connection: socket.socket) -> bool:
    """A connection that has something to read was closed by the agent."""
    return not select.select([connection], [], [], 0)[0]


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
        return Held(self._client, self._client._run(_calls.acquire(self._wanted)))

    def try_acquire(self) -> Optional[Held]:
        """The lock if it is free now, else None."""
        lease = self._client._run(_calls.try_acquire(self._wanted))
        return None if lease is None else Held(self._client, lease)

    def __enter__(self) -> Held:
        held = self.acquire()
        stack: List[Held] = getattr(self._entered, "stack", [])
        stack.append(held)
        self._entered.stack = stack
        return held

    def __exit__(self, kind: ErrorType, error: Optional[BaseException], trace: Trace) -> None:
        self._entered.stack.pop().__exit__(kind, error, trace)


class Held(HeldState):
    """A lock that is held, until it is released or lost. It can be released by any thread."""

    def __init__(self, client: Client, lease: Lease) -> None:
        self._lost = threading.Event()
        super().__init__(lease, self._lost)
        self._client = client
        self._callbacks: List[Callable[[Held], None]] = []
        self._lock = threading.Lock()
        client._keeper.add(self)

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

    def release(self) -> bool:
        """Gives the lock back. False if it was lost before, or released."""
        with self._lock:
            if self._released:
                return False
            was_lost, self._released = self.lost, True
        self._client._keeper.remove(self)
        self._lost.set()
        return self._client._run(_calls.release(self._lease)) and not was_lost

    def __enter__(self) -> Held:
        return self

    def __exit__(self, kind: ErrorType, error: Optional[BaseException], trace: Trace) -> None:
        was_lost = self.lost
        self.release()
        # What was done under the lock may not have been alone. An error of the block's own says more.
        if was_lost and kind is None:
            raise self._lease.lost()

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
        is_renewed = self._client._run(_calls.renew(lease))
        with self._changed:
            self._changed.notify_all()
        return is_renewed

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
                not_before[due] = _clock.now() + _calls.retry_after(due._lease)

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
