"""Files of a user's clone of PaddleViT: what of a YAML file is for us, and which network is the clone's own."""

import ast
import dataclasses
import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from ....core.registry.lookup import find_name, find_package
from ....core.registry.names import REGISTRY
from ....core.runtime.errors import UserError
from ..cloned_families import (
    RATES,
    ClonedFamily,
    find_family,
    is_literal,
    is_taken,
    read_assigned,
    read_defaults,
    read_functions,
)

PREFIX = "paddlevit:"
VARIABLE = "PADDLEVIT"  # names a clone whose code may be run for weights that name it
_KEPT = (*RATES, "MODEL.TYPE", "MODEL.NUM_CLASSES", "MODEL.PRETRAINED", "MODEL.RESUME")
_OURS = ("vit", "deit", "swin", "cait", "pvtv2", "mixer", "convnext")  # MODEL.TYPE of the families that are here
_PRETRAINING = "MODEL.MAE_PRETRAIN"

# How names of models in PaddleViT's files begin that are not here, in lower case and with "_" for "-".
_CLASSIFIERS = re.compile(
    "beit_|botnet|coat_|convmixer|convmlp|crossvit|cswin|cvt_|cyclemlp|ff_(base|tiny|only)|focal_|gmlp|gatedmlp|"
    "halonet|hvt_|levit|levie|mae|vit_base_patch16_224_dec|mobile_?former|mobileone|mobile_?vit|pit_|poolformer|"
    "replknet|repmlp|resmlp|rest_|restv2|shuffle_|t2t_|topform?er|vip_|volo|xcit"
)
_OTHER_TASKS = ("semantic_segmentation", "object_detection", "gan")  # folders of a clone
_ONLY_CLASSIFIERS = "not here: of a clone of PaddleViT only image_classification is taken"
_SEGMENTERS = re.compile("dpt|segmenter|setr_|trans2seg|upernet_(cswin|focal)")


def choose_build(family: ClonedFamily, kind: str) -> tuple[str, str]:
    """Choose the module and function that build a network: of several, the one that is called as MODEL.TYPE, ``kind``.

    A ``UserError`` says that none or several fit.
    """
    builds = [one for one in family.builds if "pretrain" not in one[1]]
    plain = re.sub("[^a-z0-9]", "", kind.lower())
    chosen = [one for one in builds if len(builds) == 1 or one[1].removeprefix("build_").replace("_", "") == plain]
    if len(chosen) != 1:
        names = ", ".join(".".join(one) for one in family.builds)
        raise UserError(f"{family.folder}: MODEL.TYPE {kind} fits none or several of {names}: expected build_TYPE")
    return chosen[0]


def adapt(settings: list[Any], known: Collection[str]) -> tuple[list[Any], list[str]]:
    """Turn the settings of a clone's YAML file whose model is not here into ours; also return lines for the log.

    MODEL.NAME, which has to be set, names the file; its own build function reads the rest. ``settings`` are
    ``settings.table.KeySetting`` in the order in which later ones win, ``known`` the names of our keys and of renamed
    or dropped ones. A ``UserError`` says that the file pre-trains, or that its model is not here and it is not in a
    clone.
    """
    last = {setting.name: setting for setting in settings}
    name, pretrains = last["MODEL.NAME"], last.get(_PRETRAINING)
    if str(name.value).startswith(PREFIX):
        return settings, [f"{name.origin}: {_format_family(require_family(str(name.value)))}"]
    if pretrains is not None and pretrains.value is True:
        raise UserError(f"{pretrains.origin}: {_PRETRAINING}: pre-training is not taken: only classifiers are")
    family = find_family(name.source)
    if family is None:
        _refuse(name, last.get("MODEL.TYPE"))
        return settings, []
    kind = last["MODEL.TYPE"].value if "MODEL.TYPE" in last else read_defaults(family.folder).get("MODEL.TYPE")
    if _is_ours(str(name.value), kind):
        return settings, []
    choose_build(family, str(kind))
    family_settings = [
        setting for setting in settings if find_family(setting.source) == family and setting.name not in _KEPT
    ]
    unknown = [one for one in family_settings if one.name not in known and not one.name.startswith("MODEL.")]
    model_settings = [one for one in family_settings if one.name.startswith("MODEL.")] + unknown
    notices = [f"{name.origin}: {name.value}: {_format_family(family)}"]
    notices += [f"{one.origin}: {one.name} is read by the clone's own files alone" for one in unknown]
    notices += [
        f"{family.folder}/config.py: {key} = {ast.unparse(value)} is ignored: it is not a literal"
        for key, value in read_assigned(family.folder).items()
        if is_taken(key) and key not in last and not is_literal(value)
    ]
    path = dataclasses.replace(name, value=PREFIX + os.path.abspath(name.source))
    return [*(one for one in settings if one not in model_settings and one is not name), path], notices


