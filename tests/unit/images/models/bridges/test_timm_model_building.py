"""What the bridge does with networks of timm that lack something: an option, or groups of their layers."""

import json
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import paddle
import pytest
from paddle import nn
from support.networks.timm_zoo import needs_compat
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.core.engine.optimizer import block_matrices, decay_groups, layer_decay_groups
from paddlevit_dist.core.settings import load
from paddlevit_dist.images.expected_input import find_expected_input
from paddlevit_dist.images.models.bridges import timm_model
from paddlevit_dist.images.models.bridges.timm_model import TimmModel, _create, _pyramid

PYTHON = "RefusingNetwork.__init__() got an unexpected keyword argument '{}'"
PYTHON_NEAR = PYTHON + ". Did you mean 'size'?"
TIMM = "RefusingNetwork.__init__() got unexpected keyword argument(s): ['{}']"


def timm_that_refuses(words, *names):
    """Return a package whose only network refuses one of these options at a time, or all at once in timm's words."""

    def create_model(name, **options):
        refused = [option for option in names if option in options]
        if refused:
            raise TypeError(words.format("', '".join(refused) if words == TIMM else refused[0]))
        return SimpleNamespace(options=options)

    models = SimpleNamespace(model_entrypoint=lambda name: create_model)
    return SimpleNamespace(create_model=create_model, models=models)


class RefusingNetwork:
    """Has these options."""

    def __init__(self, size, depth):
        raise NotImplementedError


@pytest.mark.parametrize("words", [PYTHON, PYTHON_NEAR, TIMM])
def test_a_network_that_takes_no_size_is_built_without_one(words):
    timm = timm_that_refuses(words, "img_size", "dynamic_img_size", "dynamic_img_pad")
    arguments = {"num_classes": 3, "img_size": (64, 64), "dynamic_img_size": True, "dynamic_img_pad": True}
    assert _create(timm, "x", arguments).options == {"num_classes": 3}


@pytest.mark.parametrize("words", [PYTHON, PYTHON_NEAR, TIMM])
def test_another_option_that_a_network_refuses_is_named(words):
    timm = timm_that_refuses(words, "drop_path_rate", "img_size")
    with pytest.raises(UserError, match="'timm:x' has no option 'drop_path_rate': valid options: size, depth$"):
        _create(timm, "x", {"num_classes": 3, "img_size": (64, 64), "drop_path_rate": 0.1})


@pytest.mark.parametrize("message", ["missing a required argument: 'depth'", PYTHON.format("inner")])
def test_other_type_errors_stay(message):
    def create_model(name, **options):
        raise TypeError(message)

    with pytest.raises(TypeError, match=message.partition("(")[0]):
        _create(SimpleNamespace(create_model=create_model), "x", {"img_size": (64, 64)})


class UngroupedNetwork(nn.Layer):
    """Thirteen layers with two parameters each, one a batch norm, and a classifier; without ``group_matcher``."""

    def __init__(self, classifier):
        super().__init__()
        self.num_features, self.pretrained_cfg = 4, {"classifier": classifier}
        layers = [nn.Linear(4, 4) for _ in range(12)]
        self.layers = nn.LayerList([*layers[:3], nn.BatchNorm1D(4), *layers[3:]])
        self.head = nn.Linear(4, 3)


@needs_compat
def test_layers_without_groups_are_grouped_as_timm_does():
    """timm 1.0's ``auto_group_layers``: twelve parameters a group in their order, without statistics; then the head."""
    model = TimmModel(UngroupedNetwork("head"), 3, (8, 8), 3)
    groups = model.layer_groups()
    assert sorted(sum(groups, [])) == sorted(name for name, _ in model.named_parameters())
    counts = [[name for name in group if not name.endswith(("_mean", "_variance"))] for group in groups]
    assert [len(names) for names in counts] == [12, 12, 2, 2]
    assert groups[0][0] == "layers.0.weight" and groups[0][-1] == "layers.5.bias"
    assert groups[-1] == ["head.weight", "head.bias"]
    assert {"layers.3._mean", "layers.3._variance"} < set(groups[0])


