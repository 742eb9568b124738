"""The client for asyncio."""

from __future__ import annotations

import asyncio
import os
import ssl
from contextlib import suppress
from types import TracebackType
from typing import Any, Callable, Dict, List, Optional, Set, Tuple, Type

from . import _address, _clock, _lease
from ._errors import Busy, Unreachable
from ._http import Answer, Reader, Request, path
from ._lease import ANSWER_SECONDS, CONFIRMATIONS_MAX, Lease, Wanted
from ._sync import IDLE_CONNECTIONS_MAX, IDLE_SECONDS, keep_alive

_Streams = Tuple[asyncio.StreamReader, asyncio.StreamWriter]


class AsyncClient:
    """The client of one agent, for one event loop. Its arguments are those of `Client`."""

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
        self._idle: List[Tuple[_Streams, float]] = []
        self._is_closed = False
        self._held: Set[AsyncHeld] = set()

    def lock(
        self,
        name: str,
        *,
        shared: bool = False,
        timeout: Optional[float] = None,
        ttl: Optional[float] = None,
        cancel: bool = True,
    ) -> AsyncLock:
        """A lock, to be acquired; see `Client.lock`. The block of `async with` is cancelled when the lock is lost, and LockLost
        raised, unless `cancel` is false: then it is raised when the block has ended."""
        return AsyncLock(self, Wanted(name, shared=shared, timeout=timeout, ttl=ttl), cancel)

    async def status(self) -> Dict[str, Any]:
        """The agent, its node and its group."""
        return await self._ask("GET", "status")

    async def members(self) -> List[Dict[str, Any]]:
        """The members of the group."""
        found: List[Dict[str, Any]] = (await self._ask("GET", "members"))["members"]
        return found

    async def locks(self, *, prefix: str = "", search: str = "", held: bool = False) -> List[Dict[str, Any]]:
        """The locks that the agent knows of, by name."""
        found: List[Dict[str, Any]] = []
        after: Optional[str] = None
        while True:
            page = await self._ask("GET", "locks", prefix=prefix, search=search, held=held, after=after, limit=1000)
            found += page["locks"]
            after = page.get("next")
            if after is None:
                return found

    async def lock_info(self, name: str) -> Dict[str, Any]:
        """Who holds a lock, and who waits for it, as far as the agent knows."""
        return await self._ask("GET", "locks", name)

    async def break_lock(self, name: str) -> None:
        """Takes a lock away from whoever holds it. Returns when nobody does."""
        await self._ask("POST", "locks", name, "break")

    async def evict(self, member: str, *, ban: bool = False) -> None:
        """Removes a member from the group. Returns when it is out."""
        request = Request("POST", path("v1", "members", member, "evict"), {"ban": ban})
        (await self._send(request, 2 * ANSWER_SECONDS)).ok()

    async def close(self) -> None:
        """Releases what is held, and closes all connections."""
        for held in list(self._held):
            with suppress(Unreachable):
                await held.release()
        # What other tasks have under way is not kept either.
        self._is_closed = True
        idle, self._idle = self._idle, []
        for (_, writer), _ in idle:
            writer.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<hallpass.AsyncClient of {self._address}>"

    async def _ask(self, method: str, *names: str, **query: Any) -> Dict[str, Any]:
        answer = await self._send(Request(method, path("v1", *names, **query)), 2 * ANSWER_SECONDS)
        found: Dict[str, Any] = answer.ok()
        return found

    async def _send(self, request: Request, patience: Optional[float]) -> Answer:
        """Sends a request and waits for the answer, no longer than `patience`. Whatever goes wrong closes the connection, by which the
        agent notices that nobody waits any more."""
        try:
            return await asyncio.wait_for(self._exchange(request), patience)
        except Unreachable:
            raise
        except (OSError, asyncio.TimeoutError) as error:
            why = str(error) or "timed out"
            raise Unreachable(f"no answer from the agent at {self._address}: {why}") from error

    async def _exchange(self, request: Request) -> Answer:
        streams = self._take_idle() or await self._connect()
        reader, writer = streams
        try:
            writer.write(request.encode(self._address.authority, self._token))
            await writer.drain()
            made, answer = Reader(), None
            while answer is None:
                answer = made.feed(await reader.read(65536))
        except BaseException:
            writer.close()
            raise
        if answer.can_be_reused and not self._is_closed and len(self._idle) < IDLE_CONNECTIONS_MAX:
            self._idle.append((streams, _clock.now()))
        else:
            writer.close()
        return answer

    def _take_idle(self) -> Optional[_Streams]:
        while self._idle:
            (reader, writer), since = self._idle.pop()
            if _clock.now() - since < IDLE_SECONDS and not reader.at_eof() and not writer.is_closing():
                return reader, writer
            writer.close()
        return None

    async def _connect(self) -> _Streams:
        address = self._address
        try:
            if address.path is not None:
                return await asyncio.wait_for(asyncio.open_unix_connection(address.path), ANSWER_SECONDS)
            opening = asyncio.open_connection(address.host, address.port, ssl=address.tls)
            reader, writer = await asyncio.wait_for(opening, ANSWER_SECONDS)
        except (OSError, asyncio.TimeoutError) as error:
            raise Unreachable(f"no agent at {address}: {error or 'timed out'}") from error
        keep_alive(writer.get_extra_info("socket"))
        return reader, writer


