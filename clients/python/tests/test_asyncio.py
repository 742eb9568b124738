"""The client for asyncio with a real agent."""

from __future__ import annotations

import asyncio
import unittest
from typing import List

import hallpass

from .agent import DEADLINE_SECONDS, Agent, until


class WithAgent(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        self.agent = Agent()
        self.addCleanup(self.agent.close)
        self.client = hallpass.AsyncClient(self.agent.url)

    async def asyncTearDown(self) -> None:
        await self.client.close()

    async def waits(self, lock: str, count: int) -> None:
        async def look() -> None:
            while (await self.client.lock_info(lock))["waiters"] != count:
                await asyncio.sleep(0.02)

        await asyncio.wait_for(look(), DEADLINE_SECONDS)


class Locks(WithAgent):
    async def test_one_at_a_time_with_rising_fences(self) -> None:
        inside, fences, overlaps = [0], [], [0]

        async def work(lock: hallpass.AsyncLock) -> None:
            for _ in range(20):
                async with lock as held:
                    inside[0] += 1
                    overlaps[0] += inside[0] > 1
                    fences.append(held.fence)
                    await asyncio.sleep(0)
                    inside[0] -= 1

        async with hallpass.AsyncClient(self.agent.unix_url) as other:
            mine = self.client.lock("x")
            await asyncio.wait_for(asyncio.gather(work(mine), work(mine), work(other.lock("x"))), DEADLINE_SECONDS)
        self.assertEqual(fences, sorted(set(fences)))
        self.assertEqual((len(fences), overlaps), (60, [0]))

    async def test_try_timeout_and_shared(self) -> None:
        lock = self.client.lock("x", timeout=0.05)
        async with lock:
            self.assertIsNone(await lock.try_acquire())
            with self.assertRaises(hallpass.LockTimeout):
                await lock.acquire()
        readers = [await self.client.lock("x", shared=True).acquire() for _ in range(2)]
        self.assertIsNone(await lock.try_acquire())
        for reader in readers:
            self.assertTrue(await reader.release())
            self.assertFalse(await reader.release())

    async def test_it_is_held_for_longer_than_its_lease(self) -> None:
        async with self.client.lock("x") as held:
            await asyncio.sleep(5)
            held.check()
            self.assertIsNone(await self.client.lock("x").try_acquire())

    async def test_a_cancelled_wait_leaves_no_waiter(self) -> None:
        async with self.client.lock("x"):
            waiting = asyncio.ensure_future(self.client.lock("x").acquire())
            await self.waits("x", 1)
            waiting.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await waiting
            await self.waits("x", 0)

    async def test_what_it_knows_can_be_asked(self) -> None:
        async with self.client.lock("seen"):
            self.assertEqual([lock["name"] for lock in await self.client.locks(held=True)], ["seen"])
        self.assertEqual(len(await self.client.members()), 1)
        self.assertTrue((await self.client.status())["complete"])
        with self.assertRaises(hallpass.ApiError):
            await self.client.evict("nobody")
        with self.assertRaises(hallpass.ApiError):
            await self.client.ban_key("none")
        await self.client.admit_key("sha256:" + "5f" * 32)


class Losses(WithAgent):
    async def test_the_block_is_cancelled(self) -> None:
        with self.assertRaises(hallpass.LockLost):
            async with self.client.lock("x"):
                self.agent.pause()
                await asyncio.sleep(DEADLINE_SECONDS)
                self.fail("it went on")
        # The task itself goes on.
        await asyncio.sleep(0.01)

    async def test_without_cancellation_it_is_told(self) -> None:
        told: List[hallpass.AsyncHeld] = []
        with self.assertRaises(hallpass.LockLost):
            async with self.client.lock("x", cancel=False) as held:
                held.on_lost(told.append)
                self.agent.kill()
                self.assertTrue(await asyncio.wait_for(held.wait_lost(), DEADLINE_SECONDS))
                await asyncio.sleep(0.01)
                self.assertEqual(told, [held])

    async def test_a_block_that_never_waits_is_told_at_its_end(self) -> None:
        with self.assertRaises(hallpass.LockLost):
            async with self.client.lock("x") as held:
                self.agent.kill()
                until(lambda: held.lost, "the lock is lost")
        # No cancellation is left behind.
        await asyncio.sleep(0.01)

    async def test_others_may_cancel(self) -> None:
        entered = asyncio.Event()

        async def hold() -> None:
            async with self.client.lock("x"):
                entered.set()
                await asyncio.sleep(DEADLINE_SECONDS)

        task = asyncio.ensure_future(hold())
        await asyncio.wait_for(entered.wait(), DEADLINE_SECONDS)
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        taken = await self.client.lock("x").try_acquire()
        assert taken is not None
        await taken.release()

    async def test_an_agent_that_is_not_there(self) -> None:
        for url in ("unix:/nonexistent/api.sock", "http://127.0.0.1:1"):
            with self.assertRaises(hallpass.Unreachable):
                await hallpass.AsyncClient(url).lock("x").acquire()


if __name__ == "__main__":
    unittest.main()
