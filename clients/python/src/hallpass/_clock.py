"""The clock by which leases are counted."""

from __future__ import annotations

import time

if hasattr(time, "CLOCK_BOOTTIME") and hasattr(time, "CLOCK_MONOTONIC_RAW"):
    # A reading that was interrupted says by how much the clocks differ only as exactly as it was short.
    _READING_MAX_NS = 50_000
    _READINGS_MAX = 8

    def now() -> float:
        """Seconds, by a clock that goes on while the machine is suspended, and whose rate nobody changes: the agent's does so, too.

        What sets the time of day right changes the rate of the other clocks, by up to a tenth.
        """
        best: tuple[int, int] | None = None
        for _ in range(_READINGS_MAX):
            before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            boot = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            raw = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
            took = time.clock_gettime_ns(time.CLOCK_MONOTONIC) - before
            if best is None or took < best[0]:
                best = (took, raw + boot - before)
            if took <= _READING_MAX_NS:
                break
        assert best is not None, "it is read at least once"
        return best[1] / 1e9

else:

    def now() -> float:
        """Seconds, by a clock that nobody sets."""
        return time.monotonic()
