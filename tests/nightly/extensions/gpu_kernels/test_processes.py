"""Fused kernels in several processes, and what ``make accept-gpu`` tries of their speed."""

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


def test_the_row_of_their_speed_runs_on_a_cpu():
    """Triton's interpreter is far slower than Paddle's operations, and no CPU captures graphs."""
    pytest.importorskip("triton")
    from support.networks.fused_speed import Sizes, measure_all
    from support.networks.plain_layers import plain_layers
    from support.trainings.fused_kernels import interpreted_kernels

    sizes = {"image_size": 16, "patch_size": 8, "embed_dim": 16, "num_heads": 2, "depth": 2, "num_classes": 10}
    with interpreted_kernels(), plain_layers():
        ratio, said = measure_all(Sizes(2, 1, 1), 1, **sizes)
    assert ratio > 1.0
    assert "no graph is captured" in said and "of 1 processes cross-entropy over axis 1 is wrong in 0 by" in said
