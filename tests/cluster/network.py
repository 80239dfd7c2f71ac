"""A network of two hosts on this machine: this one, and a network namespace behind a cable that can be pulled.

Guarantees: nothing leaves this machine: the namespace has no other way out. The namespace is gone in the end.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread, Timer

__all__ = ["Network", "network", "why_missing"]


def why_missing() -> str:
    """Why there can be no network namespace here; "" if there can."""
    if shutil.which("ip") is None:
        return "needs `ip` (Debian: apt-get install iproute2)"
    if os.geteuid() != 0:
        return "network namespaces need root"
    name = f"weft-try-{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        return "this system has no network namespaces"
    subprocess.run(["ip", "netns", "del", name], check=True)
    return ""


class Network:
    """A cable between this host, ``here``, and a namespace, ``there``."""

    def __init__(self, number: int) -> None:
        self.name = f"weft-{os.getpid()}"
        self._ends = f"wfa{os.getpid()}", f"wfb{os.getpid()}"
        self.here, self.there = f"10.231.{number}.1", f"10.231.{number}.2"

    @property
    def inside(self) -> list[str]:
        """What a command is preceded by that runs there."""
        return ["ip", "netns", "exec", self.name]

    @property
    def inside_by_name(self) -> list[str]:
        """The same for a command to which that host has a name of its own."""
        return [*self.inside, "unshare", "--uts", "sh", "-c", 'hostname weft-there && exec "$@"', "sh"]

    @contextmanager
    def overheard(self) -> Iterator[bytearray]:
        """What passes through the cable meanwhile, both ways."""
        heard = bytearray()
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as tap:  # 3: all protocols
            tap.bind((self._ends[0], 0))
            tap.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
            tap.settimeout(0.1)
            over = Event()
            thread = Thread(target=_listen, args=(tap, heard, over))
            thread.start()
            try:
                yield heard
            finally:
                over.set()
                thread.join()

    def lay(self) -> None:
        """Make the namespace and the cable."""
        here, there = self._ends
        _ip("netns", "add", self.name)
        _ip("link", "add", here, "type", "veth", "peer", "name", there, "netns", self.name)
        _ip("address", "add", f"{self.here}/30", "dev", here)
        _ip("link", "set", here, "up")
        self._there("link", "set", "lo", "up")
        self._there("address", "add", f"{self.there}/30", "dev", there)
        self._there("link", "set", there, "up")

    def cut(self, seconds: float) -> Timer:
        """Pull the cable, which a timer plugs in again so many seconds later: packets are lost, and nobody is told."""
        self._there("link", "set", self._ends[1], "down")
        timer = Timer(seconds, self._there, ("link", "set", self._ends[1], "up"))
        timer.start()
        return timer

    def remove(self) -> None:
        """Remove the namespace, and with it the cable."""
        subprocess.run(["ip", "netns", "del", self.name], check=False)

    def _there(self, *arguments: str) -> None:
        subprocess.run([*self.inside, "ip", *arguments], check=True)


def _listen(tap: socket.socket, heard: bytearray, over: Event) -> None:
    while not over.is_set():
        with suppress(TimeoutError):
            heard += tap.recv(1 << 16)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


@contextmanager
def network() -> Iterator[Network]:
    """A network for a test."""
    found = Network(os.getpid() % 250)
    try:
        found.lay()
        yield found
    finally:
        found.remove()
