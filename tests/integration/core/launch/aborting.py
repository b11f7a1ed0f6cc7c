"""Workers whose process aborts after their work."""

import atexit
import ctypes
from pathlib import Path

import paddlevit_dist

_left_open: list = []


def leave_a_destructor_that_aborts(folder: str) -> None:
    """What native libraries may do once Python has ended; before, own code has written to a file and left a handler."""
    log = Path(folder, f"log_{paddlevit_dist.rank()}").open("w")  # noqa: SIM115  (left open on purpose)
    log.write("a line")
    _left_open.append(log)
    atexit.register(Path(folder, f"handler_{paddlevit_dist.rank()}").touch)
    native = ctypes.CDLL(None)
    native.__cxa_atexit(native.abort, None, None)
