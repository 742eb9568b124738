"""Where an agent is."""

from __future__ import annotations

import os
import socket
import ssl
from dataclasses import dataclass
from typing import Optional
from urllib.parse import unquote, urlsplit

MACHINE_SOCKET = "/run/hallpass/agent-api.sock"


@dataclass(frozen=True)
class Address:
    """A Unix socket, or a host and a port with or without TLS."""

    path: Optional[str] = None
    host: str = ""
    port: int = 0
    tls: Optional[ssl.SSLContext] = None

    @property
    def authority(self) -> str:
        """For the Host header. Over a Unix socket no name is looked up, so any will do."""
        if self.path is not None:
            return "localhost"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"unix:{self.path}" if self.path is not None else f"http{'s' if self.tls else ''}://{self.authority}"


def parse(url: Optional[str], tls: Optional[ssl.SSLContext], cafile: Optional[str]) -> Address:
    """Reads `http://host:port`, `https://host:port` or `unix:/path`; without a URL it is the agent of this machine."""
    if url is None:
        url = os.environ.get("HALLPASS_URL") or f"unix:{default_socket()}"
    parts = urlsplit(url)
    if parts.scheme == "unix":
        path = unquote(parts.path)
        if not path:
            raise ValueError(f"{url!r} has no path; write a socket as unix:/run/hallpass/agent-api.sock")
        return Address(path=path)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
        raise ValueError(f"{url!r} is not an agent's URL; write http://host:port, https://host:port or unix:/path")
    is_tls = parts.scheme == "https"
    context = (tls or ssl.create_default_context(cafile=cafile)) if is_tls else None
    return Address(host=parts.hostname, port=parts.port or (443 if is_tls else 80), tls=context)


def default_socket() -> str:
    """The API's socket of the agent that `hallpass run` would use, if that one belongs to a group or was named."""
    if path := os.environ.get("HALLPASS_API_SOCKET"):
        return path
    if path := os.environ.get("HALLPASS_SOCKET"):
        directory, name = os.path.split(path)
        stem = name[: -len(".sock")] if name.endswith(".sock") else name
        return os.path.join(directory, f"{stem}-api.sock")
    mine = os.path.join(_home(), ".local/state/hallpass/agent-api.sock")
    return mine if os.path.exists(mine) else MACHINE_SOCKET


def _home() -> str:
    """By the password database, as the agent does: a login shell and a cron job must find the same one."""
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return "/nonexistent"


def keep_alive(connection: socket.socket) -> None:
    """Lets the system notice within a minute that the other machine is gone, while a request waits for a lock."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
