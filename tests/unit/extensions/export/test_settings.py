"""Keys of the evaluation of an exported model: what they choose, change and refuse."""

from pathlib import Path

import pytest
from support.key_pages import check_effects, check_rows

from paddlevit_dist import UserError
from paddlevit_dist.core import settings


def test_rows_of_the_pages_are_those_of_the_keys():
    check_rows("extensions.export")


def test_effects_of_the_keys_are_those_of_the_table():
    check_effects("extensions.export")


@pytest.fixture
def model(tmp_path, monkeypatch):
    """An exported model in the current folder, whose description names weights that exist."""
    monkeypatch.chdir(tmp_path)
    Path("net.onnx").touch()
    Path("run").mkdir()
    Path("net.about.yaml").write_text("weights: run\n")
    return tmp_path


def load(*words):
    loaded = settings.load(["-cfg=vit_digits", "EXPORTED=net.onnx", *words])
    lines = [line for line in loaded.notices if "compared with" in line or "EXPORTED" in line]
    return loaded.values, lines


def test_a_model_is_compared_with_the_weights_that_it_was_made_from(model):
    values, lines = load("-eval")
    assert (values.EXPORTED, values.MODEL.PRETRAINED, values.MODEL.RESUME) == ("net.onnx", "run", None)
    told = "the exported model is compared with its weights run (add -pretrained=none for no comparison)"
    assert lines == [told]
    Path("run").rmdir()
    missing = "note: the exported model is not compared with trained weights{}; add -pretrained=RUN"
    values, lines = load("-eval")
    assert values.MODEL.PRETRAINED is None and lines == [missing.format(": its weights run do not exist")]
    Path("net.about.yaml").unlink()
    assert load("-eval")[1] == [missing.format("")]


@pytest.mark.parametrize("word, expected", [("-pretrained=other", "other"), ("-pretrained=none", None)])
def test_weights_of_the_command_line_come_first(model, word, expected):
    values, lines = load("-eval", word)
    assert (values.MODEL.PRETRAINED, lines) == (expected, [])


def test_a_recipe_that_resumes_names_no_weights(model):
    Path("own.yaml").write_text("MODEL: {RESUME: auto, PRETRAINED: elsewhere}\nDATA: {DATASET: digits}\nEVAL: True\n")
    values = settings.load(["-cfg=own.yaml", "EXPORTED=net.onnx"]).values
    assert (values.MODEL.RESUME, values.MODEL.PRETRAINED) == (None, "run")


@pytest.mark.parametrize(
    "words, said",
    [
        ([], r"^EXPORTED net.onnx \(command line\): an exported model cannot be trained; add -eval to evaluate it$"),
        (
            ["-eval", "-resume=auto"],
            r"^MODEL.RESUME auto \(-resume\): use -pretrained=RUN to name the weights to compare net.onnx with$",
        ),
        (
            ["-eval", "EVAL_AMP=True"],
            r"^EVAL_AMP True \(command line\): the precision of net.onnx was fixed at export; set EVAL_AMP to false$",
        ),
    ],
)
def test_a_training_a_resumed_run_and_half_precision_are_refused(model, words, said):
    with pytest.raises(UserError, match=said) as refusal:
        load(*words)
    assert "\n" not in str(refusal.value)


def test_an_output_without_a_model_has_no_effect(tmp_path):
    notices = settings.load(["-cfg=vit_digits", "EXPORTED_OUTPUT=scores"]).notices
    assert any(line == "EXPORTED_OUTPUT scores (command line): no effect without EXPORTED" for line in notices)
    plain = settings.load(["-cfg=vit_digits"]).notices
    assert not any("EXPORTED" in line for line in plain)


def test_another_runtime_is_for_onnx_files_alone(model):
    loaded, _ = load("-eval", "-runtime=openvino")
    assert loaded.EXPORTED_RUNTIME == "openvino"
    Path("net.onnx").rename("net.pdiparams")
    Path("net.json").touch()
    for words, what in (
        (["-eval", "EXPORTED=net", "-runtime=openvino"], "openvino (-runtime): Paddle computes net"),
        (
            ["-eval", "EXPORTED=None", "-pretrained=w", "EXPORTED_RUNTIME=onnxruntime"],
            "onnxruntime (command line): no exported model is",
        ),
        (["EXPORTED=None", "-runtime=openvino"], "openvino (-runtime): no exported model is named"),
    ):
        with pytest.raises(UserError) as refusal:
            settings.load(["-cfg=vit_digits", *words])
        assert f"EXPORTED_RUNTIME {what}" in str(refusal.value)
        assert str(refusal.value).endswith("name a file MODEL.onnx, or remove it")
    with pytest.raises(UserError, match="'tensorrt': expected one of onnxruntime, openvino, or None"):
        settings.load(["-cfg=vit_digits", "-eval", "-runtime=tensorrt"])
