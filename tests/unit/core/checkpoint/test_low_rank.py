"""Checkpoints of TRAIN.LORA: what they hold, which bases they are loaded with, and what the merged weights are."""

from pathlib import Path

import numpy as np
import paddle
import pytest
import yaml
from paddle import nn
from support.refusals import refusal_of

from paddlevit_dist import UserError, load_weights
from paddlevit_dist.core.checkpoint import load as loading
from paddlevit_dist.core.checkpoint import low_rank
from paddlevit_dist.core.checkpoint.load import count_classes
from paddlevit_dist.core.checkpoint.weights import read_weights
from paddlevit_dist.core.engine.low_rank_layers import add_low_rank_terms
from paddlevit_dist.core.tasks.model import Model
from paddlevit_dist.images.models.bridges import torch_layers

WIDTH = 6


class SmallBlock(nn.Layer):
    def __init__(self, kind: type) -> None:
        super().__init__()
        self.proj = kind(WIDTH, WIDTH)  # square: no shape tells its layout
        self.norm = nn.BatchNorm1D(WIDTH)
        self.wide = kind(WIDTH, 2 * WIDTH)
        self.narrow = kind(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.narrow(nn.functional.relu(self.wide(self.norm(self.proj(x)))))


class SmallNetwork(Model):
    """Two blocks with batch norms, and a head with one."""

    layer_names = r"blocks\.\d+"
    classifier_layers = ("head.1",)

    def __init__(self, kind: type = nn.Linear, num_classes: int = 3) -> None:
        super().__init__()
        self.stem = kind(4, WIDTH)
        self.blocks = nn.LayerList([SmallBlock(kind), SmallBlock(kind)])
        self.head = nn.Sequential(nn.BatchNorm1D(WIDTH), nn.Linear(WIDTH, num_classes))

    def layer_groups(self):
        names = [name for name, _ in self.named_parameters()]
        return [[n for n in names if n.startswith(start)] for start in ("stem", "blocks.0", "blocks.1", "head")]

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def rows(seed: int) -> paddle.Tensor:
    return paddle.to_tensor(np.random.default_rng(seed).standard_normal((16, 4)).astype("float32"))


def state(model: nn.Layer) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def outputs(model: nn.Layer) -> np.ndarray:
    model.eval()
    return model(rows(9)).numpy()


def make_base(folder: Path, kind: type = nn.Linear) -> Path:
    """Weights and statistics that are not the initial ones."""
    model = SmallNetwork(kind)
    model.train()
    model(rows(1))
    paddle.save(model.state_dict(), str(folder / "base.pdparams"))
    return folder / "base.pdparams"


def start(source: Path, scale: float, kind: type = nn.Linear, targets=("proj", "wide", "narrow"), **options):
    """A model with low-rank matrices that starts from ``source``, and its base."""
    model = SmallNetwork(kind, **options)
    add_low_rank_terms(model, 2, 2 * scale, list(targets), lambda line: None)
    return model, load_weights(model, str(source), minimum_loaded=0.5).base


def test_terms_begin_as_nothing_with_inner_weights_of_the_scale_of_their_inputs():
    model = SmallNetwork()
    before = outputs(model)
    add_low_rank_terms(model, 8, 6.0, ["wide", "narrow"], lambda line: None)
    for block in model.blocks:
        for layer in (block.wide, block.narrow):
            (inputs, width), first = layer.weight.shape, layer.lora_a.numpy()
            bound = 1 / np.sqrt(inputs)
            assert first.shape == (inputs, 8) and layer.lora_b.shape == [8, width] and layer.lora_scale == 0.75
            assert -bound <= first.min() < -0.7 * bound and 0.7 * bound < first.max() <= bound
            assert not layer.lora_b.numpy().any()
    np.testing.assert_array_equal(outputs(model), before)


def refuse_terms(model: nn.Layer, targets: list[str]) -> str:
    before = list(state(model))
    message = refusal_of(add_low_rank_terms, model, 3, 1.0, targets, lambda line: None)
    assert list(state(model)) == before
    return message


def test_layers_that_are_not_called_or_not_in_blocks_take_no_terms():
    model, lines = SmallNetwork(), []
    assert refuse_terms(model, ["norm", "stem", "head"]) == (
        "TRAIN.LORA: this model has no linear layers named norm, stem, head in numbered blocks; set TRAIN.LORA.TARGETS "
        "to parts of the names of its layers, or RANK to 0"
    )
    block, told = model.blocks[1], "TRAIN.LORA.TARGETS: blocks.1.{} of this model is computed {} and takes no term; {}"
    block.qkv, block.q_bias = nn.Linear(WIDTH, 3 * WIDTH), block.create_parameter([WIDTH])
    together = told.format("qkv", "together with separate biases", "leave qkv out of wide, qkv")
    assert refuse_terms(model, ["wide", "qkv"]) == together
    block.proj_w = nn.Linear(WIDTH, WIDTH)
    from_weights = told.format("proj_w", "from its weights", "leave proj_w out of proj_w, proj")
    assert refuse_terms(model, ["proj_w", "proj"]) == from_weights
    block.q_bias, block.proj_w = None, torch_layers.Linear(WIDTH, WIDTH)  # which compute as other layers do
    add_low_rank_terms(model, 3, 1.0, ["qkv", "proj_w"], lines.append)
    assert [name for name in state(model) if low_rank.is_factor(name)] == [
        f"blocks.1.{layer}.{factor}" for layer in ("qkv", "proj_w") for factor in ("lora_a", "lora_b")
    ]
    terms = 3 * (WIDTH + 3 * WIDTH) + 3 * (WIDTH + WIDTH)
    assert lines == [
        f"LoRA: 2 layers have matrices of rank 3 ({terms} parameters), which are trained with the head (33 parameters)"
    ]


def train(model: nn.Layer) -> None:
    """Two steps; running statistics move in each."""
    model.train()
    trained = [p for p in model.parameters() if not p.stop_gradient]
    optimizer = paddle.optimizer.AdamW(0.05, parameters=trained)
    for seed in (2, 3):
        (model(rows(seed)) ** 2).sum().backward()
        optimizer.step()
        optimizer.clear_grad()


def save(model: nn.Layer, base, scale: float, folder: Path) -> Path:
    folder.mkdir()
    tensors = state(model)
    held = base.find_changed(tensors)
    paddle.save({name: tensors[name] for name in held}, str(folder / "model.pdparams"))
    (folder / "about.yaml").write_text(yaml.safe_dump({"low_rank": base.describe(held, scale)}))
    return folder / "model.pdparams"


def load(file: Path, kind: type = nn.Linear, strict: bool = True, **options) -> SmallNetwork:
    model = SmallNetwork(kind, **options)
    load_weights(model, str(file), strict=strict)
    return model


@pytest.mark.parametrize("kind", [nn.Linear, torch_layers.Linear])
def test_what_a_model_computes_after_training_is_what_its_checkpoint_computes(tmp_path, kind):
    source, scale = make_base(tmp_path, kind), 3.0
    model, base = start(source, scale, kind)
    statistics = {name for name in state(model) if name.endswith(("_mean", "_variance"))}
    assert all(p.stop_gradient for name, p in model.named_parameters() if name in statistics)
    train(model)
    file = save(model, base, scale, tmp_path / "trained")
    held = set(read_weights(file).state)
    factors = {name for name in state(model) if low_rank.is_factor(name)}
    assert len(factors) == 12 and len(statistics) == 6
    assert held == factors | statistics | {f"head.{part}" for part in ("0.weight", "0.bias", "1.weight", "1.bias")}
    merged = load(file, kind)
    np.testing.assert_allclose(outputs(merged), outputs(model), rtol=1e-5, atol=1e-5)
    matrix, first, second = (state(model)[f"blocks.1.wide.{last}"] for last in ("weight", "lora_a", "lora_b"))
    change = scale * np.einsum("ir,ro->io" if kind is nn.Linear else "ir,ro->oi", first, second)
    np.testing.assert_allclose(state(merged)["blocks.1.wide.weight"], matrix + change, rtol=1e-6, atol=1e-7)
    for name in statistics:
        np.testing.assert_array_equal(state(merged)[name], state(model)[name])

    again = SmallNetwork(kind)  # as a resumed run: the matrices stay apart
    add_low_rank_terms(again, 2, 2 * scale, ["proj", "wide", "narrow"], lambda line: None)
    assert load_weights(again, str(file), strict=True).base == base
    for name, value in state(model).items():
        np.testing.assert_array_equal(state(again)[name], value, err_msg=name)


@pytest.mark.parametrize("kind", [nn.Linear, torch_layers.Linear])
def test_a_run_from_a_checkpoint_with_other_targets_and_scale_starts_and_is_loaded_with_its_outputs(tmp_path, kind):
    first, base = start(make_base(tmp_path, kind), 3.0, kind)
    train(first)
    file = save(first, base, 3.0, tmp_path / "first")
    second, same = start(file, 0.5, kind, targets=["proj"])
    assert same == base
    np.testing.assert_allclose(outputs(second), outputs(first), rtol=1e-5, atol=1e-5)
    saved = save(second, base, 0.5, tmp_path / "untrained")
    np.testing.assert_allclose(outputs(load(saved, kind)), outputs(first), rtol=1e-5, atol=1e-5)
    train(second)
    saved = save(second, base, 0.5, tmp_path / "second")
    assert {f"blocks.0.{layer}.weight" for layer in ("proj", "wide", "narrow")} < set(read_weights(saved).state)
    np.testing.assert_allclose(outputs(load(saved, kind)), outputs(second), rtol=1e-5, atol=1e-5)


def test_a_base_is_refused_if_and_only_if_something_has_changed_that_is_not_held(tmp_path):
    source = make_base(tmp_path)
    model, base = start(source, 1.0)
    train(model)
    file = save(model, base, 1.0, tmp_path / "trained")
    held, before = set(read_weights(file).state), read_weights(source).state
    expected = outputs(load(file))
    for name, value in before.items():
        changed = value.copy()
        changed.flat[-1] = np.nextafter(changed.flat[-1], np.float32(9))
        paddle.save({**before, name: changed}, str(source))
        if name in held:
            np.testing.assert_array_equal(outputs(load(file)), expected)
        else:
            with pytest.raises(UserError, match="was trained by TRAIN.LORA on other weights than .*base.pdparams has"):
                load(file)
    source.unlink()
    with pytest.raises(UserError, match="holds only what TRAIN.LORA changed, and its base cannot be read: no weights"):
        load(file)


def test_what_the_base_lacks_is_held_and_what_only_the_base_has_is_not_missed(tmp_path):
    source = make_base(tmp_path)
    content = read_weights(source).state
    del content["stem.bias"]
    paddle.save({**content, "other.weight": np.ones((2, 2), np.float32)}, str(source))
    model, base = start(source, 1.0, num_classes=5)  # a new classifier
    file = save(model, base, 1.0, tmp_path / "untrained")
    held = {name for name in read_weights(file).state if not low_rank.is_factor(name)}
    assert held == {"stem.bias", "head.1.weight", "head.1.bias"}
    np.testing.assert_allclose(outputs(load(file, num_classes=5)), outputs(model), rtol=1e-6, atol=1e-6)
    for number, (scale, strict) in enumerate([(1.0, True), (0.5, False)]):  # resumed, and a new run from it
        later = SmallNetwork(num_classes=5)
        add_low_rank_terms(later, 2, 2 * scale, ["proj", "wide", "narrow"], lambda line: None)
        same = load_weights(later, str(file), strict=strict).base
        assert same == base and same.unused == ["other.weight"]
        saved = save(later, same, scale, tmp_path / f"later{number}")
        np.testing.assert_allclose(outputs(load(saved, num_classes=5)), outputs(model), rtol=1e-6, atol=1e-6)
    fewer = load(file, strict=False, num_classes=2)  # a new classifier again, as from whole weights
    np.testing.assert_array_equal(state(fewer)["stem.bias"], state(model)["stem.bias"])


def test_a_classifier_that_equals_the_base_is_found_there(tmp_path):
    model, base = start(make_base(tmp_path), 1.0)
    file = save(model, base, 1.0, tmp_path / "untrained")
    weights = read_weights(file)
    assert all(map(low_rank.is_factor, weights.state))
    assert count_classes(SmallNetwork(num_classes=1), weights) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scale": 2.0}, "was trained with 2 as TRAIN.LORA.ALPHA / RANK, and this run has 1: set both as there"),
        ({"targets": ["proj"]}, r"this model does not have blocks\..*lora_"),
        ({"more": True}, "it lacks stem.lora_a"),
    ],
)
def test_a_resumed_run_with_other_matrices_is_refused(tmp_path, change, message):
    scale = change.get("scale", 1.0)
    model, base = start(make_base(tmp_path), scale)
    file = save(model, base, scale, tmp_path / "untrained")
    again = SmallNetwork()
    add_low_rank_terms(again, 2, 2.0, change.get("targets", ["proj", "wide", "narrow"]), lambda line: None)
    if "more" in change:
        again.stem.lora_a = again.create_parameter([4, 2])
    before = state(again)
    with pytest.raises(UserError, match=message):
        load_weights(again, str(file), strict=True)
    for name, value in state(again).items():
        np.testing.assert_array_equal(value, before[name])


