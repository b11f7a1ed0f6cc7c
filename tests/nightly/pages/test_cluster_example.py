"""The script of examples/cluster that the guide to running names."""

import json
import sys

from support.processes import ROOT, run_command

from .test_pages import write_command


def test_two_nodes_of_the_loopback_address_train(tmp_path):
    for name in ("configs", "main_multi_gpu.py", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    python = str(write_command(tmp_path)), sys.prefix + "/bin", "/usr/bin", "/bin"
    ended = run_command(["sh", "examples/cluster/two_nodes.sh"], folder=tmp_path, PATH=":".join(python))
    assert ended.code == 0, ended.out[-3000:] + ended.err[-3000:]
    events = (tmp_path / "output" / "nodes" / "metrics.jsonl").read_text(encoding="utf-8")
    assert json.loads((tmp_path / "output" / "nodes" / "run.json").read_text(encoding="utf-8"))["processes"] == 2
    assert '"kind": "evaluation"' in events
