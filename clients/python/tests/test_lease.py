"""What is counted, and from when: without an agent."""

from __future__ import annotations

import unittest
from typing import Any, List
from unittest import mock

from hallpass import ApiError, Busy, LockLost, LockTimeout, Unreachable, _address, _http
from hallpass._http import Answer, Reader, Request, path
from hallpass._lease import Lease, Wanted


def answer(status: int, **document: Any) -> Answer:
    return Answer(status, document, True)


def kept(ttl_ms: int = 1000, **lock: Any) -> Answer:
    return answer(200, ttl_ms=ttl_ms, locks=[{"name": "x", **lock}])


class Counting(unittest.TestCase):
    def setUp(self) -> None:
        self.time = 100.0
        patch = mock.patch("hallpass._clock.now", lambda: self.time)
        patch.start()
        self.addCleanup(patch.stop)

    def lease(self) -> Lease:
        return Wanted("x").granted(answer(200, lease="1f", fence="7", ttl_ms=1000), sent=100.0)

    def test_it_counts_from_when_the_request_was_sent(self) -> None:
        self.time = 100.9
        lease = self.lease()
        self.assertAlmostEqual(lease.left(), 0.1)
        self.assertFalse(lease.is_fresh())
        lease.kept(kept(), sent=100.5)
        self.assertAlmostEqual(lease.left(), 0.6)
        self.time = 101.5
        self.assertTrue(lease.is_lost())

    def test_what_is_over_stays_over(self) -> None:
        lease = self.lease()
        self.time = 101.0
        lease.kept(kept(), sent=100.9)
        self.assertTrue(lease.is_lost())
        self.time = 100.0
        self.assertTrue(lease.is_lost())

    def test_a_refused_keepalive_moves_no_deadline(self) -> None:
        lease = self.lease()
        self.time = 100.4
        lease.kept(answer(503, error="no locks now"), sent=100.3)
        self.assertAlmostEqual(lease.left(), 0.6)
        self.assertIn("no locks now", str(lease.lost()))

    def test_an_unknown_lease_is_lost_at_once(self) -> None:
        for gone in (answer(404, error="gone"), answer(200, ttl_ms=1000, locks=[]), answer(200, ttl_ms=1000, locks=[{"name": "y"}])):
            lease = self.lease()
            lease.kept(gone, sent=100.0)
            self.assertTrue(lease.is_lost())

    def test_risks_are_known(self) -> None:
        lease = self.lease()
        lease.kept(kept(at_risk=True, broken=False), sent=100.0)
        self.assertTrue(lease.is_at_risk and not lease.is_broken)
        lease.kept(kept(at_risk=False, broken=True), sent=100.0)
        self.assertTrue(lease.is_at_risk and lease.is_broken)
        # What it is lost for is known, whatever becomes of the next keepalive.
        lease.unanswered("no answer")
        self.assertIn("operator has broken it", str(lease.lost()))

    def test_a_shorter_ttl_is_taken_at_its_word(self) -> None:
        """What an agent tells that ends, or is almost out of touch: the deadline moves back, and the next keepalive comes sooner."""
        lease = self.lease()
        lease.kept(kept(ttl_ms=200, at_risk=True), sent=100.1)
        self.assertAlmostEqual(lease.left(), 0.3)
        self.assertAlmostEqual(lease.renew_at(), 100.16)
        self.assertTrue(lease.is_at_risk)
        self.time = 100.3
        self.assertTrue(lease.is_lost())

    def test_a_grant_that_waited_is_confirmed(self) -> None:
        lease = self.lease()
        self.time = 160.0
        lease.confirm(kept(), sent=159.95)
        self.assertAlmostEqual(lease.left(), 0.95)
        with self.assertRaises(LockLost):
            lease.confirm(answer(404, error="gone"), sent=160.0)
        with self.assertRaises(ApiError):
            self.lease().confirm(answer(503, error="no"), sent=160.0)


class Asking(unittest.TestCase):
    def test_a_request_says_how_the_lock_is_wanted(self) -> None:
        wanted = Wanted("a/b ä?", shared=True, timeout=1.5, ttl=3)
        self.assertEqual(
            wanted.request(),
            Request("POST", "/v1/locks/a%2Fb%20%C3%A4%3F/acquire", {"mode": "shared", "timeout_ms": 1500, "ttl_ms": 3000}),
        )
        # Never under a lease that was there before: the answer would say what is left of that.
        self.assertNotIn("lease", Wanted("x", ttl=3).request().body or {})
        self.assertTrue(Wanted("x", timeout=0).request().body == {"mode": "exclusive", "try": True})
        for wrong in ("", "x" * 256, "ä" * 128):
            with self.assertRaises(ValueError):
                Wanted(wrong)
        with self.assertRaises(ValueError):
            Wanted("x", timeout=-1)

    def test_refusals_have_classes(self) -> None:
        for status, kind in ((409, Busy), (408, LockTimeout), (401, ApiError), (503, ApiError)):
            with self.assertRaisesRegex(kind, "why"):
                Wanted("x").granted(answer(status, error="why"), 0.0)

    def test_paths_take_anything(self) -> None:
        self.assertEqual(path("v1", "a/b", after="x&y", held=True, none=None), "/v1/a%2Fb?after=x%26y&held=true")

    def test_addresses(self) -> None:
        self.assertEqual(str(_address.parse("unix:/run/x.sock", None, None)), "unix:/run/x.sock")
        self.assertEqual(_address.parse("http://[::1]:80", None, None).authority, "[::1]:80")
        self.assertEqual(str(_address.parse("https://h:1", None, None)), "https://h:1")
        for wrong in ("", "x", "ftp://x", "http://", "http://x/y", "unix:"):
            with self.assertRaises(ValueError):
                _address.parse(wrong or "nothing", None, None)
        with mock.patch.dict("os.environ", {"HALLPASS_SOCKET": "/d/b.sock"}):
            self.assertEqual(_address.default_socket(), "/d/b-api.sock")
        with mock.patch.dict("os.environ", {"HALLPASS_API_SOCKET": "/e"}):
            self.assertEqual(_address.default_socket(), "/e")


class Reading(unittest.TestCase):
    whole = b'HTTP/1.1 200 OK\r\nContent-Length: 7\r\nX: y\r\n\r\n{"a":1}'

    def read(self, *pieces: bytes) -> List[Answer]:
        reader = Reader()
        return [found for found in (reader.feed(piece) for piece in pieces) if found]

    def test_an_answer_may_come_in_pieces(self) -> None:
        for cut in range(1, len(self.whole)):
            self.assertEqual(self.read(self.whole[:cut], self.whole[cut:]), [Answer(200, {"a": 1}, True)])

    def test_what_closes_is_not_used_again(self) -> None:
        self.assertFalse(self.read(self.whole.replace(b"X: y", b"Connection: close"))[0].can_be_reused)
        self.assertFalse(self.read(self.whole + b"more")[0].can_be_reused)

    def test_what_is_no_answer_is_an_error(self) -> None:
        for wrong in (b"", b"\x15\x03\x01\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"):
            with self.assertRaises(Unreachable):
                self.read(wrong)
        with self.assertRaises(Unreachable):
            self.read(b"x" * (_http.HEAD_BYTES_MAX + 1))


if __name__ == "__main__":
    unittest.main()
