"""Which entries of a file are a network's parameters: its own names come first, whatever the layers are called."""

import numpy as np
import paddle
import pytest
from paddle import nn
from support.networks.other_names import in_torch_layout, small

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint import naming
from paddlevit_dist.core.checkpoint.entries import RANKING
from paddlevit_dist.core.checkpoint.load import load_weights, rename_for
from paddlevit_dist.core.checkpoint.weights import SourceWeights, read_weights, weights_from_mapping
from paddlevit_dist.core.tasks.model import Model

NAMES = [
    *("net", "model", "backbone", "network", "module", "_layers", "_orig_mod", "teacher", "student", "ema", "encoder"),
    *("state_dict", "model_ema", "weights", "params", "head", "bn", "running_mean", "lora_a", "pretraining_net"),
    *("net.net", "model.module", "module.model.net", "students.0.net", "lora.lora_b"),
]


class Wrapper(nn.Layer):
    """A network whose layers all lie in the attribute ``path``, whose words are attributes of attributes."""

    def __init__(self, path: str, width: int = 3):
        super().__init__()
        first, _, rest = path.partition(".")
        layers = [nn.Conv2D(2, 4, 3), nn.BatchNorm2D(4), nn.Flatten(), nn.Linear(4, width)]
        inner = Wrapper(rest, width) if rest else nn.Sequential(*layers)
        self._sub_layers[first] = nn.LayerList([inner]) if first == "students" else inner


def arrays(model):
    return {name: value.numpy() for name, value in model.state_dict().items()}


def assert_equal(model, expected):
    for name, value in arrays(model).items():
        np.testing.assert_array_equal(value, expected[name], name)


@pytest.mark.parametrize("path", NAMES)
def test_a_networks_own_names_are_its_own_whatever_they_are(path, tmp_path):
    source, model, file = Wrapper(path), Wrapper(path), str(tmp_path / "own.pdparams")
    expected = arrays(source)
    paddle.save(source.state_dict(), file)
    report = load_weights(model, file, strict=True)
    assert_equal(model, expected)
    assert report.unexpected == [] and list(rename_for(model, read_weights(file))) == list(expected)
    in_wrappers = {"model": {f"module.{name}": value for name, value in source.state_dict().items()}, "epoch": 1}
    for state in (source.state_dict(), in_wrappers):
        again = Wrapper(path)
        load_weights(again, state, strict=True)
        assert_equal(again, expected)
    wider = Wrapper(path, 5)  # another last layer: all other parameters are found
    assert len(load_weights(wider, file, minimum_loaded=0.5).missing) == 2


@pytest.mark.parametrize("prefix", ["module", "_orig_mod.module", "my_own_network", "model.backbone", "a.b.c"])
def test_a_prefix_is_what_most_entries_have_and_one_foreign_entry_is_told(prefix):
    source, model = Wrapper("net"), Wrapper("net")
    state = {f"{prefix}.{name}": value for name, value in arrays(source).items()}
    report = load_weights(model, weights_from_mapping({**state, "loss.weight": np.ones(2)}), strict=True)
    assert_equal(model, arrays(source))
    assert report.unexpected == ["loss.weight"] and "not used loss.weight" in report.summary()
    with pytest.raises(UserError, match="belongs to another network: this model does not have more.weight"):
        load_weights(model, {**state, f"{prefix}.more.weight": np.ones(2)}, strict=True)


def two_networks(first, second):
    ours = Wrapper("net"), Wrapper("net")
    return ours, {
        f"{name}.{key}": value for name, one in zip((first, second), ours) for key, value in arrays(one).items()
    }


def test_of_student_and_teacher_the_teacher_is_taken_and_told_and_a_part_selects_the_other():
    (student, teacher), state = two_networks("student.body", "teacher.body")
    model = Wrapper("net")
    report = load_weights(model, state, strict=True)
    assert_equal(model, arrays(teacher))
    assert report.notices[0].startswith(
        "'teacher.body' of the source was used; it also has 'student.body' (MODEL.PRETR"
    )
    load_weights(model, state, strict=True, part="student")
    assert_equal(model, arrays(student))


def test_of_two_networks_without_a_rank_one_has_to_be_chosen():
    (_, right), state = two_networks("left", "right")
    model = Wrapper("net")
    with pytest.raises(
        UserError, match="weights of several networks, 'left', 'right': choose one with MODEL.PRETRAINED_P"
    ):
        load_weights(model, state)
    load_weights(model, state, strict=True, part="right")
    assert_equal(model, arrays(right))


def of_dino(names, prefix, head):
    """Give a state the names of DINO's training, with a ``head`` beside the backbone."""
    beside = {f"{head}.{layer}": np.ones((6, 5), "float32") for layer in ("mlp.0.weight", "last_layer.weight_v")}
    return {
        f"{prefix}{name}": value for name, value in {**{f"backbone.{n}": v for n, v in names.items()}, **beside}.items()
    }


