"""Which exported model a path means, and what its description says."""

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.extensions.export.files import (
    as_mapping,
    find_exported,
    parse_description,
    parse_evaluated_argument,
)


def write(folder, *names) -> None:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text("weights: output/run\n" if name.endswith(".yaml") else "x")


@pytest.mark.parametrize("named", ["", "/net", "/net.pdiparams", "/net.json", "/net.pdmodel"])
@pytest.mark.parametrize("program", ["net.json", "net.pdmodel"])
def test_an_inference_model_is_named_by_its_folder_or_any_of_its_files(tmp_path, named, program):
    write(tmp_path / "model", "net.pdiparams", program, "net.about.yaml", "net.yml")
    model = find_exported(f"{tmp_path}/model{named}")
    assert (model.file, model.prefix) == (tmp_path / "model" / "net.pdiparams", f"{tmp_path}/model/net")
    assert not model.is_onnx and model.weights() == "output/run"


@pytest.mark.parametrize("named", ["", "/net.v2", "/net.v2.onnx"])
def test_an_onnx_file_is_named_by_its_folder_or_with_and_without_its_ending(tmp_path, monkeypatch, named):
    write(tmp_path / "model", "net.v2.onnx", "other.txt")
    monkeypatch.setenv("HOME", str(tmp_path))
    model = find_exported(f"~/model{named}")
    assert model == (tmp_path / "model" / "net.v2.onnx", {}) and model.is_onnx and model.weights() is None


def test_what_is_no_single_model_is_refused_with_what_was_expected(tmp_path):
    write(tmp_path / "two", "b.pdiparams", "c.onnx", "a.onnx", "b.json")
    write(tmp_path / "half", "net.pdiparams")
    write(tmp_path / "none", "net.json")
    expected = r"; expected a run's folder, MODEL\.onnx, or MODEL\.pdiparams with "
    for name, reason in {
        "two": "several models: .*/two/a.onnx, .*/two/b.pdiparams, .*/two/c.onnx: name one of them",
        "half": rf"the \.json or \.pdmodel of .*/half/net\.pdiparams is missing{expected}",
        "none": f"contains no exported model{expected}",
        "none/net.json": f"is not an exported model{expected}",
    }.items():
        with pytest.raises(UserError, match=rf"EXPORTED {tmp_path}/{name}: {reason}"):
            find_exported(f"{tmp_path}/{name}")
    for name in ("mime", "x" * 300):
        with pytest.raises(UserError, match=rf"^{tmp_path}/\w+(\.\.\.)? does not exist{expected}"):
            find_exported(f"{tmp_path}/{name}")
    (tmp_path / "mine" / "checkpoints").mkdir(parents=True)
    (tmp_path / "mine" / "config.yaml").touch()
    with pytest.raises(UserError, match=rf"^{tmp_path}/mime does not exist.*; did you mean {tmp_path}/mine\?$"):
        find_exported(f"{tmp_path}/mime")
    assert find_exported(f"{tmp_path}/two/a").file.name == "a.onnx"
    (tmp_path / "two" / "a.about.yaml").write_text("a: [")
    with pytest.raises(UserError, match=r"a\.about\.yaml cannot be read: .*export the model again or remove the file"):
        find_exported(f"{tmp_path}/two/a")


def test_words_of_evaluate_that_name_a_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "here.pdiparams")
    for word in ("a/b", "net.onnx", "net.pdiparams", "net.pdmodel", "here"):
        setting, weights, problem = parse_evaluated_argument(word)
        assert (setting, weights) == (f"EXPORTED={word}", None)
        assert ("is missing" if word == "here" else "does not exist") in problem
    for word in ("digits", "a/b=3", "net.json", "net.pth"):
        assert parse_evaluated_argument(word) is None
    write(tmp_path, "here.json")
    (tmp_path / "here.about.yaml").write_text("weights: run/checkpoints/best/model.pdparams")
    assert parse_evaluated_argument("here")[1] == "run/checkpoints/best/model.pdparams"


def test_a_description_in_another_form_is_empty():
    assert parse_description("weights: a\nshape: [1, null]") == {"weights": "a", "shape": [1, None]}
    assert [parse_description(text) for text in (None, "", "- a", "a: [", "text")] == [{}] * 5
    assert as_mapping({"a": 1}) == {"a": 1} and as_mapping(["a"]) == {}
