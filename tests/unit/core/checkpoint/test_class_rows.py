"""Rows of classifiers that follow the names of their classes."""

import re

import numpy as np
import paddle
import pytest
from support.networks import small_detr
from support.networks.timm_zoo import needs_compat
from support.trainings import small_segmenters  # noqa: F401  # registers small networks

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint import class_rows
from paddlevit_dist.core.checkpoint.class_rows import ClassNames, order_outputs, pair_names
from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.core.tasks.model import Model
from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.images.classification.probes import ProbeModel
from paddlevit_dist.images.detection.detector import COCO_CATEGORIES, Detector
from paddlevit_dist.images.imagenet_classes import names_by_synset

THEIRS, OURS = ["bolt", "nut", "washer"], ["Nut", "spring", "clip", "bolt", "pin"]
PAIRS = {1: 0, 0: 3}  # there -> here
SIZES = {"image_size": 32, "patch_size": 8, "embed_dim": 16, "depth": 1, "num_heads": 2}
UNET = {"width": 4, "depth": 3, "supervised": 2}


def probe(classes):
    backbone = create_model("vit", num_classes=0, **SIZES)
    return ProbeModel(backbone, classes, 2)


# How a network of so many classes is built, and the rows of no class in front and behind, of some parameters.
NETWORKS = {
    "vit": (lambda n: create_model("vit", n, **SIZES), {}),
    "distilled": (lambda n: create_model("deit_tiny_distilled_patch16_224", n, **SIZES), {}),
    "probes": (probe, {}),
    "segformer": (lambda n: create_model("segformer_of_tests", n), {}),
    "upernet": (lambda n: create_model("upernet_of_tests", n), {}),
    "detr": (lambda n: small_detr.small_detr(num_classes=n), {"class_embed": (0, 1)}),
    "rtdetr": (lambda n: create_model("rtdetr_small", n), {"denoising_class_embed": (0, 1)}),
    "dfine": (lambda n: create_model("dfine_small", n), {"denoising_class_embed": (0, 1)}),
    "mask_rcnn": (lambda n: create_model("mask_rcnn_small", n), {"roi_heads": (1, 0)}),
    "unet3d": (lambda n: create_model("unet3d", n, **UNET), {}),
    "minkunet": (lambda n: create_model("minkunet14a", n, depths=(1,) * 8, widths=(8,) * 8), {}),
    "pointgroup": (lambda n: create_model("pointgroup", n, width=4, repeats=1), {}),
}


def make_numbers(model):
    """Every value of a network another one."""
    for number, parameter in enumerate(model.state_dict().values()):
        if "float" in str(parameter.dtype):
            values = np.random.default_rng(number).standard_normal(parameter.shape)
            parameter.set_value(values.astype("float32"))
    return {name: value.numpy().copy() for name, value in model.state_dict().items()}


def classes_apart(value, classes, before, behind):
    """Rows of no class, of each class, and of no class behind, of an array with its outputs first."""
    each = len(value) // (classes + before + behind)
    groups = value.reshape(classes + before + behind, each, *value.shape[1:])
    return groups[:before], groups[before : before + classes], groups[before + classes :]


@pytest.mark.parametrize("family", NETWORKS)
def test_every_parameter_with_rows_of_classes_follows_the_names(family):
    build, layouts = NETWORKS[family]
    source = make_numbers(build(len(THEIRS)))
    model = build(len(OURS))
    initial = {name: value.numpy().copy() for name, value in model.state_dict().items()}
    report = load_weights(model, source, class_names=ClassNames(THEIRS, OURS))
    assert report.classes_by_name == (2, 5) and "2 of 5 classes by name, the rest new" in report.summary()
    assert not report.reinitialized and not report.missing and not report.resized
    compared = 0
    for name, found in model.state_dict().items():
        found, there, first = found.numpy(), source[name], initial[name]
        if there.shape == first.shape:
            np.testing.assert_array_equal(found, there)
            continue
        (axis,) = np.flatnonzero(np.array(there.shape) != first.shape)
        before, behind = next((rows for part, rows in layouts.items() if name.startswith(part)), (0, 0))
        there, first, found = (
            classes_apart(np.moveaxis(value, axis, 0), classes, before, behind)
            for value, classes in ((there, 3), (first, 5), (found, 5))
        )
        np.testing.assert_array_equal(found[0], there[0])
        np.testing.assert_array_equal(found[2], there[2])
        expected = first[1].copy()
        for own, here in PAIRS.items():
            expected[here] = there[1][own]
        np.testing.assert_array_equal(found[1], expected)
        compared += 1
    assert compared == sum(name.startswith(tuple(model.classifier_layers)) for name in source)