def published_layouts(student, teacher):
    """Both networks as DINO, iBOT, DINOv2 and Lightning store them."""
    ours = in_torch_layout(teacher)
    chunks = {f"blocks.0.{name[7:]}" if name.startswith("blocks.") else name: value for name, value in ours.items()}
    dino = {"student": of_dino(in_torch_layout(student), "module.", "head"), "teacher": of_dino(ours, "", "head")}
    inside = {**of_dino(in_torch_layout(student), "student.", "head"), **of_dino(ours, "teacher.", "head")}
    return {
        "DINO": {
            **dino,
            "optimizer": {"state": {}},
            "epoch": 3,
            "dino_loss": {"center": np.zeros((1, 6))},
            "args": None,
        },
        "iBOT": {**dino, "ibot_loss": {"center": np.zeros((1, 6)), "center2": np.zeros((1, 6))}},
        "DINOv2's teacher": {"teacher": {**of_dino(chunks, "", "dino_head"), **of_dino({}, "", "ibot_head")}},
        "DINOv2's training": {"model": {**inside, "dino_loss.center": np.zeros((1, 6))}, "iteration": 3},
        "Lightning": {"state_dict": inside, "pytorch-lightning_version": "2.1"},
    }


@pytest.mark.parametrize("layout", ["DINO", "iBOT", "DINOv2's teacher", "DINOv2's training", "Lightning"])
def test_a_teachers_backbone_beside_its_head_is_loaded(layout):
    student, teacher, model = (small("vit", seed=seed, num_classes=0) for seed in (1, 2, 3))
    report = load_weights(model, published_layouts(student, teacher)[layout], strict=True)
    assert_equal(model, arrays(teacher))
    assert all("head." in name or "student." in name or "center" in name for name in report.unexpected)


def test_a_layer_at_two_places_is_whole_if_it_is_stored_once_and_has_one_value():
    def network():
        shared = nn.Linear(5, 7)
        return nn.LayerList([shared, nn.Linear(7, 5), shared])

    source, model = network(), network()
    state = {name: value.T if value.ndim == 2 else value for name, value in arrays(source).items()}  # as PyTorch's
    once = {name: value for name, value in state.items() if not name.startswith("2.")}
    for given in (once, state):
        report = load_weights(model, given, strict=True)
        assert report.loaded_fraction == 1 and report.missing == []
        assert_equal(model, arrays(source))
    with pytest.raises(
        UserError, match=r"different values for 0.bias and 2.bias, which are one parameter of this model"
    ):
        load_weights(model, {**state, "2.bias": state["2.bias"] + 1})


LAYERS = {
    "PReLU": (lambda: nn.PReLU(6), {"_weight": "weight"}),
    "InstanceNorm": (lambda: nn.InstanceNorm2D(6), {"scale": "weight"}),
    "GRU": (lambda: nn.GRU(4, 6, num_layers=2, direction="bidirect"), {}),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_layers_have_pytorchs_names_of_their_parameters(kind):
    build, renamed = LAYERS[kind]
    source, model = (nn.Sequential(nn.Conv2D(1, 2, 3), build()) for _ in range(2))
    for parameter in source.parameters():
        parameter.set_value(paddle.rand(parameter.shape))
    state = {name: value for name, value in arrays(source).items() if "cell" not in name}  # Paddle's second names
    state = {
        f"{name.rpartition('.')[0]}.{renamed.get(last := name.rpartition('.')[2], last)}": v
        for name, v in state.items()
    }
    load_weights(model, state, strict=True)
    assert_equal(model, arrays(source))


def test_attention_has_three_projections_where_pytorch_has_one():
    source, model = (nn.Sequential(nn.MultiHeadAttention(6, 2)) for _ in range(2))
    ours = arrays(source)
    state = {
        f"0.in_proj_{last}": np.concatenate([ours[f"0.{p}_proj.{last}"].T for p in "qkv"])
        for last in ("weight", "bias")
    }
    load_weights(
        model,
        {**state, "0.out_proj.weight": ours["0.out_proj.weight"].T, "0.out_proj.bias": ours["0.out_proj.bias"]},
        strict=True,
    )
    assert_equal(model, ours)


def test_empty_buffers_of_file_and_network_make_no_other_network():
    source, model = Wrapper("net"), Wrapper("net")
    model.register_buffer("empty", paddle.zeros([0, 3]))
    report = load_weights(model, {**arrays(source), "_kp_active_mask": np.zeros((0, 0), bool)}, strict=True)
    assert report.missing == report.unexpected == []


class _Bare(nn.Layer):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2D(3, 4, 3), nn.BatchNorm2D(4))
        self.classifier = nn.Linear(4, 6)


class _Wrapped(nn.Layer):
    def __init__(self):
        super().__init__()
        self.net, self.scale = _Bare(), nn.Linear(1, 1)