class AsyncLock:
    """A lock of the group, which can be acquired any number of times."""

    def __init__(self, client: AsyncClient, wanted: Wanted, cancel: bool) -> None:
        self._client = client
        self._wanted = wanted
        self._cancel = cancel
        # By task: a lock may be entered by several at the same time.
        self._entered: Dict[Any, List[AsyncHeld]] = {}

    @property
    def name(self) -> str:
        return self._wanted.name

    async def acquire(self) -> AsyncHeld:
        """Waits for the lock. Raises LockTimeout if there is a timeout. Cancelling it leaves nothing behind."""
        return await self._acquire(self._wanted)

    async def try_acquire(self) -> Optional[AsyncHeld]:
        """The lock if it is free now, else None."""
        wanted = self._wanted
        try:
            return await self._acquire(Wanted(wanted.name, shared=wanted.shared, tries=True, ttl=wanted.ttl))
        except Busy:
            return None

    async def _acquire(self, wanted: Wanted) -> AsyncHeld:
        sent = _clock.now()
        lease = wanted.granted(await self._client._send(wanted.request(), wanted.patience()), sent)
        try:
            # It may have waited for long: only an answer to something that was sent lately says until when it is held.
            for _ in range(CONFIRMATIONS_MAX):
                if lease.is_fresh():
                    break
                sent = _clock.now()
                lease.confirm(await self._client._send(lease.keepalive(), ANSWER_SECONDS), sent)
            else:
                raise Unreachable(f"'{wanted.name}' was granted, but the agent answers too slowly to hold it")
        except BaseException:
            with suppress(Unreachable):
                await asyncio.shield(self._client._send(lease.release(), ANSWER_SECONDS))
            raise
        return AsyncHeld(self._client, lease)

    async def __aenter__(self) -> AsyncHeld:
        held = await self.acquire()
        task = asyncio.current_task()
        self._entered.setdefault(task, []).append(held)
        if self._cancel and task is not None:
            held._cancels(task)
        return held

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        task = asyncio.current_task()
        held = self._entered[task].pop()
        if not self._entered[task]:
            del self._entered[task]
        await held.__aexit__(kind, error, trace)


class AsyncHeld:
    """A lock that is held, until it is released or lost."""

    def __init__(self, client: AsyncClient, lease: Lease) -> None:
        self._client = client
        self._lease = lease
        self._lost = asyncio.Event()
        self._released = False
        self._callbacks: List[Callable[[AsyncHeld], None]] = []
        self._task: Optional[asyncio.Task[Any]] = None
        self._has_cancelled = False
        client._held.add(self)
        # Two tasks, so that an agent that does not answer delays nothing.
        self._keeping = [asyncio.ensure_future(self._keep()), asyncio.ensure_future(self._watch())]

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
        return not self._released and (self._lost.is_set() or self._lease.is_lost())

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

    async def wait_lost(self) -> bool:
        """Waits until it is lost; false if it is released meanwhile."""
        await self._lost.wait()
        return self.lost

    def on_lost(self, callback: Callable[[AsyncHeld], None]) -> None:
        """Calls this when it is lost, at once if it is already."""
        if self.lost:
            callback(self)
        else:
            self._callbacks.append(callback)

    def check(self) -> None:
        """Raises LockLost if it is lost."""
        if self.lost:
            raise self._lease.lost()

    async def release(self) -> bool:
        """Gives the lock back. False if it was lost before, or released."""
        if self._released:
            return False
        was_lost, self._released = self.lost, True
        self._end()
        self._lost.set()
        try:
            answer = await asyncio.shield(asyncio.ensure_future(self._client._send(self._lease.release(), ANSWER_SECONDS)))
        except Unreachable:
            return False
        return _lease.released(answer) and not was_lost

    async def __aenter__(self) -> AsyncHeld:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        was_lost = self.lost
        self._end()
        was_cancelled_by_others = await self._take_back_cancellation(kind)
        await self.release()
        if was_cancelled_by_others:
            return
        if was_lost and (kind is None or (self._has_cancelled and kind is asyncio.CancelledError)):
            raise self._lease.lost() from None

    def __repr__(self) -> str:
        state = "released" if self._released else "lost" if self.lost else "held"
        return f"<hallpass.AsyncHeld {self.name!r} fence {self.fence}, {state}>"

    def _cancels(self, task: asyncio.Task[Any]) -> None:
        self._task = task

    async def _take_back_cancellation(self, kind: Optional[Type[BaseException]]) -> bool:
        """Undoes our cancellation of the block's task. True if somebody else has cancelled it, too."""
        if not self._has_cancelled or self._task is None:
            return False
        if kind is not asyncio.CancelledError:
            # The block has ended before it noticed.
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        uncancel = getattr(self._task, "uncancel", None)
        return uncancel is not None and uncancel() > 0

    def _end(self) -> None:
        self._client._held.discard(self)
        for task in self._keeping:
            if task is not asyncio.current_task():
                task.cancel()

    async def _keep(self) -> None:
        lease = self._lease
        while not lease.has_ended:
            await asyncio.sleep(max(0.0, lease.renew_at() - _clock.now()))
            sent = _clock.now()
            try:
                lease.kept(await self._client._send(lease.keepalive(), lease.patience()), sent)
            except Unreachable as error:
                lease.unanswered(str(error))
            if lease.renewed < sent:
                await asyncio.sleep(lease.ttl / 20)

    async def _watch(self) -> None:
        lease = self._lease
        while not lease.is_lost():
            # The agent may say that it has ended long before.
            await asyncio.wait([self._keeping[0]], timeout=lease.left())
        self._lost.set()
        self._client._held.discard(self)
        if self._task is not None and not self._has_cancelled:
            self._has_cancelled = True
            self._task.cancel()
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            asyncio.get_running_loop().call_soon(callback, self)
        self._keeping[0].cancel()
