"""Which tasks have models that can be exported."""

import json
import math
import re
from types import SimpleNamespace

import pytest
import yaml
from support.processes import ROOT

from paddlevit_dist import UserError
from paddlevit_dist.core.registry.lookup import list_names, resolve
from paddlevit_dist.core.registry.manifest import BOX_LABELS
from paddlevit_dist.core.runtime.text_files import parse_yaml
from paddlevit_dist.core.settings import load
from paddlevit_dist.core.tasks import Exportable, Task
from paddlevit_dist.core.tasks.aspects import find_location
from paddlevit_dist.extensions.export.descriptions import (
    build_paddlex_description,
    format_about,
    require_exportable,
    to_yaml,
)
from paddlevit_dist.images import Classification


def test_a_task_without_an_export_is_refused_in_one_line():
    with pytest.raises(UserError, match="^export: task scoring_only does not support it: its class is not Exportable$"):
        require_exportable(Task(SimpleNamespace(TASK="scoring_only")))


def test_a_classifier_can_be_exported():
    task = Classification(load(["-cfg=vit_digits"]).values)
    assert isinstance(require_exportable(task), Exportable)


def test_paddlex_reads_its_own_name_of_the_network_and_the_classes():
    processing = {"PreProcess": {"transform_ops": [1]}, "PostProcess": {"Topk": {"topk": 5, "other": 2}}}
    found = build_paddlex_description(processing, "resnet50", 3, ["cow", "ant", "bee"])
    assert found == {
        "Global": {"model_name": "ResNet50"},
        "PreProcess": {"transform_ops": [1]},
        "PostProcess": {"Topk": {"topk": 3, "other": 2, "label_list": ["cow", "ant", "bee"]}},
    }
    other = build_paddlex_description(processing, "vit", 7, None)
    assert other["Global"] == {"model_name": "CLIP_vit_base_patch16_224"}
    assert other["PostProcess"]["Topk"] == {"topk": 5, "other": 2, "label_list": list("0123456")}
    assert processing["PostProcess"] == {"Topk": {"topk": 5, "other": 2}}


def test_numbers_are_written_on_one_line_and_texts_below_each_other():
    shape = [None, 3, 224.5]
    content = {"b": shape, "a": ["ö", "x"], "again": shape, "nested": [[1, 2], [3]], "mixed": [1, "x"]}
    assert to_yaml(content) == (
        "b: [null, 3, 224.5]\na:\n- ö\n- x\nagain: [null, 3, 224.5]\nnested:\n- [1, 2]\n- [3]\nmixed:\n- 1\n- x\n"
    )
    assert len(to_yaml({"long": "word " * 22}).splitlines()) == 1


@pytest.mark.parametrize(
    "value",
    [
        *[1e-06, -2.5e-07, 1e16, 1.25, 7, True, None, 'e5 "1e-06" \\', "🙂ä", "\x7f\x85", "\udce4", "no", "1: {a}\t\n"],
        [[1e-06, "1e-06"], [], {}, {"1e-06": 1e-06, "a b": ""}],
    ],
)
def test_the_description_of_a_model_is_the_same_values_as_json_and_as_yaml(value):
    about = {"value": value, "again": [value]}
    text = format_about(about)
    assert json.loads(text) == yaml.safe_load(text) == parse_yaml(text.encode()) == about
    assert type(yaml.safe_load(text)["value"]) is type(value)


@pytest.mark.parametrize("value", [{0: "a"}, [{"a": math.inf}]])
def test_a_description_that_json_cannot_express_is_yaml(value):
    assert yaml.safe_load(format_about({"value": value})) == {"value": value}


def test_the_page_lists_the_tasks_and_detectors_that_can_be_exported():
    page = (ROOT / "docs" / "guides" / "exporting.md").read_text(encoding="utf-8")
    rows = [
        re.findall("`(.*?)`", row) for row in re.findall(r"^\| `\w+`.* \| .*\|$", page.split("| `-format`")[0], re.M)
    ]
    listed = {name for row in rows for name in row if name in list_names("task")}
    assert listed == {name for name in list_names("task") if find_location(resolve("task", name), Exportable)}
    (row,) = re.findall(r"^\| `detection` \| (.*) \|$", page, re.M)
    exported, refused = (tuple(re.findall("`(.*?)`", part)) for part in row.split("; not "))
    for name in list_names("model", BOX_LABELS):
        is_exportable = resolve("model", name).is_exportable
        assert (name.startswith(exported), name.startswith(refused)) == (is_exportable, not is_exportable), name
