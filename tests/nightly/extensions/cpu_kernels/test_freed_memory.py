"""No compiled loop uses memory that it has given back."""

import sys

from support.processes import run_command


def test_no_loop_uses_memory_that_it_has_given_back():
    """Numba frees an array after its last use, which the use of its address is not. Here, what is freed is unmapped
    if it has 8 kB or more."""
    command = [sys.executable, "-m", "nightly.extensions.cpu_kernels.freed_memory"]
    mapping = {"MALLOC_MMAP_THRESHOLD_": "8192", "MALLOC_MMAP_MAX_": "60000", "MALLOC_TOP_PAD_": "0"}
    ended = run_command(command, timeout=600, **mapping)
    assert ended.code == 0 and len(ended.out.splitlines()) == 6, ended.out + ended.err[-3000:]