def test_another_order_gives_the_logits_of_each_class():
    images = paddle.to_tensor(np.random.default_rng(0).standard_normal((3, 3, 32, 32)).astype("float32"))
    source, model = create_model("vit", 3, **SIZES), create_model("vit", 3, **SIZES)
    make_numbers(source)
    report = load_weights(model, dict(source.state_dict()), class_names=ClassNames(THEIRS, THEIRS[::-1]))
    source.eval()
    model.eval()
    np.testing.assert_allclose(model(images).numpy(), source(images).numpy()[:, ::-1], rtol=1e-6)
    assert "3 of 3 classes by name" in report.summary() and "the rest" not in report.summary()


def loaded(names, there=3, here=3):
    source, model = make_numbers(create_model("vit", there, **SIZES)), create_model("vit", here, **SIZES)
    initial = model.state_dict()["head.weight"].numpy().copy()
    report = load_weights(model, source, class_names=names)
    found = model.state_dict()["head.weight"].numpy()
    is_kept = found.shape == source["head.weight"].shape and (found == source["head.weight"]).all()
    return report, is_kept, (found == initial).all()


def test_classes_that_weights_do_not_have_begin_anew():
    report, is_kept, is_new = loaded(ClassNames(THEIRS, ["a", "b", "c"]))
    assert is_new and not is_kept and report.reinitialized == ["head.weight", "head.bias"]
    assert "0 of 3 classes by name" in report.summary()


@pytest.mark.parametrize(
    "names",
    [
        None,
        ClassNames(None, OURS[:3]),
        ClassNames(THEIRS, THEIRS),
        ClassNames(THEIRS, ["0", "1", "2"]),  # numbers for classes without names
        ClassNames(["tench, Tinca tinca", "goldfish", "shark"], ["n01", "n02", "n03"], is_own=False),
    ],
)
def test_rows_keep_their_places_where_names_say_nothing_else(names):
    report, is_kept, _ = loaded(names)
    assert is_kept and report.classes_by_name is None


def test_rows_of_another_width_do_not_follow_names():
    source, model = make_numbers(create_model("vit", 3, **SIZES)), create_model("vit", 3, **SIZES)
    source["head.weight"] = source["head.weight"][:8]
    report = load_weights(model, source, class_names=ClassNames(THEIRS, THEIRS[::-1]))
    assert report.reinitialized == ["head.weight", "head.bias"] and report.classes_by_name == (3, 3)


def test_a_number_beside_the_rows_is_copied_like_any_other_parameter():
    source, model = make_numbers(create_model("vit", 3, **SIZES)), create_model("vit", 3, **SIZES)
    model.head.temperature = model.create_parameter([])
    source["head.temperature"] = np.array(2.5, np.float32)
    report = load_weights(model, source, class_names=ClassNames(THEIRS, THEIRS[::-1]))
    found = model.state_dict()
    assert found["head.temperature"].item() == 2.5
    assert found["head.bias"].tolist() == source["head.bias"][::-1].tolist() and report.classes_by_name == (3, 3)


def test_classes_without_a_name_behind_the_named_ones_begin_anew():
    source, model = make_numbers(create_model("vit", 5, **SIZES)), create_model("vit", 6, **SIZES)
    initial = model.state_dict()["head.bias"].numpy().copy()
    load_weights(model, source, class_names=ClassNames(["a", "b"], ["b", "c"]))  # MODEL.NUM_CLASSES 5 and 6
    found = model.state_dict()["head.bias"].numpy()
    assert found[0] == source["head.bias"][1] and (found[1:] == initial[1:]).all()


@pytest.mark.parametrize(
    "theirs, ours, pairs",
    [
        (["a", "b"], ["b", "a"], [(1, 0), (0, 1)]),
        (["Cat "], ["cat"], [(0, 0)]),
        (["Cat", "cat"], ["cat", "CAT"], [(1, 0)]),
        (["Cat", "CAT"], ["cat"], []),
        (["a", "a"], ["a"], []),
        (["a"], ["a", "a"], []),
        (["", "a"], ["", "a"], [(1, 1)]),
        (["sofa", "tvmonitor"], ["tv", "couch"], [(1, 0), (0, 1)]),
        (["sofa", "couch"], ["couch"], [(1, 0)]),
    ],
)
def test_names_pair_where_they_mean_one_class_on_each_side(theirs, ours, pairs):
    assert pair_names(theirs, ours, Detector.__new__(Detector)) == pairs


class Published(Model):
    """A network of three outputs that has published names."""

    classifier_layers = ("head",)

    def published_classes(self, classes):
        return ["n1", "n2", "n3"] if classes == 3 else None

    def plain_class(self, name):
        return {"tench": "n1", "goldfish": "n2", "shark": "n3"}.get(name, name)


