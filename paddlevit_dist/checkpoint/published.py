"""Weights by name: those that their authors published and timm's owner keeps at Hugging Face.

A name is timm's, ``vit_small_patch16_224.augreg_in21k_ft_in1k``; ``hf:OWNER/REPOSITORY`` means any other repository
there that holds a ``model.safetensors``, and ``ms:OWNER/REPOSITORY`` one at ModelScope. A path that exists wins. A
model's name alone is a path, as it is to PaddleViT's users, whose own weights are often called so: what is not there
must not be replaced by somebody else's.
"""

import difflib
import functools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ..registry import address_of_weights
from ..runtime.errors import UserError
from .download import (
    CachedCopy,
    download_from_hub,
    download_small_file,
    find_in_hub_cache,
    find_local_copy,
    local_copy,
    silent,
)

_ENDPOINT_VARIABLE = "HF_ENDPOINT"  # Hugging Face's own: the address of a mirror
_ENDPOINT = "https://huggingface.co"
_FILE = "model.safetensors"
_REPOSITORY = re.compile(r"hf(?:-hub)?:([\w.\-]+/[\w.\-]+)")
_MODELSCOPE_VARIABLE = "MODELSCOPE_ENDPOINT"  # ModelScope's own
_MODELSCOPE = "https://www.modelscope.cn"
_OF_MODELSCOPE = re.compile(r"ms:([\w.\-]+/[\w.\-]+)")

_HALF = (0.5, 0.5, 0.5)
_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class PublishedWeights(NamedTuple):
    """Weights with a name.

    Attributes:
        name: timm's, which is that of the repository as well.
        top1: in percent on ImageNet-1k's validation images, at the model's size, as timm measured it; None: the weights
            have no such classifier.
        license: of the weights.
        mean, std: per channel, of the pixels from 0 to 1 that the weights were trained on.
        crop_pct: the share of the resized image that was kept in that evaluation.
        interpolation: of that resize.
        crop_mode: "center" where it keeps the proportions, "squash" where it makes a square.
    """

    name: str
    top1: float | None
    license: str
    mean: tuple[float, ...] = _IMAGENET_MEAN
    std: tuple[float, ...] = _IMAGENET_STD
    crop_pct: float = 0.9
    interpolation: str = "bicubic"
    crop_mode: str = "center"

    @property
    def model(self) -> str:
        """The registered model that they are for."""
        return self.name.partition(".")[0]