@pytest.mark.parametrize("lost", ["blocks.1.wide.weight", "blocks.1.wide.lora_a", "blocks.1.wide.lora_b"])
def test_matrices_without_their_weight_or_one_another_are_refused(tmp_path, lost):
    source = make_base(tmp_path)
    model, base = start(source, 1.0)
    file = save(model, base, 1.0, tmp_path / "untrained")
    weights, other = read_weights(file), SmallNetwork()
    if low_rank.is_factor(lost):
        del weights.state[lost]
    else:
        content = read_weights(source).state
        del content[lost]
        paddle.save(content, str(source))
        held = {**weights.state, "blocks.1.wide.bias": np.zeros(2 * WIDTH, np.float32)}
        weights = weights._replace(state=held)
        record = yaml.safe_load(file.with_name("about.yaml").read_text())
        base = base._replace(digests={key: value for key, value in base.digests.items() if key != lost})
        record["low_rank"]["digest"] = base.digest_rest(held)
        file.with_name("about.yaml").write_text(yaml.safe_dump(record))
    with pytest.raises(UserError, match="has low-rank matrices for the layer blocks.1.wide, which this model lacks$"):
        load_weights(other, weights, strict=True)


def test_a_base_is_named_by_its_whole_path_and_completed_weights_are_in_the_models_layout(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = make_base(tmp_path)
    model, base = start(Path(source.name), 1.0)
    assert base.source == str(source)
    weights = read_weights(save(model, base, 1.0, tmp_path / "untrained"))
    whole, same = loading._complete(SmallNetwork(), weights._replace(in_paddle_layout=False), keep=False)
    assert whole.in_paddle_layout is True and same == base
    assert whole.notices == (*weights.notices, f"matrices of low rank for 6 layers of {source}")


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({}, "no about.yaml next to it says which weights that belongs to"),
        ({"low_rank": {"source": "base", "digest": "0" * 64, "scale": 1.0}}, "about.yaml: .*required field"),
    ],
)
def test_without_a_record_of_the_base_nothing_is_loaded(tmp_path, about, message):
    model, base = start(make_base(tmp_path), 1.0)
    file = save(model, base, 1.0, tmp_path / "untrained")
    file.with_name("about.yaml").write_text(yaml.safe_dump(about))
    with pytest.raises(UserError, match=message):
        load(file)


def test_digests_are_of_shape_and_values_in_float32():
    numbers = np.arange(6, dtype=np.float32)
    assert low_rank.digest(numbers) == low_rank.digest(numbers.astype(np.float16)) != low_rank.digest(numbers[::-1])
    assert low_rank.digest(numbers) != low_rank.digest(numbers.reshape(2, 3))
    assert low_rank.digest(np.array([0.0], np.float32)) != low_rank.digest(np.array([-0.0], np.float32))
    assert low_rank.digest(np.array(7)) != low_rank.digest(np.array(7, np.int32))
    transposed = numbers.reshape(2, 3).T
    assert low_rank.digest(transposed) == low_rank.digest(np.ascontiguousarray(transposed))