@needs_compat
def test_such_a_network_has_rates_by_layer_and_matrices():
    model = TimmModel(UngroupedNetwork("head"), 3, (8, 8), 3)
    rates = layer_decay_groups(decay_groups(model, 0.05), model.layer_groups(), 0.5)
    by_name = {name: group["learning_rate"] for group in rates for name in group["names"]}
    assert by_name["layers.0.weight"] == 0.125 and by_name["layers.12.bias"] == 0.5 and by_name["head.bias"] == 1.0
    assert block_matrices(model) == [f"layers.{number}.weight" for number in range(6, 13)]
    assert model.recomputed_layers() == []


@needs_compat
def test_without_a_classifier_there_is_one_group():
    model = TimmModel(UngroupedNetwork(None), 3, (8, 8), 3)
    with pytest.raises(UserError, match="TRAIN.LAYER_DECAY: this model's parameters have no numbered blocks"):
        layer_decay_groups(decay_groups(model, 0.05), model.layer_groups(), 0.5)


@needs_compat
def test_stages_without_groups_cannot_be_frozen():
    model = TimmModel(UngroupedNetwork("head"), 3, (8, 8), 3)
    with pytest.raises(UserError, match="does not name its stages: remove frozen_stages"):
        model.freeze(batch_norms=False, stages=1)
    assert not any(parameter.stop_gradient for name, parameter in model.named_parameters() if "layers.0" in name)


class Network(nn.Layer):
    """Says what it is asked; groups its layers as timm's networks do."""

    num_features, head_hidden_size, pretrained_cfg = 6, 5, {"classifier": ("head", "head_dist")}
    feature_info = [{"reduction": 2 ** (level + 1), "num_chs": 10 * level} for level in range(5)]

    def __init__(self):
        super().__init__()
        self.stem, self.blocks = nn.Linear(3, 3), nn.LayerList([nn.Linear(3, 3), nn.Linear(3, 3)])
        self.norm, self.bare = nn.BatchNorm1D(3), nn.BatchNorm1D(3, weight_attr=False, bias_attr=False)
        self.head, self.asked, self.outputs = nn.Linear(3, 2), [], "logits"

    def group_matcher(self, coarse):
        return {"stem": "^stem", "blocks": [(r"^blocks\.(\d+)$", None), (r"^norm", (9,))]}

    def forward(self, x):
        self.asked.append((x, self.training))
        return self.outputs

    def forward_features(self, x):
        return ("features", x, self.training)

    def forward_head(self, x, pre_logits):
        return ("head", x, pre_logits)

    def forward_intermediates(self, x, **options):
        if isinstance(self.outputs, Exception):
            raise self.outputs
        return (x, options)

    def reset_classifier(self, number):
        self.asked.append(number)

    def no_weight_decay(self):
        return {"stem.weight", "absent"}

    def set_distilled_training(self, is_distilled):
        self.asked.append(is_distilled)


@pytest.fixture
def plain(monkeypatch):
    """The bridge of such a network, on values in place of tensors."""
    model = TimmModel(Network(), 2, (8, 8), 3, is_dilated=True)
    monkeypatch.setattr(model, "_apply_changes", lambda outputs: outputs)
    monkeypatch.setattr(model, "_forget_changes", lambda: model.network.asked.append("forgotten"))
    return model


@needs_compat
def test_outputs_are_logits_and_with_a_teacher_both_in_training(plain):
    network = plain.network
    assert plain("x") == "logits" and network.asked == ["forgotten", ("x", True)]
    plain.training = False
    assert plain.forward_features("x") == ("head", ("features", "x", False), True)
    network.outputs = ["first", "second"]
    assert plain("x") == "first"
    plain.training = True
    assert plain("x") == "first"
    plain.learn_from_teacher()
    assert network.asked[-1] is True and plain("x") == ("first", "second")
    plain.training = False
    assert plain("x") == "first"
    plain.reset_classifier(7)
    assert plain.num_classes == network.asked[-1] == 7
    without = TimmModel(UngroupedNetwork("head"), 3, (8, 8), 3)
    without.learn_from_teacher()
    assert without._has_teacher is False and without.no_weight_decay() == ()


