import json
import pickle
import re

import numpy as np
import paddle
import pytest
from PIL import Image
from support.networks.other_names import with_paddlevit_names
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.core.checkpoint.weights import read_state
from paddlevit_dist.core.tasks.model_factory import create_model

SMALL = {"image_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 2, "num_heads": 4}


def small_vit(seed=1, num_classes=10, **options):
    paddle.seed(seed)
    model = create_model("vit", num_classes=num_classes, **{**SMALL, **options})
    model.eval()
    return model


def arrays(model):
    return {name: value.numpy().copy() for name, value in model.state_dict().items()}


def logits(model):
    size = model.patch_embed.image_size
    pixels = np.random.default_rng(0).standard_normal((2, 3, *size)).astype("float32")
    return model(paddle.to_tensor(pixels)).numpy()


def is_linear(name):
    return name.endswith(("qkv.weight", "attn.proj.weight", "fc1.weight", "fc2.weight", "head.weight"))


def in_torch_layout(state):
    return {name: value.T if is_linear(name) else value for name, value in state.items()}


def assert_unchanged(model, before):
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name], err_msg=name)


# Whose weights


@pytest.mark.parametrize(
    "convert, origin",
    [
        (lambda state: state, "timm names, Linear weights (in, out)"),
        (in_torch_layout, "timm names, Linear weights (out, in)"),
        (with_paddlevit_names, "PaddleViT names, Linear weights (in, out)"),
    ],
    ids=["our own", "timm's", "PaddleViT's"],
)
def test_weights_of_each_origin_give_the_same_logits(convert, origin):
    source, model = small_vit(seed=1), small_vit(seed=2)
    assert np.abs(logits(source) - logits(model)).max() > 1e-3
    report = load_weights(model, convert(arrays(source)))
    np.testing.assert_array_equal(logits(model), logits(source))
    assert report.origin == origin and report.loaded_fraction == 1.0
    assert sorted(report.loaded) == sorted(model.state_dict())
    assert report.missing == report.unexpected == report.resized == report.reinitialized == []


def test_square_weights_follow_the_layout_of_the_others():
    source, model = small_vit(seed=1), small_vit(seed=2)
    square = "blocks.0.attn.proj.weight"
    assert source.state_dict()[square].shape == [48, 48]
    load_weights(model, in_torch_layout(arrays(source)))
    np.testing.assert_array_equal(arrays(model)[square], arrays(source)[square])


