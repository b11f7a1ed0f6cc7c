"""TRAIN.LORA: outputs before training, what is trained and saved, and weights that are merged when they are loaded."""

from pathlib import Path

import numpy as np
import paddle
import pytest
import yaml
from support.networks import small_classifiers
from support.trainings import small_runs

from paddlevit_dist import UserError, create_model, load_weights
from paddlevit_dist.core.checkpoint.low_rank import is_factor
from paddlevit_dist.core.commands.convert import convert
from paddlevit_dist.core.engine.low_rank_layers import add_low_rank_terms
from paddlevit_dist.extensions.cpu_kernels import accelerate

TARGETS = ["qkv", "proj", "mlp"]
SMALL = {"embed_dim": 16, "depth": 3, "num_heads": 2, "patch_size": 8, "num_classes": 5, "image_size": 16}
RUN = ["-batch_size=16", "-epochs=1", "TRAIN.WARMUP_STEPS", "0", "TRAIN.BASE_LR", "1e-2", "VALIDATE_FREQ", "9"]
LORA = ["TRAIN.LORA.RANK", "4", "TRAIN.LORA.ALPHA", "8"]


def images(channels: int = 3) -> paddle.Tensor:
    return paddle.to_tensor(np.random.default_rng(1).standard_normal((2, channels, 16, 16)).astype("float32"))


@pytest.mark.parametrize(
    "name", ["vit_tiny_patch16_224", "deit_tiny_distilled_patch16_224", "swin_tiny_patch4_window7_224"]
)
def test_outputs_do_not_change_until_training_and_terms_and_head_are_trained(name, monkeypatch):
    monkeypatch.setattr(accelerate, "is_available", lambda: False)  # a compiled block rounds otherwise
    model, batch, lines = small_classifiers.build(name), paddle.to_tensor(small_classifiers.IMAGES[:2]), []
    model.eval()
    before = model(batch)
    names = {key for key, _ in model.named_parameters()}
    add_low_rank_terms(model, 2, 4.0, TARGETS, lines.append)
    after = model(batch)
    np.testing.assert_array_equal(before.numpy(), after.numpy())
    trained = {key: p for key, p in model.named_parameters() if not p.stop_gradient}
    assert {key for key in trained if key not in names} == {key for key in trained if is_factor(key)} != set()
    assert all(key.startswith("head") for key in trained if key in names)
    terms, head = (sum(p.size for key, p in trained.items() if is_factor(key) == kind) for kind in (True, False))
    assert lines == [
        f"LoRA: {len(trained) // 2 - 1 - ('head_dist.bias' in trained)} layers have matrices of rank 2 ({terms:,} "
        f"parameters), which are trained with the head ({head:,} parameters)"
    ]
    (after**2).sum().backward()
    for key, p in trained.items():  # each layer that has a term is called
        assert key.endswith("lora_a") or np.abs(p.grad.numpy()).max() > 0, key


def test_a_term_is_the_product_of_its_matrices_times_alpha_over_rank():
    model = create_model("vit", **SMALL)
    add_low_rank_terms(model, 2, 6.0, ["fc1"], lambda line: None)
    layer, draws = model.blocks[1].mlp.fc1, np.random.default_rng(2)
    layer.lora_b.set_value(draws.standard_normal(layer.lora_b.shape).astype("float32"))
    x = draws.standard_normal((3, 16)).astype("float32")
    weight = layer.weight.numpy() + 3.0 * layer.lora_a.numpy() @ layer.lora_b.numpy()
    np.testing.assert_allclose(
        layer(paddle.to_tensor(x)).numpy(), x @ weight + layer.bias.numpy(), rtol=1e-5, atol=1e-5
    )
    assert not hasattr(model.blocks[1].mlp.fc2, "lora_a")


def test_models_that_it_does_not_work_for_are_named_in_one_line():
    with pytest.raises(UserError, match="no linear layers named qkv, proj, mlp in numbered blocks"):
        add_low_rank_terms(create_model("resnet18", num_classes=3), 2, 4.0, TARGETS, print)
    model = create_model("eva02_tiny_patch14_224", depth=3)
    with pytest.raises(UserError, match="separate biases and takes no term; leave qkv out"):
        add_low_rank_terms(model, 2, 4.0, TARGETS, print)
    with pytest.raises(UserError, match="attn.proj_l of this model is computed from its weights and takes no term"):
        add_low_rank_terms(small_classifiers.build("cait_xxs24_224"), 2, 4.0, ["attn"], print)


@pytest.fixture
def base(tmp_path) -> Path:
    """A run whose last weights are the base."""
    small_runs.build(str(tmp_path / "base"), *RUN, train_size=64).train()
    return tmp_path / "base" / "checkpoints" / "last" / "model.pdparams"


