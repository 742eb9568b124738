"""What is sent in which order, and what becomes of the answers: without an agent."""

from __future__ import annotations

import unittest
from typing import Any, List, Tuple, Union
from unittest import mock

from hallpass import ApiError, LockLost, Unreachable, _calls
from hallpass._calls import Call, HeldState, IdleConnections, Result
from hallpass._http import Answer
from hallpass._lease import Lease, Wanted


def answer(status: int = 200, **document: Any) -> Answer:
    return Answer(status, document, True)


GRANT = answer(lease="1f", fence="7", ttl_ms=1000)
KEPT = answer(ttl_ms=1000, locks=[{"name": "x"}])


class Clocked(unittest.TestCase):
    def setUp(self) -> None:
        self.time = 100.0
        patch = mock.patch("hallpass._clock.now", lambda: self.time)
        patch.start()
        self.addCleanup(patch.stop)

    def lease(self) -> Lease:
        return Wanted("x").granted(GRANT, sent=100.0)

    def run_call(self, call: Call[Result], *answers: Union[Answer, BaseException, Tuple[float, Answer]]) -> Tuple[Result, List[str]]:
        """Runs a call with these answers, each after so many seconds. Its result, and what it has sent."""
        sent: List[str] = []
        left = list(answers)
        try:
            step = next(call)
            while True:
                sent.append(f"{step.request.method} {step.request.path}")
                given = left.pop(0)
                if isinstance(given, BaseException):
                    step = call.throw(given)
                    continue
                if isinstance(given, tuple):
                    self.time += given[0]
                    given = given[1]
                step = call.send(given)
        except StopIteration as done:
            self.assertEqual(left, [], "every answer was asked for")
            result: Result = done.value
            return result, sent
        except BaseException:
            self.sent = sent
            raise


class Acquiring(Clocked):
    def test_a_grant_at_once_needs_no_confirmation(self) -> None:
        lease, sent = self.run_call(_calls.acquire(Wanted("x")), GRANT)
        self.assertEqual((lease.fence, sent), (7, ["POST /v1/locks/x/acquire"]))

    def test_a_grant_that_waited_is_confirmed(self) -> None:
        lease, sent = self.run_call(_calls.acquire(Wanted("x")), (60.0, GRANT), KEPT)
        self.assertEqual(sent, ["POST /v1/locks/x/acquire", "POST /v1/leases/1f/keepalive"])
        self.assertAlmostEqual(lease.left(), 1.0)

    def test_what_fails_after_the_grant_releases_it(self) -> None:
        for error in (Unreachable("gone"), KeyboardInterrupt()):
            for released in (answer(), Unreachable("gone, too")):
                with self.assertRaises(type(error)):
                    self.run_call(_calls.acquire(Wanted("x")), (60.0, GRANT), error, released)
                self.assertEqual(self.sent[-1], "DELETE /v1/leases/1f")

    def test_an_agent_that_answers_too_slowly_holds_nothing(self) -> None:
        slow = [(0.5, KEPT)] * _calls.CONFIRMATIONS_MAX
        with self.assertRaisesRegex(Unreachable, "too slowly"):
            self.run_call(_calls.acquire(Wanted("x")), (60.0, GRANT), *slow, answer())
        self.assertEqual(self.sent[-1], "DELETE /v1/leases/1f")

    def test_trying_finds_it_busy(self) -> None:
        found, sent = self.run_call(_calls.try_acquire(Wanted("x", timeout=5)), answer(409, error="busy"))
        self.assertEqual((found, len(sent)), (None, 1))


class Keeping(Clocked):
    def test_a_renewal_says_whether_it_was_answered(self) -> None:
        lease = self.lease()
        self.assertTrue(self.run_call(_calls.renew(lease), KEPT)[0])
        self.time = 100.5
        self.assertFalse(self.run_call(_calls.renew(lease), answer(503, error="no locks now"))[0])
        self.assertFalse(self.run_call(_calls.renew(lease), Unreachable("gone"))[0])
        self.assertAlmostEqual(lease.left(), 0.5)
        self.assertEqual(_calls.retry_after(lease), 0.05)

    def test_a_release_says_whether_the_lease_was_there(self) -> None:
        for given, was_there in ((answer(), True), (answer(404), False), (Unreachable("gone"), False)):
            self.assertEqual(self.run_call(_calls.release(self.lease()), given)[0], was_there)
        with self.assertRaises(ApiError):
            self.run_call(_calls.release(self.lease()), answer(500, error="why"))


class Lists(Clocked):
    def test_all_pages_are_asked_for(self) -> None:
        pages = answer(locks=[{"name": "a"}], next="a"), answer(locks=[{"name": "b"}])
        found, sent = self.run_call(_calls.locks("", "", False), *pages)
        self.assertEqual([lock["name"] for lock in found], ["a", "b"])
        self.assertTrue("after" not in sent[0] and "after=a" in sent[1], sent)

    def test_members_and_refusals(self) -> None:
        self.assertEqual(self.run_call(_calls.members(), answer(members=[{"name": "a"}]))[0], [{"name": "a"}])
        for call in (_calls.break_lock("x"), _calls.evict("a", ban=True), _calls.ban_key("sha256:0")):
            with self.assertRaises(ApiError):
                self.run_call(call, answer(403, error="not allowed"))


class Idle(Clocked):
    def setUp(self) -> None:
        super().setUp()
        self.closed: List[str] = []
        self.idle: IdleConnections[str] = IdleConnections(lambda name: name != "dead", self.closed.append)

    def test_the_last_used_one_is_taken_first(self) -> None:
        self.idle.put("a", answer())
        self.idle.put("b", answer())
        self.assertEqual([self.idle.take(), self.idle.take(), self.idle.take()], ["b", "a", None])

    def test_what_cannot_be_used_is_closed(self) -> None:
        self.idle.put("ended", Answer(200, None, can_be_reused=False))
        self.idle.put("old", answer())
        self.time += _calls.IDLE_SECONDS
        self.idle.put("dead", answer())
        self.assertIsNone(self.idle.take())
        self.assertEqual(self.closed, ["ended", "dead", "old"])

    def test_some_are_kept_and_none_after_the_end(self) -> None:
        for number in range(_calls.IDLE_CONNECTIONS_MAX + 1):
            self.idle.put(str(number), answer())
        self.assertEqual((len(self.idle), self.closed), (_calls.IDLE_CONNECTIONS_MAX, ["4"]))
        self.idle.close()
        self.idle.put("late", answer())
        self.assertEqual((len(self.idle), len(self.closed)), (0, _calls.IDLE_CONNECTIONS_MAX + 2))


class Holding(Clocked):
    def test_it_is_lost_by_this_clock(self) -> None:
        held = HeldState(self.lease(), mock.Mock(is_set=lambda: False))
        self.assertFalse(held.lost)
        held.check()
        self.assertIn("held", repr(held))
        self.time = 101.0
        self.assertTrue(held.lost)
        self.assertEqual(held.valid_for(), 0.0)
        with self.assertRaises(LockLost):
            held.check()


if __name__ == "__main__":
    unittest.main()
