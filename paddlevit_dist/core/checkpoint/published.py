"""Published weights by name, which timm's maintainers host at Hugging Face.

A name is timm's, such as ``vit_small_patch16_224.augreg_in21k_ft_in1k``. ``hf:OWNER/REPOSITORY`` means any other
repository there that contains a ``model.safetensors``, and ``ms:OWNER/REPOSITORY`` one at ModelScope. An existing path
takes precedence. A model's name alone is a path, as in PaddleViT, whose users often name their own weights so; a
missing file must not be replaced by published weights.
"""

import functools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from ..registry.model_sources import find_weights_address
from ..runtime.errors import UserError
from ..runtime.hints import find_similar
from .about_schema import ABOUT
from .download import (
    CachedCopy,
    download_from_hub,
    download_small_file,
    find_in_hub_cache,
    find_local_copy,
    local_copy,
    silent,
)

_ENDPOINT_VARIABLE = "HF_ENDPOINT"  # Hugging Face's variable for the address of a mirror
_ENDPOINT = "https://huggingface.co"
WEIGHTS_FILE = "model.safetensors"
_REPOSITORY = re.compile(r"hf(?:-hub)?:([\w.\-]+/[\w.\-]+)")
_MODELSCOPE_VARIABLE = "MODELSCOPE_ENDPOINT"  # ModelScope's variable
_MODELSCOPE = "https://www.modelscope.cn"
_MODELSCOPE_REPOSITORY = re.compile(r"ms:([\w.\-]+/[\w.\-]+)")

# Mean and deviation of colors by their names in the table.
_COLORS = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "clip": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    "satellite": ((0.430, 0.411, 0.296), (0.213, 0.156, 0.143)),
}


class PublishedWeights(NamedTuple):
    """Weights that have a name.

    Attributes:
        name: timm's name, which is also the repository's.
        top1: top-1 accuracy in percent on ImageNet-1k's validation images, at the model's size, as measured by timm;
            None: the weights have no such classifier.
        mean: mean per channel of the training images, with pixels in [0, 1]; ``std`` likewise.
        crop_pct: share of the resized image that the evaluation crops.
        crop_mode: "center" if the resize keeps the aspect ratio, "squash" if it makes a square.
    """

    name: str
    top1: float | None
    license: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    crop_pct: float
    interpolation: str
    crop_mode: str

    @property
    def model(self) -> str:
        """Name of the registered model that the weights belong to."""
        return self.name.partition(".")[0]


def _read_lines(name: str) -> list[str]:
    return Path(__file__).with_name(name).read_text(encoding="ascii").splitlines()


def _parse_row(line: str) -> PublishedWeights:
    name, top1, license_name, colors, crop_pct, interpolation, crop_mode = line.split()
    accuracy = None if top1 == "-" else float(top1)
    return PublishedWeights(name, accuracy, license_name, *_COLORS[colors], float(crop_pct), interpolation, crop_mode)


# Source: github.com/huggingface/pytorch-image-models, results/results-imagenet.csv of 2026-08-08, and the ``_cfg`` of
# each model's file; of backbones without a classifier and of EVA-02 the ``pretrained_cfg`` in timm 1.0.31.
PUBLISHED = {row.name: row for row in map(_parse_row, _read_lines("published_weights.txt"))}
# The authors' weights at Hugging Face by registered model, with license and whether they are gated. Meta's DINOv3
# license restricts the use of the weights; timm's copies are open, the ones of facebook/* are gated.
_AUTHOR_WEIGHTS = dict(line.split(" ", 1) for line in _read_lines("author_weights.txt"))
_DFINE = {"n": "nano", "s": "small", "m": "medium", "l": "large", "x": "xlarge"}


def list_author_weights(model: str) -> list[str]:
    """List the authors' weights of a registered model at Hugging Face, with license and whether they are gated."""
    return (
        [_AUTHOR_WEIGHTS[model]]
        if model in _AUTHOR_WEIGHTS
        else [f"{name} (Apache-2.0)" for name in find_published_detectors(model)]
    )


def find_published_detectors(model: str) -> list[str]:
    """List published weights of a real-time detector, all Apache-2.0; weights trained on COCO alone come first."""
    family, _, size = model.partition("_")
    if family == "dfine" and size in _DFINE:
        trained_on = ["coco", *([] if size == "n" else ["obj2coco-e25" if size == "l" else "obj2coco", "obj365"])]
        return [f"hf:ustc-community/dfine-{_DFINE[size]}-{data}" for data in trained_on]
    if family == "rtdetr" and size in ("r18vd", "r34vd", "r50vd", "r101vd"):
        return [f"hf:PekingU/{model}", *([] if size == "r34vd" else [f"hf:PekingU/{model}_coco_o365"])]
    return [f"hf:PekingU/rtdetr_v2_{size}"] if family == "rtdetrv2" and not size.endswith("_dsp") else []


def _may_be_name(source: object) -> TypeGuard[str]:
    """Return whether ``source`` may be an address or a name of weights: no such path exists."""
    return isinstance(source, str) and not os.path.exists(source)


