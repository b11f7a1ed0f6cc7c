"""Lint finds a file that names a GPU to Paddle, beside the table of devices."""

import re
import subprocess
import sys

import pytest
from support.processes import ROOT

from paddlevit_dist.runtime import device_kinds


@pytest.fixture(autouse=True)
def seen(monkeypatch):
    """Sets what Paddle sees on this machine; each test says."""
    monkeypatch.delenv("PADDLE_TRAINER_ID", raising=False)

    def sees(gpus=0, **others):
        monkeypatch.setattr(device_kinds, "count_gpus", lambda: gpus)
        monkeypatch.setattr(device_kinds, "count_others", lambda: others)

    return sees


def test_lint_fails_where_another_file_than_the_table_names_a_gpu_to_paddle(tmp_path):
    lint = [sys.executable, str(ROOT / "tools" / "device_names.py")]
    ended = subprocess.run(lint, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, "")
    assert "$(BIN)/python tools/device_names.py" in (ROOT / "Makefile").read_text(encoding="utf-8")

    (tmp_path / "runtime").mkdir()
    table = (ROOT / "paddlevit_dist" / "runtime" / "device_kinds.py").read_text(encoding="utf-8")
    (tmp_path / "runtime" / "device_kinds.py").write_text(table)
    (tmp_path / "fine.py").write_text('"""Of a gpu."""\nGPUS = {"gpus": 1}\n')
    assert subprocess.run([*lint, str(tmp_path)]).returncode == 0
    wrong = 'import paddle\nfrom paddle import CUDAPlace\npaddle.set_device(f"gpu:{0}")\nKIND = "gpu"\n'
    (tmp_path / "wrong.py").write_text(f"{wrong}paddle.is_compiled_with_cuda()\npaddle.CUDAPlace(0)\n")
    ended = subprocess.run([*lint, str(tmp_path)], capture_output=True, text=True)
    said = re.findall(r"wrong\.py:(\d+): (.*?): ask", ended.stdout)
    assert ended.returncode == 1 and sorted(said) == [
        *(("2", "CUDAPlace"), ("3", '"gpu:"'), ("4", '"gpu"'), ("5", "is_compiled_with_cuda"), ("6", "CUDAPlace")),
    ]
