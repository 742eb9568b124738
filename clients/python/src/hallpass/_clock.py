"""The clock by which leases are counted."""

from __future__ import annotations

import time

if hasattr(time, "CLOCK_BOOTTIME"):

    def now() -> float:
        """Seconds, by a clock that goes on while the machine is suspended: the agent's does, too."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:

    def now() -> float:
        """Seconds, by a clock that nobody sets."""
        return time.monotonic()
