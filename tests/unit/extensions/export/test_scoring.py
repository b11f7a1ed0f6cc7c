"""Which input and output of an exported model are taken, how batches fit it, and what is said of the difference."""

from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from support.registrations import forgotten
from support.thread_ranks import ThreadRanks

from paddlevit_dist import UserError, register_task
from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.core.settings import load
from paddlevit_dist.core.tasks import Metrics, Task
from paddlevit_dist.core.tasks.step_types import ExportParts
from paddlevit_dist.extensions.export import scoring
from paddlevit_dist.extensions.export.functions import ExportedFunction, TensorSpec
from paddlevit_dist.extensions.export.scoring import ExportComparison, ExportedLayer, format_steps, load_exported_layer
from paddlevit_dist.images.classification.task import Classification

SHAPE = (3, 2, 4)
MEAN = {"mean": [0.5, 0.25, 0.75], "standard_deviation": [0.25, 0.5, 0.125]}


def make_function(compute, *outputs, inputs=("images",), shape=(None, *SHAPE), dtype="float32", **about):
    """A function of tensors as an exported model; ``calls`` are the shapes and dtypes that it has computed."""
    calls = []

    def run(tensors, numbers):
        calls.append([(tuple(tensor.shape), str(tensor.dtype).rpartition(".")[2]) for tensor in tensors])
        parts = compute(*tensors)
        return [parts[number].astype("float32") for number in numbers]

    slots = [TensorSpec(name, shape if not place else (None, 2), dtype) for place, name in enumerate(inputs)]
    return ExportedFunction(
        slots, [TensorSpec(name, None, "float32") for name in outputs], about, "here", "", run
    ), calls


def channel_means(images, *_):
    return [images.mean(axis=[2, 3]), images.sum(axis=[1, 2, 3])]


def make_layer(function, output=None, **parts):
    return ExportedLayer("net.onnx", function, ExportParts(3, MEAN, output_shape=(3,), **parts), SHAPE, output)


def draw_images(number):
    return paddle.to_tensor(np.random.default_rng(number).normal(size=(number, *SHAPE)).astype(np.float32))


@pytest.mark.parametrize("size, calls", [(None, [7]), (7, [7]), (3, [3, 3, 3]), (8, [8])])
def test_batches_are_cut_to_the_size_of_the_model_and_filled_up(size, calls):
    function, seen = make_function(channel_means, "means", "sum", shape=(size, *SHAPE))
    layer = make_layer(function)
    images = draw_images(7)
    np.testing.assert_allclose(layer(images).numpy(), images.numpy().mean(axis=(2, 3)), rtol=1e-5, atol=1e-6)
    assert [call[0][0][0] for call in seen] == [size or 2, *calls] and not layer.gives_probabilities


def test_pixels_are_what_normalized_images_were_made_of():
    function, seen = make_function(
        lambda pixels: [pixels.astype("float32").mean(axis=[1, 2])], "means", shape=(None, 2, 4, 3), dtype="uint8"
    )
    pixels = np.random.default_rng(0).integers(0, 256, (5, 2, 4, 3), np.uint8)
    normalized = (pixels / 255.0 - MEAN["mean"]) / MEAN["standard_deviation"]
    images = paddle.to_tensor(normalized.transpose(0, 3, 1, 2).astype(np.float32))
    layer = make_layer(function)
    np.testing.assert_allclose(layer(images).numpy(), pixels.mean(axis=(1, 2)), rtol=1e-5)
    assert seen[-1] == [((5, 2, 4, 3), "uint8")] and layer.precision == "float32"


@pytest.mark.parametrize("precision, factor", [("float32", 1.002), ("float16", 1.03)])
def test_probabilities_become_logarithms(precision, factor):
    def soften(images, scale=1.0):
        return [scale * paddle.nn.functional.softmax(images.mean(axis=[2, 3]), axis=-1)]

    layer = make_layer(make_function(soften, "out", dtype=precision)[0])
    images = draw_images(4)
    expected = np.log(soften(images)[0].numpy())
    assert layer.gives_probabilities and layer.precision == precision
    np.testing.assert_allclose(layer(images).numpy(), expected, rtol=1e-4)
    for compute in (
        lambda images: soften(images, factor),
        lambda images: soften(images, 2 - factor),
        lambda images: [soften(images)[0] - paddle.to_tensor([0.2, -0.1, -0.1]) * 6],
    ):
        assert not make_layer(make_function(compute, "out", dtype=precision)[0]).gives_probabilities


