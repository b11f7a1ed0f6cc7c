"""What the command hands on and prints, and which files an export writes."""

import math
import signal
import sys
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
import yaml
from support.trainings.trained import write_weights

from paddlevit_dist import Stopped, UserError
from paddlevit_dist.core.runtime import signals
from paddlevit_dist.core.tasks.step_types import ExportParts
from paddlevit_dist.extensions.export import command
from paddlevit_dist.extensions.export.command import describe_export, export
from paddlevit_dist.extensions.export.descriptions import describe_model
from paddlevit_dist.extensions.export.differences import OutputDifference
from paddlevit_dist.extensions.export.pixels import convert_to_pixel_input
from paddlevit_dist.extensions.export.trained_models import TrainedModel, load_trained_model, parse_size
from paddlevit_dist.images.data.reading import UnreadableImage


def make_trained(**parts) -> TrainedModel:
    """A classifier of three classes of images (2, 2, 3)."""
    paddle.seed(0)
    model = paddle.nn.Sequential(paddle.nn.Flatten(), paddle.nn.Linear(12, 3))
    model.eval()
    about = {"model": "resnet18", "num_classes": 3, "input_shape": [None, 2, 2, 3], "weights": "run", "report": "all"}
    return TrainedModel(model, {**about, "classes": ["ä", "b", "c"]}, ExportParts(2, {}, **parts))


def compute_softmax(logits: np.ndarray) -> np.ndarray:
    return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)


@pytest.mark.parametrize("outputs", ["logits", "probabilities"])
def test_an_export_is_described_and_has_an_example(tmp_path, outputs):
    given = np.linspace(-1, 1, 12, dtype=np.float32).reshape(1, 2, 2, 3)
    processing = {"PreProcess": {"transform_ops": []}, "PostProcess": {"Topk": {"topk": 5}}}
    trained = make_trained(example={"input": given, "picture": np.arange(3)}, paddlex=processing)
    difference = export(trained, str(tmp_path / "new" / "net"), outputs=outputs)
    folder = tmp_path / "new"
    names = {path.name for path in folder.iterdir()}
    programs = {"net.json"}, {"net.pdmodel", "net.pdiparams.info"}  # of Paddle 3 and 2.6
    assert names - {"net.about.yaml", "net.example.npz", "net.pdiparams", "net.yml"} in programs
    about = yaml.safe_load((folder / "net.about.yaml").read_text(encoding="utf-8"))
    size = {"absolute": difference.absolute, "of_outputs_up_to": difference.largest}
    facts = {"format": "paddle", "precision": "float32", "outputs": outputs, "input_name": "images"}
    softmax = {"output": "probabilities of the classes"} if outputs == "probabilities" else {}
    assert about == {**trained.about, **facts, **softmax, "largest_difference": size}
    logits = trained.model(paddle.to_tensor(given)).numpy()
    expected = compute_softmax(logits) if softmax else logits
    with np.load(folder / "net.example.npz") as example:
        assert set(example) == {"input", "output", "picture"} and example["picture"].tolist() == [0, 1, 2]
        np.testing.assert_array_equal(example["input"], given)
        np.testing.assert_allclose(example["output"], expected, rtol=1e-5)
    images = np.random.default_rng(5).normal(size=(4, 2, 2, 3)).astype(np.float32)
    loaded = paddle.jit.load(str(folder / "net"))(paddle.to_tensor(images)).numpy()
    logits = trained.model(paddle.to_tensor(images)).numpy()
    np.testing.assert_allclose(loaded, compute_softmax(logits) if softmax else logits, rtol=1e-4, atol=1e-6)
    text = (folder / "net.yml").read_text(encoding="utf-8")
    assert text.startswith("# resnet18, for PaddleX") and yaml.safe_load(text)["Global"] == {"model_name": "ResNet18"}
    assert yaml.safe_load(text)["PostProcess"]["Topk"] == {"topk": 3, "label_list": ["ä", "b", "c"]}


