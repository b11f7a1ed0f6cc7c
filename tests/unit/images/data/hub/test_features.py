"""Types of columns in metadata, cards and Arrow schemas."""

import pyarrow as pa
import pytest
from support.files.hub_files import IMAGE, classes

from paddlevit_dist import UserError
from paddlevit_dist.core.runtime.text_files import parse_yaml
from paddlevit_dist.images.data.hub import features
from paddlevit_dist.images.data.hub.features import (
    CLASS,
    LIST,
    OTHER,
    STRUCT,
    VALUE,
    Feature,
    parse_features,
    read_features,
)

_BOXES = {"_type": "List", "feature": {"_type": "List", "length": 4, "feature": {"_type": "Value", "dtype": "float32"}}}


def test_lists_of_all_versions_are_lists():
    label, wanted = classes("a", "b"), Feature(LIST, item=Feature(CLASS, ("a", "b")))
    for stored in ({"_type": kind, "feature": label} for kind in ("List", "LargeList", "Sequence")):
        assert parse_features({"x": stored}, "f")["x"] == wanted
    assert parse_features({"x": [label]}, "f")["x"] == wanted


def test_a_sequence_of_a_struct_is_a_struct_of_lists_and_a_list_of_one_is_not():
    fields = {"bbox": _BOXES["feature"], "category": classes()}
    sequence, listed = (
        parse_features({"o": {"_type": kind, "feature": fields}}, "f")["o"] for kind in ("Sequence", "List")
    )
    assert sequence.kind == STRUCT and sequence.fields["category"].kind == LIST
    assert listed.kind == LIST and listed.item.fields["category"].kind == CLASS


def test_a_card_says_the_same_as_the_metadata():
    card = """
    - name: image
      dtype: image
    - name: label
      dtype: {class_label: {names: {'0': no, '1': off, '2': z}}}
    - name: tags
      sequence: {class_label: {names: {'0': a}}}
    - name: objects
      sequence:
      - {name: bbox, sequence: float32, length: 4}
      - {name: category, dtype: {class_label: {names: {'0': b}}}}
    - name: gray
      dtype: {image: {mode: L}}
    - name: raw
      dtype: {image: {decode: false}}
    - name: sound
      dtype: {audio: {sampling_rate: 8}}
    """
    found = parse_features(parse_yaml(card, ("names",)), "README.md")
    assert found["image"].kind == features.IMAGE and found["label"].names == ("no", "off", "z")
    assert found["gray"] == Feature(features.IMAGE, mode="L") and found["raw"] == found["image"]
    assert found["tags"] == Feature(LIST, item=Feature(CLASS, ("a",)))
    assert found["objects"].kind == STRUCT and found["objects"].fields["bbox"].item.item.dtype == "float32"
    assert found["objects"].fields["category"].item.names == ("b",) and found["sound"].kind == OTHER


def test_without_metadata_arrows_types_count():
    kinds = {
        "a": pa.struct({"bytes": pa.large_binary(), "path": pa.string()}),
        "b": pa.dictionary(pa.int8(), pa.string()),
        "c": pa.large_list(pa.int64()),
        "d": pa.struct({"x": pa.int8()}),
    }
    found = read_features(pa.schema(kinds), "f")
    assert (
        found["a"].kind == features.IMAGE and found["b"] == Feature(VALUE, dtype="string") and found["c"].item.is_whole
    )
    assert found["d"].fields["x"].is_whole
    stored = read_features(pa.schema({"a": pa.int64()}), "f", {"a": Feature(CLASS, ("q",))})
    assert stored["a"].names == ("q",)


def test_a_name_that_two_columns_have_is_of_the_first():
    found = read_features(pa.schema([("a", pa.int64()), ("a", pa.string())]), "f")
    assert list(found) == ["a"] and found["a"].is_whole


@pytest.mark.parametrize(
    "metadata",
    ["no JSON", "[]", '{"info": 3}', '{"info": {"features": [1]}}', '{"info": {"features": {"a": 3}}}']
    + ['{"info": {"features": {"a": {"_type": "ClassLabel", "names": 3}}}}']
    + ['{"info": {"features": {"a": ' + '{"_type": "List", "feature": ' * 40 + "null" + "}" * 40 + "}}}"],
)
def test_damaged_metadata_are_refused_in_one_line(metadata):
    with pytest.raises(UserError, match=r"^f[:,][^\n]+$"):
        read_features(pa.schema({"a": pa.int64()}, metadata={"huggingface": metadata}), "f")


def test_equal_names_of_classes_are_told_apart():
    assert parse_features({"y": classes("a", "a ")}, "f")["y"].names == ("a (0)", "a (1)")
    assert parse_features({"x": IMAGE}, "f")["x"].kind == features.IMAGE
