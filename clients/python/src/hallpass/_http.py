"""As much of HTTP/1.1 as an agent needs, without I/O, for the blocking client and for the one of asyncio alike."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple
from urllib.parse import quote, urlencode

from ._errors import ApiError, Unreachable

# An agent's longest answer is a page of 1000 locks, some hundred bytes each.
ANSWER_BYTES_MAX = 16 << 20
HEAD_BYTES_MAX = 64 << 10


@dataclass(frozen=True)
class Request:
    """What is asked of an agent."""

    method: str
    path: str
    body: Optional[Dict[str, Any]] = None

    def encode(self, authority: str, token: Optional[str]) -> bytes:
        body = b"" if self.body is None else json.dumps(self.body).encode()
        lines = [f"{self.method} {self.path} HTTP/1.1", f"Host: {authority}", "Accept: application/json"]
        if token is not None:
            lines.append(f"Authorization: Bearer {token}")
        if body:
            lines.append("Content-Type: application/json")
        lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def path(*names: str, **query: Any) -> str:
    """A path of these names, each of which may contain anything, and what follows the question mark."""
    given = {key: _text(value) for key, value in query.items() if value is not None}
    text = "/" + "/".join(quote(name, safe="") for name in names)
    return f"{text}?{urlencode(given)}" if given else text


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class Answer:
    """What an agent has answered."""

    status: int
    document: Any
    can_be_reused: bool

    def ok(self) -> Any:
        """The document; an error if the request was refused."""
        if 200 <= self.status < 300:
            return self.document
        raise ApiError(self.status, self.why())

    def why(self) -> str:
        found = self.document.get("error") if isinstance(self.document, dict) else None
        return str(found) if found else f"the agent has answered with status {self.status}"


class Reader:
    """Makes an answer of bytes, however they arrive."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._head: Optional[Tuple[int, Dict[str, str]]] = None

    def feed(self, more: bytes) -> Optional[Answer]:
        """The answer, once it is complete. No bytes at all are the end of the connection."""
        if not more:
            raise Unreachable("the agent has closed the connection")
        self._bytes += more
        if len(self._bytes) > ANSWER_BYTES_MAX:
            raise Unreachable("the answer is too long for an agent's")
        if self._head is None:
            end = self._bytes.find(b"\r\n\r\n")
            if end < 0:
                if len(self._bytes) > HEAD_BYTES_MAX:
                    raise Unreachable("the answer is no agent's")
                return None
            self._head = _read_head(bytes(self._bytes[:end]))
            del self._bytes[: end + 4]
        status, headers = self._head
        try:
            length = int(headers["content-length"])
        except (KeyError, ValueError):
            raise Unreachable("the answer is no agent's: it has no length") from None
        if len(self._bytes) < length:
            return None
        can_be_reused = len(self._bytes) == length and headers.get("connection", "").lower() != "close"
        return Answer(status, _read_body(bytes(self._bytes[:length])), can_be_reused)


def _read_head(head: bytes) -> Tuple[int, Dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
        raise Unreachable("the answer is not HTTP: is the URL the one of an agent's API, https where it has TLS?")
    fields = (line.partition(":") for line in lines)
    return int(words[1]), {name.strip().lower(): value.strip() for name, _, value in fields}


def _read_body(body: bytes) -> Any:
    try:
        return json.loads(body) if body else None
    except ValueError:
        return None
