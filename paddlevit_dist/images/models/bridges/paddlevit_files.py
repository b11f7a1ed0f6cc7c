"""Files of a user's clone of PaddleViT: which family a YAML file is of, its defaults, and what of it is for us.

Nothing here runs code of a clone: ``config.py`` and the files of networks are parsed.
"""

import ast
import dataclasses
import functools
import glob
import os
import re
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from ....registry import MODELS, find_name, package_of
from ....runtime.errors import UserError

PREFIX = "paddlevit:"
VARIABLE = "PADDLEVIT"  # names a clone whose code may be run for a run's folder that names it
_RATES = ("MODEL.DROPOUT", "MODEL.ATTENTION_DROPOUT", "MODEL.DROPPATH")
_KEPT = (*_RATES, "MODEL.TYPE", "MODEL.NUM_CLASSES", "MODEL.PRETRAINED", "MODEL.RESUME")
_OURS = ("vit", "deit", "swin", "cait", "pvtv2", "mixer", "convnext")  # MODEL.TYPE of the families that are here
_PRETRAINING = "MODEL.MAE_PRETRAIN"

# How names of models in PaddleViT's files begin that are not here, in lower case and with "_" for "-".
_CLASSIFIERS = re.compile(
    "beit_|botnet|coat_|convmixer|convmlp|crossvit|cswin|cvt_|cyclemlp|ff_(base|tiny|only)|focal_|gmlp|gatedmlp|"
    "halonet|hvt_|levit|levie|mae|vit_base_patch16_224_dec|mobile_?former|mobileone|mobile_?vit|pit_|poolformer|"
    "replknet|repmlp|resmlp|rest_|restv2|shuffle_|t2t_|topform?er|vip_|volo|xcit"
)
_SEGMENTERS = re.compile("dpt|segmenter|setr_|trans2seg|upernet_(cswin|focal)")


class ClonedFamily(NamedTuple):
    """A folder of a clone, such as image_classification/XCiT.

    Attributes:
        folder: its absolute path.
        builds: (module, function) of each ``build_*(config)`` in it.
    """

    folder: str
    builds: tuple[tuple[str, str], ...]


@functools.cache
def family_of(file: str) -> ClonedFamily | None:
    """Find the family of a YAML file: its folder, or the one above ``configs``, has a config.py with ``get_config`` and
    a module with ``build_*(config)``; None for any other file."""
    folder = os.path.dirname(os.path.abspath(file))
    folder = os.path.dirname(folder) if os.path.basename(folder) == "configs" else folder
    if not os.path.isfile(file) or ("config", "get_config") not in _functions(folder, "config.py"):
        return None
    files = [name for name in sorted(os.listdir(folder)) if name.endswith(".py")]
    found = [one for name in files for one in _functions(folder, name, ["config"]) if one[1].startswith("build_")]
    return ClonedFamily(folder, tuple(found)) if found else None


def _functions(folder: str, name: str, arguments: Sequence[str] | None = None) -> list[tuple[str, str]]:
    """List (module, function) of a file, only those with exactly these arguments."""
    return [
        (name.removesuffix(".py"), node.name)
        for node in _parse(os.path.join(folder, name))
        if isinstance(node, ast.FunctionDef)
        and (arguments is None or [argument.arg for argument in node.args.args] == arguments)
    ]


def _parse(file: str) -> list[ast.stmt]:
    try:
        with open(file, encoding="utf-8") as opened:
            return ast.parse(opened.read()).body
    except (OSError, SyntaxError, ValueError):  # a file that Python cannot read either defines nothing
        return []