class OneSquare(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.layer = paddle.nn.Linear(3, 3)


def test_without_a_shape_that_tells_the_container_decides_the_layout(tmp_path):
    weight = np.arange(9, dtype="float32").reshape(3, 3)
    state = {"layer.weight": weight, "layer.bias": np.zeros(3, "float32")}
    paddle.save({name: paddle.to_tensor(value) for name, value in state.items()}, str(tmp_path / "square.pdparams"))
    for source, expected in (
        (state, weight.T),
        ({name: paddle.to_tensor(value) for name, value in state.items()}, weight),
        (tmp_path / "square.pdparams", weight),
    ):
        model = OneSquare()
        load_weights(model, source)
        np.testing.assert_array_equal(model.layer.weight.numpy(), expected)


def test_a_prefix_of_some_names_only_is_kept():
    state = {"module.a": np.ones(2), "b": np.ones(3)}
    report = load_weights(paddle.nn.Linear(1, 1), {**state, "weight": np.ones((1, 1)), "bias": np.ones(1)})
    assert report.unexpected == ["module.a", "b"]


def test_pairs_of_name_and_array_and_paddle_tensors_are_weights():
    model = paddle.nn.Linear(2, 3)
    weight = np.arange(6, dtype="float32").reshape(2, 3)
    load_weights(model, {"weight": ("linear_0.w_0", weight), "bias": paddle.ones([3])}, strict=True)
    np.testing.assert_array_equal(model.weight.numpy(), weight)
    np.testing.assert_array_equal(model.bias.numpy(), np.ones(3))


# Number types, buffers, odd values


def test_bfloat16_weights_are_read_as_the_numbers_they_are(tmp_path):
    model = paddle.nn.Linear(2, 3)
    weight = np.array([[1.0, -2.5, 0.125], [3.0, 1e30, -0.0]], "float32")  # 1e30 is rounded
    saved = {"weight": paddle.to_tensor(weight).astype("bfloat16"), "bias": paddle.zeros([3]).astype("bfloat16")}
    paddle.save(saved, str(tmp_path / "half.pdparams"))
    for source in (tmp_path / "half", saved):
        load_weights(model, source, strict=True)
        assert model.weight.dtype == paddle.float32
        np.testing.assert_allclose(model.weight.numpy(), weight, rtol=2**-7)  # 2.6 cuts, 3.x rounds


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_the_models_dtype_is_kept(dtype):
    model = paddle.nn.Linear(2, 3)
    model.to(dtype=dtype)
    weight = np.arange(6, dtype="float32").reshape(2, 3)
    load_weights(model, {"weight": weight, "bias": np.ones(3, "float32")}, strict=True)
    assert model.weight.dtype == getattr(paddle, dtype) and not model.weight.stop_gradient
    np.testing.assert_array_equal(model.weight.astype("float32").numpy(), weight)


def test_buffers_are_loaded_and_missed_too():
    model = paddle.nn.BatchNorm1D(4)
    state = {name: np.full(4, index + 2.0, "float32") for index, name in enumerate(model.state_dict())}
    assert "_mean" in state
    load_weights(model, state, strict=True)
    np.testing.assert_array_equal(model._mean.numpy(), state["_mean"])
    del state["_variance"]
    with pytest.raises(UserError, match="_variance"):
        load_weights(model, state, strict=True)


@pytest.mark.parametrize("strict", [True, False])
def test_values_that_are_not_finite_are_refused_also_in_buffers(strict):
    model = paddle.nn.BatchNorm1D(4)
    before = arrays(model)
    state = {**arrays(model), "_mean": np.array([0, np.nan, 2, 3], "float32")}
    state["_variance"] = np.array([1, np.inf, -np.inf, 1], "float32")
    message = refusal_of(load_weights, model, {**state, "unused": np.full(2, np.nan)}, strict=strict, allow_unused=True)
    assert message == (
        "the given state: 2 of 16 parameters are NaN or infinite, the first in _mean: its training diverged, or the "
        "file is damaged; use weights saved earlier"
    )
    assert all(np.array_equal(before[name], value) for name, value in arrays(model).items())
    mask = np.array([0, -np.inf, 2, 3], "float32")  # as masks of attention have it
    load_weights(model, {**before, "_mean": mask}, strict=strict)
    np.testing.assert_array_equal(model._mean.numpy(), mask)


# Other sizes


def test_a_position_embedding_is_resized_to_the_models_grid_and_the_rest_taken_over():
    source, model = small_vit(seed=1), small_vit(seed=2, image_size=(48, 80))
    report = load_weights(model, arrays(source), strict=True)
    assert report.resized == ["pos_embed"] and "pos_embed" in report.loaded
    assert report.shapes["pos_embed"] == ((1, 17, 48), (1, 61, 48))
    before, after = arrays(source), arrays(model)
    np.testing.assert_array_equal(after["pos_embed"][:, 0], before["pos_embed"][:, 0])
    channel = Image.fromarray(before["pos_embed"][0, 1:, 5].reshape(4, 4)).resize((10, 6), Image.BICUBIC)
    np.testing.assert_allclose(after["pos_embed"][0, 1:, 5].reshape(6, 10), np.asarray(channel), atol=1e-6)
    assert all((after[name] == before[name]).all() for name in before if name != "pos_embed")


@pytest.mark.parametrize("convert", [lambda state: state, in_torch_layout], ids=["(in, out)", "(out, in)"])
def test_a_classifier_for_other_classes_keeps_its_fresh_weights(convert):
    source, model = small_vit(seed=1), small_vit(seed=2, num_classes=7)
    fresh = arrays(model)
    report = load_weights(model, convert(arrays(source)))
    assert report.reinitialized == ["head.weight", "head.bias"] and report.missing == []
    assert report.loaded_fraction == 1.0
    after = arrays(model)
    assert (after["head.weight"] == fresh["head.weight"]).all() and (after["head.bias"] == fresh["head.bias"]).all()
    np.testing.assert_array_equal(after["norm.weight"], arrays(source)["norm.weight"])


# What is refused


def test_evaluation_needs_every_parameter_and_says_both_numbers_of_classes():
    model = small_vit(seed=2, num_classes=7)
    before = arrays(model)
    with pytest.raises(UserError, match="head.weight .*head.bias.* has 10 classes and the model 7") as caught:
        load_weights(model, arrays(small_vit(seed=1)), strict=True)
    assert "\n" not in str(caught.value)
    assert_unchanged(model, before)


def test_evaluation_names_what_is_missing():
    state = arrays(small_vit(seed=1))
    del state["blocks.1.mlp.fc1.bias"]
    model = small_vit(seed=2)
    before = arrays(model)
    with pytest.raises(UserError, match="it lacks blocks.1.mlp.fc1.bias"):
        load_weights(model, state, strict=True)
    assert_unchanged(model, before)
    assert load_weights(model, state).missing == ["blocks.1.mlp.fc1.bias"]


def test_a_shape_that_does_not_fit_is_missing_with_both_shapes():
    state = arrays(small_vit(seed=1))
    state["norm.weight"] = np.ones(50, "float32")
    model = small_vit(seed=2)
    norm = arrays(model)["norm.weight"]
    report = load_weights(model, state)
    assert report.missing == ["norm.weight"] and report.shapes["norm.weight"] == ((50,), (48,))
    np.testing.assert_array_equal(arrays(model)["norm.weight"], norm)
    total = sum(value.size for value in arrays(model).values())
    assert report.loaded_fraction == pytest.approx((total - 48) / total, abs=1e-9)


def test_weights_of_another_architecture_are_refused_with_share_and_names():
    model = small_vit(seed=2)
    before = arrays(model)
    with pytest.raises(
        UserError, match=r"the given state has only 0.0 % .* at least 90 % .*missing cls_token.*\(1, 1, 96\)"
    ):
        load_weights(model, arrays(small_vit(seed=1, embed_dim=96)))
    with pytest.raises(UserError, match="unexpected a.weight"):
        load_weights(model, {"a.weight": np.ones((3, 4))})
    assert_unchanged(model, before)


@pytest.mark.parametrize(
    "name",
    [
        "vit.layers.0.attention.q_proj.weight",
        "swin.encoder.layers.0.blocks.0.attention.q_proj.weight",
        "segformer.stages.0.patch_embeddings.proj.weight",
    ],
)
def test_what_transformers_5_has_in_memory_is_to_be_saved_by_it(name):
    """Names of ``ViTForImageClassification.state_dict()`` and so on in transformers 5; what it saves has other ones."""
    with pytest.raises(UserError, match="a state_dict.. of transformers 5: save the model with save_pretrained"):
        load_weights(small_vit(seed=2), {name: np.zeros((48, 48), np.float32)})


def test_the_least_share_can_be_set():
    shallow, deep = small_vit(seed=1, depth=1), small_vit(seed=2, depth=2)
    with pytest.raises(UserError, match="blocks.1"):
        load_weights(deep, arrays(shallow))
    report = load_weights(deep, arrays(shallow), minimum_loaded=0.4)
    assert 0.4 < report.loaded_fraction < 0.9 and len(report.missing) == 12


def test_strange_names_stay_on_one_line():
    message = refusal_of(load_weights, small_vit(), {"a\nerror: all is well\x1b[2J" + "x" * 1000: np.ones(2)})
    assert message.isprintable() and len(message) < 800


# The report


def test_the_summary_is_one_line_that_tells_everything():
    source, model = small_vit(seed=1), small_vit(seed=2, num_classes=7, image_size=48)
    report = load_weights(model, {**arrays(source), "extra": np.ones(2)})
    total = len(model.state_dict())
    assert report.summary() == (
        f"loaded {total - 2} of {total} ({total} of {total + 1} entries of the source used), "
        "re-initialized head.weight, head.bias; resized pos_embed (1, 17, 48) -> (1, 37, 48); not used extra"
    )


def test_the_report_becomes_json_with_shapes():
    source, model = small_vit(seed=1), small_vit(seed=2, num_classes=7)
    report = json.loads(load_weights(model, {**arrays(source), "extra": np.ones(2)}).json())
    assert report["reinitialized"][0] == {"name": "head.weight", "source_shape": [48, 10], "model_shape": [48, 7]}
    assert report["unexpected"] == [{"name": "extra", "source_shape": [2], "model_shape": None}]
    assert report["missing"] == [] and len(report["loaded"]) == len(model.state_dict()) - 2


# Paths


@pytest.fixture
def saved(tmp_path):
    model = small_vit(seed=1)
    paddle.save(model.state_dict(), str(tmp_path / "vit_small.v2.pdparams"))
    return model, tmp_path


def test_a_path_works_with_and_without_its_extension_and_as_text(saved):
    model, folder = saved
    expected = arrays(model)
    for path in (folder / "vit_small.v2.pdparams", folder / "vit_small.v2", str(folder / "vit_small.v2")):
        state = read_state(path)
        assert list(state) == list(expected)
        assert all((state[name] == expected[name]).all() for name in expected)


def test_a_checkpoint_directory_means_the_weights_in_it(saved):
    model, folder = saved
    checkpoint = folder / "checkpoints" / "epoch_0004"
    checkpoint.mkdir(parents=True)
    (folder / "vit_small.v2.pdparams").rename(checkpoint / "model.pdparams")
    assert list(read_state(checkpoint)) == list(model.state_dict())
    assert list(read_state(folder)) == list(model.state_dict())  # a run's folder means its checkpoint
    (checkpoint / "model.pdparams").unlink()
    with pytest.raises(UserError, match="epoch_0004 contains no model.pdparams.*is empty"):
        read_state(folder)


def test_a_checkpoint_of_a_run_is_called_its_own(saved):
    _, folder = saved
    assert load_weights(small_vit(seed=2), folder / "vit_small.v2").origin.startswith("timm names")
    (folder / "state.json").write_text("{}")  # as beside a run's weights
    assert load_weights(small_vit(seed=2), folder / "vit_small.v2").origin == "a checkpoint of this package"
    wider = small_vit(seed=2, num_classes=11)  # whose shapes do not all fit
    assert load_weights(wider, folder / "vit_small.v2").origin == "a checkpoint of this package"


def test_a_saved_file_loads_into_a_model_and_gives_its_logits(saved):
    source, folder = saved
    model = small_vit(seed=2)
    report = load_weights(model, folder / "vit_small.v2", strict=True)
    assert report.source == str(folder / "vit_small.v2.pdparams")
    np.testing.assert_array_equal(logits(model), logits(source))


def test_a_missing_file_is_said_with_what_was_tried_and_similar_names(saved):
    _, folder = saved
    with pytest.raises(
        UserError, match=r"tried .*vit_smal, .*vit_smal.pdparams\): similar names .* vit_small.v2.pdparams"
    ):
        read_state(folder / "vit_smal")
    with pytest.raises(UserError, match="the folder .*absent does not exist"):
        read_state(folder / "absent" / "vit")


@pytest.mark.parametrize("extension, can_be_evaluated", [(".onnx", True), (".h5", False), (".pdmodel", True)])
def test_formats_that_are_not_read_are_named(tmp_path, extension, can_be_evaluated):
    path = tmp_path / f"weights{extension}"
    path.write_bytes(b"anything")
    line = refusal_of(read_state, path)
    message, _, advice = line.partition("; ")
    assert message.startswith(f"{path}: {extension} files are not read, only .pdparams, .safetensors, .npz, .pth")
    assert advice == (f"evaluate it with EXPORTED={path}" if can_be_evaluated else "")


@pytest.mark.parametrize("content", [{"epoch": 3}, {}, [1, 2], 5, {"model": {"lr": 0.1}}])
def test_a_file_without_arrays_is_refused(tmp_path, content):
    (tmp_path / "empty.pdparams").write_bytes(pickle.dumps(content, 4))
    with pytest.raises(UserError, match="empty.pdparams contains"):
        read_state(tmp_path / "empty")


def test_wrappers_inside_themselves_end(tmp_path):
    state = {"epoch": 1}
    state["model"] = state
    (tmp_path / "loop.pdparams").write_bytes(pickle.dumps(state, 4))
    with pytest.raises(UserError, match="contains no weights"):
        read_state(tmp_path / "loop")


@pytest.mark.parametrize(
    "file, beside, said",
    [
        (
            "weights.pdparams",
            {"MODEL": {"NAME": "swin_tiny"}},
            "It is from a run with MODEL.NAME swin_tiny: use that run",
        ),
        ("vit_tiny_patch16_224.pdparams", None, "Its name suggests MODEL.NAME vit_tiny_patch16_224"),
        ("weights.pdparams", None, "Is it for another architecture?"),
    ],
    ids=["config.yaml", "name", "nothing"],
)
def test_weights_of_another_model_say_of_which_as_far_as_it_is_known(file, beside, said, tmp_path):
    if beside is not None:
        (tmp_path / "config.yaml").write_text(json.dumps(beside))
    paddle.save(paddle.nn.Linear(2, 2).state_dict(), str(tmp_path / file))
    for strict in (True, False):
        with pytest.raises(UserError, match=re.escape(said)):
            load_weights(paddle.nn.Conv1D(3, 3, 3), tmp_path / file, strict=strict)
