"""``convert``: weights from any source to timm's names, in Paddle's or timm's layout."""

import itertools
import json
import shutil

import numpy as np
import paddle
import pytest
import yaml
from support.networks.other_names import (
    REDUCED,
    arrays,
    in_torch_layout,
    logits,
    of_convnexts_authors,
    of_googles_mixer,
    of_googles_vit,
    of_paddlevits_swin,
    of_pvts_authors,
    of_swins_authors,
    of_transformers_resnet,
    small,
)
from support.registrations import forgotten
from support.trainings.trained import write_weights

from paddlevit_dist import Manifest, UserError, register_feature, register_model
from paddlevit_dist.core.checkpoint import store
from paddlevit_dist.core.checkpoint.array_files import read_safetensors, write_safetensors
from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.core.checkpoint.model_record import read_record
from paddlevit_dist.core.checkpoint.output_names import read_class_names
from paddlevit_dist.core.commands.convert import convert, run
from paddlevit_dist.core.inference.trained import open_source
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.settings import load
from paddlevit_dist.core.settings.table import leaves
from paddlevit_dist.core.tasks.model import Model
from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.images.expected_input import find_expected_input, find_object_input

pytestmark = pytest.mark.usefixtures("families_once")


def save(state, path):
    if path.suffix == ".pdparams":
        paddle.save({name: paddle.to_tensor(np.ascontiguousarray(value)) for name, value in state.items()}, str(path))
    elif path.suffix == ".npz":
        np.savez(path, **state)
    else:
        write_safetensors(path, state)
    return path


class OwnNetwork(Model):
    """A user's network whose layers all lie in one attribute; two of one number are not of one kind."""

    def __init__(self, num_classes=3):
        super().__init__()
        layers = [
            paddle.nn.Embedding(4, 4),
            paddle.nn.Linear(4, 4),
            paddle.nn.PReLU(4),
            paddle.nn.Linear(4, num_classes),
        ]
        self.net = paddle.nn.Sequential(*layers)

    def forward(self, numbers):
        return self.net(numbers)


@pytest.fixture
def own_network():
    """It as the registered model ``own``; families are built with it."""
    with forgotten():
        register_model("own", OwnNetwork)
        yield OwnNetwork()


@pytest.mark.parametrize("prefix", ["", "module.", "model.model."])
def test_a_users_network_keeps_its_names_and_gets_pytorchs_layout(own_network, prefix, tmp_path):
    source = save({f"{prefix}{name}": value for name, value in arrays(own_network).items()}, tmp_path / "in.pdparams")
    assert convert(str(source), str(tmp_path / "out.safetensors")).unknown == []
    written, _ = read_safetensors(tmp_path / "out.safetensors")
    transposed = ("net.1.weight", "net.3.weight")  # not the embedding
    assert_same(written, {n: v.T if n in transposed else v for n, v in arrays(own_network).items()})
    convert(str(tmp_path / "out.safetensors"), str(tmp_path / "back.pdparams"))
    model = OwnNetwork()
    load_weights(model, str(tmp_path / "back.pdparams"), strict=True)
    assert_same(arrays(model), arrays(own_network))


class OwnDetector(Model):
    """A user's network with a backbone, which has most of the names."""

    def __init__(self, num_classes=3):
        super().__init__()
        self.backbone = paddle.nn.Sequential(*(paddle.nn.Linear(4, 4) for _ in range(4)))
        self.predictor = paddle.nn.Linear(4, num_classes)

    def forward(self, numbers):
        return self.predictor(self.backbone(numbers))


@pytest.mark.parametrize(
    ("kind", "most", "told"),
    [
        (
            OwnNetwork,
            6,
            "only 46 % of its names are names of OwnNetwork, ",
        ),  # half of the names are known, and then fewer
        (OwnDetector, 8, "only 18 % of its names outside the backbone are names of OwnDetector, "),  # a fifth of those
    ],
)
def test_names_of_a_family_are_half_of_all_and_a_fifth_outside_the_backbone(tmp_path, kind, most, told):
    with forgotten():
        register_model(kind.__name__, kind)
        for number in (most, most + 1):
            others = {f"unknown{place}.kernel": np.ones(2, "float32") for place in range(number)}
            source = str(save({**arrays(kind()), **others}, tmp_path / "in.pdparams"))
            if number == most:
                assert convert(source, str(tmp_path / "out.pdparams")).unknown == list(others)
                continue
            with pytest.raises(UserError, match=f"is unknown: {told}the closest"):
                convert(source, str(tmp_path / "out.pdparams"))


