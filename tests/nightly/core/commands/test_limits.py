"""Full disks, pipes in the place of files and broken caches are named or mended."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.processes import ROOT
from support.trainings.runs import DIGITS, refused

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="uses ulimit, /proc and /dev/full")


def test_a_pipe_or_a_full_disk_in_its_place_is_named(tmp_path):
    os.mkfifo(tmp_path / "run.json")
    assert f"cannot write {tmp_path / 'run.json'}: it is not a file" in refused(f"-output={tmp_path}", *DIGITS)
    (tmp_path / "run.json").unlink()
    (tmp_path / "log.txt").symlink_to("/dev/full")
    message = refused(f"-output={tmp_path}", *DIGITS)
    assert f"cannot write {tmp_path / 'log.txt'}: No space left on device; free space" in message


LOOP = (
    "from paddlevit_dist.core.runtime.compiled import compiled\n\n\n"
    "@compiled\ndef doubled(number):\n    return 2 * number\n"
)


def test_a_compiled_loop_whose_cache_was_cut_short_is_compiled_again(tmp_path):
    (tmp_path / "loops.py").write_text(LOOP)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}"}

    def run_loop() -> str:
        words = [sys.executable, "-c", "from loops import doubled; print(doubled(21))"]
        ended = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=600)
        assert ended.stdout == "42\n", ended.stderr
        return ended.stderr

    assert run_loop() == ""
    for suffix in (".nbi", ".nbc"):  # index and code
        (cached,) = Path(tmp_path, "__pycache__").glob(f"*{suffix}")
        whole = cached.read_bytes()
        cached.write_bytes(whole[: len(whole) // 2])
        said = run_loop()
        assert "compiling it again" in said and said.count("\n") == 1
    assert run_loop() == ""


@pytest.mark.parametrize("name", ["metrics.jsonl", "config.yaml"])
def test_a_folder_in_the_place_of_a_file_of_the_run_is_named(name, tmp_path):
    (tmp_path / name).mkdir()
    assert f"cannot write {tmp_path / name}: Is a directory" in refused(f"-output={tmp_path}", *DIGITS)
    assert [path.name for path in tmp_path.iterdir()] == [name]