@pytest.mark.skipif(paddle.__version__.startswith("2."), reason="paddle2onnx needs Paddle 3")
@pytest.mark.parametrize("kind, precision", [("onnx", "float32"), ("onnxruntime", "float32"), ("onnx", "float16")])
def test_an_onnx_file_computes_the_same_and_has_the_description(tmp_path, kind, precision):
    onnx = pytest.importorskip("onnx")

    from paddlevit_dist.extensions.export.onnx_files import run

    trained = make_trained(paddlex={"PreProcess": {}})
    trained.model.append(paddle.nn.GELU())
    trained.model.eval()
    difference = export(trained, str(tmp_path / "net"), kind, precision)
    assert {path.name for path in tmp_path.iterdir()} == {"net.onnx", "net.about.yaml", "net.example.npz"}
    model = onnx.load(tmp_path / "net.onnx")
    about = yaml.safe_load((tmp_path / "net.about.yaml").read_text(encoding="utf-8"))
    size = about.pop("largest_difference")
    assert size == {"absolute": difference.absolute, "of_outputs_up_to": difference.largest}
    assert {row.key: yaml.safe_load(row.value) for row in model.metadata_props} == {"about": about}
    assert (about["format"], about["precision"]) == (kind, precision)
    assert ("com.microsoft" in {node.domain for node in model.graph.node}) == (kind == "onnxruntime")
    kinds = {weights.data_type for weights in model.graph.initializer if len(weights.dims) == 2}
    assert kinds == {onnx.TensorProto.FLOAT16 if precision == "float16" else onnx.TensorProto.FLOAT}
    images = np.random.default_rng(5).normal(size=(4, 2, 2, 3)).astype(np.float32)
    (found,) = run(model, {"images": images}).values()
    expected = trained.model(paddle.to_tensor(images)).numpy()
    np.testing.assert_allclose(found, expected, atol=4e-3 if precision == "float16" else 1e-5)
    assert [output.name for output in model.graph.output] == ["logits"]


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        (
            {"output_shape": ()},
            r"has the shape \(3,\) without the batch axis, but output_shape .* is \(\): ",
        ),
        ({"output_shape": (4,)}, r"output_shape of ExportParts is \(4,\): expected the same, with None for any length"),
        ({"output_shape": (None, 3)}, r"output_shape of ExportParts is \(None, 3\): "),
        ({"output_names": ("mean", "spread")}, r"the network returns 1 output, but output_names of ExportParts are .*"),
        (
            {"example": {"input": np.ones((1, 3, 2, 3), np.float32)}},
            r"the network does not take the input \(1, 3, 2, 3\) of ExportParts, whose channels are 2 and",
        ),
    ],
)
def test_a_network_that_computes_something_else_than_declared_is_refused(tmp_path, declared, said):
    with pytest.raises(UserError, match=f"^export: .*{said}") as caught:
        export(make_trained(**declared), str(tmp_path / "net"))
    assert "\n" not in str(caught.value) and not list(tmp_path.iterdir())
    export(make_trained(output_shape=(None,), output_names=("logits",)), str(tmp_path / "net"))


