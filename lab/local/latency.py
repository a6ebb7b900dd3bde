"""Holds back what an instance sends. Run by path, in the instance's network namespace; needs no netem.

`python -I latency.py IP PID SECONDS MTU ADDRESS ROUTE…` gives the routes a TUN device, reads from it what the
instance sends, and sends it SECONDS later on eth0. Says so on standard output once it does. It ends with
process PID, the instance; the device and its routes end with it.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

# From <linux/if_tun.h>.
_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000

_DEVICE = "latency"


def _open_device(ip: str, mtu: str, address: str, routes: list[str]) -> int:
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", _DEVICE.encode(), _IFF_TUN | _IFF_NO_PI))
    # What is received comes by eth0, though answers go this way.
    for name in ("all", "eth0"):
        Path(f"/proc/sys/net/ipv4/conf/{name}/rp_filter").write_text("0")
    # More specific than that of eth0.
    lines = [f"route add {route} dev {_DEVICE} src {address}" for route in routes]
    batch = "\n".join((f"link set {_DEVICE} mtu {mtu} up", *lines, ""))
    subprocess.run([ip, "-batch", "-"], input=batch, text=True, check=True)
    return device


def _pass_on(device: int, pid: int, seconds: float) -> None:
    out = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    out.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth0")
    instance = os.pidfd_open(pid)
    waiting: deque[tuple[float, bytes]] = deque()
    while True:
        timeout = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        if instance in select.select([device, instance], [], [], timeout)[0]:
            return
        with suppress(BlockingIOError):
            while packet := os.read(device, 1 << 16):
                if packet[0] >> 4 == 4:  # IPv4
                    waiting.append((time.monotonic() + seconds, packet))
        while waiting and waiting[0][0] <= time.monotonic():
            packet = waiting.popleft()[1]
            with suppress(OSError):  # it is lost, as on a network
                out.sendto(packet, (socket.inet_ntoa(packet[16:20]), 0))


def main() -> None:
    """Holds packets back until the instance ends."""
    ip, pid, seconds, mtu, address, *routes = sys.argv[1:]
    device = _open_device(ip, mtu, address, routes)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    _pass_on(device, int(pid), float(seconds))


if __name__ == "__main__":
    main()
