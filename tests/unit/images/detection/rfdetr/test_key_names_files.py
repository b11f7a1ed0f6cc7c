"""Files that PyTorch wrote with the names and the entries of RF-DETR's package, see make_files.py beside them."""

import math

import numpy as np
import pytest
from support.networks.cheap_weights import weights_of_zero
from support.networks.golden_rfdetr import MODELS, options
from support.processes import ROOT

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint.load import load_weights
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
    with pytest.raises(UserError, match=f"it has 7 classes and the model {classes}: ") as error:
        load_weights(network, FOLDER / "rfdetr_seg.pth", strict=True)
    assert "\n" not in str(error.value) and not network.class_embed.weight.numpy().any()
    report = load_weights(network, FOLDER / "rfdetr_seg.pth")
    assert {name.rpartition(".")[0] for name in report.reinitialized} == set(HEADS)
    assert "begins with the rows of the source's classes" in report.summary()
    state, rows = network.state_dict(), [number % 7 for number in range(classes)]
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