def test_names_are_published_ones_in_other_words_only_if_they_are_as_many():
    names = ["tench, Tinca tinca", "goldfish, Carassius", "shark, white"]
    assert order_outputs(Published(), ClassNames(names, ["n3", "n1"]), 3, 2, "f") == ([2, 0], True)
    assert order_outputs(Published(), ClassNames(names, [names[2], names[0]]), 3, 2, "f") == ([2, 0], True)
    with pytest.raises(UserError, match="f has 3 classes, and 4 are needed"):
        order_outputs(Published(), ClassNames(names, ["n3", "n1"]), 3, 4, "f")
    with pytest.raises(UserError, match="f lacks 2 classes"):
        order_outputs(Published(), ClassNames(names[:2], ["n3", "n1"]), 3, 2, "f")


@pytest.mark.parametrize(("number", "same", "is_list"), [(5, 4, True), (5, 3, False), (9, 7, False), (10, 8, True)])
def test_most_names_of_a_published_list_are_four_fifths(number, same, is_list):
    published = [f"n{place}" for place in range(number)]
    theirs = [f"{known}, a synonym" if place < same else "other" for place, known in enumerate(published)]
    assert class_rows._mean_the_same(theirs, published, Published()) is is_list
    assert not class_rows._mean_the_same(theirs[1:], published, Published())


class Tempered(Model):
    """A classifier with a number that belongs to no class."""

    classifier_layers = ("head",)

    def __init__(self, classes):
        super().__init__()
        self.body, self.head = paddle.nn.Linear(30, 4), paddle.nn.Linear(4, classes)
        self.head.temperature = self.head.create_parameter([1, 1, 1])


def test_parameters_without_an_axis_of_classes_do_not_follow_names():
    source, model = make_numbers(Tempered(3)), Tempered(5)
    report = load_weights(model, source, class_names=ClassNames(THEIRS, OURS))
    assert report.classes_by_name == (2, 5) and not report.reinitialized
    np.testing.assert_array_equal(model.head.bias.numpy()[[0, 3]], source["head.bias"][[1, 0]])
    np.testing.assert_array_equal(model.head.temperature.numpy(), source["head.temperature"])


def test_only_detectors_know_two_names_of_a_category():
    assert pair_names(["sofa"], ["couch"], Model()) == []


@pytest.mark.parametrize(
    "build, classes, rows",
    [
        (lambda n: small_detr.small_detr(num_classes=n), 91, COCO_CATEGORIES),
        (lambda n: create_model("mask_rcnn_small", n), 90, [own - 1 for own in COCO_CATEGORIES]),
    ],
)
def test_rows_of_coco_s_ids_follow_its_names(build, classes, rows):
    """Of weights with an output for each id; ours are two of its categories and one of our own."""
    source = make_numbers(build(classes))
    model = build(3)
    own = ["zebra", "bolt", "person"]
    report = load_weights(model, source, class_names=ClassNames(None, own))
    assert report.classes_by_name == (2, 3)
    name = next(name for name in source if name.startswith(model.classifier_layers[0]) and name.endswith("bias"))
    before = model.class_layout(name).before
    there = dict(zip(COCO_CATEGORIES.values(), rows))
    found = model.state_dict()[name].numpy()
    for here, category in ((0, "zebra"), (2, "person")):
        assert found[before + here] == source[name][before + there[category]]


def test_rows_of_objects365_follow_the_names_that_coco_has_too():
    known = resolve("model", "rtdetr_r18vd").published_classes(None, 366)
    assert len(known) == 366 and sorted(filter(None, known)) == sorted(COCO_CATEGORIES.values())
    assert known[1] == "person" and known[6] == "car"  # as Objects365 counts: person 1, ..., car 6
    assert resolve("model", "rtdetr_r18vd").published_classes(None, 80) is None


# ---- evaluations -------------------------------------------------------------------------------------------------


def load_evaluated(theirs, ours, classes, is_own=False):
    """Load a head of one row for each class, and return the report and the weights' row of each output."""
    source, model = make_numbers(create_model("vit", classes, **SIZES)), create_model("vit", classes, **SIZES)
    report = load_weights(model, source, strict=True, class_names=ClassNames(theirs, ours, is_own, is_evaluated=True))
    rows = {row.tobytes(): number for number, row in enumerate(source["head.weight"].T)}
    found = model.state_dict()["head.weight"].numpy().T
    biases = model.state_dict()["head.bias"].numpy()
    order = [rows[row.tobytes()] for row in found]
    np.testing.assert_array_equal(biases, source["head.bias"][order])
    return report, order


def test_an_evaluation_keeps_the_rows_of_classes_that_the_data_do_not_have():
    report, order = load_evaluated(["a", "b", "c", "d"], ["d", "b"], 4)
    assert order == [3, 1, 0, 2]
    assert report.classes_by_name == (2, 2) and report.outputs == ("d", "b", "a", "c")


