"""``predict`` with exported files: what it prints and writes is what the trained weights give."""

import csv
import importlib.util
import json
import os
import sys

import numpy as np
import paddle
import pytest
import yaml
from PIL import Image
from support.forks import in_child
from support.processes import ROOT, run_command
from support.refusals import refusal_of
from support.trainings.runs import well
from support.trainings.trained import write_weights
from support.trainings.untrained import write_untrained_run

from paddlevit_dist import Predictor
from paddlevit_dist.extensions.export.command import run

MISSING = [name for name in ("paddle2onnx", "onnx", "onnxruntime") if importlib.util.find_spec(name) is None]
MISSING += ["Paddle 3"] if paddle.__version__.startswith("2.") else []
needs_onnx = pytest.mark.skipif(bool(MISSING), reason=f"pip install '.[onnx]': no {', '.join(MISSING)}")
BORDER = ("DATA.CROP_PCT", "0.9", "DATA.CROP_MODE", "border", "DATA.EXIF_ROTATE", "true")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    return str(write_weights(tmp_path_factory.mktemp("run"), ["cat", "ant", "no"], *BORDER))


@pytest.fixture(scope="module")
def odd_images(tmp_path_factory):
    """A folder of images whose decoding or shape is unusual."""
    folder, draw = tmp_path_factory.mktemp("odd"), np.random.default_rng(0).integers
    colors = Image.fromarray(draw(0, 256, (40, 30, 3), np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6
    colors.resize((1, 500)).save(folder / "thin.png")
    colors.resize((500, 1)).save(folder / "flat.png")
    colors.resize((1, 1)).save(folder / "one.png")
    colors.quantize(16).save(folder / "palette.png", transparency=3)
    colors.quantize(8).save(folder / "palette.gif")
    colors.convert("L").save(folder / "gray.jpg")
    colors.convert("1").save(folder / "two.png")
    colors.convert("CMYK").save(folder / "cmyk.jpg")
    colors.save(folder / "turned.jpg", exif=exif)
    for mode in ("RGBA", "LA"):
        image = colors.convert(mode)
        image.putalpha(Image.fromarray(draw(0, 256, (40, 30), np.uint8)))
        image.save(folder / f"{mode}.png")
    Image.fromarray(draw(0, 1 << 16, (40, 30), np.uint16)).save(folder / "deep.png")
    colors.save(folder / "pages.tiff", save_all=True, append_images=[colors.rotate(180)])
    colors.save(folder / "lossy.webp")
    (folder / "torn.png").write_bytes((folder / "one.png").read_bytes()[:40])
    return folder


def assert_equal_rows(found, expected, tolerance=2e-5):
    assert len(found) == len(expected) > 0
    for row, other in zip(found, expected, strict=True):
        assert list(row) == list(other)
        for name, value in other.items():
            assert row[name] == (pytest.approx(value, abs=tolerance) if isinstance(value, float) else value), name


FORMS = {
    "paddle": ([], 2e-5),
    "onnx": ([], 2e-5),
    "onnxruntime": (["-input=uint8"], 2e-5),
    "onnx of half numbers": (["-precision=float16", "-outputs=probabilities"], 5e-3),
}


@needs_onnx
@pytest.mark.parametrize("form", FORMS)
def test_an_exported_classifier_answers_as_its_weights_for_odd_images(form, classifier, odd_images, tmp_path):
    words, tolerance = FORMS[form]
    run([classifier, str(tmp_path / "net"), f"-format={form.partition(' ')[0]}", *words])
    path = tmp_path / ("net.pdiparams" if form == "paddle" else "net.onnx")
    trained, exported = Predictor(classifier), Predictor(path if form == "onnx" else path.with_suffix(""))
    expected, found = trained(odd_images), exported(odd_images)
    assert_equal_rows(found, expected, tolerance)
    assert len(found) == 14 and len({row["score"] for row in found}) > 8
    assert in_child(lambda: exported(odd_images))() == found
    assert exported.class_names == ("cat", "ant", "no")
    assert found.unreadable == expected.unreadable and len(found.unreadable) == 1
    renamed = Predictor(path, class_names=["x", "y", "z"])(odd_images / "gray.jpg")
    assert renamed[0]["class"] in "xyz"


@needs_onnx
def test_an_onnx_file_alone_is_enough_on_another_computer_and_in_a_fork(classifier, odd_images, tmp_path, capsys):
    run([classifier, str(tmp_path / "net"), "-format=onnx"])
    (tmp_path / "alone").mkdir()
    (tmp_path / "net.onnx").rename(tmp_path / "alone" / "other.onnx")
    content = (odd_images / "gray.jpg").read_bytes()
    predict = Predictor(tmp_path / "alone" / "other.onnx")
    expected = predict(content)
    assert_equal_rows(expected, Predictor(classifier)(content))
    assert in_child(lambda: predict(content))() == expected
    capsys.readouterr()
    (tmp_path / "alone" / "other.about.yaml").write_text("task: detection\n", encoding="utf-8")
    assert Predictor(tmp_path / "alone" / "other.onnx")(content) == expected
    (told,) = (line for line in capsys.readouterr().out.splitlines() if "is not of" in line)
    assert "other.about.yaml is not of" in told and told.endswith(": the description in the file is used")
    about = yaml.safe_load((tmp_path / "net.about.yaml").read_text(encoding="utf-8"))
    places = [text for text in str(about["settings"]).split("'") if os.sep in text]
    assert places == [] and about["settings"]["DATA"]["CROP_MODE"] == "border"
    assert str(tmp_path) not in str({name: about[name] for name in ("settings", "data", "input")})


@needs_onnx
def test_settings_that_the_file_does_not_compute_are_refused_in_one_line(classifier, tmp_path):
    run([classifier, str(tmp_path / "net"), "-format=paddle"])
    description = tmp_path / "net.about.yaml"
    about = yaml.safe_load(description.read_text(encoding="utf-8"))
    for change, reason in (
        ({"preprocessing": {**about["preprocessing"], "interpolation": "box"}}, "expects other preprocessing"),
        ({"settings": {**about["settings"], "DATA": {"IMAGE_SIZE": "large"}}}, "DATA.IMAGE_SIZE is large"),
        ({"settings": None}, "net.pdiparams does not say with which settings it is used: export the run again"),
    ):
        description.write_text(yaml.safe_dump({**about, **change}), encoding="utf-8")
        assert reason in refusal_of(Predictor, tmp_path / "net.pdiparams")
    found = refusal_of(Predictor, tmp_path / "net.pdiparams", **{"DATA.IMAGE_SIZE": 32}, recipe="vit_digits")
    assert "expects other preprocessing" in found or "takes" in found
    assert "give the weights that it was exported from" in refusal_of(run, [str(tmp_path / "net"), str(tmp_path / "b")])
    description.write_text(yaml.safe_dump(about), encoding="utf-8")
    for name, value in (("EXPORTED", str(tmp_path / "net")), ("pretrained", str(tmp_path)), ("DATA.IMAGE_SIZE", 32)):
        said = refusal_of(Predictor, tmp_path / "net.pdiparams", **{name: value})
        assert ("cannot change" in said) == (name != "DATA.IMAGE_SIZE"), said
    assert "gone.onnx does not exist" in refusal_of(Predictor, tmp_path / "gone.onnx")


@needs_onnx
def test_the_command_writes_the_files_of_a_detector_and_a_data_set(tmp_path):
    words = "DATA.SHAPES.TRAIN 4 DATA.SHAPES.VAL 2".split()
    weights = write_untrained_run(tmp_path / "run", [f"-cfg={ROOT / 'configs' / 'rtdetr_shapes.yaml'}", *words])
    run([str(weights), str(tmp_path / "net"), "-format=onnx"])
    image = np.random.default_rng(0).integers(0, 256, (80, 100, 3), np.uint8)
    Image.fromarray(image).save(tmp_path / "a.png")
    outputs = []
    for source, name in ((weights, "of_weights"), (tmp_path / "net.onnx", "of_file")):
        command = [sys.executable, "-m", "paddlevit_dist", "predict", str(source), str(tmp_path / "a.png")]
        ended = well(
            run_command([*command, f"-output={tmp_path / name}", "-save_as=coco", "-least_score=0"], timeout=600)
        )
        outputs.append(tmp_path / name)
    assert "an exported model, computed by onnxruntime" in str(ended)
    names = [
        sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()) for folder in outputs
    ]
    assert names[0] == names[1] and any("dataset" in name for name in names[0]) and "predictions.csv" in names[0]
    expected, found = (
        [json.loads(line) for line in (folder / "predictions.jsonl").read_text().splitlines()] for folder in outputs
    )
    assert_equal_rows(found, expected, 1e-3)
    with open(outputs[1] / "predictions.csv", newline="") as file:
        assert len(list(csv.reader(file))) == len(expected) + 1
