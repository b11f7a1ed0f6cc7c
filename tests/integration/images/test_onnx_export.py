"""``export -format=onnx`` and ``onnxruntime``: files whose outputs match the trained model's without this package."""

import importlib.util
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import paddle
import pytest
import yaml
from PIL import Image
from support.networks.other_names import small
from support.processes import ROOT
from support.trainings.trained import write_weights

from paddlevit_dist import Predictor, UserError
from paddlevit_dist.extensions.export.command import export, run
from paddlevit_dist.extensions.export.trained_models import TrainedModel, load_trained_model

MISSING = [name for name in ("paddle2onnx", "onnx", "onnxruntime") if importlib.util.find_spec(name) is None]
MISSING += [] if not paddle.__version__.startswith("2.") else ["Paddle 3, which paddle2onnx needs"]
needs_onnx = pytest.mark.skipif(bool(MISSING), reason=f"pip install '.[onnx]': no {', '.join(MISSING)}")


def images(batch, *shape):
    return np.random.default_rng(3).standard_normal((batch, *shape)).astype("float32")


def described(model):
    return TrainedModel(
        model, {"model": "small", "num_classes": model.num_classes, "input_shape": [None, 3, *model.image_size]}
    )


def outputs(file, inputs):
    """What onnxruntime computes with all its own optimizations switched off."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    (source,) = session.get_inputs()
    return session.run(None, {source.name: inputs.astype("float16" if "16" in source.type else "float32")})[0]


def operators(file):
    import onnx

    return Counter(node.op_type for node in onnx.load(str(file)).graph.node)


def require_same_outputs(model, folder):
    for kind in ("onnx", "onnxruntime"):
        export(described(model), str(folder / kind), kind)
        for batch in (1, 4):
            x = images(batch, 3, *model.image_size)
            with paddle.no_grad():
                expected = model(paddle.to_tensor(x)).numpy()
            found = outputs(folder / f"{kind}.onnx", x)
            assert np.abs(found - expected).max() <= 5e-6 * max(1.0, np.abs(expected).max()), (kind, batch)


@needs_onnx
def test_what_onnxruntime_cannot_compute_is_one_line(tmp_path):
    require_one_line_of_pooling(Pooled(), tmp_path)


class Pooled(paddle.nn.Layer):
    """Average pooling to 7 x 7 of a smaller map; paddle2onnx writes a stride of 0 for it."""

    num_classes, image_size = 3 * 7 * 7, (4, 4)

    def __init__(self):
        super().__init__()
        self.layers = paddle.nn.Sequential(paddle.nn.Conv2D(3, 3, 1), paddle.nn.AdaptiveAvgPool2D(7))
        self.eval()

    def forward(self, x):
        return self.layers(x).flatten(1)


def require_one_line_of_pooling(model, folder):
    with pytest.raises(UserError, match="^export: onnxruntime cannot compute the converted model: .*AveragePool"):
        export(described(model), str(folder / "out"), "onnx")
    assert not list(folder.iterdir())


@needs_onnx
def test_operators_of_onnxruntime_take_the_place_of_their_parts_and_give_the_same(tmp_path):
    """Of a ViT; of the other families at night."""
    vit = small("vit", seed=1)
    require_same_outputs(vit, tmp_path)
    depth, plain, fused = len(vit.blocks), operators(tmp_path / "onnx.onnx"), operators(tmp_path / "onnxruntime.onnx")
    assert (plain["Softmax"], plain["Erf"], plain["LayerNormalization"]) == (depth, depth, 2 * depth + 1)
    assert (fused["MultiHeadAttention"], fused["BiasGelu"], fused["Softmax"], fused["Erf"]) == (depth, depth, 0, 0)
    assert fused["SkipLayerNormalization"] == 2 * depth and fused["Conv"] == fused["Shape"] == 0


PREPARATIONS = {
    "crop": ("RGB", ("DATA.CROP_PCT", "0.8", "DATA.EXIF_ROTATE", "true")),
    "turned": ("RGB", ("DATA.CROP_PCT", "0.8", "DATA.EXIF_ROTATE", "true", "DATA.INTERPOLATION", "bilinear")),
    "square": ("RGB", ("DATA.CROP_PCT", "0.9", "DATA.CROP_MODE", "squash", "DATA.INTERPOLATION", "bilinear")),
    "borders": ("RGB", ("DATA.CROP_PCT", "0.9", "DATA.CROP_MODE", "border", "DATA.INTERPOLATION", "lanczos")),
    "rectangle": ("RGB", ("DATA.CROP_PCT", "0.8", "DATA.IMAGE_SIZE", "[16,24]", "DATA.INTERPOLATION", "lanczos")),
    "gray": ("L", ("DATA.DATASET", "digits")),
}
BY_DAY = ("turned", "borders")


@needs_onnx
@pytest.mark.parametrize("name", BY_DAY)
def test_the_pages_program_repeats_a_prediction_with_the_exported_files_alone(name, tmp_path):
    """Other preparations at night."""
    require_repeated_prediction(*PREPARATIONS[name], tmp_path)


@needs_onnx
def test_the_pages_program_takes_an_image_of_one_pixel_across(tmp_path):
    require_repeated_prediction(*PREPARATIONS["borders"], tmp_path, size=(500, 1))


def require_repeated_prediction(mode, words, tmp_path, size=(47, 71)):
    """The program of docs/guides/exporting.md, as it stands, against ``Predictor`` on the weights."""
    weights = write_weights(tmp_path / "run", ["cat", "ant", "bee"], *words)
    grid = np.mgrid[: size[0], : size[1]]
    colors = np.stack([grid[0] * 5, grid[1] * 3, (grid[0] * grid[1]) % 256], axis=-1).astype(np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6  # a photo of a camera that was turned
    Image.fromarray(colors).convert(mode).save(tmp_path / "image.png", exif=exif)
    (row,) = Predictor(str(weights))([str(tmp_path / "image.png")])
    run([str(weights), str(tmp_path / "out" / "insects"), "-format=onnx"])
    page = (ROOT / "docs" / "guides" / "exporting.md").read_text(encoding="utf-8")
    program = page.split("```python\n")[1].split("```")[0]
    (tmp_path / "classify.py").write_text(program, encoding="utf-8")
    command = [sys.executable, "classify.py", "out/insects", "image.png"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, env={**os.environ})
    assert ended.returncode == 0, ended.stderr
    lines = [line.split() for line in ended.stdout.splitlines()]
    assert [name for name, _ in lines] == [row["class"], row["class_2"], row["class_3"]]
    np.testing.assert_allclose(
        [float(score) for _, score in lines], [row["score"], row["score_2"], row["score_3"]], atol=2e-4
    )


def test_the_example_and_the_description_fit_the_model(tmp_path):
    weights = write_weights(tmp_path / "run", ["cat", "ant", "bee"])
    run([str(weights), str(tmp_path / "exported" / "inference"), "-outputs=probabilities"])
    about = yaml.safe_load((tmp_path / "exported" / "inference.about.yaml").read_text(encoding="utf-8"))
    example = np.load(tmp_path / "exported" / "inference.example.npz")
    assert about["preprocessing"]["resize_shorter_side"] == 18 and about["preprocessing"]["mode"] == "RGB"
    logits = load_trained_model(str(weights)).model(paddle.to_tensor(example["input"])).numpy()
    scores = np.exp(logits) / np.exp(logits).sum()
    np.testing.assert_allclose(example["output"], scores, atol=1e-6)
    (row,) = Predictor(str(weights))([example["picture"]])
    assert about["classes"][int(example["output"].argmax())] == row["class"]
    assert row["score"] == pytest.approx(float(example["output"].max()), abs=1e-4)
    paddlex = yaml.safe_load((tmp_path / "exported" / "inference.yml").read_text(encoding="utf-8"))
    assert paddlex["PostProcess"]["Topk"] == {"topk": 3, "label_list": ["cat", "ant", "bee"]}
    steps = [next(iter(step.items())) for step in paddlex["PreProcess"]["transform_ops"]]
    assert [name for name, _ in steps] == ["ResizeImage", "CropImage", "NormalizeImage", "ToCHWImage"]
    assert steps[0][1] == {"resize_short": 18, "backend": "pil", "interpolation": "BICUBIC"}


def test_missing_packages_are_named_with_what_to_install(tmp_path, monkeypatch):
    weights = write_weights(tmp_path / "run", ["ant", "bee"])
    monkeypatch.setitem(sys.modules, "paddle2onnx", None)
    with pytest.raises(UserError, match=r"paddle2onnx cannot be imported .*pip install '\.\[onnx\]' in the folder"):
        run([str(weights), str(tmp_path / "out"), "-format=onnx"])
    assert not list(tmp_path.glob("out*"))


def test_mistakes_are_named_before_anything_is_written(tmp_path):
    weights = str(write_weights(tmp_path / "run", ["ant", "bee"]))
    for name in ("folder", "taken.pdiparams"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").write_text("")
    for words, message in (
        ([weights, str(tmp_path / "folder")], "is a folder: add a file name"),
        ([str(tmp_path / "folder"), str(tmp_path / "out")], "folder"),
        ([weights, str(tmp_path / "taken")], "taken.pdiparams cannot be written: .*there is a folder where a file"),
        ([weights, str(tmp_path / "file" / "out")], "cannot be written: .*there is a file where a folder is expected"),
        ([weights, str(tmp_path / "out"), "-image_size=30"], "image size|divisible|multiple"),
        ([weights, str(tmp_path / "out"), "-precision=float16"], "-precision=float16 is for -format=onnx"),
        ([weights, str(tmp_path / "out"), "-format=tensorrt"], "'tensorrt' is not one of paddle, onnx, onnxruntime"),
    ):
        with pytest.raises(UserError, match=message):
            run(words)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder", "run", "taken.pdiparams"]
    assert not list(Path(tmp_path, "folder").iterdir())
