"""Runs with TRAIN.LORA that start from one another or have batch norms: their checkpoints compute what they did."""

import numpy as np
import paddle
from support.trainings import small_runs, small_segmenters

from paddlevit_dist import create_model, load_weights
from paddlevit_dist.checkpoint.low_rank import is_factor
from paddlevit_dist.checkpoint.weights import read_state
from paddlevit_dist.images.classification.probes import ProbeModel

RUN = ["-batch_size=16", "-epochs=1", "TRAIN.WARMUP_STEPS", "0", "TRAIN.BASE_LR", "1e-2", "VALIDATE_FREQ", "9"]
SIZE = {"embed_dim": 32, "depth": 2, "num_heads": 2, "patch_size": 4}


def state(model) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def outputs(model) -> np.ndarray:
    model.eval()
    images = np.random.default_rng(1).standard_normal((2, 1, 16, 16)).astype("float32")
    return model(paddle.to_tensor(images)).numpy()


def load(file):
    model = create_model("vit", image_size=16, in_channels=1, num_classes=10, **SIZE)
    load_weights(model, str(file), strict=True)
    return model


def test_a_run_from_a_run_with_fewer_targets_and_another_alpha_resumes_bit_equal_and_is_loaded_as_it_was(tmp_path):
    small_runs.build(str(tmp_path / "base"), *RUN, train_size=64).train()
    words = [*RUN, "TRAIN.LORA.RANK", "4", "TRAIN.LORA.ALPHA", "8", f"-pretrained={tmp_path / 'base'}"]
    small_runs.build(str(tmp_path / "first"), *words, train_size=64).train()
    words = [*RUN, "TRAIN.LORA.RANK", "2", "TRAIN.LORA.ALPHA", "1", "TRAIN.LORA.TARGETS", "[qkv]"]
    words += [f"-pretrained={tmp_path / 'first'}", "TRAIN.MODEL_EMA", "True", "TRAIN.MODEL_EMA_DECAY", "0.5"]
    words += ["SAVE_EVERY_UPDATES", "2"]
    second = small_runs.build(str(tmp_path / "second"), *words, train_size=64)
    second.train()
    folder = tmp_path / "second" / "checkpoints"
    matrices = {f"blocks.{number}.{layer}.weight" for number in (0, 1) for layer in ("attn.proj", "mlp.fc1", "mlp.fc2")}
    assert matrices < read_state(folder / "last").keys()
    np.testing.assert_allclose(outputs(load(folder / "last")), outputs(second.model), rtol=1e-4, atol=1e-5)
    with second.ema.in_place():
        expected = outputs(second.model)
    np.testing.assert_allclose(outputs(load(folder / "last" / "model_ema.pdparams")), expected, rtol=1e-4, atol=1e-5)

    plain = small_runs.build(
        str(tmp_path / "plain"), *RUN, f"-pretrained={tmp_path / 'second'}", "TRAIN.BASE_LR", "1e-9", train_size=64
    )
    plain.train()
    whole = read_state(tmp_path / "plain" / "checkpoints" / "last")
    assert whole.keys() == state(plain.model).keys() and not any(map(is_factor, whole))
    np.testing.assert_allclose(outputs(load(tmp_path / "plain")), expected, rtol=1e-3, atol=1e-4)

    resumed = small_runs.build(str(tmp_path / "on"), *words, f"-resume={folder / 'update_00000002'}", train_size=64)
    resumed.train()
    averages = [{name: tensor.numpy() for name, tensor in run.ema.state_dict().items()} for run in (second, resumed)]
    for expected, found in ((state(second.model), state(resumed.model)), averages):
        assert expected.keys() == found.keys()
        for name, value in expected.items():
            assert np.array_equal(value, found[name]), name


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