@pytest.mark.parametrize(
    ("suffix", "other", "chosen"),
    [
        (".pdparams", "model_ema", "model_ema"),  # PaddleViT evaluates the average
        (".pdparams", "ema_net", "ema_net"),
        (".safetensors", "model_ema", "model"),
        (".safetensors", "ema", "ema"),
    ],
)
def test_of_a_network_and_its_average_the_authors_choice_is_converted(own_network, tmp_path, suffix, other, chosen):
    average = OwnNetwork()
    networks = {"model": own_network, other: average}
    state = {f"{part}.{name}": value for part, one in networks.items() for name, value in arrays(one).items()}
    if suffix == ".safetensors":
        state = {name: value.T if value.ndim == 2 and ".0." not in name else value for name, value in state.items()}
    converted = convert(str(save(state, tmp_path / f"in{suffix}")), str(tmp_path / "out.pdparams"))
    assert_same(converted.state, arrays(networks[chosen]))
    assert converted.notices[-1] == f"only '{chosen}' was converted, 6 other entries are not"


def test_weights_of_a_run_with_an_own_network_name_the_import(own_network, tmp_path):
    save(arrays(own_network), tmp_path / "in.pdparams")
    (tmp_path / "in.pdparams.about.yaml").write_text("settings: {MODEL: {NAME: mine}}", encoding="utf-8")
    with pytest.raises(UserError, match="model 'mine' is not known.*import your own with -import=MODULE"):
        convert(str(tmp_path / "in.pdparams"), str(tmp_path / "out.pdparams"))


def test_a_detector_of_a_run_returns_to_the_names_of_its_authors(tmp_path):
    network = create_model("rfdetr_seg_shapes", num_classes=2)
    source = save(arrays(network), tmp_path / "in.pdparams")
    (tmp_path / "in.pdparams.about.yaml").write_text("settings: {MODEL: {NAME: rfdetr_seg_shapes}}", encoding="utf-8")
    convert(str(source), str(tmp_path / "out.safetensors"), names="rfdetr")
    written = read_safetensors(tmp_path / "out.safetensors")[0]
    assert written["transformer.decoder.layers.0.self_attn.in_proj_weight"].shape == (192, 64)
    other = create_model("rfdetr_seg_shapes", num_classes=2)
    assert load_weights(other, written, strict=True).unexpected == []
    assert_same(arrays(other), arrays(network))