@needs_compat
def test_facts_of_a_network_are_those_of_timm(plain):
    assert (plain.embed_dim, plain.classifier_layers) == (5, ("head", "head_dist"))
    assert (plain.feature_strides, plain.feature_channels) == ((4, 8, 16, 32), (10, 20, 30, 40))
    assert plain.class_layout("head.weight") == (1, 0, 0, 0) and plain.no_weight_decay() == ("stem.weight",)
    other = TimmModel(UngroupedNetwork("head"), 3, (8, 8), 3)
    assert (other.embed_dim, other.classifier_layers, other.feature_strides) == (4, ("head",), ())
    assert plain.recomputed_layers() == list(plain.network.blocks)
    plain.network.group_matcher = lambda coarse: {"blocks": r"^blocks\.(\d+)"}
    assert plain.recomputed_layers() == list(plain.network.blocks)
    plain.network.blocks[1] = nn.BatchNorm1D(3)
    assert plain.recomputed_layers() == []
    plain.network.blocks[1] = nn.Linear(3, 3)
    plain.network.group_matcher = lambda coarse: [("stem", None)]
    assert plain.recomputed_layers() == []


@needs_compat
def test_maps_are_asked_for_by_level_or_refused(plain):
    x = paddle.zeros([1, 3, 7, 9])
    plain.norm_features = True
    options = {"indices": [1, 2, 3, 4], "norm": True, "output_fmt": "NCHW", "intermediates_only": True}
    assert plain.feature_maps(x) == (x, options)
    plain.network.outputs = AssertionError("no\n multiple of 4" + "." * 300)
    message = refusal_of(plain.feature_maps, x)
    reason = ("no multiple of 4" + "." * 300)[:200]
    said = f"this model of timm cannot compute maps of 7 x 9 pixels: choose another one ({reason})"
    assert message == said
    with pytest.raises(UserError, match="TimmModel has no feature maps"):
        TimmModel(UngroupedNetwork("head"), 3, (8, 8), 3).feature_maps(x)


@needs_compat
def test_stages_and_batch_norms_are_frozen(plain, monkeypatch):
    asked, models = [], ModuleType("timm.models")
    groups = {2: ["stem.bias", "head.bias"], 1: ["stem.weight"], 3: ["head.weight"]}
    models.group_parameters = lambda network, matcher: groups
    monkeypatch.setitem(sys.modules, "timm", ModuleType("timm"))
    monkeypatch.setitem(sys.modules, "timm.models", models)
    plain.network.group_matcher = lambda coarse: asked.append(coarse)

    def list_fixed():
        statistics = ("_mean", "_variance")
        return [name for name, each in plain.named_parameters() if each.stop_gradient and not name.endswith(statistics)]

    plain.freeze(False, 0)
    assert list_fixed() == [] and not plain.network.norm._use_global_stats and asked == []
    plain.freeze(False, 2)
    assert sorted(list_fixed()) == ["head.bias", "stem.bias", "stem.weight"] and asked == [True]
    plain.freeze(True, 0)
    assert plain.network.norm._use_global_stats and plain.network.bare._use_global_stats
    assert {"norm.weight", "norm.bias"} < set(list_fixed()) and "head.weight" not in list_fixed()


