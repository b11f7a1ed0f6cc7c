"""A run with GPU_KERNELS, on a CPU that a test takes for a GPU: it trains, is resumed and exported as any other."""

import numpy as np
import paddle
import pytest
from support.networks.plain_layers import plain_layers

pytest.importorskip("triton")

from support.trainings import fused_kernels, small_runs  # noqa: E402

from paddlevit_dist import create_model  # noqa: E402
from paddlevit_dist.extensions.gpu_kernels import layers  # noqa: E402

RUN = ["-batch_size=4", "-epochs=1", "TRAIN.WARMUP_STEPS", "0", "MODEL.EMBED_DIM", "16"]
FUSED, DROPS = ["GPU_KERNELS", "True"], ["MODEL.DROPOUT", "0.2", "MODEL.DROPPATH", "0.3"]
LINE = "fused kernels (GPU_KERNELS): 2 ViTBlock, 2 Mlp, by Triton"


@pytest.fixture
def on_gpu():
    with fused_kernels.interpreted_kernels(), plain_layers():
        yield


@pytest.mark.parametrize("more", [["MODEL.DROPOUT", "0"], ["MODEL.DROPOUT", "0", "-recompute", "-accum_iter=2"]])
def test_a_run_learns_what_it_learns_by_paddle_s_operations(tmp_path, on_gpu, more):
    plain = small_runs.train(str(tmp_path / "plain"), [*RUN, *more], train_size=8)
    fused = small_runs.train(str(tmp_path / "fused"), [*RUN, *FUSED, *more], train_size=8)
    assert LINE in (tmp_path / "fused/log.txt").read_text()
    np.testing.assert_allclose(fused["losses"], plain["losses"], rtol=1e-5)
    for name, value in plain["weights"].items():
        np.testing.assert_allclose(fused["weights"][name], value, atol=1e-4, err_msg=name)


def test_a_run_with_dropout_repeats_and_is_resumed_bit_for_bit(tmp_path, on_gpu):
    words = [*RUN, *FUSED, *DROPS, "-epochs=2"]
    runs = [small_runs.train(str(tmp_path / name), words, train_size=8) for name in ("first", "again")]
    small_runs.train(str(tmp_path / "stopped"), [*words, "-stop_after_epoch=1"], train_size=8)
    runs.append(small_runs.train(str(tmp_path / "stopped"), [*words, "-resume=auto"], train_size=8))
    assert LINE in (tmp_path / "first/log.txt").read_text()
    assert runs[1]["losses"] == runs[2]["losses"] == runs[0]["losses"]
    for run in runs[1:]:
        assert run["evaluation"] == runs[0]["evaluation"]
        assert all((run["weights"][name] == value).all() for name, value in runs[0]["weights"].items())


def test_a_cpu_says_that_it_does_not_use_them(tmp_path):
    small_runs.train(str(tmp_path), [*RUN, *FUSED], train_size=8)
    assert "fused kernels are not used (GPU_KERNELS): they need a CUDA GPU" in (tmp_path / "log.txt").read_text()


def test_a_static_program_has_paddle_s_operations(tmp_path, on_gpu):
    model = create_model("vit", num_classes=3, image_size=16, patch_size=8, embed_dim=16, depth=2, num_heads=2)
    images = paddle.ones([2, 3, 16, 16])
    expected = model(images).numpy()
    layers.fuse(model, layers.list_kernels(model))
    assert type(model.blocks[0]) is layers.FusedViTBlock
    program = paddle.jit.to_static(model, full_graph=True)  # in training mode
    np.testing.assert_allclose(program(images).numpy(), expected, rtol=1e-5, atol=1e-6)
    assert "PyLayer" not in str(program.forward.main_program) and "py_layer" not in str(program.forward.main_program)
