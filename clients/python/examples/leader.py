"""Only one of many processes works at a time; when it loses its lock, its work is cancelled."""

from __future__ import annotations

import asyncio

import hallpass


async def lead(name: str, client: hallpass.AsyncClient) -> None:
    async with client.lock("scheduler") as held:
        print(f"{name} leads, term {held.fence}")
        await asyncio.sleep(0.1)


async def main() -> None:
    async with hallpass.AsyncClient() as client:
        await asyncio.gather(*(lead(name, client) for name in ("a", "b", "c")))


if __name__ == "__main__":
    asyncio.run(main())
