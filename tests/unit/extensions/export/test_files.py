"""Which exported model a path means, and what its description says."""

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.extensions.export.files import (
    as_mapping,
    explain_undescribed,
    find_exported,
    parse_evaluated_argument,
    read_exported_about,
    read_property,
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
    assert (model.file, model.about, model.note) == (tmp_path / "model" / "net.v2.onnx", {}, "")
    assert model.is_onnx and model.weights() is None


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
    with pytest.raises(UserError, match=r"a\.about\.yaml cannot be read .*; export the model again or remove the file"):
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


def test_a_description_in_another_form_is_refused_but_words_in_the_file_are_another_program_s(tmp_path):
    write(tmp_path, "net.onnx")
    for text in ("", "~", "- a"):
        (tmp_path / "net.about.yaml").write_text(text)
        with pytest.raises(UserError, match=r"net.about.yaml: Expected `object`.*; export the model again or remove"):
            find_exported(str(tmp_path / "net"))
    (tmp_path / "net.about.yaml").unlink()
    save_onnx(tmp_path / "net.onnx", about="a network of pumps")
    assert find_exported(str(tmp_path / "net")).about == {}
    assert as_mapping({"a": 1}) == {"a": 1} and as_mapping(["a"]) == {}


def save_onnx(file, **properties) -> None:
    """Write an ONNX file of one operator, with properties, by the package onnx."""
    onnx = pytest.importorskip("onnx")
    helper, number = onnx.helper, onnx.TensorProto.FLOAT
    values = [helper.make_tensor_value_info(name, number, [1]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "net", values[:1], values[1:])
    model = helper.make_model(graph, producer_name="test")
    helper.set_model_props(model, properties)
    onnx.save(model, file)


def test_the_description_in_an_onnx_file_is_read_without_its_neighbor_and_wins_over_it(tmp_path):
    file, neighbor = tmp_path / "net.onnx", tmp_path / "net.about.yaml"
    save_onnx(file, other="a: 2", about="classes: [no, 007]\nthresholds: {wing: 0.7}\nweights: run")
    model = find_exported(str(file))
    assert model.about == {"classes": ["no", "007"], "thresholds": {"wing": 0.7}, "weights": "run"}
    assert read_exported_about(str(file)) == (str(file), model.about) and model.note == ""
    neighbor.write_text("classes: [no, 007]\nthresholds: {wing: 0.7}\nweights: run\nlargest_difference: 0.1\n")
    assert find_exported(str(file)).note == ""
    neighbor.write_text("classes: [no, 007]\nthresholds: {wing: 0.2}\nweights: run\n")
    model = find_exported(str(file))
    assert model.about["thresholds"] == {"wing": 0.7}
    assert model.note == f"note: {neighbor} is not of {file} (thresholds): the description in the file is used"
    save_onnx(file)
    assert find_exported(str(file)).about["thresholds"] == {"wing": 0.2}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("thresholds: {wing: 1.5}", r"Expected `float` <= 1.0 - at `\$.thresholds\[...\]`"),
        ("- a", "Expected `object`, got `array`"),
        ("a: [", "cannot be read .line 1: "),
        ("settings: {TASK: classification, TRAIN: {BASE_LR: much}}", "settings: TRAIN.BASE_LR is much: expected"),
    ],
)
def test_a_damaged_description_in_an_onnx_file_is_refused(tmp_path, text, reason):
    save_onnx(tmp_path / "net.onnx", about=text)
    with pytest.raises(UserError, match=rf"net\.onnx: its property 'about'.*{reason}.*; export the model again$"):
        find_exported(str(tmp_path / "net.onnx"))


def test_a_file_that_is_cut_or_not_onnx_has_no_property_and_is_refused_by_its_runtime(tmp_path):
    file = tmp_path / "net.onnx"
    save_onnx(file, about="weights: run")
    whole = file.read_bytes()
    assert read_property(file) == b"weights: run"
    for content in (b"", b"x", b"\xff" * 40, b"\x72\xff\xff\xff\x7f", whole[: len(whole) // 2]):
        file.write_bytes(content)
        assert read_property(file) is None


def test_a_model_without_a_description_says_what_is_missing(tmp_path):
    file = tmp_path / "net.onnx"
    save_onnx(file)
    assert explain_undescribed(find_exported(str(file))) == ""  # of another program
    content = file.read_bytes()
    for damaged in (b"", content[:-3], b"version https://git-lfs.github.com"):
        file.write_bytes(damaged)
        assert explain_undescribed(find_exported(str(file))).startswith(f"{file} is damaged, or is not an ONNX file")
    write(tmp_path, "other.pdiparams", "other.json")
    reason = explain_undescribed(find_exported(str(tmp_path / "other.json")))
    assert reason.startswith(f"{tmp_path}/other.about.yaml is missing: export writes it next to other.pdiparams")
