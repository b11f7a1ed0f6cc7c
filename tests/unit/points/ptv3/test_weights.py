"""Weights of Pointcept, Sonata and Utonia: read with a complete report, and written back."""

import numpy as np
import paddle
import pytest
from support.files.raw_scenes import zipped
from support.samples.image_fixtures import families_once  # noqa: F401

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint.array_files import read_safetensors
from paddlevit_dist.core.checkpoint.foreign_names import to_torch_names
from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.core.commands.convert import convert
from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.points.sparse import SparseTensor

pytestmark = pytest.mark.usefixtures("families_once")

NARROW = {"strides": (2,), "encoder_depths": (1, 1), "encoder_channels": (6, 12), "encoder_heads": (1, 2)}
NARROW |= {"decoder_depths": (1,), "decoder_channels": (6,), "decoder_heads": (1,), "patch_size": 8, "in_channels": 4}
ENCODER = {"decoder_depths": (), "decoder_channels": (), "decoder_heads": ()}


def build(name, seed, **options):
    paddle.seed(seed)
    model = create_model(name, num_classes=5, **{**NARROW, **options})
    model.eval()
    return model


def theirs(model, prefix="backbone."):
    """The state of a network as PyTorch's programs save it."""
    linear = {id(layer.weight) for layer in model.sublayers() if isinstance(layer, paddle.nn.Linear)}
    state = {}
    for name, tensor in model.state_dict().items():
        value = tensor.numpy()
        if name.endswith(".kernel"):
            side = round(len(value) ** (1 / 3))
            places = np.arange(side**3).reshape(side, side, side)  # our first axis runs fastest
            value = np.stack(
                [[[value[places[c, b, a]] for c in range(side)] for b in range(side)] for a in range(side)]
            )
            value, name = value.transpose(4, 0, 1, 2, 3), name.replace(".kernel", ".weight")
        elif ".cpe.0.bias" in name:
            value = value[0]
        elif id(tensor) in linear:
            value = value.T
        state[name if name.startswith("seg_head") else prefix + name] = value
        if name.endswith("._mean"):
            counted = f"{prefix}{name.replace('_mean', 'num_batches_tracked')}"
            state[counted] = np.array(7)
    return to_torch_names(state)


def logits(model):
    coordinates = np.unique(np.random.default_rng(0).integers(0, 9, (60, 4)) * [0, 1, 1, 1], axis=0)
    features = np.random.default_rng(1).standard_normal((len(coordinates), 4)).astype(np.float32)
    return model(SparseTensor(features, coordinates)).numpy()


@pytest.mark.parametrize("name", ["ptv3", "sonata_decoder", "utonia"])
@pytest.mark.parametrize("prefix", ["", "module."])
def test_checkpoints_of_pointcept_load_completely(name, prefix):
    source, target = build(name, 1), build(name, 2)
    state = {f"{prefix}{key}": value for key, value in theirs(source).items()}
    state |= {f"{prefix}backbone.embedding.mask_token": np.ones((1, 6), np.float32)}
    report = load_weights(target, {"epoch": 3, "state_dict": state, "optimizer": {"state": {}}}, strict=True)
    assert (report.missing, report.unexpected, report.reinitialized) == ([], [], [])
    assert set(report.loaded) == set(target.state_dict())
    assert any("until version 1.5.1" in notice for notice in report.notices) == (name == "ptv3")
    np.testing.assert_array_equal(logits(target), logits(source))


@pytest.mark.parametrize("name", ["sonata_decoder", "utonia"])
def test_an_encoders_file_fills_the_encoder_of_a_segmenter(name):
    encoder, segmenter = build(name, 1, **ENCODER), build(name, 2)
    state = {key: value for key, value in theirs(encoder, prefix="").items() if not key.startswith("seg_head")}
    content = {"config": {"in_channels": 4, "enc_mode": True}, "state_dict": state}
    report = load_weights(segmenter, content, minimum_loaded=0.3)
    assert report.unexpected == [] and not any("1.5.1" in notice for notice in report.notices)
    assert {key.partition(".")[0] for key in report.missing} == {"dec"}
    loaded = {key: value.numpy() for key, value in segmenter.state_dict().items()}
    for key, value in encoder.state_dict().items():
        assert key.startswith("seg_head") or np.array_equal(loaded[key], value.numpy()), key
    probe = build(name, 3, **ENCODER)
    report = load_weights(probe, content)
    assert report.missing == [] and report.reinitialized == ["seg_head.weight", "seg_head.bias"]


