"""Networks that the files of a clone of PaddleViT build: made-up families with the traps of its own."""

import sys
import types

import numpy as np
import paddle
import pytest
from support.hosts.paddlevit_clone import PASSED, write_family

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.core.settings import load
from paddlevit_dist.core.tasks import Task
from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.images.configured_options import configured_options

OUTSIDE = "image_size=config.DATA.IMAGE_SIZE, dim=config.MODEL.EMBED_DIM"
# As VOLO: a second classifier of all tokens, whose output is part of the evaluated one and apart in training.
TWO_OUTPUTS = "return (self.head(x), self.aux(x), (0, 0)) if self.training else self.head(x) + 0.5 * self.aux(x)"
AUX = "self.aux = nn.Linear(dim, num_classes)"
IMAGES = paddle.to_tensor(np.random.default_rng(0).normal(size=(3, 3, 16, 16)).astype("float32"))


def build(file, num_classes=5, **options):
    paddle.seed(1)
    return create_model(f"paddlevit:{file}", num_classes, **options)


def test_a_network_keeps_the_names_of_its_files_and_loads_weights_by_them(tmp_path):
    model = build(write_family(tmp_path, "plain"))
    names = [name for name, _ in model.named_parameters()]
    assert names == [name for name, _ in model.network.named_parameters()] and "blocks.1.mlp.weight" in names
    assert float(model.network.blocks[0].gamma[0]) == 0.5  # of the YAML file
    state = {name: np.full(value.shape, 0.25, "float32") for name, value in model.state_dict().items()}
    paddle.save({name: paddle.to_tensor(one) for name, one in state.items()}, str(tmp_path / "w.pdparams"))

    report = load_weights(model, str(tmp_path / "w.pdparams"), strict=True)

    assert len(report.loaded) == len(names) and float(model.network.head.weight[0, 0]) == 0.25


def test_what_depends_on_the_classes_is_found_by_comparing_builds(tmp_path):
    # Blocks have as many features as there are classes: sizes alone do not say what is the classifier.
    model = build(write_family(tmp_path, "plain"), num_classes=8)
    assert model.classifier_layers == ("head",) and model.embed_dim == 8
    assert model.no_weight_decay() == ("pos_embed",)
    listed = write_family(
        tmp_path, "listed", init="self.cls_token = nn.ParameterList([self.create_parameter([8, 1])])"
    )  # as CrossViT
    assert "cls_token.0" in build(listed).no_weight_decay()
    assert [len(group) for group in model.layer_groups()] == [3, 5, 5, 2]
    model.eval()
    features = model.forward_features(IMAGES)
    np.testing.assert_allclose(model.network.head(features).numpy(), model(IMAGES).numpy(), rtol=1e-6)
    without = build(tmp_path / "image_classification/Plain/configs/plain_tiny.yaml", num_classes=0)
    without.eval()
    assert without(IMAGES).shape == [3, 8]


def test_families_with_files_of_the_same_names_stay_apart_and_leave_nothing_behind(tmp_path, monkeypatch):
    mine = types.ModuleType("utils")
    monkeypatch.setitem(sys.modules, "utils", mine)
    path = list(sys.path)

    first, second = (build(write_family(tmp_path, kind)) for kind in ("first", "second"))

    assert (first.network.family, second.network.family) == ("first", "second")
    assert sys.path == path and sys.modules["utils"] is mine
    assert not [name for name, one in sys.modules.items() if str(tmp_path) in str(getattr(one, "__file__", None))]
    assert not list(tmp_path.rglob("__pycache__"))


def test_rates_of_a_run_take_the_place_of_the_clone_s(tmp_path):
    file = write_family(tmp_path, "plain")
    assert build(file).network.blocks[0].drop_path.rate == 0.0  # as of every model here
    assert build(file, drop_path=0.3).network.blocks[0].drop_path.rate == 0.3
    values = load([f"-cfg={file}"]).values
    assert configured_options(Task(values)) == ({"drop_path": 0.1}, [])  # of config.py
    with pytest.raises(UserError, match="has no option 'droppath': did you mean 'drop_path'"):
        build(file, droppath=0.3)


