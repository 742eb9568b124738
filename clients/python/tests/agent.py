"""A real agent, for tests."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any, List, Optional

ROOT = Path(__file__).resolve().parents[3]
DEADLINE_SECONDS = 60.0


def binary() -> str:
    """The program under test; skips the test where it was not built, unless nothing may be skipped."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    candidates = [os.environ.get("HALLPASS_BIN"), target / "debug/hallpass", target / "release/hallpass"]
    for candidate in candidates:
        if candidate and os.access(candidate, os.X_OK):
            return str(candidate)
    text = "SKIPPED: there is no hallpass to test with; cargo build --package hallpass-cli, or set HALLPASS_BIN"
    if os.environ.get("CI"):
        raise AssertionError(text)
    print(text)
    raise unittest.SkipTest(text)


def until(condition: Any, what: str) -> None:
    """Waits for a condition, for a long time."""
    end = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"it takes too long: {what}")
        time.sleep(0.02)


class Agent:
    """An agent that is alone in its group, with an API on TCP and on a Unix socket."""

    def __init__(self, *options: str) -> None:
        program = binary()
        self.directory = Path(tempfile.mkdtemp(prefix="hallpass-"))
        self.socket = self.directory / "a.sock"
        self.api_socket = self.directory / "a-api.sock"
        self._log = self.directory / "log"
        command = [program, "agent", "--data", str(self.directory / "data"), "--socket", str(self.socket)]
        command += ["--api", "127.0.0.1:0", "--ttl", "2s", *options]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HALLPASS_")}
        environment["HALLPASS_CONFIG"] = os.devnull
        with self._log.open("w") as log:
            self.process = subprocess.Popen(command, stderr=log, env=environment)
        until(lambda: self._address() or self.process.poll() is not None, "the agent starts")
        address = self._address()
        if address is None:
            raise AssertionError(self._log.read_text())
        self.url = f"http://{address}"
        self.unix_url = f"unix:{self.api_socket}"

    def _address(self) -> Optional[str]:
        found = re.search(r'\bapi="?(127\.0\.0\.1:\d+)', self._log.read_text())
        return found and found.group(1)

    def log(self) -> List[str]:
        return self._log.read_text().splitlines()

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.go_on()
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)
