"""Files that PyTorch wrote with the names and the entries of RF-DETR's package, see make_files.py beside them."""

import math

import numpy as np
import pytest
from support.networks.cheap_weights import weights_of_zero
from support.networks.golden_rfdetr import MODELS, options
from support.processes import ROOT

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint.class_rows import ClassNames
from paddlevit_dist.core.checkpoint.load import count_classes, load_weights
from paddlevit_dist.core.checkpoint.output_names import read_class_names
from paddlevit_dist.core.checkpoint.weights import read_weights
from paddlevit_dist.core.commands import convert as convert_command
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.images.detection.rfdetr.key_names import name_like_authors
from paddlevit_dist.images.detection.rfdetr.seg_network import RfDetrSeg

FOLDER = ROOT / "tests" / "support" / "files" / "weights_of_torch"
HEADS = ("class_embed", *(f"enc_out_class_embed.{group}" for group in range(3)))


def _network(classes=7, **changes):
    with weights_of_zero():
        return RfDetrSeg(classes, **{**options("seg_small"), **changes})


def _list_entries(first):
    """What the files have, without the entries that are empty."""
    storage = np.random.default_rng(3).uniform(-0.3, 0.3, 22_000).astype("float32").astype("float16")
    for number, (name, shape) in enumerate(MODELS["seg_small"]["state"].items()):
        if count := math.prod(shape):
            yield name, storage[first + number :][:count].reshape(shape).astype("float32")


@pytest.mark.parametrize(
    ("file", "part", "first"),
    [("rfdetr_seg.pth", None, 0), ("rfdetr_seg.pth", "ema_model", 500), ("rfdetr_seg.ckpt", None, 0)],
)
def test_every_entry_is_loaded_and_returns(file, part, first):
    network = _network()
    report = load_weights(network, FOLDER / file, strict=True, part=part)
    assert report.loaded_fraction == 1 and len(report.loaded) == len(network.state_dict())
    assert not (report.missing or report.unexpected or report.resized or report.reinitialized)
    assert ("'model' of the source was used; it also has 'ema_model'" in report.summary()) == (
        file.endswith(".pth") and part is None
    )
    linear = {name for name, layer in network.named_sublayers() if hasattr(layer, "weight") and layer.weight.ndim == 2}
    state = {name: value.numpy() for name, value in network.state_dict().items()}
    turned = {name: value.T if name.rpartition(".")[0] in linear else value for name, value in state.items()}
    for name in ("refpoint_embed.weight", "query_feat.weight"):  # tables, not linear layers
        turned[name] = state[name]
    found, _ = name_like_authors(turned)
    expected = dict(_list_entries(first))
    expected["backbone.0.encoder.encoder.embeddings.mask_token"] *= 0  # nothing reads it
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.parametrize("classes", [3, 9])
def test_a_classifier_of_other_classes_begins_with_their_rows_but_is_not_evaluated(classes):
    network, entries = _network(classes), dict(_list_entries(0))
    with pytest.raises(UserError, match=f"it has 6 classes and the model {classes}: ") as error:
        load_weights(network, FOLDER / "rfdetr_seg.pth", strict=True)
    assert "\n" not in str(error.value) and not network.class_embed.weight.numpy().any()
    report = load_weights(network, FOLDER / "rfdetr_seg.pth")
    assert {name.rpartition(".")[0] for name in report.reinitialized} == set(HEADS)
    assert "begins with the rows of the source's classes" in report.summary()
    state, rows = (
        network.state_dict(),
        [number % 6 for number in range(classes)],
    )  # the file names six, and its last row is of none
    for head in HEADS:
        theirs = f"transformer.{head}" if head.startswith("enc") else head
        np.testing.assert_array_equal(state[f"{head}.weight"].numpy(), entries[f"{theirs}.weight"][rows].T)
        np.testing.assert_array_equal(state[f"{head}.bias"].numpy(), entries[f"{theirs}.bias"][rows])


def test_a_network_of_another_size_is_refused_in_one_line():
    for strict, expected in ((False, "has only .* % of the model's parameters"), (True, "lacks projector.0.cv1")):
        network = _network(embed_dim=64)
        with pytest.raises(UserError, match=f"rfdetr_seg.ckpt .*{expected}.*32.* in the source, .*64") as error:
            load_weights(network, FOLDER / "rfdetr_seg.ckpt", strict=strict)
        assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="has no part 'ema'; parts: 'model', 'ema_model'"):
        load_weights(_network(), FOLDER / "rfdetr_seg.pth", part="ema")


def _list_heads():
    return [(head, f"transformer.{head}" if head.startswith("enc") else head) for head in HEADS]


def test_rows_follow_the_names_in_the_file_and_the_last_row_is_of_no_class():
    entries, ours = dict(_list_entries(0)), ["class 4", "spring", "class 1"]
    names, is_own = read_class_names(str(FOLDER / "rfdetr_seg.pth"))
    network = _network(len(ours))
    initial = {name: value.numpy().copy() for name, value in network.state_dict().items()}
    report = load_weights(network, FOLDER / "rfdetr_seg.pth", class_names=ClassNames(names, ours, is_own))
    assert report.classes_by_name == (2, 3)
    for head, theirs in _list_heads():
        bias, before = network.state_dict()[f"{head}.bias"].numpy(), initial[f"{head}.bias"]
        np.testing.assert_array_equal(
            bias, [*entries[f"{theirs}.bias"][[4]], before[1], *entries[f"{theirs}.bias"][[1]]]
        )
    network = _network(6)
    assert count_classes(network, read_weights(FOLDER / "rfdetr_seg.pth")) == 6
    load_weights(network, FOLDER / "rfdetr_seg.pth", strict=True)
    for head, theirs in _list_heads():
        weight = network.state_dict()[f"{head}.weight"].numpy()
        np.testing.assert_array_equal(weight, entries[f"{theirs}.weight"][:6].T)
    rows = [network.find_named_rows(6, number) for number in (6, 7, 8, 91)]
    assert rows == [None, range(6), range(1, 7), None]  # versions before 1.5 counted Roboflow's classes from 1


def test_convert_finds_the_family_and_keeps_the_rows_of_named_classes(tmp_path, monkeypatch):
    kept = {name: REGISTRY.models[name] for name in ("vit", "rfdetr_seg_small")}
    monkeypatch.setattr(REGISTRY, "models", kept)
    target = tmp_path / "out.pdparams"
    converted = convert_command.convert(str(FOLDER / "rfdetr_seg.pth"), str(target))
    assert converted.origin.startswith("seg_network, the authors' names") and not converted.unknown
    network = _network(6)
    report = load_weights(network, target, strict=True)
    assert report.loaded_fraction == 1 and read_class_names(str(target))[0] == [f"class {n}" for n in range(6)]
    entries = dict(_list_entries(0))
    np.testing.assert_array_equal(network.class_embed.weight.numpy(), entries["class_embed.weight"][:6].T)