@pytest.mark.parametrize("forward", ["return self.head(x), self.head(x)", "return [self.head(x), 1]"])
def test_the_first_of_several_outputs_are_the_logits(forward, tmp_path):
    model = build(write_family(tmp_path, "tuples", forward))
    for mode in (model.train, model.eval):
        mode()
        assert model(IMAGES).shape == [3, 5]


@pytest.mark.parametrize("forward", [TWO_OUTPUTS, TWO_OUTPUTS.replace("(0, 0)", "np.int(0)")])
def test_several_outputs_in_training_alone_become_the_evaluated_one(forward, tmp_path):
    # Otherwise the second classifier would never learn and yet be part of the score. As today's VOLO, the second one
    # cannot do in training what it did with older versions of NumPy.
    model = build(write_family(tmp_path, "apart", forward, init=AUX))
    assert model.classifier_layers == ("head", "aux")
    model.eval()
    expected = model(IMAGES)
    model.train()
    logits = model(IMAGES)
    logits.sum().backward()
    assert float(model.network.aux.weight.grad.abs().sum()) > 0 and model.network.training
    np.testing.assert_allclose(logits.numpy(), expected.numpy(), rtol=1e-6)


def test_two_classifiers_learn_from_labels_and_a_teacher(tmp_path):
    forward = "return (self.head(x), self.aux(x)) if self.training else (self.head(x) + self.aux(x)) / 2"
    model = build(write_family(tmp_path, "distilled", forward, init=AUX))
    assert model(IMAGES).shape == [3, 5]
    model.learn_from_teacher()
    of_labels, of_teacher = model(IMAGES)
    model.eval()
    np.testing.assert_allclose(model(IMAGES).numpy(), ((of_labels + of_teacher) / 2).numpy(), rtol=1e-5, atol=1e-6)


def test_a_number_of_classes_that_is_never_passed_on_replaces_the_classifier(tmp_path):
    file = write_family(tmp_path, "deaf", passed=OUTSIDE)
    assert build(file, 1000).network.head.weight.shape == [8, 1000]
    model = build(file, 7)
    assert model.classifier_layers == ("head",) and model(IMAGES).shape == [3, 7]
    unknown = write_family(tmp_path, "unknown", passed=f"{OUTSIDE}, num_classes=21")
    with pytest.raises(UserError, match="takes no number of classes, and no linear layer has 1000 outputs"):
        build(unknown)


@pytest.mark.parametrize("forward, shape", [("self.head(x)[:, :3]", "2, 3"), ("self.head(x).unsqueeze(2)", "2, 5, 1")])
def test_outputs_that_are_no_logits_of_the_classes_are_refused(forward, shape, tmp_path):
    file = write_family(tmp_path, "any", f"return {forward}")
    with pytest.raises(UserError, match=rf"any_tiny\.yaml' returns \[{shape}\] for 2 images and 5 classes$"):
        build(file)


def test_a_classifier_that_is_not_linear_is_not_replaced(tmp_path):
    init = "self.head = nn.Sequential(nn.Conv1D(dim, num_classes, 1), nn.Flatten())"
    model = build(write_family(tmp_path, "any", "return self.head(x.unsqueeze(-1))", init=init))
    assert model(IMAGES).shape == [3, 5]
    message = r"^head\.0, the classifier, is not a linear layer: build the model for 3 classes$"
    with pytest.raises(UserError, match=message):
        model.reset_classifier(3)


def test_channels_that_are_never_passed_on_are_refused(tmp_path):
    file = write_family(tmp_path, "colored", passed=f"{OUTSIDE}, num_classes=config.MODEL.NUM_CLASSES")
    with pytest.raises(UserError, match="takes images of 3 channels alone: leave out DATA.IMAGE_CHANNELS"):
        build(file, in_channels=1)
    gray = build(write_family(tmp_path, "any"), in_channels=1)
    assert gray(IMAGES[:, :1]).shape == [3, 5]
    passed = PASSED.replace("config.DATA.IMAGE_CHANNELS", "config.MODEL.IN_CHANNELS")
    other = build(write_family(tmp_path, "own", passed=passed, further="_C.MODEL.IN_CHANNELS = 3"), in_channels=1)
    assert other(IMAGES[:, :1]).shape == [3, 5]


