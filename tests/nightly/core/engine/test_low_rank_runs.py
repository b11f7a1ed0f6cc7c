"""Runs with TRAIN.LORA that start from one another: their checkpoints compute what they did."""

import numpy as np
import paddle
from integration.core.engine.test_low_rank_runs import RUN, SIZE, state
from support.trainings import small_runs

from paddlevit_dist import create_model, load_weights
from paddlevit_dist.core.checkpoint.low_rank import is_factor
from paddlevit_dist.core.checkpoint.weights import read_state


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
    np.testing.assert_allclose(
        outputs(load(folder / "last" / "model.pdparams")), outputs(second.model), rtol=1e-4, atol=1e-5
    )
    with second.ema.in_place():
        expected = outputs(second.model)
    np.testing.assert_allclose(outputs(load(folder / "last")), expected, rtol=1e-4, atol=1e-5)

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
