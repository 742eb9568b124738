"""The clock by which leases are counted."""

from __future__ import annotations

import time
import unittest
from unittest import mock

from hallpass import _clock

SECOND = 1_000_000_000


@unittest.skipUnless(hasattr(time, "CLOCK_MONOTONIC_RAW") and hasattr(time, "CLOCK_BOOTTIME"), "needs Linux's clocks")
class Clock(unittest.TestCase):
    def setUp(self) -> None:
        self.raw, self.monotonic, self.suspended = 1000 * SECOND, 1000 * SECOND, 0
        patch = mock.patch("hallpass._clock.time.clock_gettime_ns", self.read)
        patch.start()
        self.addCleanup(patch.stop)

    def read(self, clock: int) -> int:
        return {
            time.CLOCK_MONOTONIC: self.monotonic,
            time.CLOCK_MONOTONIC_RAW: self.raw,
            time.CLOCK_BOOTTIME: self.monotonic + self.suspended,
        }[clock]

    def test_setting_the_time_of_day_right_changes_nothing(self) -> None:
        before = _clock.now()
        self.raw += 5 * SECOND
        # chrony may slow the system's clock down by as much.
        self.monotonic += 5 * SECOND * 917 // 1000
        self.assertAlmostEqual(_clock.now() - before, 5)

    def test_time_in_suspend_counts(self) -> None:
        before = _clock.now()
        self.suspended += 3600 * SECOND
        self.assertAlmostEqual(_clock.now() - before, 3600)


if __name__ == "__main__":
    unittest.main()