def test_all_outputs_of_a_detector_are_given_in_their_order():
    function, seen = make_function(
        lambda images, sizes: [sizes, images.sum(axis=[1, 2, 3]), sizes[:, 0] - sizes[:, 1]],
        *("boxes", "scores", "labels"),
        inputs=("images", "sizes"),
        shape=(2, *SHAPE),
    )
    names = ("labels", "boxes")
    layer = ExportedLayer("d", function, ExportParts(3, {}, output_names=names, sizes_name="sizes"), SHAPE, None)
    sizes = paddle.to_tensor([[4, 1], [9, 3], [6, 2]])
    labels, boxes = layer(draw_images(3), sizes)
    assert labels.tolist() == [3, 6, 4] and boxes.tolist() == sizes.tolist()
    assert seen == [[((2, *SHAPE), "float32"), ((2, 2), "int64")]] * 3  # the first is the layer's own
    parts = ExportParts(3, {}, output_names=("labels", "masks"), sizes_name="sizes")
    with pytest.raises(UserError, match="d: gives boxes, scores, labels: expected labels, masks; export it again"):
        ExportedLayer("d", function, parts, SHAPE, None)
    with pytest.raises(UserError, match=r"takes 2 inputs \(.*\): expected one, \(batch, 3, 2, 4\)"):
        make_layer(function)
    with pytest.raises(UserError, match=r"takes 1 inputs .*: expected two, images and sizes \(batch, 2\)"):
        ExportedLayer("d", make_function(channel_means, "out")[0], parts, SHAPE, None)


@pytest.mark.parametrize(
    "facts, message",
    [
        ({"dtype": "int8"}, "expected float32 or float16, because the configuration normalizes images"),
        ({"shape": (None, 3, 2, 5)}, r"has \(batch, 3, 2, 4\): change the configuration's size and channels"),
        ({"shape": (None, 3, 8)}, "change the configuration's size and channels"),
        ({"shape": (None, 3, 2, 3)}, "change the configuration's size and channels"),
        ({"shape": (None, 2, 4, 3)}, "export it with channels before height and width"),
        ({"shape": (None, 3, 2, 4), "dtype": "uint8"}, r"has \(batch, 2, 4, 3\): change the configuration's"),
    ],
)
def test_an_input_of_another_form_is_refused(facts, message):
    with pytest.raises(UserError, match=message):
        make_layer(make_function(channel_means, "means", **facts)[0])


def test_pixels_are_for_models_of_images():
    function, _ = make_function(channel_means, "means", shape=(None, 2, 4, 3), dtype="uint8")
    with pytest.raises(UserError, match=r"takes images \(batch, 2, 4, 3\) uint8: expected float32 or float16, because"):
        ExportedLayer("net.onnx", function, ExportParts(3, {}, output_shape=(3,)), SHAPE, None)


@pytest.mark.parametrize("shape", [None, (None, 3, None, None), (None, *SHAPE), (4, 3, 2, None)])
def test_an_input_of_any_size_is_taken(shape):
    assert make_layer(make_function(channel_means, "means", "sum", shape=shape)[0])(draw_images(4)).shape == [4, 3]


def test_images_of_another_size_than_the_only_one_are_refused():
    layer = make_layer(make_function(channel_means, "means", "sum")[0])
    told = r"net.onnx: takes images \(batch, 3, 2, 4\) float32, and this input is \(1, 3, 2, 5\): .*-window="
    with pytest.raises(UserError, match=told):
        layer(paddle.zeros([1, 3, 2, 5]))


def test_the_only_output_that_fits_is_taken_or_the_one_that_is_named():
    def several(images):
        means = images.mean(axis=[2, 3])
        return [images.sum(axis=[1, 2, 3]), means, 2 * means, images.flatten(1)]

    function, _ = make_function(several, "sum", "means", "twice", "flat")
    images = draw_images(2)
    np.testing.assert_array_equal(make_layer(function, "twice")(images), 2 * make_layer(function, "means")(images))
    with pytest.raises(
        UserError, match=r"several outputs fit, sum \(batch\), means \(batch, 3\), .*EXPORTED_OUTPUT NAME"
    ):
        make_layer(function)
    with pytest.raises(UserError, match="EXPORTED_OUTPUT other: net.onnx does not have this output; it has sum "):
        make_layer(function, "other")
    with pytest.raises(UserError, match=r"need \(batch, 3\); add -num_classes=24, and its classes are mat"):
        make_layer(function, "flat")
    with pytest.raises(UserError, match=r"need \(batch, 3\)$"):
        make_layer(function, "sum")
    few, _ = make_function(lambda images: [images.mean(axis=[2, 3])[:, :2]], "two")
    with pytest.raises(UserError, match=r"need \(batch, 3\)$"):
        make_layer(few)

    def broken(images):
        raise ValueError("first\nAnError: the reason\nlast")

    with pytest.raises(UserError, match=r"cannot be computed for \(batch, 3, 2, 4\) float32: AnError: the reason$"):
        make_layer(make_function(broken, "out")[0])


