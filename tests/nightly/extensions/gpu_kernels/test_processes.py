"""Fused kernels in several processes."""

import numpy as np
import pytest
from support.processes import run_workers, succeeded

pytest.importorskip("triton")

RUN = ["-epochs=1", "TRAIN.WARMUP_STEPS", "0", "MODEL.EMBED_DIM", "16", "GPU_KERNELS", "True"]


def test_two_processes_train_as_one(tmp_path):
    found = {}
    for processes in (1, 2):
        folder = str(tmp_path / str(processes))
        words = [*RUN, f"-batch_size={4 // processes}"]
        ended = run_workers("support.trainings.fused_kernels:train", folder, words, 8, processes=processes)
        found[processes] = succeeded(ended).results[0]
        assert "2 ViTBlock, 2 Mlp, by Triton" in (tmp_path / str(processes) / "log.txt").read_text()
    assert found[1]["losses"] == pytest.approx(found[2]["losses"], rel=1e-5)
    for name, value in found[1]["weights"].items():
        np.testing.assert_allclose(found[2]["weights"][name], value, atol=1e-4, err_msg=name)