# Source: github.com/huggingface/pytorch-image-models, results/results-imagenet.csv of 2026-08-08, and the ``_cfg`` of
# each model's file.
_ROWS = (
    PublishedWeights("vit_tiny_patch16_224.augreg_in21k_ft_in1k", 75.452, "Apache-2.0", _HALF, _HALF),
    PublishedWeights("vit_small_patch16_224.augreg_in21k_ft_in1k", 81.402, "Apache-2.0", _HALF, _HALF),
    PublishedWeights("vit_base_patch16_224.augreg_in21k_ft_in1k", 84.534, "Apache-2.0", _HALF, _HALF),
    PublishedWeights("deit_tiny_patch16_224.fb_in1k", 72.190, "Apache-2.0"),
    PublishedWeights("deit_small_patch16_224.fb_in1k", 79.856, "Apache-2.0"),
    PublishedWeights("deit_base_patch16_224.fb_in1k", 81.980, "Apache-2.0"),
    PublishedWeights("swin_tiny_patch4_window7_224.ms_in1k", 81.388, "MIT"),
    PublishedWeights("swin_base_patch4_window7_224.ms_in22k_ft_in1k", 85.276, "MIT"),
    PublishedWeights("convnext_tiny.fb_in22k_ft_in1k", 82.900, "Apache-2.0", crop_pct=0.875),
    PublishedWeights("convnext_tiny.fb_in1k", 82.066, "Apache-2.0", crop_pct=0.875),
    PublishedWeights("convnext_small.fb_in22k_ft_in1k", 84.582, "Apache-2.0", crop_pct=0.875),
    PublishedWeights("convnext_base.fb_in22k_ft_in1k", 85.814, "Apache-2.0", crop_pct=0.875),
    PublishedWeights("pvt_v2_b0.in1k", 70.654, "Apache-2.0"),
    PublishedWeights("pvt_v2_b1.in1k", 78.698, "Apache-2.0"),
    PublishedWeights("pvt_v2_b2.in1k", 82.062, "Apache-2.0"),
    PublishedWeights("resnet18.a1_in1k", 71.504, "Apache-2.0", crop_pct=0.95),
    PublishedWeights("resnet18.tv_in1k", 69.752, "BSD-3-Clause", crop_pct=0.875, interpolation="bilinear"),
    PublishedWeights("resnet34.a1_in1k", 76.420, "Apache-2.0", crop_pct=0.95),
    PublishedWeights("resnet34.tv_in1k", 73.298, "BSD-3-Clause", crop_pct=0.875, interpolation="bilinear"),
    PublishedWeights("resnet50.a1_in1k", 80.382, "Apache-2.0", crop_pct=0.95),
    PublishedWeights("resnet50.tv_in1k", 76.156, "BSD-3-Clause", crop_pct=0.875, interpolation="bilinear"),
    PublishedWeights("resnet101.a1_in1k", 81.494, "Apache-2.0", crop_pct=0.95),
    PublishedWeights("resnet101.tv_in1k", 77.404, "BSD-3-Clause", crop_pct=0.875, interpolation="bilinear"),
)
_CLIP_MEAN, _CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
_SATELLITE_MEAN, _SATELLITE_STD = (0.430, 0.411, 0.296), (0.213, 0.156, 0.143)
# Of Meta's DINOv3, which names what the weights may be used for; timm's copies are open, those of facebook/* are gated.
DINOV3_LICENSE = "DINOv3-License"


def _foundation() -> list[PublishedWeights]:
    """Backbones without a classifier, and EVA-02. Source: each one's ``pretrained_cfg`` in timm 1.0.31."""
    rows = []
    for size in ("small", "base", "large", "giant"):
        for registers in ("", "_reg4"):
            rows.append(
                PublishedWeights(f"vit_{size}_patch14{registers}_dinov2.lvd142m", None, "Apache-2.0", crop_pct=1.0)
            )
    for size in ("small", "small_plus", "base", "large", "huge_plus", "7b"):
        rows.append(PublishedWeights(f"vit_{size}_patch16_dinov3.lvd1689m", None, DINOV3_LICENSE, crop_pct=1.0))
    for size in ("large", "7b"):
        of_satellites = _SATELLITE_MEAN, _SATELLITE_STD, 1.0
        rows.append(PublishedWeights(f"vit_{size}_patch16_dinov3.sat493m", None, DINOV3_LICENSE, *of_satellites))
    for size in ("tiny", "small", "base", "large"):
        rows.append(PublishedWeights(f"convnext_{size}.dinov3_lvd1689m", None, DINOV3_LICENSE, crop_pct=1.0))
    siglip = {"base_patch16": (224, 256, 384, 512), "base_patch32": (256,), "large_patch16": (256, 384, 512)}
    siglip |= {"so400m_patch14": (224, 378), "so400m_patch16": (256, 384, 512), "giantopt_patch16": (256, 384)}
    for size, sides in siglip.items():
        for pool, side in ((pool, side) for side in sides for pool in ("", "_gap")):
            rows.append(PublishedWeights(f"vit_{size}_siglip{pool}_{side}.v2_webli", None, "Apache-2.0", _HALF, _HALF))
    for name, top1 in (
        ("tiny_patch14_336.mim_in22k_ft_in1k", 80.630),
        ("small_patch14_336.mim_in22k_ft_in1k", 85.718),
        ("base_patch14_448.mim_in22k_ft_in22k_in1k", 88.692),
        ("large_patch14_448.mim_m38m_ft_in22k_in1k", 90.052),
        *((f"{size}_patch14_224.mim_in22k", None) for size in ("tiny", "small", "base", "large")),
    ):
        crop = 0.9 if top1 is None else 1.0
        mode = "squash" if "_448." in name else "center"
        rows.append(PublishedWeights(f"eva02_{name}", top1, "MIT", _CLIP_MEAN, _CLIP_STD, crop, crop_mode=mode))
    rows.append(PublishedWeights("vit_base_patch16_clip_224.laion2b", None, "Apache-2.0", _CLIP_MEAN, _CLIP_STD, 1.0))
    rows.append(PublishedWeights("vit_large_patch14_clip_224.laion2b", None, "Apache-2.0", _HALF, _HALF, 1.0))
    return rows


