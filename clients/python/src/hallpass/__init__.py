"""Locks across processes and machines, without a lock server: the client of a hallpass agent.

>>> import hallpass
>>> client = hallpass.Client()                       # the agent of this machine, by its Unix socket
>>> with client.lock("invoices/42") as held:         # doctest: +SKIP
...     storage.write(held.fence, invoice)           # a number that only grows: let the storage refuse smaller ones
...     held.check()                                 # raises LockLost if it is not held any more

`AsyncClient` is the same for asyncio. A lock is held under a lease that is kept alive in the background. Whether it is still held
is decided by this process's own clock, counted from when the last keepalive that was answered had been sent: it is `lost`
here before anybody else can have it, as long as this process is scheduled at all.
"""

from ._aio import AsyncClient, AsyncHeld, AsyncLock
from ._errors import ApiError, Busy, HallpassError, LockLost, LockTimeout, Unreachable
from ._sync import Client, Held, Lock

__all__ = [
    "ApiError",
    "AsyncClient",
    "AsyncHeld",
    "AsyncLock",
    "Busy",
    "Client",
    "HallpassError",
    "Held",
    "Lock",
    "LockLost",
    "LockTimeout",
    "Unreachable",
]
__version__ = "0.1.0"