def test_an_evaluation_of_none_of_the_classes_is_left_to_the_comparison_of_names():
    report, order = load_evaluated(["a", "b"], ["x", "y"], 2, is_own=True)
    assert order == [0, 1] and report.classes_by_name is None and report.reinitialized == []


def test_outputs_of_a_run_without_a_name_stay_behind_those_with_names():
    report, order = load_evaluated(["a", "b", "c"], ["c", "a"], 5, is_own=True)  # MODEL.NUM_CLASSES was 5
    assert order == [2, 0, 1, 3, 4] and report.outputs == ("c", "a", "b", "3", "4")


def test_an_evaluation_of_fewer_outputs_than_the_weights_have_is_refused():
    source, model = make_numbers(create_model("vit", 4, **SIZES)), create_model("vit", 2, **SIZES)
    names = ClassNames(["a", "b", "c", "d"], ["d", "b"], False, is_evaluated=True)
    with pytest.raises(UserError, match="set MODEL.NUM_CLASSES to 4$"):
        load_weights(model, source, strict=True, class_names=names)
    with pytest.raises(UserError, match="its classes are a, b, c and 1 more, without x of the data: evaluate data of"):
        load_weights(model, source, strict=True, class_names=names._replace(ours=["d", "x"]))
    larger = create_model("vit", 6, **SIZES)
    with pytest.raises(UserError, match="set MODEL.NUM_CLASSES to 4$"):  # the data have two, not six
        load_weights(larger, source, strict=True, class_names=names)


def test_an_evaluation_of_other_classes_has_a_name_for_each_output():
    source, model = make_numbers(create_model("vit", 3, **SIZES)), create_model("vit", 3, **SIZES)
    names = ClassNames(["a", "b", "c"], ["c", "x"], False, is_evaluated=True)
    report = load_weights(model, source, strict=True, class_names=names)
    assert report.classes_by_name == (1, 2) and report.outputs == ("c", "x", "a")


@pytest.mark.parametrize(
    ("theirs", "ours", "order", "is_named"),
    [
        (["0", "1", "2"], ["1", "2"], [1, 2], True),
        (["0", "1", "2"], ["2", "0", "1"], [2, 0, 1], True),
        (["0", "1", "2"], ["x", "y", "z"], None, False),
        (None, ["1", "2", "3"], None, False),
        (["0", "1", "2"], ["1", "2", "3"], "lacks 1 classes (3); its own are 0, 1, 2", None),
        (None, ["0", "1"], "the teacher has 3 classes, and 2 are needed: use a model of as many", None),
        (["a", "b", "c"], ["0", "1", "2", "3"], "the teacher has 3 classes, and 4 are needed", None),
    ],
)
def test_outputs_named_by_numbers_follow_classes_named_by_numbers(theirs, ours, order, is_named):
    def find():
        return order_outputs(Model(), ClassNames(theirs, ours), 3, len(ours), "the teacher")

    if is_named is None:
        with pytest.raises(UserError, match=re.escape(order)):
            find()
    else:
        assert find() == (order, is_named)


@needs_compat
@pytest.mark.parametrize("name", ["timm:test_resnet", "timm:test_vit", "timm:test_efficientnet"])
def test_rows_of_timms_models_follow_the_names(name):
    """Their weights are (out, in)."""
    paddle.seed(0)
    source, model = (create_model(name, 3, 32).eval() for _ in range(2))
    names = ClassNames(["a", "b", "c"], ["c", "a"], False, is_evaluated=True)
    report = load_weights(model, dict(source.state_dict()), strict=True, class_names=names)
    assert report.outputs == ("c", "a", "b")
    images = paddle.randn([2, 3, 32, 32])
    np.testing.assert_allclose(model(images).numpy(), source(images).numpy()[:, [2, 0, 1]], rtol=1e-5, atol=1e-6)


SYNSETS = list(names_by_synset())
SHORT = list(names_by_synset().values())


@pytest.mark.parametrize(
    "theirs, ours, expected",
    [
        (None, SYNSETS[:1:-400], [999, 599, 199]),  # weights that name nothing
        ([f"{name}, other words" for name in SHORT], [SYNSETS[7], SYNSETS[3]], [7, 3]),  # transformers' names
        ([f"{name}, other words" for name in SHORT], ["goldfish", "tench"], [1, 0]),
        (SYNSETS[::-1], [SYNSETS[7], "tench"], [992, 999]),  # timm's label_names in another order
    ],
)
def test_weights_of_imagenet_are_evaluated_by_synset(theirs, ours, expected):
    report, order = load_evaluated(theirs, ours, 1000)
    assert order[: len(ours)] == expected and sorted(order) == list(range(1000))
    assert report.classes_by_name == (len(ours), len(ours))


def test_names_that_weights_of_imagenet_do_not_have_leave_their_order():
    report, order = load_evaluated(None, ["cat", "dog"], 1000)
    assert order == list(range(1000)) and report.classes_by_name is None
