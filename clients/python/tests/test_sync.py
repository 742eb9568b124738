"""The blocking client with a real agent."""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
import time
import unittest
from pathlib import Path
from typing import List

import hallpass

from .agent import DEADLINE_SECONDS, Agent, binary, until


class WithAgent(unittest.TestCase):
    agent: Agent

    def setUp(self) -> None:
        self.agent = Agent()
        self.addCleanup(self.agent.close)
        self.client = hallpass.Client(self.agent.url)
        self.addCleanup(self.client.close)

    def waits(self, lock: str, count: int = 1) -> None:
        until(lambda: self.client.lock_info(lock)["waiters"] == count, f"{count} wait for {lock}")


class Locks(WithAgent):
    def test_one_at_a_time_with_rising_fences(self) -> None:
        inside, fences, overlaps = [0], [], [0]

        def work(client: hallpass.Client) -> None:
            for _ in range(20):
                with client.lock("a/b ä") as held:
                    inside[0] += 1
                    overlaps[0] += inside[0] > 1
                    fences.append(held.fence)
                    inside[0] -= 1

        clients = [hallpass.Client(url) for url in (self.agent.url, self.agent.unix_url, self.agent.url)]
        threads = [threading.Thread(target=work, args=(client,)) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_SECONDS)
        for client in clients:
            client.close()
        self.assertEqual(len(fences), 60)
        self.assertEqual(fences, sorted(set(fences)))
        self.assertEqual(overlaps, [0])

    def test_try_timeout_and_shared(self) -> None:
        lock = self.client.lock("x", timeout=0.05)
        with lock as held:
            self.assertTrue(held.valid_for() > 0 and not held.lost and not held.at_risk)
            self.assertIsNone(lock.try_acquire())
            with self.assertRaises(hallpass.LockTimeout):
                lock.acquire()
            with self.assertRaises(TimeoutError):
                lock.acquire()
        self.assertEqual(held.valid_for(), 0)
        self.assertFalse(held.lost, "it was released")
        readers = [self.client.lock("x", shared=True).try_acquire() for _ in range(3)]
        self.assertTrue(all(readers))
        self.assertIsNone(lock.try_acquire())
        for reader in readers:
            assert reader is not None
            self.assertTrue(reader.release())
            self.assertFalse(reader.release())
        taken = lock.try_acquire()
        assert taken is not None
        self.assertTrue(taken.release())

    def test_an_agent_that_ends_is_a_risk_and_then_a_loss(self) -> None:
        held = self.client.lock("ends").acquire()
        self.agent.process.terminate()
        until(lambda: held.at_risk or held.lost, "the holder hears that the agent ends")
        # It goes on telling deadlines, none of them after its own end.
        self.assertTrue(held.wait_lost(DEADLINE_SECONDS))
        self.assertFalse(held.release())

    def test_it_is_held_for_longer_than_its_lease(self) -> None:
        with self.client.lock("long") as held:
            time.sleep(5)
            held.check()
            self.assertIsNone(self.client.lock("long").try_acquire())

    def test_a_grant_that_waited_for_longer_than_a_lease_is_held(self) -> None:
        first = self.client.lock("slow").acquire()
        got: List[hallpass.Held] = []
        thread = threading.Thread(target=lambda: got.append(self.client.lock("slow").acquire()))
        thread.start()
        time.sleep(3)
        first.release()
        thread.join(DEADLINE_SECONDS)
        self.assertGreater(got[0].valid_for(), 0)
        got[0].check()
        self.assertTrue(got[0].release())

    def test_a_client_that_gives_up_leaves_no_waiter(self) -> None:
        with self.client.lock("x"):
            other = hallpass.Client(self.agent.unix_url)
            self.addCleanup(other.close)
            thread = threading.Thread(target=lambda: self.assertRaises(hallpass.LockTimeout, other.lock("x", timeout=1).acquire))
            thread.start()
            self.waits("x")
            thread.join(DEADLINE_SECONDS)
            self.waits("x", 0)

    def test_what_it_knows_can_be_asked(self) -> None:
        with self.client.lock("seen/1"), self.client.lock("seen/2"):
            self.assertEqual([lock["name"] for lock in self.client.locks(prefix="seen/", held=True)], ["seen/1", "seen/2"])
            self.assertEqual([lock["name"] for lock in self.client.locks(search="n/2")], ["seen/2"])
            self.assertEqual(self.client.lock_info("seen/1")["held"], "exclusive")
        self.assertEqual(len(self.client.members()), 1)
        self.assertTrue(self.client.status()["complete"])

    def test_a_key_is_banned_until_it_is_admitted(self) -> None:
        key = "sha256:" + "5f" * 32
        self.client.ban_key(key)
        self.assertEqual(self.client.status()["banned_keys"], [key])
        self.client.admit_key(key)
        self.assertEqual(self.client.status()["banned_keys"], [])

    def test_closing_releases(self) -> None:
        held = hallpass.Client(self.agent.url)
        held.lock("x").acquire()
        held.close()
        taken = self.client.lock("x").try_acquire()
        assert taken is not None
        taken.release()