def assert_same(state, expected):
    assert set(state) == set(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(state[name], value, err_msg=name)


def test_names_of_many_families_are_those_of_the_first(tmp_path):
    save({"norm.weight": np.ones(4, np.float32), "norm.bias": np.ones(4, np.float32)}, tmp_path / "in.npz")
    converted = convert(str(tmp_path / "in.npz"), str(tmp_path / "out.pdparams"))
    assert converted.origin.startswith("mlp_mixer, timm names")  # the first on the list of models


@pytest.mark.parametrize("name", [name for name in REDUCED if name not in ("mixer_s16_224", "convnext_tiny")])
def test_there_and_back_is_bit_equal_with_timms_layout_between(name, tmp_path):
    model = small(name, seed=1)
    source = save(arrays(model), tmp_path / "in.pdparams")
    convert(str(source), str(tmp_path / "folder" / "out.safetensors"))
    between, metadata = read_safetensors(tmp_path / "folder" / "out.safetensors")
    assert_same(between, in_torch_layout(model))
    assert metadata == {"format": "pt"}
    convert(str(tmp_path / "folder"), str(tmp_path / "back.pdparams"))
    back = {key: value.numpy() for key, value in paddle.load(str(tmp_path / "back.pdparams")).items()}
    assert_same(back, arrays(model))


@pytest.mark.parametrize(
    "name, rename, file, origin",
    [
        ("vit", of_googles_vit, "in.npz", "vit, Google names, Linear weights (in, out)"),
        ("mixer_s16_224", of_googles_mixer, "in.npz", "mlp_mixer, Google names, Linear weights (in, out)"),
        ("swin_tiny_patch4_window7_224", of_swins_authors, "in.safetensors", "swin, the authors' names"),
        ("swin_tiny_patch4_window7_224", of_paddlevits_swin, "in.pdparams", "swin, PaddleViT names"),
        ("pvt_v2_b2_li", of_pvts_authors, "in.safetensors", "pvt_v2, the authors' names"),
        ("convnext_tiny", of_convnexts_authors, "in.safetensors", "convnext, the authors' names"),
        ("resnet50", of_transformers_resnet, "in.safetensors", "resnet, Hugging Face names"),
    ],
)
def test_weights_of_other_people_become_timms(name, rename, file, origin, tmp_path):
    model = small(name, seed=1)
    converted = convert(str(save(rename(model), tmp_path / file)), str(tmp_path / "out.safetensors"))
    assert converted.origin.startswith(origin) and converted.unknown == []
    assert_same(read_safetensors(tmp_path / "out.safetensors")[0], in_torch_layout(model))
    other = small(name, seed=2)
    load_weights(other, tmp_path / "out.safetensors", strict=True)
    np.testing.assert_array_equal(logits(other), logits(model))


@pytest.mark.parametrize("target", ["new.safetensors", "new.pdparams"])
def test_weights_keep_their_input_and_classes(tmp_path, target):
    words = "DATA.IMAGENET_MEAN=[0.2,0.5,0.8]", "DATA.CROP_PCT=0.75"
    source = write_weights(tmp_path / "run", ["wren", "owl"], *words)
    (tmp_path / "new.about.yaml").write_text("classes: [of, an, export]\n")  # of the same name
    convert(str(source), str(tmp_path / target))
    before, after = (open_source(str(weights), "predict") for weights in (source, tmp_path / target))
    assert after.learned[:-1] == before.learned[:-1] and after.learned.class_names == ("wren", "owl")
    assert list(after.config.DATA.IMAGENET_MEAN) == [0.2, 0.5, 0.8] and after.config.DATA.CROP_PCT == 0.75
    theirs, ours = leaves(before.settings), leaves(after.settings)
    assert {"SAVE", "DATA.DATA_PATH"} <= theirs.keys() - ours.keys()  # of this computer
    assert ours == {name: theirs[name] for name in ours}
    convert(str(tmp_path / target), str(tmp_path / "again.pdparams"))
    assert open_source(str(tmp_path / "again.pdparams"), "predict").settings == after.settings


OF_TIMM = {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6], "crop_pct": 0.8, "interpolation": "bilinear"}
OF_TIMM_AS_TESTED = {**OF_TIMM, "input_size": [3, 32, 32], "test_input_size": [3, 48, 48], "url": "/home/me/vit.pth"}
OF_TRANSFORMERS: dict = {"image_processor_type": "ViTImageProcessor", "size": {"height": 32, "width": 32}}
OF_TRANSFORMERS |= {"resample": 2, "image_mean": OF_TIMM["mean"], "image_std": OF_TIMM["std"], "_path": "/home/me"}
DETECTOR = ["TASK=detection", "MODEL.NAME=dfine_s", "-dataset=coco", "-num_classes=1", "-eval"]


