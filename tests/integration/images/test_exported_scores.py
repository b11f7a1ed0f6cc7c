"""``evaluate MODEL.onnx``: exported models, ours and others', are scored as trained weights are."""

import importlib.util
import json
import os
import re
import shutil
import sys

import numpy as np
import pytest
from support.processes import run_command, run_main
from support.trainings.runs import DIGITS, contents, last_line, read_events, refusal, well

from paddlevit_dist import UserError, evaluate
from paddlevit_dist.core.commands.convert import run as convert
from paddlevit_dist.core.commands.run_folder import expand_run
from paddlevit_dist.core.tasks.step_types import ExportParts
from paddlevit_dist.extensions.export import functions
from paddlevit_dist.extensions.export.command import run as export
from paddlevit_dist.extensions.export.files import find_exported
from paddlevit_dist.extensions.export.scoring import ExportedLayer

MISSING = [name for name in ("paddle2onnx", "onnx", "onnxruntime") if importlib.util.find_spec(name) is None]
needs_onnx = pytest.mark.skipif(bool(MISSING), reason=f"pip install '.[onnx]': no {', '.join(MISSING)}")
COUNTS = np.array([42, 28, 26, 48, 38, 39, 30, 26, 36, 47])  # of the embedded digits of val
SCORES = np.array([0.5, -1.0, 0.25, 2.0, 0.0, 1.0, -0.5, 1.5, -2.0, -0.25], np.float32)  # of the digits, of any image


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run on the digits with the evaluation of its weights alone in "checked", and its export in "exported"."""
    folder = tmp_path_factory.mktemp("run")
    well(run_main(*DIGITS, f"-output={folder / 'run'}", "TRAIN.WARMUP_EPOCHS", "0"))
    evaluated(folder, "checked", f"-pretrained={folder / 'run'}")
    export([str(folder / "run"), str(folder / "exported" / "digits")])
    return folder


def evaluated(folder, name, *words, processes=1):
    flags = [*DIGITS[:-4], "DATA.IMAGE_CHANNELS", "1", f"-ngpus={processes}", f"-output={folder / name}"]
    command = [sys.executable, "-m", "paddlevit_dist", "evaluate", *words, *flags]
    return run_command([word for word in command if word != "-epochs=1"], timeout=600)


def make_values(folder):
    return json.loads((folder / "eval_intervals.json").read_text())["values"]


def scored_samples(folder):
    with np.load(folder / "eval_scored_samples.npz") as file:
        return {name: file[name] for name in ("labels", "places", "indices")}


def test_an_export_has_the_score_of_its_weights_and_says_so(trained, tmp_path):
    """By two processes here, by one at night."""
    require_score_of_the_weights(trained, tmp_path, 2)


@needs_onnx
def test_weights_and_an_onnx_file_without_their_run_have_its_score(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained / "run", "run")
    for folder in ("weights", "file", "published"):
        os.mkdir(folder)
    convert(["run", "weights/net.safetensors"])
    export(["run", "file/net.onnx"])
    export(["run", "published/net", "-format=hub"])
    os.rename("run", "gone")
    expected = make_values(trained / "checked")
    for source in ("weights/net.safetensors", "file/net.onnx", "published/net"):
        run = evaluate(source, output=f"of_{source[:4]}")
        assert run.values["top-1"] == pytest.approx(expected["top-1"]["value"], abs=1e-4) and run.weights == source


def require_score_of_the_weights(trained, tmp_path, processes):
    ended = well(evaluated(tmp_path, "scored", str(trained / "exported"), processes=processes))
    expected, found = make_values(trained / "checked"), make_values(tmp_path / "scored")
    assert found.keys() == expected.keys()
    for name, ends in expected.items():
        assert found[name] == pytest.approx(ends, abs=1e-4), name
    for name, column in scored_samples(trained / "checked").items():
        np.testing.assert_array_equal(scored_samples(tmp_path / "scored")[name], column, name)
    trained_line, difference, last = ended.out.splitlines()[-3:]
    log = (trained / "checked" / "log.txt").read_text().splitlines()[-1]
    assert last.endswith("(Paddle's inference model on cpu)") and last.rpartition(" (")[0] in log
    assert trained_line.startswith("trained weights: top-1 ")
    told = r"after the export: top-1 \+0 \[-0\.\d+, \+0\.\d+\]; 0 of 360 images have another answer; outputs up to "
    assert re.match(told, difference)  # no decision differs, and yet others may
    event = read_events(tmp_path / "scored")[-1]
    assert event["kind"] == "difference_of_export" and event["changed"] == 0
    assert 0 <= event["largest_difference"] < 1e-5 < event["of_outputs_up_to"]


def test_an_export_that_takes_pixels_has_the_score_of_its_weights(trained, tmp_path):
    export([str(trained / "run"), str(tmp_path / "digits"), "-input=uint8"])
    ended = well(evaluated(tmp_path, "scored", str(tmp_path / "digits")))
    assert re.search(r"after the export: top-1 \+0 \[\S+ \S+\]; 0 of 360 images have another answer", ended.out)
    for name, ends in make_values(trained / "checked").items():
        assert make_values(tmp_path / "scored")[name] == pytest.approx(ends, abs=1e-4), name
    example = np.load(tmp_path / "digits.example.npz")
    assert example["input"].dtype == np.uint8 and example["input"].shape == (1, 16, 16, 1)


def write_onnx(file, shape=("batch", 1, 16, 16), scores=SCORES, dtype="FLOAT", more=(), inputs=("pixels",)):
    """A network that gives any image the same scores, written with ONNX's own helper: ``pixels`` times zero, plus
    them; ``more``: names of other outputs of its values."""
    from onnx import TensorProto, helper, numpy_helper, save

    kind = getattr(TensorProto, dtype)
    numpy_kind = helper.tensor_dtype_to_np_dtype(kind)
    zeros = numpy_helper.from_array(np.zeros((int(np.prod(shape[1:])), len(scores)), numpy_kind), "zeros")
    bias = numpy_helper.from_array(np.asarray(scores, numpy_kind), "bias")
    nodes = [
        helper.make_node("Flatten", [inputs[0]], ["flat"]),
        helper.make_node("Gemm", ["flat", "zeros", "bias"], ["scores"]),
        *(helper.make_node("Identity", [name.partition("=")[2]], [name.partition("=")[0]]) for name in more),
    ]
    sources = [helper.make_tensor_value_info(name, kind, shape) for name in inputs]
    found = [helper.make_tensor_value_info(name.partition("=")[0], kind, None) for name in ("scores", *more)]
    graph = helper.make_graph(nodes, "others", sources, found, [zeros, bias])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(file))
    return file


@needs_onnx
def test_a_model_of_another_maker_has_the_score_that_follows_from_the_number_of_images(tmp_path):
    """By one process here, by two at night."""
    require_score_of_another_maker(tmp_path, 1)


def require_score_of_another_maker(tmp_path, processes):
    """In batches of seven images, in half precision, with features as a second output."""
    file = write_onnx(tmp_path / "others.onnx", (7, 1, 16, 16), dtype="FLOAT16", more=("features=flat",))
    ended = well(evaluated(tmp_path, "scored", str(file), processes=processes))
    found = read_events(tmp_path / "scored")[-1]
    best = np.argsort(-SCORES)
    assert found["top-1"] == pytest.approx(100 * COUNTS[best[0]] / 360)
    assert found["top-5"] == pytest.approx(100 * COUNTS[best[:5]].sum() / 360)
    loss = np.log(np.exp(SCORES).sum()) - (COUNTS * SCORES).sum() / 360
    assert found["loss"] == pytest.approx(loss, abs=1e-5)
    assert "CPUExecutionProvider" in found["computed_by"] and "CPUExecutionProvider)" in last_line(ended)
    assert "does not store its preprocessing; this is used: mode L, resize [16, 16]" in ended.out
    assert "is not compared with trained weights; add -pretrained=RUN" in ended.out


@needs_onnx
def test_other_weights_are_seen_to_be_others(trained, tmp_path):
    probabilities = np.exp(SCORES) / np.exp(SCORES).sum()
    file = write_onnx(tmp_path / "others.onnx", scores=probabilities)
    ended = well(evaluated(tmp_path, "scored", str(file), f"-pretrained={trained / 'run'}"))
    found = {event["kind"]: event for event in read_events(tmp_path / "scored")}
    loss = np.log(np.exp(SCORES).sum()) - (COUNTS * SCORES).sum() / 360
    assert found["evaluation"]["loss"] == pytest.approx(loss, abs=1e-5)  # not of a softmax of probabilities
    assert found["difference_of_export"]["trained_values"] == pytest.approx(
        {name: value for name, value in read_events(trained / "checked")[-1].items() if name in SCORED}, abs=1e-6
    )
    answers = scored_samples(trained / "checked")
    same = ((answers["places"] == 0) & (answers["labels"] == 3)).sum()
    assert 0 < found["difference_of_export"]["changed"] <= 360 - same
    assert "gives probabilities: the loss uses their logarithms as logits" in ended.out
    assert "note: rounding in float32 does not explain this difference" in ended.out


@needs_onnx
def test_outputs_that_are_not_finite_differ_without_a_limit(trained, tmp_path):
    file = write_onnx(tmp_path / "others.onnx", scores=np.where(SCORES == 2, np.nan, SCORES))
    ended = well(evaluated(tmp_path, "scored", str(file), f"-pretrained={trained / 'run'}"))
    assert read_events(tmp_path / "scored")[-1]["largest_difference"] is None
    assert (
        "differ by infinity: some are not finite" in ended.out and "rounding in float32 does not explain" in ended.out
    )
    assert last_line(ended).startswith("top-1 0.00 ")


SCORED = ("top-1", "top-5", "loss", "balanced accuracy", "top-1 count", "top-5 count", "samples")
SCORED += ("macro precision", "MCC", "kappa")


def built(file, classes=10, size=16, output=None, channels=1):
    parts = ExportParts(channels, {}, output_shape=(classes,))
    return ExportedLayer(str(file), functions.load(find_exported(str(file))), parts, (channels, size, size), output)


@needs_onnx
@pytest.mark.parametrize(
    "words, expected, message",
    [
        ({}, {"size": 32}, r"takes pixels \(batch, 1, 16, 16\) float32, and .* has \(batch, 1, 32, 32\): change"),
        ({"shape": (2, 16, 16, 1)}, {}, r"takes pixels \(2, 16, 16, 1\) .*export it with channels before height"),
        ({}, {"classes": 12}, r"gives scores \(batch, 10\), and these data need \(batch, 12\)$"),
        (
            {},
            {"classes": 4},
            r"need \(batch, 4\); add -num_classes=10, and its classes are matched with the data's by name",
        ),
        ({"dtype": "DOUBLE"}, {}, "takes pixels .* double: expected float32 or float16"),
        ({"inputs": ("pixels", "mask")}, {}, r"takes 2 inputs \(pixels .*; mask .*\): expected one, \(batch, 1, 16"),
        ({"more": ("copy=scores",)}, {}, r"several outputs fit, scores \(batch, 10\), copy .* EXPORTED_OUTPUT NAME"),
        ({"more": ("flat_=flat",)}, {"output": "flat_"}, r"gives scores .*flat_ \(batch, 256\), and these data need"),
        (
            {},
            {"output": "logits"},
            r"EXPORTED_OUTPUT logits: .* does not have this output; it has scores \(batch, 10\)",
        ),
    ],
)
def test_a_model_that_does_not_fit_is_one_line(tmp_path, words, expected, message):
    with pytest.raises(UserError, match=message) as error:
        built(write_onnx(tmp_path / "others.onnx", **words), **expected)
    assert "\n" not in str(error.value)


@needs_onnx
def test_an_output_is_chosen_by_its_name_and_open_sizes_take_any(tmp_path):
    import paddle

    file = write_onnx(tmp_path / "others.onnx", more=("copy=scores",))
    for number in (1, 5):
        found = built(file, output="copy")(paddle.zeros([number, 1, 16, 16])).numpy()
        np.testing.assert_allclose(found, np.tile(SCORES, (number, 1)), atol=1e-6)


@needs_onnx
@pytest.mark.parametrize("content", [b"", b"\x08\x08\x12", b"no model at all" * 50])
def test_a_damaged_file_is_one_line(tmp_path, content):
    (tmp_path / "bad.onnx").write_bytes(content)
    with pytest.raises(UserError, match=r"bad.onnx: onnxruntime .* cannot load it: ") as error:
        built(tmp_path / "bad.onnx")
    assert "\n" not in str(error.value)


@needs_onnx
def test_what_computes_is_what_is_told(tmp_path, monkeypatch):
    file = write_onnx(tmp_path / "others.onnx")
    assert functions.load(find_exported(str(file))).note == ""
    monkeypatch.setattr(functions, "is_on_gpu", lambda: True)
    found = functions.load(find_exported(str(file)))
    assert found.computed_by.endswith(", CPUExecutionProvider")
    assert "runs on the CPU: CUDAExecutionProvider of onnxruntime cannot start here" in found.note
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UserError, match="onnxruntime, which cannot be imported .*: pip install onnxruntime, or onnx"):
        functions.load(find_exported(str(file)))


def test_parameters_that_were_cut_off_are_noticed(trained, tmp_path):
    """Paddle loads them, with what happens to be in memory in place of the rest."""
    for file in (trained / "exported").iterdir():
        shutil.copy(file, tmp_path)
    content = (tmp_path / "digits.pdiparams").read_bytes()
    assert built(tmp_path).precision == "float32"
    for number in (len(content) - 1, len(content) - 100):
        (tmp_path / "digits.pdiparams").write_bytes(content[:number])
        with pytest.raises(UserError, match=rf"digits.pdiparams: damaged: it has {number:,} bytes, .* need "):
            built(tmp_path)
    (tmp_path / "digits.pdiparams").write_bytes(content)
    (program,) = (file for file in tmp_path.iterdir() if file.suffix in (".json", ".pdmodel"))  # of Paddle 3, of 2.6
    program.write_text("{")
    with pytest.raises(UserError, match=r"digits.pdiparams: Paddle cannot load it: "):
        built(tmp_path)
    program.unlink()
    with pytest.raises(UserError, match=r"the .json or .pdmodel of .*digits.pdiparams is missing"):
        find_exported(str(tmp_path / "digits"))


def test_a_word_alone_names_the_model_wherever_it_stands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits.pdiparams").touch()
    (tmp_path / "digits.json").touch()
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx" / "model.onnx").touch()
    for word in ("onnx/model.onnx", "digits", "digits.json", "."):
        for words in ([word, "-ngpus=1"], ["-cfg", "x.yaml", word], ["-allow_changes", word, "NGPUS", "1"]):
            expected = [f"EXPORTED={word}" if one == word else one for one in words]
            assert expand_run(["-eval", *words])[0][1:] == expected
    for missing in ("output/mine", "model.onnx"):
        with pytest.raises(UserError, match=f"^{missing} does not exist; expected a run's folder, MODEL.onnx"):
            expand_run(["-eval", missing])
    other = (["other", "1"], ["MODEL.NAME=a/b"], ["~nobody", "1"], ["x" * 5000, "1"], ["\0", "1"])
    for words in (["-pretrained", "model.onnx"], ["SAVE", "digits"], ["-output=digits.onnx"], *other):
        assert expand_run(["-eval", *words])[0][1:] == words


def test_another_preparation_or_other_settings_are_refused_before_anything_is_written(trained, tmp_path):
    model = str(trained / "exported" / "digits")
    before = contents(trained / "run")
    for words, message in (
        (
            ["-pretrained=none", "DATA.IMAGENET_MEAN", "[0.4]"],
            "expects other preprocessing: preprocessing.subtract [0.5] there",
        ),
        (["EVAL_AMP", "true"], "was fixed at export; set EVAL_AMP to false"),
        ([f"-resume={trained / 'run'}"], "use -pretrained=RUN to name the weights to compare"),
    ):
        assert message in refusal(evaluated(tmp_path, "scored", model, *words))
    assert contents(trained / "run") == before and not list(tmp_path.rglob("eval_*"))