class SummedScores(Metrics):
    """Sums scores of samples."""

    def __init__(self) -> None:
        super().__init__()
        self.state = {"sum": 0.0}

    def compute(self, state):
        return {"score": state["sum"]}

    def summary(self, values):
        return f"score {values['score']:g}"


class Scored(resolve("task", "classification")):
    """Scores the sum of all outputs."""

    best_metric = ("score", True)
    passes = 1  # of a batch

    def build_metrics(self):
        return SummedScores()

    def eval_step(self, model, batch, step):
        for _ in range(self.passes):
            step.metrics.state["sum"] += float(model(batch["images"]).sum())


class Samples(list):
    labeled = True


def compare_models(
    actual,
    expected,
    *,
    labeled=True,
    precision="float32",
    difference=None,
    passes=(1, 0),
    is_exclusive=True,
    choose=None,
):
    """Score the outputs of both models for some batches; return the event and the lines of the log.

    ``passes``: of each batch, for scores and then for figures.
    """
    events, lines, outputs, trained = [], [], iter([actual[0], *actual]), iter(expected)
    function, _ = make_function(lambda _: [paddle.to_tensor(next(outputs))], "out", dtype=precision)
    shape = actual[0].shape[1:]
    parts = ExportParts(3, {}, output_shape=shape, difference=difference, is_exclusive=is_exclusive, choose=choose)
    layer = ExportedLayer("net.onnx", function, parts, SHAPE, None)
    layer.weights, layer.compared_with = "weights", lambda _: paddle.to_tensor(next(trained))
    log = SimpleNamespace(event=lambda kind, facts: events.append((kind, facts)), log_and_print=lines.append)
    samples = Samples(range(5))
    samples.labeled = labeled
    loader = SimpleNamespace(sampler=SimpleNamespace(indices=lambda: list(range(5))))
    evaluator = SimpleNamespace(values={"score": 10.5}, loader=loader, confidence=None, samples=samples)
    task = Scored(load(["-cfg=vit_digits"]).values)
    task.passes = passes[0]
    run = SimpleNamespace(model=layer, task=task, eval_dataset=samples, run_log=log, evaluator=evaluator)
    observer = ExportComparison(run)
    for number in range(0, len(actual), sum(passes)):
        images = draw_images(len(actual[number]))
        for _ in range(sum(passes)):
            layer(images)
        observer.after_batch({"images": images}, None)
    observer.after_evaluate({"epoch": 0})
    ((kind, facts),) = events
    assert kind == "difference_of_export" and layer.pairs is None
    return facts, lines


ACTUAL = [np.array([[1.0, 2.0, 3.0], [0.0, 5.0, 1.0], [2.0, 1.0, 0.0]], np.float32), np.array([[1, 2, 0]] * 2, "f4")]


def test_scores_and_outputs_of_both_models_are_compared_over_all_batches():
    expected = [np.array(batch) for batch in ACTUAL]
    expected[0][1] = [0.0, -7.0, 1.0]  # another answer, by 12
    expected[1][0, 0] = 1.5
    facts, lines = compare_models(ACTUAL, expected)
    total = float(sum(batch.sum() for batch in expected))
    assert facts == {
        **{"epoch": 0, "trained": "weights", "largest_difference": 12.0, "of_outputs_up_to": 7.0, "changed": 1},
        "trained_values": {"score": total},
    }
    assert lines[:2] == [
        f"trained weights: score {total:g}",
        f"after the export: score {10.5 - total:+.4g}; 1 of 5 images have another answer; outputs up to 7 differ by at "
        "most 1.2e+01",
    ]
    assert len(lines) == 3 and lines[2].startswith("note: rounding in float32 does not explain this difference: ")


def test_answers_of_labels_that_do_not_exclude_one_another_are_their_signs():
    actual = [np.array([[1.0, -2.0, 3.0], [-1.0, 5.0, -1.0], [2.0, 1.0, -3.0]], np.float32)]
    expected = [np.array([[9.0, -1.0, 0.5], [-1.0, 5.0, 0.25], [-2.0, 1.0, 3.0]], np.float32)]
    assert compare_models(actual, expected, is_exclusive=False)[0]["changed"] == 2  # the best of the first is another