@pytest.mark.parametrize(
    "files",
    [
        {"config.json": {"architecture": "vit_base_patch16_224", "pretrained_cfg": OF_TIMM_AS_TESTED}},
        {"config.json": {"architecture": "convnext_tiny", "pretrained_cfg": OF_TIMM_AS_TESTED}},  # of other weights
        {"config.json": {"model_type": "vit"}, "preprocessor_config.json": OF_TRANSFORMERS},
        {"args.yaml": {**OF_TIMM, "model": "vit_base_patch16_224", "img_size": 48, "data_dir": "/home/me"}},
    ],
    ids=["timm", "timm, another model", "transformers", "training of timm"],
)
def test_weights_are_fed_as_the_files_beside_them_say(tmp_path, files):
    (tmp_path / "in").mkdir()
    save(in_torch_layout(small("vit", seed=1)), tmp_path / "in" / "model.safetensors")
    for name, content in files.items():
        (tmp_path / "in" / name).write_text(json.dumps(content))
    sources = [str(tmp_path / "in"), str(tmp_path / "new.pdparams"), str(tmp_path / "again" / "model.safetensors")]
    for source, target in itertools.pairwise(sources):
        convert(source, target)
    for command in ([], ["-eval"]):
        before, *after = (
            find_expected_input(
                load(["-dataset=folder", "MODEL.NAME=vit_base_patch16_224", f"-pretrained={source}", *command]).values
            )
            for source in sources
        )
        for fed in after:
            assert fed.expected == before.expected and fed.is_described == before.is_described
    objects = [find_object_input(load([*DETECTOR, f"-pretrained={source}"]).values, False) for source in sources]
    assert all(found[:2] == objects[0][:2] and found.sides == objects[0].sides for found in objects)
    assert "/home/me" not in (tmp_path / "new.pdparams.about.yaml").read_text()


def test_weights_keep_what_their_run_has_chosen_and_name_no_file_of_this_computer(tmp_path):
    source = write_weights(tmp_path / "run", ["wren", "owl"], "DATA.CROP_PCT=0.75", f"DATA.DATA_PATH={tmp_path}/birds")
    best = {"name": "mAP", "value": 0.5, "epoch": 1, "line": "mAP 0.5"}
    store.write_evaluation(source.parent, best, [(1, 0.5)], {"mAP": 0.5, "threshold owl": 0.25})
    convert(str(source), str(tmp_path / "new.safetensors"))
    convert(str(tmp_path / "new.safetensors"), str(tmp_path / "again.pdparams"))
    for name in ("new.safetensors", "again.pdparams"):
        about = yaml.safe_load((tmp_path / f"{name}.about.yaml").read_text())
        assert about["thresholds"] == {"owl": 0.25} and about["thresholds_settings"]["DATA.CROP_PCT"] == 0.75
        del about["converted_from"]
        assert str(tmp_path) not in yaml.safe_dump(about)
        record = read_record(tmp_path / name)
        assert record.thresholds == {"owl": 0.25} and record.conditions == read_record(source).conditions
    (tmp_path / "copy").mkdir()
    copy = shutil.copy(source, tmp_path / "copy")  # without what is next to it
    assert read_record(copy).thresholds == {}


def test_weights_of_other_people_keep_their_classes(tmp_path):
    source = save(arrays(small("vit", seed=1)), tmp_path / "in.pdparams")
    (tmp_path / "config.json").write_text('{"id2label": {"0": "wren", "1": "owl"}}')
    convert(str(source), str(tmp_path / "new" / "out.safetensors"))
    assert read_class_names(str(tmp_path / "new" / "out.safetensors")) == (["wren", "owl"], True)
    (tmp_path / "config.json").unlink()
    convert(str(source), str(tmp_path / "new" / "out.safetensors"))
    assert read_class_names(str(tmp_path / "new" / "out.safetensors")) == (None, False)


