"""How a lock is asked for, and until when it is held."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Optional

from . import _clock
from ._errors import Busy, LockLost, LockTimeout
from ._http import Answer, Request, path

# How much later than its own time limit a request may be answered.
ANSWER_SECONDS = 10.0
# Renewals begin when this share of the lease has passed since the last one was sent; so several are sent before it ends.
RENEW_SHARE = 0.3
# A keepalive that is not answered within this share of the lease is sent again on another connection.
PATIENCE_SHARE = 0.25

NO_ANSWER = "the agent has not answered in time"


@dataclass
class Wanted:
    """A lock, and how it is wanted."""

    name: str
    shared: bool = False
    tries: bool = False
    timeout: Optional[float] = None
    ttl: Optional[float] = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.name.encode()) <= 255:
            raise ValueError("a lock's name has 1 to 255 bytes")
        if self.timeout is not None and not self.timeout >= 0:
            raise ValueError(f"a timeout of {self.timeout} s is not possible")
        if self.ttl is not None and not self.ttl > 0:
            raise ValueError(f"a lease of {self.ttl} s is not possible")

    def request(self) -> Request:
        body: Dict[str, Any] = {"mode": "shared" if self.shared else "exclusive"}
        if self.tries or self.timeout == 0:
            body["try"] = True
        elif self.timeout is not None:
            body["timeout_ms"] = max(1, round(self.timeout * 1000))
        if self.ttl is not None:
            body["ttl_ms"] = round(self.ttl * 1000)
        return Request("POST", path("v1", "locks", self.name, "acquire"), body)

    def patience(self) -> Optional[float]:
        """How long to wait for the answer; None waits forever."""
        if self.tries or self.timeout == 0:
            return ANSWER_SECONDS
        return None if self.timeout is None else self.timeout + ANSWER_SECONDS

    def granted(self, answer: Answer, sent: float) -> Lease:
        """The lease of a lock that was granted, else an error."""
        if answer.status == 409:
            raise Busy(answer.why())
        if answer.status == 408:
            raise LockTimeout(answer.why())
        found = answer.ok()
        return Lease(self, found["lease"], int(found["fence"]), sent, found["ttl_ms"] / 1000)


class Lease:
    """Until when a lock is held for certain.

    It is counted by this process's clock from when a request was sent, since the agent may have counted from then on. So the answer to
    a request that waited says little; `is_fresh` tells whether it is enough.
    """

    def __init__(self, wanted: Wanted, lease: str, fence: int, sent: float, ttl: float) -> None:
        self.name = wanted.name
        self.shared = wanted.shared
        self.id = lease
        self.fence = fence
        self.ttl = ttl
        self.valid_until = sent + ttl
        self.renewed = sent
        self.is_broken = False
        self.is_at_risk = False
        self.has_ended = False
        self.why = NO_ANSWER

    def is_fresh(self) -> bool:
        """There is time to begin something before the first keepalive is due."""
        return _clock.now() < self.renew_at()

    def renew_at(self) -> float:
        return self.renewed + self.ttl * RENEW_SHARE

    def left(self) -> float:
        """For how many more seconds the lock is held, if nothing is heard of the agent."""
        return 0.0 if self.has_ended else max(0.0, self.valid_until - _clock.now())

    def is_lost(self) -> bool:
        return self.left() <= 0

    def keepalive(self) -> Request:
        return Request("POST", path("v1", "leases", self.id, "keepalive"), {})

    def release(self) -> Request:
        return Request("DELETE", path("v1", "leases", self.id))

    def patience(self) -> float:
        """How long to wait for the answer to a keepalive."""
        return max(0.001, min(self.left(), self.ttl * PATIENCE_SHARE))

    def kept(self, answer: Answer, sent: float) -> None:
        """A keepalive that was sent then is answered."""
        if self.has_ended or self.is_lost():
            # What was over for us stays over: somebody may have been told already.
            self.end(self.why)
            return
        self._renew(answer, sent)

    def confirm(self, answer: Answer, sent: float) -> None:
        """The same before anybody was told that the lock is held; an error if it is not."""
        if answer.status != 404:
            answer.ok()
        self._renew(answer, sent)
        if self.has_ended:
            raise self.lost()

    def _renew(self, answer: Answer, sent: float) -> None:
        if answer.status == 404:
            self.end(self.why if self.is_broken else "the lease has ended, or the lock was broken")
            return
        if not 200 <= answer.status < 300:
            # The agent has said no, which changes nothing: the deadline stays.
            self.why = f"it could not be kept alive: {answer.why()}"
            return
        held = [lock for lock in answer.document.get("locks", []) if lock.get("name") == self.name]
        if not held:
            self.end("the agent does not know that it is held")
            return
        self.is_broken = bool(held[0].get("broken"))
        self.why = "an operator has broken it" if self.is_broken else NO_ANSWER
        self.is_at_risk = self.is_broken or bool(held[0].get("at_risk"))
        self.ttl = answer.document["ttl_ms"] / 1000
        self.valid_until = sent + self.ttl
        self.renewed = sent

    def unanswered(self, why: str) -> None:
        """A keepalive failed. Of a lock that is broken it is known why it will be lost."""
        if not self.is_broken:
            self.why = why

    def end(self, why: str) -> None:
        if not self.has_ended:
            self.has_ended, self.why = True, why

    def lost(self) -> LockLost:
        return LockLost(f"lock '{self.name}' is lost: {self.why}")