def state(model) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def test_a_run_keeps_the_base_saves_little_resumes_bit_equal_and_is_merged_where_it_is_evaluated(tmp_path, base):
    words = [*RUN, *LORA, f"-pretrained={base}", "TRAIN.MODEL_EMA", "True", "SAVE_EVERY_UPDATES", "3"]
    straight = small_runs.build(str(tmp_path / "straight"), *words, train_size=96)
    straight.train()
    before, after = state(load_into_new(base)), state(straight.model)
    for name, value in before.items():
        assert np.array_equal(value, after[name]) == (not name.startswith("head."))
    saved = tmp_path / "straight" / "checkpoints" / "last"
    kept = set(paddle.load(str(saved / "model.pdparams"))) - {"StructuredToParameterName@@"}
    assert {name for name in kept if not is_factor(name)} == {"head.weight", "head.bias"}
    assert all(is_factor(name) or name.startswith("head.") for name in kept)
    assert (saved / "model.pdparams").stat().st_size < 0.5 * base.stat().st_size

    middle = tmp_path / "straight" / "checkpoints" / "update_00000003"
    resumed = small_runs.build(str(tmp_path / "on"), *words, f"-resume={middle}", train_size=96)
    resumed.train()
    for expected, found in ((after, state(resumed.model)), map(averages, (straight, resumed))):
        assert expected.keys() == found.keys()
        for name, value in expected.items():
            assert np.array_equal(value, found[name]), name

    merged = load_into_new(saved / "model.pdparams")
    assert not any(is_factor(name) for name in state(merged))
    assert_equal_outputs(merged, straight.model)
    for file in ("merged.safetensors", "merged.pdparams"):
        convert(str(saved / "model.pdparams"), str(tmp_path / file))
        about = yaml.safe_load((tmp_path / f"{file}.about.yaml").read_text())
        assert "low_rank" not in about and str(tmp_path) not in yaml.safe_dump({**about, "converted_from": None})
        whole = load_into_new(tmp_path / file)
        for name, value in state(merged).items():
            assert np.array_equal(value, state(whole)[name]), name


def averages(run) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in run.ema.state_dict().items()}


def assert_equal_outputs(merged, apart) -> None:
    for model in (merged, apart):
        model.eval()
    np.testing.assert_allclose(merged(images(1)).numpy(), apart(images(1)).numpy(), rtol=1e-4, atol=1e-5)


def load_into_new(file: Path):
    size = {"embed_dim": 32, "depth": 2, "num_heads": 2, "patch_size": 4}
    model = create_model("vit", image_size=16, in_channels=1, num_classes=10, **size)
    load_weights(model, str(file), strict=True)
    return model


def test_another_base_at_that_place_is_refused_and_a_missing_one_too(tmp_path, base):
    small_runs.build(str(tmp_path / "run"), *RUN, *LORA, f"-pretrained={base}", train_size=32).train()
    saved = tmp_path / "run" / "checkpoints" / "last" / "model.pdparams"
    other = {name: tensor + 0.01 for name, tensor in paddle.load(str(base)).items() if hasattr(tensor, "numpy")}
    (base.parent / "manifest.json").unlink()
    (base.parent / "state.json").unlink()
    paddle.save(other, str(base))
    with pytest.raises(UserError, match="was trained by TRAIN.LORA on other weights than .*put the weights that"):
        load_into_new(saved)
    with pytest.raises(UserError, match="was trained by TRAIN.LORA on other weights than .*put the weights that"):
        convert(str(saved), str(tmp_path / "converted.safetensors"))
    base.unlink()
    with pytest.raises(UserError, match="model.pdparams"):
        load_into_new(saved)
    with pytest.raises(UserError, match="TRAIN.LORA.RANK 4 .*name these with -pretrained"):
        small_runs.build(str(tmp_path / "alone"), *RUN, *LORA)
    alone = small_runs.build(str(tmp_path / "alone"), *RUN, *LORA, "-resume=auto", train_size=32)
    with pytest.raises(UserError, match="TRAIN.LORA.RANK: nothing is there to resume: name the frozen weights with"):
        alone.prepare_training()


@pytest.mark.parametrize("pattern", ["blocks.0.*", "*.lora_b", "head.*"])
def test_a_run_with_frozen_matrices_or_head_is_loaded_as_it_was(tmp_path, base, pattern):
    run = small_runs.build(
        str(tmp_path / "run"), *RUN, *LORA, f"-pretrained={base}", "TRAIN.FREEZE", f"[{pattern}]", train_size=32
    )
    run.train()
    assert_equal_outputs(load_into_new(tmp_path / "run" / "checkpoints" / "last" / "model.pdparams"), run.model)
    assert_equal_outputs(create_model(tmp_path / "run", pretrained=True), run.model)