def choose_build(family: ClonedFamily, values: dict[str, Any]) -> tuple[str, str]:
    """Choose the module and function that build what a YAML file is for: of several, the one called as its MODEL.TYPE.

    Raises:
        UserError: it pre-trains, or no function or several fit.
    """
    builds = [one for one in family.builds if "pretrain" not in one[1]]
    if len(builds) > 1:
        kind = re.sub("[^a-z0-9]", "", str(values.get("MODEL.TYPE", "")).lower())
        of_kind = [one for one in builds if one[1].removeprefix("build_").replace("_", "") == kind]
        builds = of_kind or builds
    if len(builds) != 1:
        names = ", ".join(f"{module}.{function}" for module, function in family.builds)
        raise UserError(
            f"{family.folder}: MODEL.TYPE {values.get('MODEL.TYPE')} fits none or several of its build functions "
            f"({names}): expected build_TYPE, so give MODEL.TYPE that name in the YAML file"
        )
    return builds[0]


@functools.cache
def _assigned(folder: str) -> dict[str, ast.expr]:
    """Read what ``_C.SECTION.KEY = ...`` of a family's config.py assigns, by dotted name; not its sections."""
    nodes = [node for node in _parse(os.path.join(folder, "config.py")) if isinstance(node, ast.Assign)]
    found = {ast.unparse(node.targets[0]): node.value for node in nodes}
    return {
        name.removeprefix("_C."): value
        for name, value in found.items()
        if name.startswith("_C.") and not isinstance(value, ast.Call)
    }


def defaults_of(folder: str) -> dict[str, Any]:
    """Return the defaults of a family's config.py by dotted name, without those that are no literals."""
    return {name: ast.literal_eval(value) for name, value in _assigned(folder).items() if _is_literal(value)}


def _is_literal(value: ast.expr) -> bool:
    try:
        ast.literal_eval(value)
    except ValueError:
        return False
    return True


def is_taken(name: str) -> bool:
    """Whether a default of config.py holds here: what a training does and what images it sees, not where things are."""
    if name in ("TRAIN.LAST_EPOCH", "TRAIN.TEACHER_MODEL", "DATA.IMAGE_CHANNELS", "DATA.BATCH_SIZE_EVAL"):
        return False
    sections = ("TRAIN.", "DATA.IMAGE", "DATA.CROP", "DATA.BATCH_SIZE")
    return name.startswith(sections) or name in _RATES


def adapt(settings: list[Any], known: Collection[str]) -> tuple[list[Any], list[str]]:
    """Turn the settings of a clone's YAML file whose model is not here into ours: MODEL.NAME names the file, and what
    its own build function reads is left to that.

    Args:
        settings: ``settings.key.Setting`` in the order in which later ones win.
        known: the names of our keys and of those that are renamed or dropped.

    Returns:
        The settings, and lines for the log.

    Raises:
        UserError: the file pre-trains, or is of a model that is not here and lies in no clone.
    """
    last = {setting.name: setting for setting in settings}
    name = last.get("MODEL.NAME")
    if name is None:
        return settings, []
    if str(name.value).startswith(PREFIX):
        return settings, [f"{name.place}: {_tell(require_family(str(name.value)), str(name.value))}"]
    family = family_of(name.source)
    kind = last.get("MODEL.TYPE")
    is_pretraining = last.get(_PRETRAINING)
    if is_pretraining is not None and is_pretraining.value is True:
        raise UserError(f"{is_pretraining.place}: {_PRETRAINING}: pre-training is not taken: only classifiers are")
    if family is None:
        _refuse(last)
    if family is None or _is_ours(str(name.value), kind.value if kind else defaults_of(family.folder)["MODEL.TYPE"]):
        return settings, []
    path = PREFIX + os.path.abspath(name.source)
    adapted, left = [], []
    for setting in settings:
        if setting is name:
            adapted.append(dataclasses.replace(setting, value=path))
        elif family_of(setting.source) != family or setting.name in _KEPT:
            adapted.append(setting)
        elif not setting.name.startswith("MODEL."):
            if setting.name in known:
                adapted.append(setting)
            else:
                left.append(f"{setting.place}: {setting.name} is read by the clone's own files alone")
    for key, value in _assigned(family.folder).items():
        if is_taken(key) and key not in last and not _is_literal(value):
            left.append(f"{family.folder}/config.py: {key} = {ast.unparse(value)} is not taken: it is no literal")
    return adapted, [f"{name.place}: {name.value}: {_tell(family, path)}", *left]


