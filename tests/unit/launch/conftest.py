"""Locks of folders, and the name of the processor: Python starts ``uname`` when it is first asked for that."""

import platform

from support.locked_folders import take  # noqa: F401

platform.processor()
