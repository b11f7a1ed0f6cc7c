"""Runs with TRAIN.LORA that start from one another or have batch norms: their checkpoints compute what they did."""

import numpy as np
import paddle
from support.trainings import small_runs, small_segmenters

from paddlevit_dist import create_model, load_weights
from paddlevit_dist.images.classification.probes import ProbeModel

RUN = ["-batch_size=16", "-epochs=1", "TRAIN.WARMUP_STEPS", "0", "TRAIN.BASE_LR", "1e-2", "VALIDATE_FREQ", "9"]
SIZE = {"embed_dim": 32, "depth": 2, "num_heads": 2, "patch_size": 4}


def state(model) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def test_a_probe_has_the_features_of_the_run(tmp_path):
    """Its network contains the one that was trained, whose layers have other names there."""
    small_runs.build(str(tmp_path / "base"), *RUN, train_size=64).train()
    words = [*RUN, "TRAIN.LORA.RANK", "4", "TRAIN.LORA.TARGETS", "[mlp]", f"-pretrained={tmp_path / 'base'}"]
    run = small_runs.build(str(tmp_path / "run"), *words, train_size=64)
    run.train()
    images = paddle.to_tensor(np.random.default_rng(1).standard_normal((2, 1, 16, 16)).astype("float32"))
    found = []
    for source in ("base", "run"):
        backbone = create_model("vit", image_size=16, in_channels=1, num_classes=0, **SIZE)
        probe = ProbeModel(backbone, num_classes=10, heads=2)
        load_weights(probe, str(tmp_path / source))
        probe.eval()
        found.append(probe.backbone.forward_features(images).numpy())
    run.model.eval()
    np.testing.assert_allclose(found[1], run.model.forward_features(images).numpy(), rtol=1e-4, atol=1e-5)
    assert not np.allclose(found[0], found[1], rtol=1e-3, atol=1e-4)


def test_statistics_of_a_head_are_saved_with_it(tmp_path):
    """SegFormer's head has a batch norm, whose statistics move in a run."""
    words = ["VALIDATE_FREQ", "9", "EVALUATION.INTERVAL", "off"]
    small_segmenters.build(str(tmp_path / "base"), *words).train()
    words = [*words, f"-pretrained={tmp_path / 'base'}", "TRAIN.LORA.RANK", "2", "TRAIN.LORA.TARGETS", "[q, mlp]"]
    run = small_segmenters.build(str(tmp_path / "run"), *words)
    run.train()
    statistics = [name for name in state(run.model) if name.endswith(("_mean", "_variance"))]
    parameters = dict(run.model.named_parameters())
    assert statistics and all(parameters[name].stop_gradient for name in statistics)
    loaded = run.task.build_model()
    load_weights(loaded, str(tmp_path / "base"), strict=True)
    assert not any(np.array_equal(state(loaded)[name], state(run.model)[name]) for name in statistics)
    load_weights(loaded, str(tmp_path / "run"), strict=True)
    for name in statistics:
        np.testing.assert_array_equal(state(loaded)[name], state(run.model)[name])