def test_sizes_of_images(tmp_path):
    file = write_family(tmp_path, "any")
    assert build(file, image_size=24).network.pos_embed.shape == [1, 36, 8]
    with pytest.raises(UserError, match=r"any_tiny\.yaml' takes square images, not 16 x 24 pixels$"):
        build(file, image_size=(16, 24))
    fixed = write_family(tmp_path, "fixed", passed=PASSED.replace("config.DATA.IMAGE_SIZE", "16"))
    with pytest.raises(UserError, match="does not take images of 24 x 24: its files raise ValueError: "):
        build(fixed, image_size=24)
    # As CrossViT, which resizes other images to MODEL.IMG_SIZE without a word.
    own = write_family(tmp_path, "own", further="_C.MODEL.IMG_SIZE = [20, 16]")
    assert build(own).image_size == (16, 16)
    with pytest.raises(
        UserError, match=r"reads its sizes from MODEL.IMG_SIZE \[20, 16\], for images of 16 pixels, not"
    ):
        build(own, image_size=24)


def test_one_of_several_build_functions_is_the_one_of_the_model_s_type(tmp_path):
    file = write_family(tmp_path, "twice")
    code = file.parents[1] / "twice.py"
    (code.parent / "twice_v2.py").write_text(code.read_text().replace("build_twice", "build_twicev2"))
    (code.parent / "masked.py").write_text("def build_twice_pretrain(config): pass\n")
    second = file.with_name("second.yaml")
    second.write_text(file.read_text().replace("TYPE: twice", "TYPE: Twice_V2"))
    assert [type(build(one).network).__module__ for one in (file, second)] == ["twice", "twice_v2"]
    file.write_text(file.read_text().replace("TYPE: twice", "TYPE: thrice"))
    with pytest.raises(UserError, match="MODEL.TYPE thrice fits none or several of masked.build_twice_p"):
        build(file)


BRANCHES = """self.one, self.two = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.switch = Branches(self)

class Branches(nn.Layer):
    def __init__(self, network):
        super().__init__()
        object.__setattr__(self, "network", network)
    def switch_to_deploy(self):
        one, two = self.network.one, self.network.two
        one.weight.set_value(one.weight + {factor} * two.weight)
        one.bias.set_value(one.bias + two.bias)
        del self.network.two

class Network(Network):"""
BRANCHED = "return self.head(self.one(x) + (self.two(x) if hasattr(self, 'two') else 0))"


@pytest.mark.parametrize("factor, note", [("1", "its branches are merged"), ("3", "exported unmerged")])
def test_branches_are_merged_before_an_export_if_that_changes_nothing(factor, note, tmp_path):
    model = build(write_family(tmp_path, "branched", BRANCHED, init=BRANCHES.format(factor=factor)))
    model.eval()
    before = model(IMAGES).numpy()
    assert note in model.merge_branches()
    assert hasattr(model.network, "two") == (factor == "3")
    np.testing.assert_allclose(model(IMAGES).numpy(), before, rtol=1e-4, atol=1e-6)


def test_branches_whose_merging_raises_stay_and_a_network_without_any_has_no_note(tmp_path):
    model = build(write_family(tmp_path, "branched", BRANCHED, init=BRANCHES.format(factor="missing")))
    message = "its branches are exported unmerged: merging them raises NameError: name 'missing' is not defined"
    assert model.merge_branches() == message and hasattr(model.network, "two")
    assert build(write_family(tmp_path, "plain")).merge_branches() == ""


def test_shapes_under_lazy_guard_are_those_of_the_built_network(tmp_path):
    file = write_family(tmp_path, "plain")  # sets a value while it is built, which lazy mode does not allow
    with paddle.LazyGuard():
        outline = build(file)
        assert paddle.nn.initializer.lazy_init.lazy_init_helper().state
    expected = build(file)
    assert [one.shape for one in outline.parameters()] == [one.shape for one in expected.parameters()]


def test_files_that_are_not_there_or_raise_are_one_line(tmp_path):
    with pytest.raises(UserError, match=r"nothing.yaml is not there: expected PaddleViT/image_classification/FAMILY"):
        build(tmp_path / "nothing.yaml")
    file = write_family(tmp_path, "broken", init="raise ValueError('of\\nits own')")
    with pytest.raises(UserError, match="cannot be built: its files raise ValueError: of its own"):
        build(file)