def _format_family(family: ClonedFamily) -> str:
    return f"the network is built by code of {family.folder}, which is run; code of no other folder is"


def _is_ours(name: str, kind: object) -> bool:
    """Return whether the network is one of ours: of the families that are here, or registered by the user."""
    try:
        known = find_name("model", name)
    except UserError:
        return False
    return str(kind).lower() in _OURS or find_package("model", known) is None


def _refuse(name: Any, kind: Any) -> None:
    """Refuse a model that is not here, before keys are told to be unknown that it alone has."""
    absent = "" if str(name.value) in REGISTRY.models else explain_unsupported(str(name.value))
    if absent:
        raise UserError(f"{name.origin}: MODEL.NAME: model '{name.value}': {absent}")
    # Masked autoencoders are called as the ViT inside. A model of the user's own may be of any type.
    if kind is not None and str(kind.value).upper() == "MAE" and find_package("model", str(name.value)) is not None:
        raise UserError(f"{kind.origin}: MODEL.TYPE: model 'MAE': {explain_unsupported('mae')}")


def explain_unsupported(name: str) -> str:
    """Say what to do for a model of PaddleViT's that is not here; empty for any other name."""
    plain = name.lower().replace("-", "_")
    if _SEGMENTERS.match(plain):
        return _ONLY_CLASSIFIERS
    clone = "not here: give the file of your clone of PaddleViT: -cfg=PaddleViT/image_classification/*/configs/*.yaml"
    return clone if _CLASSIFIERS.match(plain) else ""


def explain_other_task(file: str) -> str:
    """Return why a YAML file with unknown keys is refused; empty if it is not of another task in a clone."""
    folders = list(Path(file).absolute().parents)
    is_of_other_task = any(folder.name in _OTHER_TASKS for folder in folders)
    if is_of_other_task and any("get_config" in read_functions(str(folder / "config.py")) for folder in folders):
        return f"{file}: {_ONLY_CLASSIFIERS}"
    return ""


def locate(name: str) -> tuple[str, bool]:
    """Find the YAML file of ``paddlevit:PATH``, and whether it is in the clone that the variable PADDLEVIT names.

    The clone may be in another folder than on the machine that has written the name.
    """
    path, root = name.removeprefix(PREFIX), os.environ.get(VARIABLE)
    file = os.path.join(os.path.abspath(root or ""), "image_classification", *path.split(os.sep)[-3:])
    return (file, True) if root and find_family(file) is not None else (path, False)


def require_family(name: str) -> ClonedFamily:
    """Return the family of ``paddlevit:PATH``; a ``UserError`` without such a file, or if it is not in a clone."""
    file, _ = locate(name)
    family = find_family(file)
    if family is None:
        lacks = "has no family of PaddleViT's around it" if os.path.isfile(file) else "is not there"
        raise UserError(
            f"model '{name}': {file} {lacks}: expected PaddleViT/image_classification/FAMILY/configs/NAME.yaml; "
            f"{VARIABLE}=FOLDER names a clone that lies elsewhere"
        )
    return family


def refuse_clone_model(name: object, place: str) -> None:
    """Refuse a model of a clone's code that only a run's folder or weights name: they may come from a stranger.

    A ``UserError`` says that the variable PADDLEVIT does not name that clone.
    """
    file, is_named = locate(str(name))
    if not is_named:
        folder = os.path.abspath(os.path.join(os.path.dirname(file), *[os.pardir] * 3))
        raise UserError(
            f"{place}: MODEL.NAME {name}: weights alone do not run the code of a clone: if you trust that "
            f"clone of PaddleViT, set {VARIABLE}={folder}"
        )
