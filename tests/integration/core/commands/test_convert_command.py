"""``convert``, as a command."""

import sys

import numpy as np
from support.networks.other_names import (
    in_torch_layout,
    small,
)
from support.processes import run_command

from paddlevit_dist.core.checkpoint.array_files import write_safetensors


def test_the_command_says_what_it_found(tmp_path):
    state = {**in_torch_layout(small("convnext_tiny", seed=1)), "odd\nname": np.ones(2, "float32")}
    source, target = tmp_path / "in.safetensors", tmp_path / "out.pdparams"
    write_safetensors(source, state)
    command = [sys.executable, "-m", "paddlevit_dist", "convert", str(source), str(target)]
    ended = run_command(command, timeout=600)
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0] == f"{source}: convnext, timm names, Linear weights (out, in)"
    assert lines[1] == r"unknown names, written unchanged: odd\nname"
    assert lines[2].startswith(f"{target}: {len(state)} arrays, ")
