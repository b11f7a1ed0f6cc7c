"""The programs in docs/tutorials/point_clouds.md and docs/guides/sparse_networks.md, extracted and run."""

import re
import shlex
import sys
from pathlib import Path

import numpy as np
from support.processes import ROOT, run_command

PAGE = (ROOT / "docs" / "tutorials" / "point_clouds.md").read_text(encoding="utf-8")
(OWN_DATA,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SPARSE = (ROOT / "docs" / "guides" / "sparse_networks.md").read_text(encoding="utf-8")
TUTORIAL, NETWORK = re.findall(r"```python\n(.*?)```", SPARSE, re.DOTALL)


def run(program: str, path: Path, *arguments: str) -> str:
    path.write_text(program)
    folders = f"{ROOT}:{path.parent}"
    ended = run_command([sys.executable, str(path), *arguments], PYTHONPATH=folders)
    assert ended.code == 0, ended.out + ended.err
    return ended.out + ended.err


def test_the_program_for_sparse_tensors_learns(tmp_path):
    out = run(TUTORIAL, tmp_path / "program.py")
    assert float(re.search(r"accuracy ([\d.]+)", out)[1]) > 0.9


def test_an_own_network_trains_from_weights_of_minkowskiengine(tmp_path):
    """Published weights: nested names, PyTorch's names of statistics, and a last layer for other classes."""
    noise = np.random.default_rng(0)
    shapes = {"conv0.kernel": (125, 4, 16), "down.0.kernel": (8, 16, 32), "up.kernel": (8, 32, 16)}
    shapes |= {"final.kernel": (32, 13), "final.bias": (1, 13)}
    shapes |= {f"bn0.bn.{name}": (16,) for name in ("weight", "bias", "running_mean", "running_var")}
    shapes |= {f"down.1.bn.{name}": (32,) for name in ("weight", "bias", "running_mean", "running_var")}
    np.savez(tmp_path / "theirs.npz", **{name: noise.uniform(0, 1, shape) for name, shape in shapes.items()})
    (tmp_path / "my_network.py").write_text(NETWORK)
    command = re.search(r"python (-m paddlevit_dist train -import=my_network .*?)\n```", SPARSE, re.DOTALL)[1]
    words = shlex.split(command.replace("\\\n", " ").replace(".pth", ".npz").replace("./output", "output"))
    small = ["-epochs=1", "-ngpus=1", "POINTS.ROOMS.TRAIN", "4", "POINTS.ROOMS.VAL", "1", "TRAIN.WARMUP_STEPS", "0"]
    ended = run_command([sys.executable, *words, *small], PYTHONPATH=f"{ROOT}:{tmp_path}", folder=tmp_path)
    assert ended.code == 0, ended.out + ended.err
    assert re.search("theirs.npz: loaded 11 of 13", ended.out), ended.out
    assert re.search(r"^mIoU [\d.]+", ended.out, re.MULTILINE)


def test_own_scenes_train_on_two_processes(tmp_path):
    command = re.search(r"python my_scenes\.py (.*?)\n```", PAGE, re.DOTALL)[1].replace("\\\n", " ")
    words = [word for word in shlex.split(command) if not word.startswith("-output")]
    assert len([line for line in OWN_DATA.splitlines() if line.startswith((" ", "class"))]) < 20
    out = run(OWN_DATA, tmp_path / "my_scenes.py", *words, f"-output={tmp_path / 'out'}")
    last = re.findall(r"^mIoU ([\d.]+) ", out, re.MULTILINE)[-1]
    assert float(last) > 0.8, out
    assert "IoU ball" in (tmp_path / "out" / "metrics.jsonl").read_text()
