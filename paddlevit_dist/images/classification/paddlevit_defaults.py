"""Defaults of PaddleViT's ``config.py`` files, which its YAML files rely on.

A file in a clone has its own config.py, which is read; this table is for copies of such files.

Source: github.com/BR-IDL/PaddleViT, image_classification/*/config.py, without keys that every YAML file sets, paths of
a run, and values that are the default here. Mean and deviation are what the variants expect.
"""

import os
import re
from collections import ChainMap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...core.registry.lookup import find_name
from ...core.runtime.errors import UserError
from ...core.runtime.text_files import read_json
from ...core.settings.key_tables import key_tables
from ..models.cloned_families import find_family, is_taken, read_defaults

# MODEL.TYPE in small letters -> the folder of that config.py, and its values.
_FAMILIES: dict[str, tuple[str, dict[str, Any]]] = read_json(Path(__file__).with_suffix(".json"))
# Keys that all of PaddleViT's YAML files set, and keys that none of them sets: a run's ``config.yaml`` has its task,
# and copies of recipes for digits have their gray images.
_REQUIRED = ("MODEL.NAME", "DATA.IMAGE_SIZE", "DATA.CROP_PCT")
_DIMENSIONS = ("MODEL.PATCH_SIZE", "MODEL.EMBED_DIM", "MODEL.DIMS")
_EXCLUDED = ("TASK", "DATA.IMAGE_CHANNELS")
_PLAIN_DEIT = re.compile(r"deit_(tiny|small|base)_patch16_(224|384)")


# MODEL.TYPE in small letters -> the model whose sizes a file replaces, if it sets all of these keys of MODEL.
_BY_TYPE: dict[str, tuple[str, tuple[str, ...]]] = {
    "vit": ("vit", ("PATCH_SIZE", "EMBED_DIM", "DEPTH", "NUM_HEADS")),
    "deit": ("deit_tiny_patch16_224", ("PATCH_SIZE", "EMBED_DIM", "DEPTH", "NUM_HEADS")),
    "cait": ("cait_xxs24_224", ("PATCH_SIZE", "EMBED_DIM", "DEPTH", "NUM_HEADS")),
    "swin": ("swin_tiny_patch4_window7_224", ("PATCH_SIZE", "EMBED_DIM", "DEPTHS", "NUM_HEADS", "WINDOW_SIZE")),
    "pvtv2": ("pvtv2_b0", ("EMBED_DIM", "DEPTHS", "NUM_HEADS")),
    "mixer": ("mixer_s16_224", ("PATCH_SIZE", "EMBED_DIM", "DEPTH")),
    "convnext": ("convnext_tiny", ("DEPTHS", "DIMS")),
}


def get_defaults(
    files: Sequence[Mapping[str, Any]], user_files: Sequence[Mapping[str, Any]]
) -> tuple[str, Mapping[str, Any], Mapping[str, str]]:
    """Return the source and the defaults that files in PaddleViT's form rely on, and reasons; nothing for other files.

    One value replaces the file's. Files for a distilled DeiT name the plain model, and PaddleViT's program for
    distillation builds it with a second token and head. A MODEL.NAME that names none of the models is a label, as all
    are there: if the file has MODEL.TYPE and its sizes, they are the network.

    Args:
        files: settings of each file of a command line, BASE first; later ones win.
        user_files: settings of the files that are not recipes of this package.
    """
    configured = ChainMap(*map(dict, reversed(files)))
    clone = find_family(configured["MODEL.NAME"].source) if "MODEL.NAME" in configured else None
    folder = _find_family(user_files, configured)
    name = _find_typed_model(configured)
    if clone is not None:
        values = _read_defaults(clone.folder, configured, is_known_model=bool(folder))
    elif folder:
        values = dict(_FAMILIES.values())[folder]
    elif name:
        values = {}
    else:
        return "", {}, {}
    values = {name: value for name, value in values.items() if name not in configured}
    reasons = {}
    if name:
        values["MODEL.NAME"] = name
        reasons["MODEL.NAME"] = (
            f"no model has this name: MODEL.TYPE {configured['MODEL.TYPE'].value} and its sizes decide"
        )
    distillation = configured.get("TRAIN.DISTILLATION_TYPE")
    plain = _PLAIN_DEIT.fullmatch(name or str(configured["MODEL.NAME"].value))
    if folder == "DeiT" and plain and distillation is not None and distillation.value != "none":
        values["MODEL.NAME"] = f"deit_{plain[1]}_distilled_patch16_{plain[2]}"
    source = f"PaddleViT's {folder}/config.py" if folder else "MODEL.TYPE"
    source = source if clone is None else os.path.join(clone.folder, "config.py")
    return source, values, reasons


def _find_typed_model(configured: Mapping[str, Any]) -> str:
    """Return the model that MODEL.TYPE and sizes build, if MODEL.NAME names none of the models; else an empty text."""
    kind, label = (configured.get(f"MODEL.{key}") for key in ("TYPE", "NAME"))
    name, sizes = _BY_TYPE.get(str(kind.value).lower() if kind else "", ("", ()))
    if not name or label is None or any(f"MODEL.{size}" not in configured for size in sizes):
        return ""
    try:
        find_name("model", str(label.value))
    except UserError:
        return name
    return ""


def _read_defaults(folder: str, configured: Mapping[str, Any], is_known_model: bool) -> dict[str, Any]:
    """Read the config.py of a clone: keys that no file sets and whose values are not the default here.

    For a model of this package, mean and deviation are those that its variant expects.
    """
    rows = {row.name: row for table in key_tables() for row in table.keys}
    aliases = {theirs: ours for table in key_tables() for theirs, ours in table.renamed_values.items()}
    defaults = {}
    for name, value in read_defaults(folder).items():
        if name in configured or name not in rows or not is_taken(name):
            continue
        try:
            value = rows[name].parse(aliases.get((name, str(value).lower()), value))
        except ValueError:
            expected = f"expected {rows[name].expected()}; set it in the YAML file"
            raise UserError(f"{os.path.join(folder, 'config.py')}: {name} is {value}: {expected}") from None
        if value != rows[name].default and not (is_known_model and name.startswith("DATA.IMAGENET_")):
            defaults[name] = value
    return defaults


def _find_family(user_files: Sequence[Mapping[str, Any]], configured: Mapping[str, Any]) -> str:
    """Return PaddleViT's folder of the model that files in its form, one or all together, configure; else empty."""
    kind = configured.get("MODEL.TYPE")
    family = _FAMILIES.get(str(kind.value).lower()) if kind is not None else None
    return (
        family[0] if family is not None and any(map(_has_form, [*user_files, ChainMap(*map(dict, user_files))])) else ""
    )


def _has_form(configured: Mapping[str, Any]) -> bool:
    has_dimension = any(name in configured for name in _DIMENSIONS)
    has_all = has_dimension and all(name in configured for name in _REQUIRED)
    return has_all and not any(name in configured for name in _EXCLUDED)
