"""The client for asyncio."""

from __future__ import annotations

import asyncio
import os
import ssl
from contextlib import suppress
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from . import _address, _calls, _clock
from ._address import keep_alive
from ._calls import Call, ErrorType, HeldState, IdleConnections, Result, Trace
from ._errors import Unreachable
from ._http import Answer, Reader, Request
from ._lease import ANSWER_SECONDS, Lease, Wanted

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
        self._idle: IdleConnections[_Streams] = IdleConnections(_is_usable, _close)
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
        return await self._run(_calls.status())

    async def members(self) -> List[Dict[str, Any]]:
        """The members of the group."""
        return await self._run(_calls.members())

    async def locks(self, *, prefix: str = "", search: str = "", held: bool = False) -> List[Dict[str, Any]]:
        """The locks that the agent knows of, by name."""
        return await self._run(_calls.locks(prefix, search, held))

    async def lock_info(self, name: str) -> Dict[str, Any]:
        """Who holds a lock, and who waits for it, as far as the agent knows."""
        return await self._run(_calls.lock_info(name))

    async def break_lock(self, name: str) -> None:
        """Takes a lock from its holder. Returns when nobody holds it."""
        await self._run(_calls.break_lock(name))

    async def evict(self, member: str, *, ban: bool = False) -> None:
        """Removes a member from the group. Returns when it is out."""
        await self._run(_calls.evict(member, ban))

    async def ban_key(self, key: str) -> None:
        """Bans a key, given as `members()` shows it. Returns when no member accepts it any more."""
        await self._run(_calls.ban_key(key))

    async def admit_key(self, key: str) -> None:
        """Lifts the ban on a key."""
        await self._run(_calls.admit_key(key))

    async def close(self) -> None:
        """Releases what is held, and closes all connections."""
        for held in list(self._held):
            with suppress(Unreachable):
                await held.release()
        self._idle.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<hallpass.AsyncClient of {self._address}>"

    async def _run(self, call: Call[Result]) -> Result:
        """Carries out the steps of a call. After an error, what it still sends is not cancelled with its task."""
        has_failed = False
        try:
            step = next(call)
            while True:
                sending = self._send(step.request, step.patience)
                try:
                    answer = await (asyncio.shield(sending) if has_failed else sending)
                except BaseException as error:
                    has_failed = True
                    step = call.throw(error)
                else:
                    step = call.send(answer)
        except StopIteration as done:
            result: Result = done.value
            return result

    async def _send(self, request: Request, patience: Optional[float]) -> Answer:
        """Sends a request and waits for the answer, no longer than `patience`.

        An error closes the connection: by that the agent notices that nobody waits any more.
        """
        try:
            return await asyncio.wait_for(self._exchange(request), patience)
        except Unreachable:
            raise
        except (OSError, asyncio.TimeoutError) as error:
            why = str(error) or "timed out"
            raise Unreachable(f"no answer from the agent at {self._address}: {why}") from error

    async def _exchange(self, request: Request) -> Answer:
        streams = self._idle.take() or await self._connect()
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
        self._idle.put(streams, answer)
        return answer

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


def _is_usable(streams: _Streams) -> bool:
    reader, writer = streams
    return not reader.at_eof() and not writer.is_closing()


def _close(streams: _Streams) -> None:
    streams[1].close()


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
        return AsyncHeld(self._client, await self._client._run(_calls.acquire(self._wanted)))

    async def try_acquire(self) -> Optional[AsyncHeld]:
        """The lock if it is free now, else None."""
        lease = await self._client._run(_calls.try_acquire(self._wanted))
        return None if lease is None else AsyncHeld(self._client, lease)

    async def __aenter__(self) -> AsyncHeld:
        held = await self.acquire()
        task = asyncio.current_task()
        self._entered.setdefault(task, []).append(held)
        if self._cancel and task is not None:
            held._cancels(task)
        return held

    async def __aexit__(self, kind: ErrorType, error: Optional[BaseException], trace: Trace) -> None:
        task = asyncio.current_task()
        held = self._entered[task].pop()
        if not self._entered[task]:
            del self._entered[task]
        await held.__aexit__(kind, error, trace)


class AsyncHeld(HeldState):
    """A lock that is held, until it is released or lost."""

    def __init__(self, client: AsyncClient, lease: Lease) -> None:
        self._lost = asyncio.Event()
        super().__init__(lease, self._lost)
        self._client = client
        self._callbacks: List[Callable[[AsyncHeld], None]] = []
        self._task: Optional[asyncio.Task[Any]] = None
        self._has_cancelled = False
        client._held.add(self)
        # Two tasks, so that an agent that does not answer delays nothing.
        self._keeping = [asyncio.ensure_future(self._keep()), asyncio.ensure_future(self._watch())]

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

    async def release(self) -> bool:
        """Gives the lock back. False if it was lost before, or released."""
        if self._released:
            return False
        was_lost, self._released = self.lost, True
        self._end()
        self._lost.set()
        releasing = asyncio.ensure_future(self._client._run(_calls.release(self._lease)))
        return await asyncio.shield(releasing) and not was_lost

    async def __aenter__(self) -> AsyncHeld:
        return self

    async def __aexit__(self, kind: ErrorType, error: Optional[BaseException], trace: Trace) -> None:
        was_lost = self.lost
        self._end()
        was_cancelled_by_others = await self._take_back_cancellation(kind)
        await self.release()
        if was_cancelled_by_others:
            return
        if was_lost and (kind is None or (self._has_cancelled and kind is asyncio.CancelledError)):
            raise self._lease.lost() from None

    def _cancels(self, task: asyncio.Task[Any]) -> None:
        self._task = task

    async def _take_back_cancellation(self, kind: ErrorType) -> bool:
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
            if not await self._client._run(_calls.renew(lease)):
                await asyncio.sleep(_calls.retry_after(lease))

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
