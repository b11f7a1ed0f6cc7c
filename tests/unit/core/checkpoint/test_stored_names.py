"""Class names that other programs store next to the weights in their files."""

import io
import pickle
from argparse import Namespace

import numpy as np
import pytest
from support.processes import ROOT

from paddlevit_dist.core.checkpoint.output_names import read_class_names
from paddlevit_dist.core.checkpoint.stored_names import find_stored_names, read_stored_names
from paddlevit_dist.core.checkpoint.torch_files import TorchReader
from paddlevit_dist.core.checkpoint.weights import read_weights

FOLDER = ROOT / "tests" / "support" / "files" / "weights_of_torch"
NAMES = ["bolt", "nut", "washer"]


@pytest.mark.parametrize(
    "content",
    [
        {"args": {"class_names": NAMES}},
        {"hyper_parameters": {"lr": 0.1, "class_names": tuple(NAMES)}},
        {"hyper_parameters": {"id2label": {"0": "bolt", "1": "nut", "2": "washer"}}},
        {"datamodule_hyper_parameters": {"classes": NAMES}},
        {"names": {0: "bolt", 1: "nut", 2: "washer"}},
        {"names": NAMES},
        {"class_to_idx": {"nut": 1, "bolt": 0, "washer": 2}},
        {"meta": {"CLASSES": tuple(NAMES), "epoch": 3}},
        {"meta": {"dataset_meta": {"classes": NAMES, "palette": [(1, 2, 3)]}}},
    ],
)
def test_names_are_found_where_a_program_stores_them(content):
    assert find_stored_names({"state_dict": {"weight": np.zeros(3)}, **content}) == NAMES


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"names": ["0", "1"]},  # numbers are no names
        {"names": {"bolt": 1.5}},
        {"names": [["bolt"], ["nut"]]},
        {"classes": np.zeros(3)},
        {"classes": 3},
        {"args": None},
        {"names": {0: "bolt", 10**9: "nut"}},
        {"names": {"0": "bolt", "9" * 5000: "nut"}},
        {"id2label": {0: "LABEL_0", 1: "LABEL_1"}},
    ],
)
def test_other_entries_are_no_names(content):
    assert find_stored_names(content) is None and find_stored_names([content]) is None


def test_a_label_without_a_name_is_empty():
    assert find_stored_names({"names": {1: "person", 3: "car"}}) == ["", "person", "", "car"]


def test_files_of_pytorch_have_them():
    for name in ("rfdetr_seg.pth", "rfdetr_seg.ckpt"):
        expected = [f"class {number}" for number in range(6)]
        assert read_stored_names(FOLDER / name) == expected
        assert read_class_names(str(FOLDER / name)) == (expected, False)
        assert read_weights(FOLDER / name).class_names == tuple(expected)
    assert read_stored_names(FOLDER / "vit.pth") is None and read_stored_names(FOLDER / "plain.safetensors") is None


def test_arguments_keep_long_lists_of_texts_alone():
    many = {"class_names": [f"c{number}" for number in range(90)], "seeds": list(range(90))}
    stream = io.BytesIO(pickle.dumps({"args": Namespace(**many)}, protocol=2))
    found = TorchReader(stream, lambda key: b"").load()
    assert found == {"args": {"class_names": many["class_names"]}}
