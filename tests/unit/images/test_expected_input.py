"""What weights expect of images is the default: as the variant, a file beside the weights, or PaddleViT says it."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image
from support.networks.cheap_weights import weights_of_zero

from paddlevit_dist.core.checkpoint.about_schema import ABOUT
from paddlevit_dist.core.checkpoint.directory_names import STATE
from paddlevit_dist.core.registry.model_names import read_model_names
from paddlevit_dist.core.settings import load
from paddlevit_dist.core.settings.recipes import recipe_folder
from paddlevit_dist.core.settings.table import leaves
from paddlevit_dist.images.classification import task as task_module
from paddlevit_dist.images.classification.task import Classification
from paddlevit_dist.images.expected_input import describe_input, format_stronger_pretrained_hint
from paddlevit_dist.images.models.foundation_variants import FOUNDATION
from paddlevit_dist.images.transforms.crops import EvaluationTransform

HALF, IMAGENET = ([0.5] * 3, [0.5] * 3), ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
# ``pretrained_cfg`` of timm 1.0.28 for the default weights of each name: mean and deviation, crop_pct; all are bicubic,
# and the size is that of the name, else 224.
TIMM = {
    "vit_{tiny,small,base}_patch16_224 vit_{small,base,large}_patch32_224 vit_large_patch16_224": (HALF, 0.9),
    "vit_large_patch14_224 vit_huge_patch14_224": (HALF, 0.9),
    "vit_{tiny,small,base,large}_patch16_384 vit_{small,base,large}_patch32_384": (HALF, 1.0),
    "deit_{tiny,small,base}_patch16_224 deit_{tiny,small,base}_distilled_patch16_224": (IMAGENET, 0.9),
    "deit_base_patch16_384 deit_base_distilled_patch16_384": (IMAGENET, 1.0),
    "swin_{tiny,small,base,large}_patch4_window7_224": (IMAGENET, 0.9),
    "swin_{base,large}_patch4_window12_384": (IMAGENET, 1.0),
    "cait_{xxs24,xxs36,s24}_224 cait_{xxs24,xxs36,xs24,s24,s36,m36}_384 cait_m48_448": (IMAGENET, 1.0),
    "pvt_v2_{b0,b1,b2,b2_li,b3,b4,b5} pvtv2_{b0,b1,b2,b2_linear,b3,b4,b5}": (IMAGENET, 0.9),
    "mixer_{s32,s16,b32,b16,l32,l16}_224": (HALF, 0.875),
    "convnext_{tiny,small}": (IMAGENET, 0.95),
    "convnext_{base,large,xlarge}": (IMAGENET, 0.875),
    "resnet{18,34,50,101} resnet101d": (IMAGENET, 0.95),
    "resnet{18d,34d,50d}": (IMAGENET, 0.875),
    "hgnetv2_{b0,b1,b2,b3,b4,b5}": (IMAGENET, 0.965),
    "mit_{b0,b1,b2,b3,b4,b5}": (IMAGENET, 0.875),  # not timm's: NVlabs' SegFormer, of PVT's training code
}

CLIP = ([0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711])
FOUNDATION_TIMM = {  # of timm 1.0.31, one of each kind: also the size
    "vit_small_patch14_reg4_dinov2": (IMAGENET, 1.0, 518),
    "vit_small_patch16_dinov3": (IMAGENET, 1.0, 256),
    "vit_base_patch16_siglip_256": (HALF, 0.9, 256),
    "eva02_tiny_patch14_224": (CLIP, 0.9, 224),
    "eva02_tiny_patch14_336": (CLIP, 1.0, 336),
}


def expanded():
    for patterns, facts in TIMM.items():
        for pattern in patterns.split():
            before, brace, rest = pattern.partition("{")
            inner, _, after = rest.partition("}")
            for middle in inner.split(",") if brace else [""]:
                yield before + middle + after, facts


def found_in(configuration):
    data = configuration.values.DATA
    return (data.IMAGENET_MEAN, data.IMAGENET_STD), data.CROP_PCT, data.IMAGE_SIZE, data.INTERPOLATION


def test_every_variant_of_a_classifier_is_fed_as_timm_feeds_it():
    facts = dict(expanded())
    names = {
        name for family in read_model_names().values() for name, expected in family.items() if expected is not None
    }
    assert set(facts) == names - {*FOUNDATION}
    sizes = {name: next((size for size in (384, 448) if name.endswith(str(size))), 224) for name in facts}
    sizes["resnet101d"] = 256
    rows = {name: (*facts[name], sizes[name]) for name in facts}
    for name, (normalization, crop, size) in {**rows, **FOUNDATION_TIMM}.items():
        configuration = load(["-dataset=folder", "MODEL.NAME", name])
        assert found_in(configuration) == (normalization, crop, size, "bicubic"), name


def test_a_run_says_what_it_normalizes_by_and_what_somebody_sets_counts():
    swin = ["-dataset=folder", "MODEL.NAME", "swin_tiny_patch4_window7_224"]
    said = "input: 224 pixels, crop 0.9, bicubic, mean 0.485, 0.456, 0.406, deviation 0.229, 0.224, 0.225"
    assert Classification(load(swin).values).notices == [f"{said} (swin_tiny_patch4_window7_224)"]
    own = load([*swin, "DATA.IMAGENET_MEAN", "[0.1,0.2,0.3]", "DATA.CROP_PCT", "0.5", "-image_size=96"])
    assert found_in(own) == (([0.1, 0.2, 0.3], IMAGENET[1]), 0.5, 96, "bicubic")
    said = "input: 96 pixels, crop 0.5, bicubic, mean 0.1, 0.2, 0.3, deviation 0.229, 0.224, 0.225"
    assert Classification(own.values).notices == [said]
    assert Classification(load(["-cfg=vit_digits"]).values).notices == []  # a network that is nobody's variant
    assert load([*swin, "DATA.IMAGE_CHANNELS", "1"]).values.DATA.IMAGENET_MEAN == [0.5]


def test_torchvisions_weights_are_resized_as_torchvision_does():
    configuration = load(["-dataset=folder", "MODEL.NAME", "resnet18", "-pretrained=resnet18.tv_in1k"])
    assert found_in(configuration) == (IMAGENET, 0.875, 224, "bilinear")
    noise = np.random.default_rng(0).integers(0, 256, (70, 50, 3)).astype(np.uint8)
    expected = Image.fromarray(noise).resize((32, int(32 * 70 / 50)), Image.Resampling.BILINEAR).crop((0, 6, 32, 38))
    found = EvaluationTransform(32, 1.0, interpolation="bilinear")(Image.fromarray(noise), np.random.default_rng(0))
    np.testing.assert_array_equal(found, np.asarray(expected).transpose(2, 0, 1))


OF_TIMM = {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6], "crop_pct": 0.8, "interpolation": "bilinear"}


@pytest.mark.parametrize("given", ["folder", "folder/model.safetensors"])
def test_timms_file_beside_weights_wins_over_the_variant(tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "model.safetensors").touch()
    words = ["-dataset=folder", "MODEL.NAME", "convnext_tiny", f"-pretrained={given}"]
    about = {"architecture": "convnext_tiny", "pretrained_cfg": {**OF_TIMM, "input_size": [3, 288, 288]}}
    (tmp_path / "folder" / "config.json").write_text(json.dumps(about))
    normalization = OF_TIMM["mean"], OF_TIMM["std"]
    assert found_in(load(words)) == (normalization, 0.8, 288, "bilinear")
    assert "(folder/config.json)" in Classification(load(words).values).notices[0]
    assert load([*words, "DATA.CROP_PCT", "0.7"]).values.DATA.CROP_PCT == 0.7
    for other in ("convnext_small", "unheard_of"):  # another model: a folder of many weights
        (tmp_path / "folder" / "config.json").write_text(json.dumps({**about, "architecture": other}))
        assert found_in(load(words)) == (IMAGENET, 0.95, 224, "bicubic")


OF_HUGGING_FACE = {"image_mean": OF_TIMM["mean"], "image_std": OF_TIMM["std"]}
ITS_OWN = OF_TIMM["mean"], OF_TIMM["std"]


@pytest.mark.parametrize(
    "about, expected",
    [
        ({"size": {"height": 384, "width": 384}, "resample": 2}, (ITS_OWN, 1.0, 384, "bilinear")),
        ({"size": {"shortest_edge": 256}, "crop_size": 224, "resample": 3}, (ITS_OWN, 0.875, 224, "bicubic")),
        ({"size": 224, "crop_pct": 0.8, "do_normalize": False}, (([0.0] * 3, [1.0] * 3), 0.8, 224, "bicubic")),
    ],
)
def test_hugging_faces_file_beside_weights_wins_over_the_variant(tmp_path, about, expected):
    (tmp_path / "config.json").write_text('{"model_type": "vit"}')
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({**OF_HUGGING_FACE, **about}))
    words = ["-dataset=folder", "MODEL.NAME", "vit_base_patch16_224", f"-pretrained={tmp_path}"]
    assert found_in(load(words)) == expected


def write_timms_file(folder):
    content = {"architecture": "vit_base_patch16_224", **OF_TIMM, "input_size": [3, 256, 256]}
    (folder / "config.json").write_text(json.dumps(content))


def write_hugging_faces_file(folder):
    content = {**OF_HUGGING_FACE, "size": {"shortest_edge": 320}, "crop_size": 256, "resample": 2}
    (folder / "preprocessor_config.json").write_text(json.dumps(content))


def write_timms_arguments(folder):
    content = {"model": "vit_base_patch16_224", **OF_TIMM, "img_size": 256}
    (folder / "args.yaml").write_text(yaml.safe_dump(content))


def write_facts_of_a_run(folder):
    names = {"IMAGENET_MEAN": "mean", "IMAGENET_STD": "std", "CROP_PCT": "crop_pct", "INTERPOLATION": "interpolation"}
    data = {key: OF_TIMM[name] for key, name in names.items()}
    about = {"settings": {"DATA": {**data, "IMAGE_SIZE": 256, "CROP_MODE": "center", "IMAGE_CHANNELS": 3}}}
    (folder / "model.about.yaml").write_text(yaml.safe_dump(about))


REQUIRING = [file.stem for file in recipe_folder().glob("*.yaml") if "PRETRAINED_REQUIRED" in file.read_text()]
CLASSIFYING = sorted({*REQUIRING} - {"finetune_detector", "finetune_keypoints"})


@pytest.mark.parametrize(
    "describe", [write_timms_file, write_hugging_faces_file, write_timms_arguments, write_facts_of_a_run]
)
def test_a_recipe_takes_the_input_of_described_weights(tmp_path, describe):
    assert {"probe_knn", "vit_base_patch16_224_finetune", "vit_small_patch16_224_linear_probe"} < {*CLASSIFYING}
    file = tmp_path / "model.pdparams"
    file.touch()
    describe(tmp_path)
    for recipe in CLASSIFYING:
        words = [f"-cfg={recipe}", "-data_path=any", "MODEL.NAME", "vit_base_patch16_224", f"-pretrained={file}"]
        normalization, crop, size, _ = found_in(load(words))
        given = load([f"-cfg={recipe}"]).values.DATA  # images are as large as the recipe says
        assert (normalization, size) == (ITS_OWN, given.IMAGE_SIZE), recipe
        evaluated = load([*words, "-eval"])
        assert found_in(evaluated)[0] == ITS_OWN
        if "PROBE" in evaluated.values:
            assert crop == found_in(evaluated)[1] == given.CROP_PCT, recipe
        else:
            assert found_in(evaluated) == (ITS_OWN, 0.8, 256, "bilinear"), recipe
        own = load([*words, "-eval", "DATA.IMAGENET_MEAN", "[0.3,0.3,0.3]", "-image_size=64"])
        assert found_in(own)[0] == ([0.3] * 3, ITS_OWN[1]) and found_in(own)[2] == 64


@pytest.mark.parametrize("channels, expected", [(3, ([0.1] * 3, [0.2] * 3)), (1, HALF)])
def test_a_checkpoint_expects_the_input_of_its_run(tmp_path, channels, expected):
    checkpoint = tmp_path / "run" / "checkpoints" / "epoch_0001"
    checkpoint.mkdir(parents=True)
    (checkpoint / STATE).touch()
    data = {"IMAGE_CHANNELS": channels, "IMAGENET_MEAN": [0.1] * channels, "IMAGENET_STD": [0.2] * channels}
    data |= {"CROP_PCT": 0.75, "INTERPOLATION": "bilinear", "IMAGE_SIZE": 96, "CROP_MODE": "center"}
    (checkpoint / ABOUT).write_text(yaml.safe_dump({"settings": {"TASK": "masked_autoencoder", "DATA": data}}))
    words = ["-cfg=finetune_folder", "-data_path=any", f"-pretrained={tmp_path / 'run'}"]
    # An input of one channel says nothing of three.
    assert found_in(load([*words, "MODEL.NAME", "vit_base_patch16_224"]))[0] == expected


def test_a_copy_of_published_weights_is_fed_as_they_are(tmp_path):
    described = {"described_by": describe_input("resnet18.tv_in1k")}  # their input is not the variant's
    (tmp_path / "copy.pdparams").touch()
    (tmp_path / "copy.pdparams.about.yaml").write_text(yaml.safe_dump(described))
    words = ["-dataset=folder", "MODEL.NAME", "resnet18"]
    copy, published, variant = (
        found_in(load([*words, *weights]))
        for weights in ([f"-pretrained={tmp_path / 'copy.pdparams'}"], ["-pretrained=resnet18.tv_in1k"], [])
    )
    assert copy == published != variant


def test_weights_without_a_description_have_the_input_of_a_recipe_or_of_their_model(tmp_path):
    (tmp_path / "mae.pth").touch()
    words = ["-data_path=any", f"-pretrained={tmp_path / 'mae.pth'}"]
    recipe = load(["-cfg=vit_base_patch16_224_finetune", *words, "-eval"])
    assert found_in(recipe) == (IMAGENET, 0.875, 224, "bicubic")
    fine_tuning = load(["-cfg=finetune_folder", *words, "MODEL.NAME", "convnext_tiny"])
    assert found_in(fine_tuning) == (IMAGENET, 0.95, 224, "bicubic")
    line = next(line for line in Classification(fine_tuning.values).notices if line.startswith("input: "))
    assert f"nothing next to {tmp_path / 'mae.pth'} says what the weights expect" in line


@pytest.mark.parametrize(
    "content, said",
    [
        ("{", "config.json cannot be read: "),
        ('{"mean": [0.5, 0.5], "std": [1, 1]}', "expected three numbers each"),
        ('{"mean": ["a", 0, 0]}', "not in timm's or Hugging Face's format"),
        (
            '{"mean": [0, 0, 0], "interpolation": "random"}',
            "random: set DATA.INTERPOLATION to one of",
        ),
    ],
)
def test_a_damaged_file_beside_weights_is_named(tmp_path, refuse, content, said):
    (tmp_path / "config.json").write_text(content)
    words = ["-dataset=folder", "MODEL.NAME", "resnet18", f"-pretrained={tmp_path}"]
    message = refuse(load, words)
    assert str(tmp_path / "config.json") in message and said in message


# ---- PaddleViT's files -----------------------------------------------------------------------------------------

PADDLEVIT = json.loads(Path(__file__).with_name("paddlevit_values.json").read_text(encoding="utf-8"))


def test_paddlevits_files_get_what_its_config_py_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(PADDLEVIT["files"]) == 55
    for name, (folder, stated) in PADDLEVIT["files"].items():
        content: dict = {}
        for key, value in stated.items():
            put_plain(content, key, value)
        Path("x.yaml").write_text(yaml.safe_dump(content))
        configuration = load(["-cfg=x.yaml", "-dataset=imagenet2012"])
        found = leaves(configuration.values)
        for key, value in {**PADDLEVIT["config.py"][folder], **stated}.items():
            if key in PADDLEVIT["config.py"][folder]:
                assert (list(found[key]) if isinstance(found[key], tuple) else found[key]) == read(value), (name, key)
        told = [line for line in configuration.notices if f"from PaddleViT's {folder}/config.py: " in line]
        left = {"TRAIN.BASE_LR" if folder == "ViT" else "TRAIN.MIXUP_ALPHA"} - set(stated)
        assert len(told) == bool(left) and all(key in line for line in told for key in left)
        assert not [line for line in configuration.notices if "no effect: TRAIN" in line]


def put_plain(tree, name, value):
    *sections, last = name.split(".")
    for section in sections:
        tree = tree.setdefault(section, {})
    tree[last] = value


def read(value):
    """A number that PyYAML took for text, such as 5e-4, or a pair."""
    if isinstance(value, str) and value.startswith("("):
        return [float(part) for part in value[1:-1].split(",")]
    try:
        return float(value) if isinstance(value, str) and value != "None" else None if value == "None" else value
    except ValueError:
        return value


def test_files_of_another_form_are_not_taken_for_paddlevits(load_text):
    text = "DATA: {IMAGE_SIZE: 224, CROP_PCT: 0.9}\nMODEL: {TYPE: deit, NAME: deit_tiny_patch16_224, EMBED_DIM: 192}\n"
    assert load_text(text).values.TRAIN.MIXUP_ALPHA == 0.8
    assert load_text(text + "TRAIN: {MIXUP_ALPHA: 0.2}").values.TRAIN.MIXUP_ALPHA == 0.2
    assert load_text(text, "TRAIN.MIXUP_ALPHA", "0.3").values.TRAIN.MIXUP_ALPHA == 0.3
    assert load_text(text + "TASK: classification").values.TRAIN.MIXUP_ALPHA == 0.0
    assert load_text(text.replace("EMBED_DIM: 192", "DROPOUT: 0.1")).values.TRAIN.MIXUP_ALPHA == 0.0
    assert load_text(text, "-eval", "-pretrained=x").notices == []


@weights_of_zero()
def test_better_weights_are_offered_where_a_device_has_room_for_them(monkeypatch):
    fine_tuning = load(["-cfg=finetune_folder"]).values
    assert format_stronger_pretrained_hint(fine_tuning, 0) is None  # a CPU
    small = "-pretrained=eva02_small_patch14_336.mim_in22k_ft_in1k -image_size=336 (MIT; 85.7 % on ImageNet-1k, "
    assert small in format_stronger_pretrained_hint(fine_tuning, 16 << 30)
    assert (
        "-pretrained=eva02_base_patch14_448.mim_in22k_ft_in22k_in1k -image_size=448"
        in format_stronger_pretrained_hint(fine_tuning, 80 << 30)
    )
    named = load(["-cfg=finetune_folder", "-pretrained=eva02_small_patch14_336.mim_in22k_ft_in1k"]).values
    assert format_stronger_pretrained_hint(named, 16 << 30) is None and "eva02_base" in format_stronger_pretrained_hint(
        named, 80 << 30
    )
    assert format_stronger_pretrained_hint(load(["-cfg=vit_base_patch16_224"]).values, 80 << 30) is None  # from scratch

    monkeypatch.setattr(task_module, "accelerator_bytes", lambda: 16 << 30)
    task = Classification(fine_tuning)
    task.num_classes = 2
    task.build_model()
    assert any(small in line for line in task.notices)