class Boxes(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.factor = self.create_parameter([1], default_initializer=paddle.nn.initializer.Constant(0.5))

    def forward(self, images, sizes):
        return images.astype("float32").sum(axis=[1, 2, 3]), sizes.astype("float32") * self.factor


def test_a_detector_has_two_inputs_and_its_own_comparison(tmp_path):
    seen = []

    def differ(expected, actual):
        seen.append([array.shape for array in (*expected, *actual)])
        return 0.25, "boxes"

    names = {"output_names": ("sums", "boxes"), "input_name": "pixels", "sizes_name": "sizes"}
    trained = make_trained(difference=differ, **names)._replace(model=Boxes())
    trained.model.eval()
    about = {**trained.about, "input_type": "uint8"}
    difference = export(trained._replace(about=about), str(tmp_path / "net"))
    assert difference == OutputDifference(0.25, 1.0, "boxes") and seen == [[(3,), (3, 2)] * 2]
    about = yaml.safe_load((tmp_path / "net.about.yaml").read_text(encoding="utf-8"))
    assert (about["input_name"], about["outputs"]) == ("pixels", ["sums", "boxes"]) and "yml" not in str(about)
    with np.load(tmp_path / "net.example.npz") as example:
        assert set(example) == {"input", "sizes", "sums", "boxes"}
        assert example["input"].dtype == np.uint8 and example["input"].shape == (1, 2, 2, 3)
        assert (example["sizes"].shape, example["sums"].shape) == ((1, 2), (1,))
        assert example["sums"] == example["input"].sum() and (example["boxes"] == example["sizes"] / 2).all()
    assert not (tmp_path / "net.yml").exists()
    for parts in (trained.parts, ExportParts(2, {}, input_name="pixels"), ExportParts(2, {}, output_names=("a", "b"))):
        with pytest.raises(UserError, match="-outputs=probabilities is for classifiers of one class: remove it"):
            export(trained._replace(parts=parts), str(tmp_path / "other"), outputs="probabilities")


class Enlarged(paddle.nn.Layer):
    """Doubles the sides of images; adds numbers that only one size has, unless it takes any."""

    def __init__(self, is_any_size):
        super().__init__()
        self.is_any_size = is_any_size

    def forward(self, x):
        x = x if self.is_any_size else x + paddle.ones([1, 3, 4, 6])
        return paddle.nn.functional.interpolate(x, size=[2 * x.shape[2], 2 * x.shape[3]])


@pytest.mark.parametrize("is_any_size", [True, False])
def test_an_input_has_any_size_if_the_network_gives_the_same_for_another_one(tmp_path, is_any_size):
    model = Enlarged(is_any_size)
    model.eval()
    parts = ExportParts(3, {}, output_names=("maps",), output_shape=(3, None, None), is_any_size=True)
    trained = TrainedModel(model, {"input_shape": [None, 3, 4, 6]}, parts)
    export(trained, str(tmp_path / "out"))
    about = yaml.safe_load((tmp_path / "out.about.yaml").read_text(encoding="utf-8"))
    assert about["input_shape"] == [None, 3, *((None, None) if is_any_size else (4, 6))]
    assert ("note" in about) != is_any_size
    images = np.random.default_rng(0).normal(size=(2, 3, *((5, 9) if is_any_size else (4, 6)))).astype("float32")
    expected = model(paddle.to_tensor(images)).numpy()
    np.testing.assert_array_equal(paddle.jit.load(str(tmp_path / "out"))(paddle.to_tensor(images)).numpy(), expected)


def test_a_model_that_computes_something_else_leaves_nothing(tmp_path):
    before = "of the export before"
    (tmp_path / "net.about.yaml").write_text(before)
    trained = make_trained(difference=lambda *_: (math.inf, "answers"))
    with pytest.raises(RuntimeError, match="net differs from the model it was exported from"):
        export(trained, str(tmp_path / "net"))
    assert [path.read_text() for path in tmp_path.iterdir()] == [before]
    (tmp_path / "net.example.npz").mkdir()
    with pytest.raises(UserError, match=r"export: .*net.example.npz cannot be written: "):
        export(make_trained(), str(tmp_path / "net"))
    assert (tmp_path / "net.about.yaml").read_text() == before and len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("output, kind, expected", [
    ("a/b", None, ("a/b", "paddle")), ("a/b.v2", "onnx", ("a/b.v2", "onnx")), ("~/b.pdmodel", None, ("~/b", "paddle")),
    ("a/b.onnx", None, ("a/b", "onnx")), ("a.ONNX", "onnxruntime", ("a", "onnxruntime")),
])  # fmt: skip
def test_the_suffix_of_a_format_chooses_it(output, kind, expected):
    assert command.choose_format(output, kind) == expected


@pytest.mark.parametrize("output, kind", [("a.onnx", "paddle"), ("a.pdiparams", "onnx"), ("a.json", "onnxruntime")])
def test_the_suffix_of_another_format_is_refused(output, kind):
    with pytest.raises(
        UserError, match=rf"^export: {output} ends with \.\w+, but -format={kind} writes other files: re"
    ):
        command.choose_format(output, kind)


@pytest.mark.parametrize("is_named", [True, False])
def test_a_folder_with_the_suffix_of_a_format_is_a_folder(tmp_path, is_named):
    (tmp_path / "b.onnx").mkdir()
    with pytest.raises(UserError, match="is a folder: add a file name"):
        command.choose_format(str(tmp_path / "b.onnx") if is_named else "b.onnx/", None)


ABOUT = {"model": "vit", "num_classes": 7, "weights": "run/best", "report": "9 tensors", "input_shape": [None, 3, 8, 8]}


def test_what_was_exported_is_told(tmp_path):
    told = describe_export({**ABOUT, "landmarks": ["a"], "note": "new"}, OutputDifference(0.001, 4.0), "net", "float16")
    assert told == [
        "vit with 7 landmarks from run/best: 9 tensors",
        "net: input [None, 3, 8, 8] float16; outputs up to 4 differ by at most 1.0e-03",
        "note: new",
    ]
    first, second, note = describe_export({**ABOUT, "num_classes": 1}, OutputDifference(0.001, 1.0), "net", "float32")
    assert first.startswith("vit with run/best: 9") and "[None, 3, 8, 8] float32; " in second
    assert note.startswith("note: rounding does not explain this difference") and "run evaluate net to get" in note


def test_flags_and_keys_change_what_is_exported(tmp_path, capsys):
    weights, out = write_weights(tmp_path / "weights", ["cat", "ant", "bee"]), str(tmp_path / "net")
    state = paddle.load(str(weights))
    other = {name: 2 * value for name, value in state.items()}
    paddle.save({"student": state, "other": other}, str(weights))
    words = ["-input=uint8", "-outputs=probabilities", "-image_size=16x24", "-part=other"]
    command.run([str(weights), out, *words, "DATA.CROP_PCT", "0.5", "-allow-changes", "TRAIN.BASE_LR=0.1"])
    unread, first, second, *_ = capsys.readouterr().out.splitlines()
    assert unread.startswith("TRAIN.BASE_LR 0.1 ") and first.startswith(f"vit with 3 classes from {weights}: loaded")
    assert second.startswith(f"{out}: input [None, 16, 24, 3] uint8, computed in float32; outputs up to ")
    about = yaml.safe_load((tmp_path / "net.about.yaml").read_text(encoding="utf-8"))
    found = about["format"], about["precision"], about["outputs"], about["input_type"], about["crop_pct"]
    assert found == ("paddle", "float32", "probabilities", "uint8", 0.5)
    with np.load(tmp_path / "net.example.npz") as example:
        pixels, shares = example["input"], example["output"]
    changes = ["DATA.CROP_PCT=0.5", "-allow_changes"]
    trained = convert_to_pixel_input(load_trained_model(str(weights), None, (16, 24), None, "other", changes))
    expected = compute_softmax(trained.model(paddle.to_tensor(pixels)).numpy())
    np.testing.assert_allclose(shares, expected, rtol=1e-4, atol=1e-6)


def test_half_precision_and_folders_are_refused_before_anything_is_loaded(tmp_path):
    with pytest.raises(UserError, match="-precision=float16 is for -format=onnx and onnxruntime"):
        command.run(["run", str(tmp_path / "net"), "-precision=float16"])
    with pytest.raises(UserError, match="is a folder"):
        command.run(["run", str(tmp_path)])


def test_packages_for_onnx_are_asked_for_before_anything_is_loaded(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.setitem(sys.modules, "paddle2onnx", None)
    with pytest.raises(UserError, match="ONNX needs paddle2onnx"):
        command.run(["run", str(tmp_path / "net"), "-format=onnx"])


def test_a_sparse_network_is_refused_before_its_weights_are_read():
    with pytest.raises(UserError, match="pointgroup is a sparse network, which needs a table of neighboring voxels"):
        load_trained_model("weights", "pointgroup")


def test_a_size_is_that_of_all_axes():
    assert parse_size("DATA.IMAGE_SIZE", 64) == [64, 64]
    assert parse_size("DATA.IMAGE_SIZE", (32, 64)) == [32, 64]
    assert parse_size("DETECTION.EXPORT_SIZE", 64) == [64, 64]
    assert parse_size("DETECTION.EXPORT_SIZE", (32, 64)) == [32, 64]
    with pytest.raises(UserError, match="DATA.BATCH_SIZE is one number: give -image_size as one number"):
        parse_size("DATA.BATCH_SIZE", (32, 64))
    assert parse_size("DATA.BATCH_SIZE", 64) == 64


def test_the_shape_of_the_input_is_what_the_task_exports_or_else_the_models():
    images = SimpleNamespace(num_classes=3, in_channels=3, image_size=(4, 5))
    regression = paddle.nn.Linear(2, 1)  # the network of a user

    shapes = [
        describe_model("net", "run", model, parts)["input_shape"]
        for model, parts in ((images, None), (images, ExportParts(1, {})), (regression, ExportParts(1, {}, (6, 7))))
    ]

    assert shapes == [[None, 3, 4, 5], [None, 1, 4, 5], [None, 1, 6, 7]]


class FailsTraced(paddle.nn.Layer):
    """A network that calls ``function`` while Paddle traces it."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, images):
        if not paddle.in_dynamic_mode():
            self.function()
        return images.sum(axis=[2, 3])


def export_failing(function, output) -> BaseException:
    """Return what leaves the export of a network that calls ``function`` while it is traced."""
    model = FailsTraced(function)
    model.eval()
    with signals.installed(), pytest.raises(BaseException) as raised:
        export(make_trained()._replace(model=model), str(output / "net"))
    assert not list(output.iterdir())
    return raised.value


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_a_network_is_traced_waits_for_paddle_and_has_its_exit_code(tmp_path, own_signals, number):
    held = []

    def receive():
        signal.raise_signal(number)
        held.append(signals.number())

    with signals.installed():
        pass  # forgets what trainings of other tests have set
    error = export_failing(receive, tmp_path)
    assert held == [number] and isinstance(error, KeyboardInterrupt) and signals.exit_code(error) == 128 + number


class OwnError(Exception):
    """An exception of a user's network, which no text alone builds."""

    def __init__(self, layer, *, shape):
        super().__init__(f"{layer}: {shape}")


@pytest.mark.parametrize(
    "error", [OwnError("conv", shape=[3]), UnreadableImage("a.png", "no pixels"), Stopped("a", "b")]
)
def test_an_exception_leaves_a_traced_network_as_it_is(tmp_path, own_signals, error):
    def fail():
        raise error

    assert export_failing(fail, tmp_path) is error