@pytest.mark.parametrize(
    "reductions, is_dilated, expected",
    [
        (None, False, []),
        ([2, 4, 4, 8, 16, 32], False, [2, 3, 4, 5]),
        ([32, 16, 8, 4, 2], False, [3, 2, 1, 0]),
        ([2, 4, 8, 8, 8], True, [1, 2, 3, 4]),
        ([16] * 12, False, [2, 5, 8, 11]),
        ([16] * 4, False, [0, 1, 2, 3]),
        ([16] * 3, False, [2]),
    ],
)
def test_a_pyramid_has_the_last_map_of_each_stride(reductions, is_dilated, expected):
    info = reductions and [{"reduction": stride, "num_chs": 7 + at} for at, stride in enumerate(reductions)]
    assert list(_pyramid(info, is_dilated)) == [(at, reductions[at], 7 + at) for at in expected]


@pytest.fixture
def timm(monkeypatch):
    """A package with the network "net" and its weights."""
    facts = SimpleNamespace(num_classes=21, input_size=(3, 48, 64), hf_hub_id=None, url="", tag="", architecture="net")
    created = []
    package = SimpleNamespace(
        __version__="1.2",
        is_model=lambda name: name in ("net", "vit_tiny_patch16_224", "vit_of_nobody"),
        list_models=lambda: ["net", "nest", "vit_tiny_patch16_224"],
        list_pretrained=lambda pattern="": ["net.a", "net.b"] if pattern in ("", "net.*") else [],
        get_pretrained_cfg=lambda name: facts if name in ("net", "net.b") else None,
        models=SimpleNamespace(is_model_in_modules=lambda name, modules: name != "net" and "vit" not in modules),
        create_model=lambda name, **options: created.append((name, options)) or Network(),
        facts=facts,
        created=created,
    )
    monkeypatch.setattr(timm_model, "load_timm", lambda: package)
    monkeypatch.setattr(timm_model, "_pretrained_cfg", timm_model._pretrained_cfg.__wrapped__)
    return package


@needs_compat
def test_options_of_backbones_become_timm_s(timm):
    built = TimmModel.build("timm:net", 5, dropout=0.0, drop_path=0.25, depth=3)
    assert timm.created == [("net", {"num_classes": 5, "drop_path_rate": 0.25, "depth": 3})]
    assert (built.image_size, built.in_channels, built.num_classes, built.norm_features) == ((48, 64), 3, 5, False)
    options = {"in_channels": 1, "dropout": 0.5, "any_size": True, "dilation": 2, "norm_features": True}
    built = TimmModel.build("timm:net", 0, 96, **options, frozen_batch_norm=True)
    dynamic = {"dynamic_img_size": True, "dynamic_img_pad": True}
    expected = {"num_classes": 0, "in_chans": 1, "drop_rate": 0.5, "output_stride": 8, "img_size": (96, 96), **dynamic}
    assert timm.created[1] == ("net", expected) and (built.in_channels, built.norm_features) == (1, True)
    assert built.network.norm._use_global_stats and built._levels == [1, 2, 3, 4]
    assert TimmModel.build("timm:net", 0, [32, 40], dilation=1).image_size == (32, 40)
    assert timm.created[2][1]["output_stride"] == 16 and TimmModel.default_classes("timm:net") == 21
    plain = {"any_size": False, "dilation": 0, "frozen_batch_norm": False, "frozen_stages": 0, "norm_features": False}
    assert TimmModel.options() == {"in_channels": 3, "dropout": 0.0, "drop_path": 0.0, **plain}


def test_names_of_models_and_weights_are_timm_s(timm):
    assert timm_model.list_names("timm") == [
        f"timm:{name}" for name in ("nest", "net", "net.a", "net.b", "vit_tiny_patch16_224")
    ]
    timm.facts.to_dict = lambda: {"mean": 3}
    assert timm_model.get_expected_input("timm:net.b") == {"mean": 3}
    with pytest.raises(UserError, match="^timm:net.c: timm has no such weights of net: expected one of the tags a, b$"):
        timm_model.get_expected_input("timm:net.c")
    with pytest.raises(UserError, match="^timm:vit_tiny_patch16_224.c: .*: expected one of the tags none$"):
        timm_model.get_expected_input("timm:vit_tiny_patch16_224.c")
    with pytest.raises(UserError, match="^timm 1.2 has no model 'nets': did you mean net, nest[?]"):
        timm_model.get_expected_input("timm:nets")


