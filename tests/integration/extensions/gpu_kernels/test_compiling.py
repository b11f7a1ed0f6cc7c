"""The fused kernels compile for GPUs, and fit into their registers."""

import sys

import pytest
from support.processes import run_command

pytest.importorskip("triton")


def test_kernels_compile_for_ampere_and_hopper_without_spills(tmp_path):
    command = [sys.executable, "-m", "support.networks.compiled_gpu_kernels", "80", "90"]
    ended = run_command(command, timeout=300, TRITON_INTERPRET="0", TRITON_CACHE_DIR=str(tmp_path))
    assert ended.code == 0, ended.err[-3000:]
    lines = [line.split() for line in ended.out.splitlines()]
    assert len(lines) == 2 * 2 * 8 and {line[1] for line in lines} == {"80", "90"}
    assert {line[0] for line in lines} == {
        *("add_norm", "add_norm_backward", "bias_gelu", "bias_gelu_backward"),
        *("sum_partials", "sum_partials_of_block", "cast_five"),
    }
    assert [line for line in lines if line[-1] != "0"] == []