class Losses(WithAgent):
    def test_a_silent_agent_is_a_loss_by_the_own_clock(self) -> None:
        told: List[hallpass.Held] = []
        with self.assertRaises(hallpass.LockLost):
            with self.client.lock("x") as held:
                held.on_lost(told.append)
                self.agent.pause()
                self.assertTrue(held.wait_lost(DEADLINE_SECONDS))
                self.assertTrue(held.lost)
                self.assertEqual(held.valid_for(), 0)
                with self.assertRaises(hallpass.LockLost):
                    held.check()
                self.agent.go_on()
        until(lambda: told == [held], "the callback is called")
        # The agent agrees, or has heard of the release.
        with self.client.lock("x", timeout=DEADLINE_SECONDS) as next_held:
            self.assertGreater(next_held.fence, held.fence)

    def test_a_killed_agent_is_a_loss(self) -> None:
        held = self.client.lock("x").acquire()
        self.agent.kill()
        self.assertTrue(held.wait_lost(DEADLINE_SECONDS))
        self.assertFalse(held.release())
        with self.assertRaises(hallpass.Unreachable):
            self.client.lock("x").try_acquire()

    def test_an_error_of_the_block_is_not_hidden(self) -> None:
        with self.assertRaises(KeyError):
            with self.client.lock("x") as held:
                self.agent.kill()
                held.wait_lost(DEADLINE_SECONDS)
                raise KeyError("mine")

    def test_a_broken_lock_is_announced_and_lost(self) -> None:
        held = self.client.lock("x").acquire()
        breaker = hallpass.Client(self.agent.unix_url)
        self.addCleanup(breaker.close)
        breaking = threading.Thread(target=lambda: breaker.break_lock("x"))
        breaking.start()
        until(lambda: held.broken or held.lost, "the holder is told")
        held.release()
        breaking.join(DEADLINE_SECONDS)
        self.assertFalse(breaking.is_alive())
        with self.client.lock("x", timeout=DEADLINE_SECONDS):
            pass

    def test_a_closed_client_keeps_no_connection(self) -> None:
        client = hallpass.Client(self.agent.unix_url)
        client.status()
        self.assertEqual(len(client._idle), 1)
        with self.client.lock("x"):
            waiting = threading.Thread(target=lambda: self.assertRaises(hallpass.LockTimeout, client.lock("x", timeout=1).acquire))
            waiting.start()
            until(lambda: self.client.lock_info("x")["waiters"] == 1, "it waits")
            client.close()
            waiting.join(DEADLINE_SECONDS)
        self.assertEqual(len(client._idle), 0)

    def test_an_agent_that_is_not_there(self) -> None:
        for url in ("unix:/nonexistent/api.sock", "http://127.0.0.1:1"):
            with self.assertRaises(hallpass.Unreachable):
                hallpass.Client(url).lock("x").acquire()
        with self.assertRaises(ConnectionError):
            hallpass.Client("http://127.0.0.1:1").status()


class Tokens(unittest.TestCase):
    def test_a_token_and_tls(self) -> None:
        agent = Agent()
        self.addCleanup(agent.close)
        group, tokens = agent.directory / "group", agent.directory / "tokens.toml"
        run = [binary(), "init", "--names", "localhost", "--out", str(group), "--loopback"]
        subprocess.run(run, check=True, stdout=subprocess.DEVNULL)
        new = [binary(), "token", "new", "--name", "ci", "--rights", "acquire,inspect", "--prefix", "ci/", "--file", str(tokens), "--json"]
        token = json.loads(subprocess.run(new, check=True, stdout=subprocess.PIPE).stdout)["token"]
        keys = group / "localhost"
        options = ["--api-cert", str(keys / "node.pem"), "--api-key", str(keys / "node.key"), "--api-tokens", str(tokens)]
        secured = Agent(*options)
        self.addCleanup(secured.close)
        url = secured.url.replace("http://127.0.0.1", "https://localhost")
        client = hallpass.Client(url, token=token, cafile=str(keys / "authority.pem"))
        self.addCleanup(client.close)
        with client.lock("ci/x") as held:
            self.assertGreater(held.fence, 0)
        self.assertStatus(403, client, "other")
        self.assertStatus(401, hallpass.Client(url, cafile=str(keys / "authority.pem")), "ci/x")
        self.assertStatus(401, hallpass.Client(url, token="wrong", cafile=str(keys / "authority.pem")), "ci/x")
        with self.assertRaises(hallpass.Unreachable) as refused:
            hallpass.Client(url, token=token).lock("ci/x").acquire()
        self.assertIsInstance(refused.exception.__cause__, ssl.SSLError)
        with self.assertRaises(hallpass.Unreachable):
            hallpass.Client(secured.url, token=token).lock("ci/x").acquire()

    def assertStatus(self, status: int, client: hallpass.Client, lock: str) -> None:
        with self.assertRaises(hallpass.ApiError) as refused:
            client.lock(lock).acquire()
        client.close()
        self.assertEqual(refused.exception.status, status)


class Examples(WithAgent):
    def test_they_run(self) -> None:
        import os
        import sys

        examples = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
        self.assertTrue(examples)
        environment = {**os.environ, "HALLPASS_URL": self.agent.url}
        environment["PYTHONPATH"] = str(Path(hallpass.__file__).parents[1])
        for example in examples:
            done = subprocess.run([sys.executable, str(example)], env=environment, timeout=DEADLINE_SECONDS, check=False)
            self.assertEqual(done.returncode, 0, example.name)


if __name__ == "__main__":
    unittest.main()