def _authors() -> dict[str, str]:
    """Registered models -> the weights of their authors at Hugging Face, with license and whether these are gated."""
    found = {}
    for size in ("small", "base", "large", "giant"):
        found[f"vit_{size}_patch14_dinov2"] = f"hf:facebook/dinov2-{size} (Apache-2.0)"
        found[f"vit_{size}_patch14_reg4_dinov2"] = f"hf:facebook/dinov2-with-registers-{size} (Apache-2.0)"
    kinds = {"small": "s16", "small_plus": "s16plus", "base": "b16", "large": "l16"}
    kinds.update({"huge_plus": "h16plus", "7b": "7b16"})
    for size, kind in kinds.items():
        gated = f"{DINOV3_LICENSE}, gated: accept it there and set HF_TOKEN"
        found[f"vit_{size}_patch16_dinov3"] = f"hf:facebook/dinov3-vit{kind}-pretrain-lvd1689m ({gated})"
    for size in ("base", "large", "so400m"):
        for side in (224, 256, 384, 512):
            name = f"vit_{size}_patch16_siglip_{side}"
            if f"{name}.v2_webli" in PUBLISHED:
                found[name] = f"hf:google/siglip2-{size}-patch16-{side} (Apache-2.0)"
    return found


PUBLISHED: dict[str, PublishedWeights] = {row.name: row for row in [*_ROWS, *_foundation()]}
_OF_AUTHORS = _authors()
_DFINE = {"n": "nano", "s": "small", "m": "medium", "l": "large", "x": "xlarge"}


def list_author_weights(model: str) -> list[str]:
    """Weights of a registered model that its authors keep at Hugging Face, each with its license and whether it is
    gated."""
    return (
        [_OF_AUTHORS[model]]
        if model in _OF_AUTHORS
        else [f"{one} (Apache-2.0)" for one in find_published_detectors(model)]
    )


def find_published_detectors(model: str) -> list[str]:
    """Published weights of a real-time detector of that name, all Apache-2.0: first those of COCO alone."""
    family, _, size = model.partition("_")
    if family == "dfine" and size in _DFINE:
        trained_on = ["coco", *([] if size == "n" else ["obj2coco-e25" if size == "l" else "obj2coco", "obj365"])]
        return [f"hf:ustc-community/dfine-{_DFINE[size]}-{data}" for data in trained_on]
    if family == "rtdetr" and size in ("r18vd", "r34vd", "r50vd", "r101vd"):
        return [f"hf:PekingU/{model}", *([] if size == "r34vd" else [f"hf:PekingU/{model}_coco_o365"])]
    return [f"hf:PekingU/rtdetr_v2_{size}"] if family == "rtdetrv2" and not size.endswith("_dsp") else []


def find_published(source: Any) -> PublishedWeights | None:
    """The row that ``source`` names, None for a path that exists and for anything else."""
    if not isinstance(source, str) or os.path.exists(source):
        return None
    return PUBLISHED.get(source.partition("#")[0].lower().removeprefix("hf:timm/"))


def find_published_for(model: str) -> PublishedWeights | None:
    """The first row of the registered model of that name."""
    return next((row for row in PUBLISHED.values() if row.model == model.lower()), None)


