"""This process's connections and what the kernel lets arrive on them (Linux; elsewhere nothing is found and done)."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import sys
from typing import Iterator, List, Tuple

_SO_ATTACH_FILTER = 26
# Instructions of the kernel's packet filter: operation, jump if true, jump if false, operand.
_SOURCE_ADDRESS = (0x20, 0, 0, 0xFFF00000 + 12)  # load it from the IPv4 header
_LET_IN, _DROP = (0x06, 0, 0, 0xFFFFFFFF), (0x06, 0, 0, 0)


def let_in_only(listener: socket.socket, network: str, bits: int) -> bool:
    """Have the kernel drop attempts to connect from outside a network (Linux); returns whether it can.

    Args:
        listener: a socket that listens.
        network: an IPv4 address.
        bits: how many of its leading bits count.
    """
    mask = 0xFFFFFFFF ^ (0xFFFFFFFF >> bits)
    address = int.from_bytes(socket.inet_aton(network), "big") & mask
    return _filter(listener, [_SOURCE_ADDRESS, (0x54, 0, 0, mask), (0x15, 0, 1, address), _LET_IN, _DROP])


def _filter(listener: socket.socket, program: List[Tuple[int, int, int, int]]) -> bool:
    if sys.platform != "linux":
        return False
    instructions = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))
    try:
        pointer = struct.pack("HP", len(program), ctypes.addressof(instructions))
        listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, pointer)
    except OSError:  # a system that only looks like Linux
        return False
    return True


def let_in_nobody(listener: socket.socket) -> bool:
    """Have the kernel drop all attempts to connect; what is connected stays so. Returns whether it can."""
    return _filter(listener, [_DROP])


def send_small_messages_at_once() -> None:
    """Disable Nagle's algorithm on this process's TCP connections.

    The store's client writes a request in several small pieces, so each one waited 44 ms for the kernel's delayed
    acknowledgement; with Nagle's algorithm off a request takes 0.1 ms.
    """
    for own in own_sockets():
        with own:
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def listeners(port: int) -> Iterator[socket.socket]:
    """This process's sockets that listen on a port."""
    for own in own_sockets():
        with own:
            if own.getsockname()[1] == port and own.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                yield own


def accepted(port: int) -> List[socket.socket]:
    """Copies of what this process has accepted on a port; to be closed."""
    found = []
    for own in own_sockets():
        try:
            own.getpeername()
            is_ours = own.getsockname()[1] == port
        except OSError:  # listens, or has been left
            is_ours = False
        if is_ours:
            found.append(own)
        else:
            own.close()
    return found


def own_sockets() -> Iterator[socket.socket]:
    """Copies of this process's sockets of TCP; whoever gets one closes it."""
    if not os.path.isdir("/proc/self/fd"):
        return
    for name in os.listdir("/proc/self/fd"):
        try:
            copy = os.dup(int(name))
        except OSError:  # belonged to the listing itself and is closed by now
            continue
        try:
            own = socket.socket(fileno=copy)
        except OSError:  # not a socket
            os.close(copy)
            continue
        if own.family in (socket.AF_INET, socket.AF_INET6) and own.type == socket.SOCK_STREAM:
            yield own
        else:
            own.close()