def test_what_cannot_be_converted_is_said_in_one_line(tmp_path, monkeypatch):
    for model in [name for name, target in REGISTRY.models.items() if not isinstance(target, str)]:  # of other tests
        monkeypatch.delitem(REGISTRY.models, model)
    source = save({"a.weight": np.ones((2, 3), "float32")}, tmp_path / "in.safetensors")
    with pytest.raises(UserError, match="in.safetensors is unknown: only 0 %"):
        convert(str(source), str(tmp_path / "out.pdparams"))
    backbone = {f"backbone.layer3.{n}.conv1.weight": np.ones((1, 1, 1, 1), "float32") for n in range(40)}
    head = {f"neck.reduce_layers.{n}.conv.weight": np.ones((2, 3), "float32") for n in range(20)}
    detector = save(backbone | head, tmp_path / "detector.safetensors")  # most names are a segmentation network's, too
    with pytest.raises(UserError, match="unknown: only 0 % of its names outside the backbone are names of "):
        pytest.fail(convert(str(detector), str(tmp_path / "out.pdparams")).origin)
    mixer = arrays(small("mixer_s16_224", seed=1))  # a network with such names in a list is another one
    block = {f"encoder.2.{name}": value for name, value in mixer.items()}
    stems = {f"stems.{n}.kernel": np.ones((2, 2), "float32") for n in range(60)}
    listed = save(block | stems, tmp_path / "listed.safetensors")
    with pytest.raises(UserError, match="listed.safetensors is unknown: only 0 %"):
        pytest.fail(convert(str(listed), str(tmp_path / "out.pdparams")).origin)
    with pytest.raises(UserError, match="has to end in .pdparams or .safetensors"):
        convert(str(source), str(tmp_path / "out.pth"))
    vit = save(arrays(small("vit", seed=1)), tmp_path / "vit.pdparams")
    (tmp_path / "taken.safetensors").mkdir()
    with pytest.raises(UserError, match="cannot write"):
        convert(str(vit), str(tmp_path / "taken.safetensors"))
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_names_of_transformers_need_their_format_and_have_pytorchs_layout(tmp_path):
    model = small("vit", seed=1)
    source = save(arrays(model), tmp_path / "vit.pdparams")
    converted = convert(str(source), str(tmp_path / "out.safetensors"), names="transformers")
    assert not any("has no place for" in notice for notice in converted.notices)
    found, ours = read_safetensors(tmp_path / "out.safetensors")[0], in_torch_layout(model)
    first = "encoder.layer.0.attention.attention.query.weight"
    prefix = next(name for name in found if name.endswith(first)).removesuffix(first)
    query, key, value = (found[f"{prefix}{first.replace('query', part)}"] for part in ("query", "key", "value"))
    np.testing.assert_array_equal(np.concatenate([query, key, value]), ours["blocks.0.attn.qkv.weight"])
    name = f"{prefix}encoder.layer.1.intermediate.dense.weight"
    np.testing.assert_array_equal(found[name], ours["blocks.1.mlp.fc1.weight"])
    np.testing.assert_array_equal(found["classifier.weight"], ours["head.weight"])
    with pytest.raises(UserError, match=r"out\.pdparams with -names=transformers has to end in \.safetensors"):
        convert(str(source), str(tmp_path / "out.pdparams"), names="transformers")


def test_a_feature_names_weights_as_its_program_does(tmp_path, capsys):
    def rename(state):  # has no place for the layer that pretraining needs, and for the classifier
        kept = {name: value for name, value in state.items() if name.startswith("blocks")}
        return {f"acme.{name}": value for name, value in kept.items()}, [name for name in state if name not in kept]

    model, extra = small("vit", seed=1), {"pretraining_head.weight": np.ones((2, 3), "float32")}
    source, target = save({**arrays(model), **extra}, tmp_path / "vit.pdparams"), tmp_path / "out.safetensors"
    with forgotten():
        register_feature(Manifest("acme", namings={"acme": (rename, "its own")}))
        run([str(source), str(target), "-names=acme"])
    ours = {f"acme.{name}": value for name, value in in_torch_layout(model).items() if name.startswith("blocks")}
    assert_same(read_safetensors(target)[0], ours)
    said = capsys.readouterr().out
    assert "note: pretraining_head, which only pretraining needs, dropped (1 entries)" in said
    left = len(arrays(model)) - len(ours)
    shown = "note: cls_token, pos_embed, patch_embed.proj, norm, head, which -names=acme has no place for, dropped"
    assert f"{shown} ({left} entries)\n" in said


def test_a_target_below_a_file_is_refused(tmp_path):
    source = save(arrays(small("vit", seed=1)), tmp_path / "vit.pdparams")
    with pytest.raises(UserError, match=r"convert: .*vit\.pdparams/out\.pdparams cannot be written: "):
        convert(str(source), str(source / "out.pdparams"))
