"""What is installed without any extra, so without Paddle and numba, scores results, compares runs and draws reports."""

from importlib import metadata

import pytest
from integration.test_core_install import core, link, run_with
from support.processes import succeeded


def test_without_numba_images_train_and_points_say_what_is_missing(tmp_path):
    paddle = next(one for one in ("paddlepaddle", "paddlepaddle-gpu") if any(metadata.distributions(name=one)))
    if metadata.version(paddle).startswith("2."):
        pytest.skip("Paddle 2.6 asks the module site for a folder, which this test runs without")
    (tmp_path / "packages").mkdir()
    packages = link(tmp_path / "packages", [*core(), paddle, "setuptools"])  # Paddle 2.6 does not say that it needs it
    assert not (packages / "numba").exists()
    words = ["-cfg=vit_digits", "-epochs=1", "-num_workers=0", "TRAIN.WARMUP_EPOCHS", "0", "-output=run"]
    trained = succeeded(run_with(packages, tmp_path, "train", *words))
    assert (
        "\nnumba is not installed: layers, norms of gradients and transforms run without compiled kernels"
        in trained.out
    )
    assert trained.out.splitlines()[-1].startswith("top-1 ")
    refused = run_with(packages, tmp_path, "train", "-cfg=minkunet14_synthetic_rooms", "-output=rooms")
    assert refused.code == 2 and refused.err.splitlines()[-1].startswith("error: not installed for "), refused.err
    assert "numba" in refused.err.splitlines()[-1]
