"""A full /dev/shm is named."""

import sys

import pytest
from support.processes import ROOT, run_command
from support.trainings.runs import DIGITS, refusal


def test_a_full_shared_memory_is_named(tmp_path):
    """In a mount namespace of its own, with a /dev/shm of a few pages."""
    run = "mount -t tmpfs -o size={} tmpfs /dev/shm && {} && exec {} {} -output={} {}"
    if run_command(["unshare", "-m", "true"]).code:
        pytest.skip("this system allows no mount of its own")
    words = " ".join(f"'{word}'" for word in DIGITS if word != "-num_workers=0")
    fill = "head -c 4096 /dev/zero > /dev/shm/x"
    for more, expected in (("-num_workers=2", "the queues of the loader"), ("-ngpus=2", "the queues of the processes")):
        main = f"{sys.executable} {ROOT / 'main_multi_gpu.py'}"
        script = run.format(4096, fill, main, words, tmp_path / more, more)
        ended = run_command(["unshare", "-m", "sh", "-c", script])
        assert f"/dev/shm is full: it has no room for {expected}" in refusal(ended)