def _tell(family: ClonedFamily, name: str) -> str:
    return f"the network is built by code of {family.folder}, which is run; code of no other folder is ({name})"


def _is_ours(name: str, kind: Any) -> bool:
    """Whether the network is one of ours: of the families that are here, or registered by the user."""
    try:
        known = find_name("model", name)
    except UserError:
        return False
    return str(kind).lower() in _OURS or package_of("model", known) is None


def _refuse(last: dict[str, Any]) -> None:
    """Refuse a model that is not here, before keys are told to be unknown that it alone has."""
    name, kind = last["MODEL.NAME"], last.get("MODEL.TYPE")
    absent = not_here(str(name.value)) if str(name.value) not in MODELS else ""
    if absent:
        raise UserError(f"{name.place}: MODEL.NAME: model '{name.value}': {absent}")
    # Masked autoencoders are called as the ViT inside. A model of the user's own may be of any type.
    if kind is not None and str(kind.value).upper() == "MAE" and package_of("model", str(name.value)) is not None:
        raise UserError(f"{kind.place}: MODEL.TYPE: model 'MAE': {not_here('mae')}")


def not_here(name: str) -> str:
    """Say what to do for a model of PaddleViT's that is not here; empty for any other name."""
    plain = name.lower().replace("-", "_")
    if _SEGMENTERS.match(plain):
        return "not here: of a clone of PaddleViT only image_classification is taken"
    if _CLASSIFIERS.match(plain):
        return (
            "not here: give the file of your clone of PaddleViT: -cfg=PaddleViT/image_classification/*/configs/*.yaml"
        )
    return ""


def locate(name: str) -> tuple[str, bool]:
    """Find the YAML file of ``paddlevit:PATH``, and whether it lies in the clone that the variable PADDLEVIT names: one
    that may lie elsewhere than on the machine that has written the name."""
    path = name.removeprefix(PREFIX)
    root = os.environ.get(VARIABLE)
    if root:
        file = os.path.join(os.path.abspath(root), "image_classification", *path.split(os.sep)[-3:])
        if family_of(file) is not None:
            return file, True
    return path, False


def require_family(name: str) -> ClonedFamily:
    """Return the family of ``paddlevit:PATH``.

    Raises:
        UserError: there is no such file, or it lies in no clone.
    """
    file, _ = locate(name)
    family = family_of(file)
    if family is None:
        lacks = "has no family of PaddleViT's around it" if os.path.isfile(file) else "is not there"
        raise UserError(
            f"model '{name}': {file} {lacks}: expected PaddleViT/image_classification/FAMILY/configs/NAME.yaml; "
            f"{VARIABLE}=FOLDER names a clone that lies elsewhere"
        )
    return family


def refuse_unnamed(name: Any, place: str) -> None:
    """Refuse code that only a run's folder or weights name: they may come from anybody.

    Raises:
        UserError: a model is built by a clone's code, and the variable PADDLEVIT does not name that clone.
    """
    if not str(name).startswith(PREFIX):
        return
    file, is_named = locate(str(name))
    if not is_named:
        folder = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(file))))
        raise UserError(
            f"{place}: MODEL.NAME {name}: weights do not have code run that nobody here has named: if you trust that "
            f"clone of PaddleViT, set {VARIABLE}={folder}"
        )


def names_of(_: str) -> list[str]:
    """List the names of all YAML files of the clone that the variable PADDLEVIT names.

    Raises:
        UserError: it names none.
    """
    root = os.environ.get(VARIABLE)
    files = sorted(glob.glob(os.path.join(glob.escape(root or ""), "image_classification", "*", "configs", "*.yaml")))
    if root is None or not files:
        raise UserError(f"{VARIABLE} names no clone of PaddleViT: set it to the folder that has image_classification")
    return [PREFIX + os.path.abspath(file) for file in files if family_of(file) is not None]