@pytest.mark.parametrize("name", ["ptv3", "sonata_decoder", "utonia"])
def test_convert_writes_pointcepts_names(name, tmp_path):
    model = build(name, 1)
    paddle.save(model.state_dict(), str(tmp_path / "own.pdparams"))
    convert(str(tmp_path / "own.pdparams"), str(tmp_path / "out.safetensors"), names="pointcept")
    written, _ = read_safetensors(tmp_path / "out.safetensors")
    expected = {key: value for key, value in theirs(model).items() if not key.endswith("num_batches_tracked")}
    assert written.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_array_equal(written[key], value, err_msg=key)
    convert(str(tmp_path / "out.safetensors"), str(tmp_path / "back.pdparams"))
    back = paddle.load(str(tmp_path / "back.pdparams"))
    assert back.keys() == model.state_dict().keys()
    assert all(np.array_equal(back[key].numpy(), value.numpy()) for key, value in model.state_dict().items())


def test_files_of_an_encoder_and_a_linear_head_fill_a_probe(tmp_path):
    """As sonata.pth and sonata_linear_prob_head_sc.pth, whose head has features of all levels."""
    source, target = build("sonata", 1, **ENCODER), build("sonata", 2, **ENCODER)
    state = theirs(source, prefix="")
    head = {key: state.pop(key) for key in ("seg_head.weight", "seg_head.bias")}
    assert head["seg_head.weight"].shape == (5, 6 + 12)
    zipped(tmp_path / "encoder.pth", {"config": {"in_channels": 4, "enc_mode": True}, "state_dict": state})
    zipped(tmp_path / "head.pth", {"config": {"backbone_out_channels": 18, "num_classes": 5}, "state_dict": head})
    report = load_weights(target, tmp_path / "encoder.pth")
    assert report.unexpected == [] and report.reinitialized == ["seg_head.weight", "seg_head.bias"]
    assert sum("CC-BY-NC 4.0" in notice for notice in report.notices) == 1
    report = load_weights(target, tmp_path / "head.pth", minimum_loaded=0)
    assert report.unexpected == [] and set(report.loaded) == set(head)
    np.testing.assert_array_equal(logits(target), logits(source))


def test_convert_reads_a_published_encoder_and_tells_its_license(tmp_path):
    model = build("sonata", 1, **ENCODER)
    state = {key: value for key, value in theirs(model, prefix="").items() if not key.startswith("seg_head")}
    zipped(tmp_path / "sonata.pth", {"config": {"enc_mode": True}, "state_dict": state})
    converted = convert(str(tmp_path / "sonata.pth"), str(tmp_path / "sonata.pdparams"))
    assert any("CC-BY-NC 4.0" in notice for notice in converted.notices)
    expected = {key: value.numpy() for key, value in model.state_dict().items() if not key.startswith("seg_head")}
    assert converted.state.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_array_equal(converted.state[key], value, err_msg=key)


@pytest.mark.parametrize(("name", "millions"), [("concerto_small", 39), ("sonata", 108), ("concerto_large", 208)])
def test_encoders_have_the_published_sizes(name, millions):
    """Those that the page of Concerto states, https://github.com/Pointcept/Concerto."""
    with paddle.LazyGuard():
        model = create_model(name, num_classes=0)
    assert round(sum(np.prod(parameter.shape) for parameter in model.parameters()) / 1e6) == millions


def test_weights_of_another_width_are_refused():
    with pytest.raises(UserError, match="%"):
        load_weights(build("ptv3", 1), theirs(build("ptv3", 1, encoder_channels=(12, 24), decoder_channels=(12,))))