def find_published(source: object) -> PublishedWeights | None:
    """Return the entry that ``source`` names; None for an existing path and anything else."""
    if not _may_be_name(source):
        return None
    return PUBLISHED.get(source.partition("#")[0].lower().removeprefix("hf:timm/"))


def find_published_for(model: str) -> PublishedWeights | None:
    """Return the first entry of a registered model, or None."""
    return next((row for row in PUBLISHED.values() if row.model == model.lower()), None)


def is_fetched(source: object) -> bool:
    """Return whether ``source`` is an address or a name, whose weights are downloaded, and not a path."""
    return _may_be_name(source) and (find_repository(source) is not None or resolve_address(source) is not None)


def find_repository(source: object) -> str | None:
    """Return the OWNER/REPOSITORY at Hugging Face that ``source`` names, with or without ``#sha256=...``; else None."""
    row = find_published(source)
    if row is not None:
        return f"timm/{row.name}"
    name = source.partition("#")[0] if isinstance(source, str) else ""
    match = _REPOSITORY.fullmatch((":" in name and find_weights_address(name)) or name)
    return match[1] if match else None


def resolve_address(source: Any) -> str | None:
    """Return the address of the weights that ``source`` is or names, at ModelScope or in another package; else None."""
    if isinstance(source, str) and re.match(r"[a-z][a-z0-9+.-]*://", source, re.IGNORECASE):
        return source
    name = source.partition("#")[0] if isinstance(source, str) else ""
    if ":" in name and (bridged := find_weights_address(name)):
        if bridged.startswith("hf:"):
            return None
        return bridged + "".join(source.partition("#")[1:])
    address = _at_modelscope(source, WEIGHTS_FILE)
    return None if address is None else address + "".join(source.partition("#")[1:])


def _endpoint() -> str:
    return (os.environ.get(_ENDPOINT_VARIABLE) or _ENDPOINT).rstrip("/")


def _at_modelscope(source: object, file: str) -> str | None:
    """Return the address of a file in the repository at ModelScope that ``source`` names; else None."""
    match = _MODELSCOPE_REPOSITORY.fullmatch(source.partition("#")[0]) if isinstance(source, str) else None
    endpoint = (os.environ.get(_MODELSCOPE_VARIABLE) or _MODELSCOPE).rstrip("/")
    return f"{endpoint}/models/{match[1]}/resolve/master/{file}" if match else None


def local_weights(source: Any, log: Callable[[str], None] = silent) -> CachedCopy | None:
    """Return the local file of an address or a name, downloaded once after a log line; None for anything else.

    Raises UserError if it cannot be downloaded or stored, or its checksum differs.
    """
    if not _may_be_name(source):
        return None
    repository = find_repository(source)
    if repository is None:
        address = resolve_address(source)
        return None if address is None else local_copy(address, log)
    _, mark, checksum = source.partition("#")
    fetch_record(source)  # it is read from the folder of the weights
    return download_from_hub(repository, f"{WEIGHTS_FILE}{mark}{checksum}", _endpoint(), log)


def is_repository(source: object) -> bool:
    """Return whether ``source`` is ``hf:OWNER/NAME``, and not the name of weights that this package knows."""
    spelled = _REPOSITORY.fullmatch(source.partition("#")[0]) if _may_be_name(source) else None
    return spelled is not None and find_published(f"hf:{spelled[1]}") is None


def fetch_record(source: object, may_download: bool = True) -> Path | None:
    """Return the ``about.yaml`` in the repository ``hf:OWNER/NAME`` of a model of this package; None for any other."""
    return find_sibling_file(source, ABOUT, may_download)[0] if is_repository(source) else None


def find_sibling_file(source: object, name: str, may_download: bool) -> tuple[Path | None, str]:
    """Return a small file from the repository, at Hugging Face or ModelScope, of the weights called ``source``.

    Returns its local copy, downloaded if ``may_download``, or None; and why it is unknown whether it exists, else
    empty.
    """
    address = _at_modelscope(source, name)
    if address is not None:
        return _fetch_once(address) if may_download else (find_local_copy(address), "")
    repository = find_repository(source)
    if repository is None:
        return None, ""
    return _fetch_once(repository, name) if may_download else (find_in_hub_cache(repository, name), "")


@functools.cache  # without an answer from the server, each attempt takes long
def _fetch_once(place: str, name: str | None = None) -> tuple[Path | None, str]:
    """Download a file of a repository at Hugging Face, or of an address; return the path, or the error."""
    try:
        return (local_copy(place).path if name is None else download_small_file(place, name, _endpoint())), ""
    except UserError as error:
        return None, str(error)


def similar_names(source: str) -> str:
    """Format ``; weights that have a name: ...`` with names similar to ``source``; empty if there are none."""
    if os.sep in source:
        return ""
    near = find_similar(source, PUBLISHED, 2)
    return f"; published weights with similar names: {', '.join(near)}" if near else ""