def test_images_are_those_that_timm_or_a_file_beside_the_weights_describes(timm, tmp_path, hub):
    asked, described = (
        [],
        {"mean": (0.1, 0.2, 0.3), "std": (0.4, 0.5, 0.6), "crop_pct": 0.75, "input_size": (3, 48, 48)},
    )
    timm.facts.to_dict, timm.facts.hf_hub_id = lambda: described, "timm/net.b"
    hub.beside["/timm/net.b/resolve/main/config.json"] = json.dumps({**described, "crop_pct": 0.5}).encode()
    timm.get_pretrained_cfg = lambda name: asked.append(name) or timm.facts

    def find_input(pretrained):
        expected, source, _ = find_expected_input(load([*words, f"-pretrained={pretrained}"]).values)
        return expected.mean, expected.crop_pct, expected.image_size, source

    words = ["-dataset=folder", "MODEL.NAME", "timm:net"]
    assert find_input("timm:net.b") == (described["mean"], 0.75, 48, "timm:net.b") and set(asked) == {"net.b"}
    assert find_input("timm:net.b#sha256=0")[1:] == (0.75, 48, "timm:net.b") and hub.requests == []
    (tmp_path / "model.safetensors").touch()
    for model, crop, source in (("net", 0.875, str(tmp_path / "config.json")), ("nest", 0.75, "timm:net")):
        about = {"architecture": model, "pretrained_cfg": {**described, "crop_pct": 0.875}}
        (tmp_path / "config.json").write_text(json.dumps(about))
        assert find_input(tmp_path) == (described["mean"], crop, 48, source)
    assert set(asked) == {"net.b", "net"}


def test_weights_are_at_an_address(timm):
    with pytest.raises(UserError, match="^timm:net: timm names no weights for it: give a file"):
        timm_model.find_address("timm:net")
    for changed, address in (
        ({"url": "https://host/net.pth"}, "https://host/net.pth"),
        ({"hf_hub_id": "owner/repository"}, "hf:owner/repository"),
        ({"hf_hub_id": "timm/"}, "hf:timm/net"),
        ({"tag": "b"}, "hf:timm/net.b"),
    ):
        vars(timm.facts).update(changed)
        assert timm_model.find_address("timm:net") == address


def test_what_was_not_compared_or_is_slower_is_told(timm):
    compare = "no model of this file of timm has been compared with PyTorch here: compare its logits first"
    assert TimmModel.list_notices("timm:net") == [f"timm:net: {compare}"]
    faster = "ours is 1.8 times as fast on a CPU: MODEL.NAME vit_tiny_patch16_224"
    assert TimmModel.list_notices("timm:vit_tiny_patch16_224") == [faster]
    assert TimmModel.list_notices("timm:vit_of_nobody") == []  # not one of ours


@needs_compat
def test_weights_of_another_size_are_converted_by_timm_and_told(plain, monkeypatch):
    asked = []

    def resize(tensors, network):
        asked.append((sorted(tensors), network, {tensor.dtype for tensor in tensors.values()}))
        return {**tensors, "stem.weight": tensors["stem.weight"][:3] * 2.0}

    state = {name: tensor.numpy() for name, tensor in plain.state_dict().items()}
    convert = plain.key_maps["timm"]
    monkeypatch.setitem(globals(), "checkpoint_filter_fn", resize)
    assert convert(state).keys() == state.keys() and asked == []  # they fit as they are
    assert plain.list_source_notices("timm", state) == []
    larger = {**state, "stem.weight": np.arange(15, dtype=np.float32).reshape(5, 3)}
    found = convert(larger)
    np.testing.assert_array_equal(found["stem.weight"], 2 * larger["stem.weight"][:3])
    [(names, network, dtypes)] = asked
    assert network is plain.network and dtypes == {paddle.float32}
    assert "norm.running_mean" in names and "norm._mean" not in names and found.keys() == state.keys()
    assert plain.list_source_notices("timm", state) == ["resized by timm: stem.weight (5, 3) -> (3, 3)"]
    assert convert({**state, "head.bias": state["head.bias"]}).keys() == state.keys()
    assert plain.list_source_notices("timm", state) == []
    assert convert({**larger, "logit_scale": np.array(2.5, np.float32)})["logit_scale"].shape == ()
    asked.clear()
    missing = {name: value for name, value in larger.items() if name != "head.bias"}
    assert convert(missing).keys() == missing.keys() and len(asked) == 1
    monkeypatch.delitem(globals(), "checkpoint_filter_fn")
    assert convert(larger)["stem.weight"].shape == (5, 3)