def test_answers_of_labels_are_those_of_the_task_if_it_has_a_rule():
    actual = [np.array([[1.0, -2.0, 3.0], [-1.0, 5.0, -1.0], [2.0, 1.0, -3.0]], np.float32)]
    expected = [np.array([[9.0, -1.0, 0.5], [-1.0, 5.0, 0.25], [-2.0, 1.0, 3.0]], np.float32)]
    levels = np.array([1.5, -1.5, 4.0])  # only those of the last two samples' first and second class are between both

    def choose(logits):
        return logits > levels

    facts, _ = compare_models(actual, expected, is_exclusive=False, choose=choose)
    assert facts["changed"] == int((choose(actual[0]) != choose(expected[0])).any(axis=1).sum()) == 2


def test_all_passes_for_scores_are_compared_and_those_for_figures_are_not():
    actual = [ACTUAL[0], ACTUAL[0], ACTUAL[0], ACTUAL[1], ACTUAL[1], ACTUAL[1]]
    expected = [batch + step for batch, step in zip(actual, (0.5, 2.0, 9.0, 0.0, 1.0, 7.0))]
    facts, _ = compare_models(actual, expected, passes=(2, 1))
    assert (facts["largest_difference"], facts["of_outputs_up_to"]) == (2.0, 7.0)
    assert facts["trained_values"] == {"score": sum(float(expected[place].sum()) for place in (0, 1, 3, 4))}


@pytest.mark.parametrize("compares_itself", [False, True])
def test_the_largest_difference_and_all_scores_are_those_of_all_ranks(compares_itself):
    expected = [[batch + np.float32(step) for batch in ACTUAL] for step in (2.0, 6.0)]
    expected[1][0][0] = [9.0, 2.0, 3.0]  # another answer, by 8

    def compare(rank):
        own = {"difference": lambda *_: (0.5, "masks")} if compares_itself and rank else {}
        return compare_models(ACTUAL, expected[rank], **own)

    for facts, lines in ThreadRanks(2).run(compare):
        assert facts["trained_values"] == {"score": float(sum(batch.sum() for batch in sum(expected, [])))}
        if compares_itself:
            assert facts["largest_difference"] == 2.0 and lines[1].endswith("; masks differ by at most 2.0e+00")
        else:
            found = facts["largest_difference"], facts["of_outputs_up_to"], facts["changed"]
            assert found == (8.0, 11.0, 1)


def test_equal_outputs_without_labels_are_told_without_scores():
    facts, lines = compare_models(ACTUAL, ACTUAL, labeled=False)
    assert (facts["changed"], facts["largest_difference"], "trained_values" in facts) == (0, 0.0, False)
    assert lines == ["after the export: 0 of 5 images have another answer; outputs up to 5 differ by at most 0.0e+00"]


def test_rounding_is_that_of_the_precision():
    near = [batch + np.float32(0.05) for batch in ACTUAL]
    assert [len(compare_models(near, ACTUAL, precision=name)[1]) for name in ("float32", "float16")] == [3, 2]


def test_probabilities_are_compared_with_probabilities():
    probabilities = [np.exp(batch) / np.exp(batch).sum(axis=1, keepdims=True) for batch in ACTUAL]
    facts, _ = compare_models(probabilities, ACTUAL)
    assert facts["largest_difference"] < 1e-6 and 0.5 < facts["of_outputs_up_to"] <= 1.0


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_outputs_that_are_not_finite_differ_without_limit(value):
    bad = [np.array(batch) for batch in ACTUAL]
    bad[0][2, 1] = value
    facts, lines = compare_models(bad, ACTUAL)
    assert facts["largest_difference"] is None and "differ by infinity: some are not finite" in lines[1]


def test_values_of_maps_have_no_answers_and_a_task_may_compare_for_itself():
    maps = [batch[:, None] for batch in ACTUAL]
    facts, lines = compare_models(maps, maps)
    assert "changed" not in facts and "answer" not in lines[1]

    def differ(expected, actual):
        return float(expected[0] - actual[0]), "boxes"

    outputs = [np.array([number], np.float32) for number in (4, 1, 2)]
    facts, lines = compare_models(
        outputs, [output + step for output, step in zip(outputs, (0.25, 0.5, 0.125))], difference=differ
    )
    assert (facts["largest_difference"], facts["of_outputs_up_to"], "changed" in facts) == (0.5, 1.0, False)
    assert lines[1].endswith("; boxes differ by at most 5.0e-01")


