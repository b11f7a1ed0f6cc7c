"""Names of the outputs of weights."""

import json

import paddle
import pytest
import yaml

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint.output_names import get_class_names, read_class_names


def test_the_names_of_a_run_are_those_of_its_outputs():
    data = {"train": None, "val": {"samples": 3}, "other": {"classes": ["a", 7]}}
    assert get_class_names(data, {}) == ["a", "7"]
    for classes, names in ((["a", "b", "2", "3"], ["a", "b"]), (["0", "b"], ["0", "b"]), (["0", "1"], ["0", "1"])):
        assert get_class_names({"val": {"classes": classes}}, {}) == names  # the last outputs may be of no class
    folders = sorted(map(str, range(100)))  # of which 90 to 99 are at their own places
    assert get_class_names({"val": {"classes": folders}}, {}) == folders
    assert get_class_names(data, {"landmarks": ["L1"]}) == ["L1"]
    assert get_class_names({}, {}) is None


def test_weights_are_described_by_a_run_or_by_transformers(tmp_path):
    paddle.save({"a": paddle.zeros([1])}, str(tmp_path / "w.pdparams"))
    source = str(tmp_path / "w.pdparams")
    assert read_class_names(source) == (None, False)
    labels = {"id2label": {"1": "person", "3": "car"}}
    (tmp_path / "config.json").write_text(json.dumps(labels))
    assert read_class_names(source) == (["", "person", "", "car"], False)
    for nothing in (
        {"0": "LABEL_0", "1": "LABEL_1"},
        {"a": "b"},
        {"0": "a", "b": "b"},
        {"²": "a"},
        {},
        {"999999999": "x"},
    ):
        (tmp_path / "config.json").write_text(json.dumps({"id2label": nothing}))
        assert read_class_names(source) == (None, False)
    (tmp_path / "config.json").write_text("[")
    with pytest.raises(UserError, match="config.json cannot be read"):
        read_class_names(source)
    (tmp_path / "about.yaml").write_text(yaml.safe_dump({"data": {"val": {"classes": ["x", "y"]}}}))
    assert read_class_names(source) == (["x", "y"], True)


@pytest.mark.parametrize(
    "content",
    [
        {"label_names": ["green", "red"]},
        {"architecture": "resnet18", "pretrained_cfg": {"label_names": ["green", "red"], "mean": [0, 0, 0]}},
        {"labels": ["green", "red"]},
        {"label_names": {"0": "green", "1": "red"}},
        {"id2label": ["green", "red"]},
        {"id2label": {"0": "LABEL_0", "1": "LABEL_1"}, "label_names": ["green", "red"]},
    ],
)
def test_weights_are_described_by_timm_in_each_of_its_forms(tmp_path, content):
    paddle.save({"a": paddle.zeros([1])}, str(tmp_path / "w.pdparams"))
    (tmp_path / "config.json").write_text(json.dumps(content))
    assert read_class_names(str(tmp_path / "w.pdparams")) == (["green", "red"], False)
