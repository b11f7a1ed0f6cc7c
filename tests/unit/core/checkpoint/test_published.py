"""Weights by name, from a local server in Hugging Face's place."""

import json
import re
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.hosts.hubs import NAME, PATH
from support.hosts.servers import Server, send
from support.refusals import refusal_of
from support.registrations import forgotten

import paddlevit_dist
from paddlevit_dist import Manifest, UserError, register_feature
from paddlevit_dist.core.checkpoint import download, published
from paddlevit_dist.core.checkpoint.array_files import write_safetensors
from paddlevit_dist.core.checkpoint.published import (
    PUBLISHED,
    _fetch_once,
    find_published,
    find_published_detectors,
    find_published_for,
    find_sibling_file,
    list_author_weights,
    similar_names,
)
from paddlevit_dist.core.checkpoint.weights import read_weights
from paddlevit_dist.core.inference.trained import open_source
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.settings import load
from paddlevit_dist.extensions.export.trained_models import load_trained_model
from paddlevit_dist.images.classification.task import Classification
from paddlevit_dist.images.transforms.crops import EvaluationTransform

from .test_download import digest


@pytest.mark.parametrize("source", [NAME, NAME.upper(), f"hf:timm/{NAME}", f"hf-hub:timm/{NAME}"])
def test_a_name_is_fetched_once_from_the_endpoint_and_kept_where_timm_looks(source, hub, tmp_path, monkeypatch):
    for _ in range(2):
        np.testing.assert_array_equal(read_weights(source).state["a"], np.arange(50_000.0))
        monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")  # the second asks nobody
    assert hub.requests == [PATH]
    snapshots = tmp_path / "of_hugging_face" / "hub" / f"models--timm--{NAME}" / "snapshots"
    assert [path.name for path in snapshots.glob("*/*")] == ["model.safetensors"]


@pytest.fixture(scope="module")
def fresh():
    model = paddlevit_dist.create_model("vit_tiny_patch16_224")
    return {name: value.numpy() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", NAME, f"hf:timm/{NAME}"])
def test_a_model_is_made_with_its_published_weights_and_knows_their_input(name, fresh, hub, tmp_path):
    write_safetensors(tmp_path / "fresh.safetensors", fresh)
    hub.content = (tmp_path / "fresh.safetensors").read_bytes()
    model = paddlevit_dist.create_model(name, pretrained=True)
    for key, value in model.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), fresh[key])
    transform = paddlevit_dist.create_transform(model)
    image = np.random.default_rng(0).integers(0, 256, (260, 300, 3), dtype=np.uint8)
    expected = EvaluationTransform(224, 0.9)(Image.fromarray(image), np.random.default_rng(0)) / 127.5 - 1
    np.testing.assert_allclose(transform(image).numpy(), expected, atol=1e-6)
    assert set(hub.requests) == {PATH}


def test_a_path_of_that_name_wins(hub, weights, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / NAME).mkdir()
    weights.rename(tmp_path / NAME / "model.safetensors")
    assert read_weights(NAME).name == f"{NAME}/model.safetensors" and hub.requests == []


@pytest.fixture
def no_waits(monkeypatch):
    """The library waits between its own attempts."""
    monkeypatch.setattr(time, "sleep", lambda seconds: None)


def test_a_connection_that_breaks_leaves_no_weights_and_the_next_attempt_brings_them(hub, no_waits):
    hub.end = 70_000
    try:
        found = read_weights(NAME)  # the library may continue by itself
    except UserError as error:
        assert hub.address(PATH[1:]) in str(error) and "\n" not in str(error)
        found = read_weights(NAME)
    np.testing.assert_array_equal(found.state["a"], np.arange(50_000.0))


@pytest.mark.parametrize(
    "refusal, line",
    [
        ((401, "GatedRepo"), "access to it is restricted; set HF_TOKEN to a token with access"),
        ((401, "RepoNotFound"), "there is no such repository, or access to it is restricted; set HF_TOKEN"),
        ((404, "EntryNotFound"), "the repository has no such file; give a file of weights instead"),
        ((501, ""), "501 .*a proxy in https_proxy and a mirror in HF_ENDPOINT.*-pretrained=FILE"),
    ],
)
def test_what_the_hub_refuses_is_one_line(hub, refusal, line):
    hub.refusal = refusal
    with pytest.raises(UserError, match=rf"^{re.escape(hub.address(PATH[1:]))} cannot be fetched: .*{line}") as caught:
        read_weights(NAME)
    assert "\n" not in str(caught.value)