def is_fetched(source: Any) -> bool:
    """Whether ``source`` is an address or a name, whose weights are fetched, rather than a path."""
    return _repository(source) is not None or _resolve_address(source) is not None


def _repository(source: Any) -> str | None:
    """OWNER/REPOSITORY at Hugging Face that ``source`` names, after which ``#sha256=...`` may follow; else None."""
    row = find_published(source)
    if row is not None:
        return f"timm/{row.name}"
    named = source.partition("#")[0] if isinstance(source, str) else ""
    found = _REPOSITORY.fullmatch(address_of_weights(named) or named)
    return found[1] if found else None


def _resolve_address(source: Any) -> str | None:
    """The address that ``source`` is, or that of the weights at ModelScope or of another package that it names; None if
    it is neither."""
    if isinstance(source, str) and re.match(r"[a-z][a-z0-9+.-]*://", source, re.IGNORECASE):
        return source
    if isinstance(source, str) and (bridged := address_of_weights(source.partition("#")[0])):
        if bridged.startswith("hf:"):
            return None
        return bridged + "".join(source.partition("#")[1:])
    address = _at_modelscope(source, _FILE)
    return None if address is None else address + "".join(source.partition("#")[1:])


def _endpoint() -> str:
    return (os.environ.get(_ENDPOINT_VARIABLE) or _ENDPOINT).rstrip("/")


def _at_modelscope(source: Any, file: str) -> str | None:
    """The address of a file of the repository at ModelScope that ``source`` names; None if it names none."""
    found = _OF_MODELSCOPE.fullmatch(source.partition("#")[0]) if isinstance(source, str) else None
    endpoint = (os.environ.get(_MODELSCOPE_VARIABLE) or _MODELSCOPE).rstrip("/")
    return f"{endpoint}/models/{found[1]}/resolve/master/{file}" if found else None


def local_weights(source: Any, sha256: str | None = None, say: Callable[[str], None] = silent) -> CachedCopy | None:
    """The file of an address or a name, fetched once; None for anything else.

    Args:
        sha256: of its content.
        say: gets a line when something is fetched.

    Raises:
        UserError: as ``local_copy`` and ``download_from_hub``.
    """
    repository = _repository(source)
    if repository is None:
        address = _resolve_address(source)
        return None if address is None else local_copy(address, sha256, say=say)
    _, mark, checksum = source.partition("#")
    return download_from_hub(repository, f"{_FILE}{mark}{checksum}", _endpoint(), sha256, say)


def find_sibling_file(source: Any, name: str, is_asked: bool) -> tuple[Path | None, str]:
    """A small file of the repository at Hugging Face or ModelScope that holds the weights called ``source``.

    Args:
        is_asked: the hub is, where no copy of the file is kept.
    Returns:
        Where its copy is, None without one; and why it is not known whether there is such a file, empty otherwise.
    """
    address = _at_modelscope(source, name)
    if address is not None:
        return _fetch_once(address) if is_asked else (find_local_copy(address), "")
    repository = _repository(source)
    if repository is None:
        return None, ""
    return _fetch_once(repository, name) if is_asked else (find_in_hub_cache(repository, name), "")


@functools.cache  # where nobody answers that takes its time
def _fetch_once(place: str, name: str | None = None) -> tuple[Path | None, str]:
    """A file of a repository of Hugging Face's, or what is at an address."""
    try:
        return (local_copy(place).path if name is None else download_small_file(place, name, _endpoint())), ""
    except UserError as error:
        return None, str(error)


def similar_names(source: str) -> str:
    """``; weights that have a name: …`` for what looks like a mistyped name, else nothing."""
    if os.sep in source:
        return ""
    near = difflib.get_close_matches(source.lower(), list(PUBLISHED), n=2, cutoff=0.6)
    return f"; weights that have such a name: {', '.join(near)}" if near else ""