@needs_compat
def test_weights_that_timm_cannot_convert_are_one_line(plain, monkeypatch):
    def fail(tensors, network):
        raise RuntimeError("shapes\ndiffer")

    monkeypatch.setitem(globals(), "checkpoint_filter_fn", fail)
    with pytest.raises(
        UserError, match="cannot be converted to this image size or model: .*RuntimeError: shapes differ"
    ):
        plain.key_maps["timm"]({})


@needs_compat
def test_groups_are_in_the_order_of_timms_numbers(plain, monkeypatch):
    asked, models = [], ModuleType("timm.models")
    models.group_parameters = lambda *words: asked.append(words) or {10: ["c"], 2: ["b", "a"], 0: ["d"]}
    monkeypatch.setitem(sys.modules, "timm", ModuleType("timm"))
    monkeypatch.setitem(sys.modules, "timm.models", models)
    plain.network.group_matcher = lambda coarse: f"coarse {coarse}"
    assert plain.layer_groups() == [["d"], ["b", "a"], ["c"]]
    assert asked == [(plain.network, "coarse False")]


def test_timm_is_refused_where_it_is_missing_or_torchs_or_paddle_is_too_old(monkeypatch, module_specs):
    load = timm_model.load_timm.__wrapped__
    if hasattr(paddle, "compat"):
        monkeypatch.setitem(sys.modules, "timm", ModuleType("timm"))
        module_specs["timm"] = SimpleNamespace(submodule_search_locations=["folder"])
        with pytest.raises(UserError, match="this program has imported timm with PyTorch: build models of timm"):
            load()
        for missing in (None, SimpleNamespace(submodule_search_locations=None)):
            module_specs["timm"] = missing
            with pytest.raises(UserError, match=r"models of timm need the package timm: pip install --no-deps 'timm"):
                load()
        monkeypatch.delattr(paddle, "compat")
    with pytest.raises(UserError, match=rf"need Paddle 3\.3 or newer, and this is {paddle.__version__}: upgrade"):
        load()


@pytest.mark.parametrize("arguments", [{}, {"dynamic_img_size": True, "dynamic_img_pad": True}])
@pytest.mark.parametrize(
    ("patches", "pads"),
    [
        ({"strict_img_size": True, "img_size": (224, 224)}, None),
        ({"strict_img_size": False, "dynamic_img_pad": False}, True),
        ({"dynamic_img_pad": False}, True),
        ({}, False),
    ],
)
def test_backbones_take_images_of_any_size_or_are_refused(arguments, patches, pads):
    network = SimpleNamespace(patch_embed=SimpleNamespace(**patches))
    timm = SimpleNamespace(create_model=lambda name, **options: network)
    if arguments and pads is None:
        with pytest.raises(UserError, match=r"'timm:x' takes images of \(224, 224\) pixels only: choose another"):
            _create(timm, "x", arguments)
        return
    assert _create(timm, "x", arguments) is network
    expected = bool(arguments and pads)
    assert getattr(network.patch_embed, "dynamic_img_pad", False) == expected