def test_a_token_of_the_environment_is_sent(hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    read_weights(NAME)
    assert hub.token == "Bearer hf_secret"


def test_offline_only_a_kept_copy_is_read(hub):
    hub.set_constant("HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="HF_HUB_OFFLINE is set and there is no local copy; give a file"):
        read_weights(NAME)
    hub.set_constant("HF_HUB_OFFLINE", False)
    read_weights(NAME)
    hub.set_constant("HF_HUB_OFFLINE", True)
    assert read_weights(NAME).state["a"].shape == (50_000,) and hub.requests == [PATH]


def test_a_folder_that_takes_no_files_is_one_line(hub):
    hub.set_constant("HF_HUB_CACHE", "/proc/hub")
    with pytest.raises(UserError, match=r"model.safetensors cannot be fetched: [^\n]+$"):
        read_weights(NAME)


def test_a_full_disk_is_one_line():
    said = "it cannot be stored: No space left on device; free space; HF_HOME names"
    with (
        open("/dev/full", "wb", buffering=0) as full,
        pytest.raises(UserError, match=said),
        download.in_one_line("hub"),
    ):
        full.write(b"0")


def test_an_endpoint_that_nobody_serves_is_one_line_with_the_address(hub, no_waits, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(UserError, match=rf"^http://127.0.0.1:1{PATH} cannot be fetched: .*-pretrained=FILE\)$"):
        read_weights(NAME)


def test_a_digest_may_follow_the_name(hub, weights):
    (notice,) = read_weights(NAME).notices
    assert f"its SHA-256 {digest(weights)} was not checked; add #sha256=... to its name" in notice
    assert read_weights(f"{NAME}#sha256={digest(weights)}").notices == ()
    with pytest.raises(UserError, match="its SHA-256 is .*, expected 1111"):
        read_weights(f"{NAME}#sha256={'1' * 64}")
    with pytest.raises(UserError, match="expected #sha256= and 64"):
        read_weights(f"{NAME}#md5=1")


def test_a_kept_copy_that_was_spoilt_is_fetched_again(hub, weights, tmp_path):
    read_weights(NAME)
    (copy,) = (tmp_path / "of_hugging_face").rglob("model.safetensors")
    copy.write_bytes(copy.read_bytes()[:-1] + b"x")
    assert read_weights(f"{NAME}#sha256={digest(weights)}").state["a"][-1] == 49_999
    assert hub.requests == [PATH] * 2


def test_every_name_is_that_of_a_registered_model():
    assert {row.model for row in PUBLISHED.values()} <= set(REGISTRY.models)
    for name, row in PUBLISHED.items():
        assert find_published(name) is row and find_published(name.upper()) is row


def test_the_name_of_a_model_alone_is_a_path(hub):
    """Somebody's own weights are called so, and must not be replaced by others where they are missing."""
    with pytest.raises(UserError, match="no weights at vit_tiny_patch16_224"):
        read_weights("vit_tiny_patch16_224")
    assert hub.requests == [] and find_published("./" + NAME) is None


@pytest.mark.parametrize("source", [NAME, f"hf:timm/{NAME}"])
def test_predict_and_export_take_a_name_as_training_does(source, hub, tmp_path):
    """As docs/tutorials/detection.md shows it; the name of timm's was recommended to whoever had typed it."""
    said = []
    found = open_source(source, "predict", recipe="vit_digits", log=said.append)
    assert Path(found.weights).match(f"hub/models--timm--{NAME}/snapshots/*/model.safetensors")
    assert hub.requests == [PATH] and len(said) == 1 and "model.safetensors" in said[0]
    found = open_source(source, "predict", log=said.append)  # without a recipe: the name says the network
    assert found.config.MODEL.NAME == "vit_tiny_patch16_224" and said[-1] == f"network: vit_tiny_patch16_224 ({NAME})"
    alone = tmp_path / "alone.safetensors"
    alone.write_bytes(Path(found.weights).read_bytes())
    with pytest.raises(UserError, match="name the model with -model=NAME"):
        load_trained_model(str(alone))


OWN = "hf:somebody/own_resnet18"
WORDS = ["-dataset=folder", "MODEL.NAME", "resnet18", f"-pretrained={OWN}"]


def test_what_the_repository_of_somebody_says_of_its_images_is_the_default(hub, no_waits, monkeypatch):
    about = {"architecture": "resnet18", "pretrained_cfg": {"mean": [0.1, 0.2, 0.3], "std": [1, 1, 1], "crop_pct": 0.5}}
    file = "/somebody/own_resnet18/resolve/main/config.json"
    hub.beside[file] = json.dumps(about).encode()
    data = load(WORDS).values.DATA
    assert (data.IMAGENET_MEAN, data.IMAGENET_STD, data.CROP_PCT) == ([0.1, 0.2, 0.3], [1, 1, 1], 0.5)
    asked = [path for path in hub.requests if path.endswith("preprocessor_config.json")]
    assert hub.requests.count(file) == 1 and len(asked) <= 1
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")  # from here on the copy is read
    _fetch_once.cache_clear()
    configuration = load([*WORDS, "DATA.IMAGENET_STD", "[2,2,2]"])
    assert configuration.values.DATA.IMAGENET_MEAN == [0.1, 0.2, 0.3]
    assert "config.json)" in Classification(load(WORDS).values).notices[0]


def test_where_the_hub_cannot_be_asked_a_note_says_that_the_variants_numbers_are_taken(hub):
    hub.refusal = 501, ""
    configuration = load(WORDS)
    assert configuration.values.DATA.IMAGENET_MEAN == [0.485, 0.456, 0.406]
    (note,) = [line for line in configuration.notices if OWN in line]
    assert note.startswith(f"note: the input that {OWN} expects is not known: ") and "501" in note
    recorded = ["DATA.IMAGENET_MEAN", "[0,0,0]", "DATA.IMAGENET_STD", "[1,1,1]", "DATA.CROP_PCT", "1", "-image_size=32"]
    asked = len(hub.requests)
    _fetch_once.cache_clear()
    assert not any(OWN in line for line in load([*WORDS, *recorded]).notices) and len(hub.requests) == asked


def test_a_repository_without_such_files_is_the_variants(hub):
    assert load(WORDS).values.DATA.CROP_PCT == 0.95 and not any(OWN in line for line in load(WORDS).notices)


def test_a_mistyped_name_gets_the_one_that_was_meant(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command in (read_weights, lambda source: open_source(source, "predict")):
        with pytest.raises(UserError, match=f"published weights with similar names: {NAME}"):
            command(NAME.replace("in1k", "in2k"))


def test_modelscope_is_another_source_with_the_files_beside(weights, tmp_path, monkeypatch):
    """At /models/OWNER/NAME/resolve/REVISION/FILE, which may lead to another store."""
    content = weights.read_bytes()
    files = {"/stored/1": content, "/models/AI/vit/resolve/master/config.json": b'{"architecture": "vit"}'}

    def answer(handler):
        if handler.path == "/models/AI/vit/resolve/master/model.safetensors":
            handler.send_response(302)
            handler.send_header("Location", "/stored/1")
            return handler.end_headers()
        found = files.get(handler.path)
        return handler.send_error(404) if found is None else send(handler, found, found)

    monkeypatch.setenv(download.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as server:
        server.answer = answer
        monkeypatch.setenv("MODELSCOPE_ENDPOINT", server.address(""))
        for _ in range(2):  # fetched once
            found = read_weights(f"ms:AI/vit#sha256={digest(weights)}")
            np.testing.assert_array_equal(found.state["a"], np.arange(50_000.0))
        assert server.requests == ["/models/AI/vit/resolve/master/model.safetensors", "/stored/1"]
        assert find_sibling_file("ms:AI/vit", "config.json", may_download=False) == (None, "")
        beside, _ = find_sibling_file("ms:AI/vit", "config.json", may_download=True)
        assert json.loads(beside.read_text()) == {"architecture": "vit"}
        assert find_sibling_file("ms:AI/vit", "config.json", may_download=False) == (beside, "")
        with pytest.raises(UserError, match="ms-none/resolve/master/model.safetensors cannot be fetched: .*404"):
            read_weights("ms:AI/ms-none")
    monkeypatch.setenv("MODELSCOPE_ENDPOINT", "mirror.example/ms/")
    assert refusal_of(read_weights, "ms:AI/ms-none") == (
        "mirror.example/ms/models/AI/ms-none/resolve/master/model.safetensors cannot be fetched: expected an address "
        "that begins with http://, https:// or file://"
    )


# Of results-imagenet.csv and each model's settings, as timm's maintainers publish them: name, top-1 accuracy, license,
# mean and standard deviation of the images, crop, interpolation, and what is cropped.
OF_TIMM = """
vit_tiny_patch16_224.augreg_in21k_ft_in1k 75.452 Apache-2.0 half 0.9 bicubic center
vit_small_patch16_224.augreg_in21k_ft_in1k 81.402 Apache-2.0 half 0.9 bicubic center
vit_base_patch16_224.augreg_in21k_ft_in1k 84.534 Apache-2.0 half 0.9 bicubic center
deit_tiny_patch16_224.fb_in1k 72.190 Apache-2.0 imagenet 0.9 bicubic center
deit_small_patch16_224.fb_in1k 79.856 Apache-2.0 imagenet 0.9 bicubic center
deit_base_patch16_224.fb_in1k 81.980 Apache-2.0 imagenet 0.9 bicubic center
swin_tiny_patch4_window7_224.ms_in1k 81.388 MIT imagenet 0.9 bicubic center
swin_base_patch4_window7_224.ms_in22k_ft_in1k 85.276 MIT imagenet 0.9 bicubic center
convnext_tiny.fb_in22k_ft_in1k 82.900 Apache-2.0 imagenet 0.875 bicubic center
convnext_tiny.fb_in1k 82.066 Apache-2.0 imagenet 0.875 bicubic center
convnext_small.fb_in22k_ft_in1k 84.582 Apache-2.0 imagenet 0.875 bicubic center
convnext_base.fb_in22k_ft_in1k 85.814 Apache-2.0 imagenet 0.875 bicubic center
pvt_v2_b0.in1k 70.654 Apache-2.0 imagenet 0.9 bicubic center
pvt_v2_b1.in1k 78.698 Apache-2.0 imagenet 0.9 bicubic center
pvt_v2_b2.in1k 82.062 Apache-2.0 imagenet 0.9 bicubic center
resnet18.a1_in1k 71.504 Apache-2.0 imagenet 0.95 bicubic center
resnet18.tv_in1k 69.752 BSD-3-Clause imagenet 0.875 bilinear center
resnet34.a1_in1k 76.420 Apache-2.0 imagenet 0.95 bicubic center
resnet34.tv_in1k 73.298 BSD-3-Clause imagenet 0.875 bilinear center
resnet50.a1_in1k 80.382 Apache-2.0 imagenet 0.95 bicubic center
resnet50.tv_in1k 76.156 BSD-3-Clause imagenet 0.875 bilinear center
resnet101.a1_in1k 81.494 Apache-2.0 imagenet 0.95 bicubic center
resnet101.tv_in1k 77.404 BSD-3-Clause imagenet 0.875 bilinear center
eva02_tiny_patch14_336.mim_in22k_ft_in1k 80.630 MIT clip 1 bicubic center
eva02_small_patch14_336.mim_in22k_ft_in1k 85.718 MIT clip 1 bicubic center
eva02_base_patch14_448.mim_in22k_ft_in22k_in1k 88.692 MIT clip 1 bicubic squash
eva02_large_patch14_448.mim_m38m_ft_in22k_in1k 90.052 MIT clip 1 bicubic squash
"""
INPUTS = {
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "clip": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    "satellite": ((0.430, 0.411, 0.296), (0.213, 0.156, 0.143)),
}


def test_weights_with_a_classifier_are_described_as_by_timm():
    described = [line.split() for line in OF_TIMM.strip().splitlines()]
    assert [row for row in PUBLISHED.values() if row.top1 is not None] == [
        (name, float(top1), license, *INPUTS[kind], float(crop), interpolation, mode)
        for name, top1, license, kind, crop, interpolation, mode in described
    ]


@pytest.mark.parametrize(
    "pattern, number, license, facts",
    [
        (r"vit_(small|base|large|giant)_patch14(_reg4)?_dinov2\.lvd142m", 8, "Apache-2.0", ("imagenet", 1.0)),
        (r"vit_\w+_patch16_dinov3\.lvd1689m", 6, "DINOv3-License", ("imagenet", 1.0)),
        (r"vit_(large|7b)_patch16_dinov3\.sat493m", 2, "DINOv3-License", ("satellite", 1.0)),
        (r"convnext_\w+\.dinov3_lvd1689m", 4, "DINOv3-License", ("imagenet", 1.0)),
        (r"vit_\w+_siglip_\d+\.v2_webli", 15, "Apache-2.0", ("half", 0.9)),
        (r"vit_\w+_siglip_gap_\d+\.v2_webli", 15, "Apache-2.0", ("half", 0.9)),
        (r"eva02_\w+_patch14_224\.mim_in22k", 4, "MIT", ("clip", 0.9)),
        (r"eva02_\w+\.mim_\w+_ft_\w+", 4, "MIT", ("clip", 1.0)),
        (r"vit_base_patch16_clip_224\.laion2b", 1, "Apache-2.0", ("clip", 1.0)),
        (r"vit_large_patch14_clip_224\.laion2b", 1, "Apache-2.0", ("half", 1.0)),
    ],
)
def test_backbones_of_a_family_have_its_license_and_input(pattern, number, license, facts):
    rows = [row for name, row in PUBLISHED.items() if re.fullmatch(pattern, name)]
    assert len(rows) == number
    kind, crop = facts
    assert {row[2:6] for row in rows} == {(license, *INPUTS[kind], crop)}
    assert {row.interpolation for row in rows} == {"bicubic"}
    assert all((row.crop_mode == "squash") == (row.name.startswith("eva02") and "_448." in row.name) for row in rows)
    assert {row.top1 is None for row in rows} == {"in1k" not in pattern and "ft" not in pattern}


def test_what_authors_publish_is_listed_for_a_model():
    assert list_author_weights("vit_base_patch14_reg4_dinov2") == [
        "hf:facebook/dinov2-with-registers-base (Apache-2.0)"
    ]
    assert list_author_weights("vit_giant_patch14_dinov2") == ["hf:facebook/dinov2-giant (Apache-2.0)"]
    (gated,) = list_author_weights("vit_7b_patch16_dinov3")
    assert gated.startswith("hf:facebook/dinov3-vit7b16-pretrain-lvd1689m (DINOv3-License, gated: ")
    assert list_author_weights("vit_large_patch16_siglip_512") == ["hf:google/siglip2-large-patch16-512 (Apache-2.0)"]
    assert list_author_weights("dfine_n") == ["hf:ustc-community/dfine-nano-coco (Apache-2.0)"]
    assert list_author_weights("resnet18") == []


@pytest.mark.parametrize(
    "model, expected",
    [
        ("dfine_s", [f"ustc-community/dfine-small-{data}" for data in ("coco", "obj2coco", "obj365")]),
        ("dfine_l", [f"ustc-community/dfine-large-{data}" for data in ("coco", "obj2coco-e25", "obj365")]),
        ("dfine_xl", []),
        ("rtdetr_r34vd", ["PekingU/rtdetr_r34vd"]),
        ("rtdetr_r50vd", ["PekingU/rtdetr_r50vd", "PekingU/rtdetr_r50vd_coco_o365"]),
        ("rtdetr_r50vd_m", []),
        ("rtdetrv2_r18vd", ["PekingU/rtdetr_v2_r18vd"]),
        ("rtdetrv2_r18vd_dsp", []),
        ("other_n", []),
    ],
)
def test_published_detectors_are_named_by_family_and_size(model, expected):
    assert find_published_detectors(model) == [f"hf:{name}" for name in expected]


def test_the_first_weights_of_a_model_are_found_and_similar_names_are_few():
    assert find_published_for("ResNet50").name == "resnet50.a1_in1k" and find_published_for("resnet5") is None
    assert similar_names("RESNET18.a1_in1") == "; published weights with similar names: resnet18.a1_in1k"
    assert similar_names("resnet28.a1_in1k").count(",") == 1
    assert similar_names("zzz") == similar_names("runs/resnet18.a1_in1") == ""


def find_address(name):
    """Return the address of the weights of a name of another package, whose module this is."""
    return {"zoo:vit": "https://a/vit.npz", "zoo:hub": "hf:somebody/vit"}.get(name)


@pytest.fixture
def zoo():
    with forgotten():
        register_feature(Manifest("acme", sources={"zoo": __name__}))
        yield


def test_names_of_other_packages_lead_to_addresses_or_repositories(zoo, monkeypatch):
    monkeypatch.delenv("MODELSCOPE_ENDPOINT", raising=False)
    checksum = f"#sha256={'1' * 64}"
    for ending in ("", checksum):
        assert published.resolve_address(f"zoo:vit{ending}") == f"https://a/vit.npz{ending}"
        assert published.resolve_address(f"https://b/c.npz{ending}") == f"https://b/c.npz{ending}"
        assert published.resolve_address(f"zoo:hub{ending}") is None
        assert published.find_repository(f"zoo:hub{ending}") == "somebody/vit"
        assert published.resolve_address(f"ms:a/b{ending}") == (
            f"https://www.modelscope.cn/models/a/b/resolve/master/model.safetensors{ending}"
        )
    assert [*map(published.is_fetched, ("zoo:vit", "zoo:hub", "zoo:none", "vit", 3))] == [
        True,
        True,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize("begin", ["", "hf:timm/", "HF:Timm/"])
def test_a_name_is_found_in_any_case_with_or_without_its_address(tmp_path, monkeypatch, begin):
    monkeypatch.chdir(tmp_path)
    name, row = next(iter(published.PUBLISHED.items()))
    for written in (name, name.upper(), f"{name}#sha256=0"):
        assert published.find_published(f"{begin}{written}") is row
    assert published.find_published(f"hf:other/{name}") is None and published.find_published(3) is None
    assert published.find_published_for(row.model.upper()).model == row.model
    (tmp_path / name).mkdir()
    assert published.find_published(name) is None  # a path wins