def test_settings_without_an_exportable_task_name_the_file():
    values = SimpleNamespace(EXPORTED="a.onnx", EXPORTED_OUTPUT=None, TASK="other")
    with pytest.raises(UserError, match="^EXPORTED a.onnx: task other does not support it: "):
        load_exported_layer(values, Task(values))
    assert format_steps({"mode": "L", "resize": [3, 4]}) == "mode L, resize [3, 4]"


def match(function, ours, numbers=3, config=("-cfg=vit_digits",)):
    layer = ExportedLayer("net.onnx", function, ExportParts(3, MEAN, output_shape=(numbers,)), SHAPE, None)
    values = load(["-eval", "-pretrained=w.pdparams", *config]).values
    return layer, scoring.match_names(layer, ours, values, Classification(values))


@pytest.mark.parametrize(
    "about, ours, order",
    [
        ({"classes": ["a", "b", "c"]}, ["a", "b", "c"], [0, 1, 2]),
        ({"classes": [0, 1, 2]}, ["0", "1", "2"], [0, 1, 2]),
        ({"classes": ["a", "b", "c"]}, ["c", "a", "b"], [2, 0, 1]),
        ({"classes": ["a", "b", "c"]}, ["c", "b"], [2, 1, 0]),
        ({"landmarks": ["a", "b", "c"], "classes": ["x"]}, ["b", "c", "a"], [1, 2, 0]),
    ],
)
def test_outputs_are_those_of_the_data_by_name(about, ours, order):
    function, _ = make_function(channel_means, "means", "sum", **about)
    layer, lines = match(function, ours)
    images = draw_images(4)
    np.testing.assert_allclose(layer(images).numpy(), images.numpy().mean(axis=(2, 3))[:, order], rtol=1e-5, atol=1e-6)
    assert lines == [f"net.onnx: {len(ours)} of 3 outputs are scored, matched by name"] * (order != [0, 1, 2])


@pytest.mark.parametrize(
    "about, ours, told",
    [
        ({}, ["a", "b", "c"], "unknown, the data's a, b, c"),
        ({"classes": ["a", "b", "c"]}, None, "a, b, c, the data's unknown"),
        ({"classes": "abc"}, ["a", "b", "c"], "unknown, the data's a, b, c"),
    ],
)
def test_unknown_names_are_told(about, ours, told):
    function, _ = make_function(channel_means, "means", "sum", **about)
    layer, (line,) = match(function, ours)
    assert line == f"note: classes of net.onnx are {told}: the score assumes that both have the same order"
    assert layer.order is None
    assert match(make_function(channel_means, "means", "sum")[0], None)[1] == []


class OwnClassification(Classification):
    """A task of a user."""


@pytest.mark.parametrize("words", [(), ("-allow_changes",), ("TASK", "own")])
@pytest.mark.parametrize(
    "about, ours, told",
    [
        (
            {"classes": ["a", "b", "c"]},
            ["a", "x", "c"],
            r"net.onnx lacks 1 classes \(x\); its own are a, b",
        ),
        ({"classes": ["a", "b", "c"]}, ["a", "b", "c", "d"], r"net.onnx lacks 1 classes \(d\)"),
        ({}, ["a", "b"], r"net.onnx: its classes are unknown, the data's a, b: export it with"),
    ],
)
def test_outputs_that_are_not_the_datas_are_refused(about, ours, told, words):
    function, _ = make_function(channel_means, "means", "sum", **about)
    with forgotten(), pytest.raises(UserError, match=told):
        register_task("own", OwnClassification)
        match(function, ours, config=("-cfg=vit_digits", *words))


def compare_steps(there, here):
    """Lines about the preprocessing that an exported model describes and that of the task."""
    function, _ = make_function(channel_means, "means", preprocessing=there)
    facts = {} if here is None else {"preprocessing": here}
    return scoring.compare_descriptions(make_layer(function), facts, SimpleNamespace(ALLOW_CHANGES=False))


def test_preprocessing_may_be_one_text_or_not_described():
    assert compare_steps("gray, divided by 255", "gray, divided by 255") == compare_steps(None, None) == []
    assert compare_steps(None, "gray") == ["note: net.onnx does not store its preprocessing; this is used: steps gray"]
    with pytest.raises(UserError, match="preprocessing.steps color there, gray here"):
        compare_steps("color", "gray")