@pytest.mark.parametrize("begin, is_of_torch", [("", False), ("", True), ("module.", True)])
def test_a_network_around_another_takes_the_others_file_and_says_how(begin, is_of_torch):
    bare, wrapped = _Bare(), _Wrapped()
    state = {name: value.numpy() + 2 for name, value in bare.state_dict().items()}
    given = dict(state)
    if is_of_torch:
        given["classifier.weight"] = given["classifier.weight"].T
        for ours, theirs in (("_mean", "running_mean"), ("_variance", "running_var")):
            given[f"features.1.{theirs}"] = given.pop(f"features.1.{ours}")
    given = {f"{begin}{name}": value for name, value in given.items()}
    report = load_weights(wrapped, given)
    assert report.notices == ["names read with the prefix 'net.' of the network"]
    assert report.missing == ["scale.weight", "scale.bias"] and report.unexpected == []
    for name, value in state.items():
        assert np.array_equal(wrapped.state_dict()[f"net.{name}"].numpy(), value)


def test_names_of_the_network_come_before_those_of_its_parts():
    bare, wrapped = _Bare(), _Wrapped()
    own = {name: value.numpy() + 2 for name, value in wrapped.state_dict().items()}
    both = {**own, **{name: value.numpy() for name, value in bare.state_dict().items()}}
    report = load_weights(wrapped, both)
    assert report.notices == [] and report.missing == []
    assert all(np.array_equal(wrapped.state_dict()[name].numpy(), value) for name, value in own.items())


@pytest.mark.parametrize(
    ("scheme", "is_paddle"),
    [
        *(("PaddleViT", True), ("Google", True), ("torchvision", False), ("the authors'", False)),
        *(("Hugging Face", False), ("Hugging Face's DINO, CLIP and SigLIP", False)),
        *(("Hugging Face's DINOv3 with biases", False), ("timm", None), ("PyTorch", None)),  # None: by the format
    ],
)
def test_square_weights_have_the_layout_of_those_who_chose_the_names(scheme, is_paddle):
    for of_format in (True, False):
        found = naming.is_in_paddle_layout(scheme, SourceWeights("file", {}, of_format))
        assert found is (of_format if is_paddle is None else is_paddle)


def test_a_prefix_is_of_two_names_and_of_a_tenth_of_them():
    def list_of(**numbers):
        return naming.list_prefixes([f"{name}.w{n}" for name, count in numbers.items() for n in range(count)], RANKING)

    assert list_of(a=18, b=2) == ["", "a", "b"] and list_of(a=19, b=2) == ["", "a"]
    assert list_of(a=2, b=1) == ["", "a"]
    assert list_of(other=2, student=2, teacher=2, ema=2) == ["", "ema", "teacher", "student", "other"]
    assert naming.list_prefixes(["a.b.c.d.w", "a.b.c.d.v"], RANKING) == ["", "a", "a.b", "a.b.c"]
    assert naming.list_prefixes(["w", "v"], RANKING) == [""]
    assert naming.list_prefixes(["x.student.w", "x.student.v", "x.teacher.w", "x.teacher.v"], RANKING) == [
        *("", "x", "x.teacher", "x.student")
    ]


def test_names_without_a_prefix_stay_where_no_other_gets_them():
    state = {"net.a": 1, "a": 2, "b": 3, "net.net.c": 4, "network.d": 5}
    assert naming.without_prefix(state, "net") == {"a": 1, "b": 3, "net.c": 4, "network.d": 5}
    assert naming.without_prefix(state, "") == state


class Guessed(Model):
    """A classifier whose key maps note that they are asked."""

    def __init__(self, classes: int = 3):
        super().__init__()
        self.layer, self.head = nn.Linear(4, 2), nn.Linear(2, classes)
        self.classifier_layers = ("head",)
        self.asked: list[str] = []
        self.key_maps = {"another": lambda state: self.asked.append("another") or dict(state)}


@pytest.mark.parametrize("is_of_run", [True, False])
@pytest.mark.parametrize("prefix", ["", "student."])
def test_a_runs_names_are_the_models_and_no_scheme_of_others_is_tried(tmp_path, prefix, is_of_run):
    source, model = Guessed(), Guessed(5)
    file = str(tmp_path / "model.pdparams")
    paddle.save({f"{prefix}{name}": value for name, value in source.state_dict().items()}, file)
    if is_of_run:
        (tmp_path / "state.json").write_text("{}")
    found = naming.name_for(model, read_weights(file))
    assert is_of_run == (not model.asked) == (found.origin == "a checkpoint of this package")
    for name, value in arrays(source).items():
        np.testing.assert_array_equal(found.state[name], value, name)


def test_a_run_of_a_network_in_pytorchs_form_is_transposed(tmp_path):
    source, model = Guessed(), Guessed(5)
    paddle.save(in_torch_layout(source), str(tmp_path / "model.pdparams"))
    (tmp_path / "state.json").write_text("{}")
    found = naming.name_for(model, read_weights(str(tmp_path / "model.pdparams")))
    np.testing.assert_array_equal(found.state["layer.weight"], source.layer.weight.numpy())
