"""``python -m paddlevit_dist convert IN OUT``: convert weights to ``.pdparams`` or ``.safetensors``."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from ..checkpoint.array_files import write_safetensors
from ..checkpoint.class_rows import read_class_names
from ..checkpoint.content import ABOUT, read_weights_info
from ..checkpoint.finding import find_run_settings
from ..checkpoint.load import describe_dropped, find_pretraining_part, is_in_paddle_layout
from ..checkpoint.low_rank import is_factor
from ..checkpoint.published import is_fetched
from ..checkpoint.store import HostTensor, write_tensors
from ..checkpoint.weights import (
    EXTENSION,
    SourceWeights,
    evaluated_weights,
    find_weights_file,
    local_file,
    read_weights,
    rename_states,
    to_torch_names,
)
from ..launch.tuning import import_paddle
from ..registry.features import NAMINGS
from ..registry.lookup import MODELS, annotation_type
from ..registry.manifest import CLASS_LABELS, MASK_LABELS
from ..runtime.errors import UserError
from ..runtime.files import atomic_file
from ..runtime.lazy_names import import_object
from ..runtime.printing import one_line, shorten, without_credentials
from ..tasks.model_factory import create_model, variant_options
from .parser import CommandParser

_SAFETENSORS = ".safetensors"
_MIN_KNOWN_NAMES = 0.5  # fraction of a source's names that its model family has to contain
_MIN_KNOWN_HEAD_NAMES = 0.2  # of those outside the backbone, which detectors have, too; some have auxiliary heads
_BACKBONE = "backbone."


class ModelFamily(NamedTuple):
    """Parameter names of a model family, with ``#`` for every number so that depth and width do not matter."""

    name: str  # the module of the family
    key_maps: Mapping[str, Any]  # naming scheme -> function from its names to ours
    names: set[str]  # of all parameters
    linear: set[str]  # names of Linear weights


class ConvertedWeights(NamedTuple):
    """Weights under timm's names with Linear weights as (in, out), and their origin."""

    state: dict[str, np.ndarray]
    linear: set[str]
    origin: str
    unknown: list[str]
    source: str
    notices: tuple[str, ...] = ()


def run(words: list[str]) -> None:
    """Run the command."""
    parser = CommandParser(
        "convert",
        "Write weights of a classifier or segmentation network under timm's names: .pdparams with Linear weights "
        "(in, out), Paddle's layout, or "
        ".safetensors with (out, in), the layout of timm and PyTorch. The origin of IN is detected. "
        "OUT.about.yaml keeps the known settings, preprocessing and class names, for evaluate, predict and export.",
        ("vit.npz vit.safetensors", "output/vit_digits digits.pdparams", "timm/vit_small_patch16_224 vit.pdparams"),
    )
    parser.add_argument("input", metavar="IN", help="a file, folder or URL, as for -pretrained")
    parser.add_argument("output", metavar="OUT", help=f"a file ending in {EXTENSION} or {_SAFETENSORS}")
    parser.option("part", None, "entry to convert if the file has several, such as model_ema")
    meanings = ["timm", *(f"{name}: {text}" for name, (_, text) in NAMINGS.items())]
    parser.option("names", "timm", ", or ".join(meanings), choices=("timm", *NAMINGS))
    options = parser.parse_args(words)
    import_paddle()
    converted = convert(options.input, options.output, options.part, options.names)
    for line in describe_conversion(converted, options.output):
        print(one_line(line))


def describe_conversion(converted: ConvertedWeights, target: str) -> list[str]:
    """Format what was converted and written to ``target``."""
    lines = [f"{converted.source}: {converted.origin}", *(f"note: {notice}" for notice in converted.notices)]
    if converted.unknown:
        shown = ", ".join(shorten(name, 120) for name in converted.unknown[:5])
        lines.append(f"unknown names, written unchanged: {shown}{' ...' if len(converted.unknown) > 5 else ''}")
    number = sum(value.size for value in converted.state.values())
    return [*lines, f"{target}: {len(converted.state)} arrays, {number:,} numbers"]


def convert(source: str, target: str, part: str | None = None, names: str = "timm") -> ConvertedWeights:
    """Read weights, convert names and layout, and write them to ``target``, and what is known of them next to it.

    Raises:
        UserError: the source cannot be read or its model family is unknown; the target has another extension, is a
            folder, or cannot be written.
    """
    path = Path(target).expanduser()
    if path.suffix not in (EXTENSION, _SAFETENSORS):
        raise UserError(f"convert: {target} has to end in {EXTENSION} or {_SAFETENSORS}")
    path_or_name = evaluated_weights(source)
    weights = read_weights(path_or_name, part)
    if any(map(is_factor, weights.state)):
        raise UserError(
            f"convert: {path_or_name} has only what TRAIN.LORA changed, without its base; evaluate, predict and "
            "export merge both"
        )
    of_pretraining = {name: value for name, value in weights.state.items() if find_pretraining_part(name)}
    weights = weights._replace(state={n: value for n, value in weights.state.items() if n not in of_pretraining})
    converted = keep_timm_names(path_or_name, weights) or with_our_names(weights)
    dropped = [*of_pretraining]
    if names != "timm":
        converted, dropped = _name_like(names, converted, of_pretraining, path)
    converted = converted._replace(notices=(*converted.notices, *describe_dropped(dropped)))
    about = _describe(path_or_name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == _SAFETENSORS:
            transposed = {
                name: value.T if name in converted.linear else value for name, value in converted.state.items()
            }
            write_safetensors(path, to_torch_names(transposed), {"format": "pt"})
        else:
            with atomic_file(path) as stream:
                write_tensors(stream, {name: HostTensor(value, name) for name, value in converted.state.items()})
        with atomic_file(path.with_name(f"{path.name}.{ABOUT}")) as stream:
            stream.write(yaml.safe_dump(about, sort_keys=False).encode())
    except OSError as error:
        raise UserError(f"convert: {target} cannot be written: {error.strerror or error}") from error
    return converted


def _name_like(
    program: str, converted: ConvertedWeights, of_pretraining: Mapping[str, np.ndarray], path: Path
) -> tuple[ConvertedWeights, list[str]]:
    """Rename weights, and what only pretraining needs, as a program does, and list the names that it has no place for.

    Linear weights become (out, in).
    """
    if path.suffix != _SAFETENSORS:
        raise UserError(f"convert: {path} with -names={program} has to end in {_SAFETENSORS}")
    linear = {*converted.linear, *(name for name, value in of_pretraining.items() if value.ndim == 2)}
    state = {**converted.state, **of_pretraining}
    rename = import_object(NAMINGS[program][0])
    renamed, without_place = rename({name: value.T if name in linear else value for name, value in state.items()})
    return converted._replace(state=renamed, linear=set(), unknown=[]), without_place


def _describe(source: str) -> dict[str, Any]:
    """Return the settings, input and class names of weights, as far as known, in the form of an ``about.yaml``."""
    file = local_file(source).path
    about = {"converted_from": without_credentials(source), **read_weights_info(file)}
    if (settings := find_run_settings(about, file)) is not None:
        about["settings"] = settings
    if not about.get("data") and (names := read_class_names(source)[0]):
        about["data"] = {"weights": {"classes": names}}
    return about


def keep_timm_names(source: str, weights: SourceWeights) -> ConvertedWeights | None:
    """Return the weights unchanged if timm built the model of the run: names and layout are timm's already."""
    if is_fetched(source):
        return None
    file = find_weights_file(source)
    model = (find_run_settings(read_weights_info(file), file) or {}).get("MODEL")
    name = model.get("NAME") if isinstance(model, dict) else None
    if not isinstance(name, str) or not name.startswith("timm:"):
        return None
    return ConvertedWeights(
        weights.state, set(), f"{name}, timm's own names and layout", [], weights.name, weights.notices
    )


def with_our_names(weights: SourceWeights) -> ConvertedWeights:
    """Return the weights with timm's names and Paddle's layout.

    The family and naming scheme with the most matching names are chosen. All Linear weights are transposed or none: a
    non-square weight shows its layout by its bias, whose length is the number of outputs. Raises UserError: no family
    contains at least half of the names, and a fifth of those outside the backbone.
    """
    candidates = []
    for family in build_families():
        for naming, state in rename_states(weights.state, family.key_maps).items():
            num_known = sum(mask_numbers(name) in family.names for name in state)
            candidates.append((num_known / max(len(state), 1), family, naming, state))
    share, family, naming, state = max(candidates, key=lambda candidate: candidate[0])  # the first on a tie
    head = [mask_numbers(name) in family.names for name in state if not name.startswith(_BACKBONE)]
    head_share = float(np.mean(head)) if head else 1.0
    if share < _MIN_KNOWN_NAMES or head_share < _MIN_KNOWN_HEAD_NAMES:
        which, known = ("", share) if share < _MIN_KNOWN_NAMES else (" outside the backbone", head_share)
        raise UserError(
            f"convert: the model family of {weights.name} is unknown: only {100 * known:.0f} % of its names{which} are "
            f"names of {family.name}, the closest; classifiers and segmentation networks of images are known"
        )
    linear = {name for name in state if mask_numbers(name) in family.linear and state[name].ndim == 2}
    is_paddle_layout = guess_paddle_layout(state, linear, is_in_paddle_layout(naming, weights))
    if not is_paddle_layout:
        state = {name: value.T if name in linear else value for name, value in state.items()}
    layout = "(in, out)" if is_paddle_layout else "(out, in)"
    unknown = [name for name in state if mask_numbers(name) not in family.names]
    return ConvertedWeights(
        state, linear, f"{family.name}, {naming} names, Linear weights {layout}", unknown, weights.name, weights.notices
    )


def guess_paddle_layout(state: Mapping[str, np.ndarray], linear: set[str], otherwise: bool) -> bool:
    """Return whether ``linear`` weights are (in, out), by the lengths of biases; ``otherwise`` if these do not tell."""
    votes = 0
    for name in linear:
        bias = state.get(name[: -len("weight")] + "bias")
        rows, columns = state[name].shape
        if bias is not None and bias.ndim == 1 and rows != columns:
            votes += (columns == len(bias)) - (rows == len(bias))
    return votes > 0 if votes else otherwise


def build_families() -> list[ModelFamily]:
    """Build one family for each class of image models, from its first registered name, and for each backbone."""
    import paddle

    first: dict[tuple[str, str], str] = {}
    for name, target in MODELS.items():
        if annotation_type("model", name) in (CLASS_LABELS, MASK_LABELS):
            backbone = variant_options(name).get("backbone", "")
            first.setdefault((str(target), backbone.partition("_")[0]), name)
    families = []
    for (target, _), name in first.items():
        with paddle.LazyGuard():  # shapes only
            model = create_model(name)
        linear = {
            f"{layer_name}.weight"
            for layer_name, layer in model.named_sublayers()
            if isinstance(layer, paddle.nn.Linear)
        }
        names = {mask_numbers(parameter) for parameter in model.state_dict()}
        module = target.partition(":")[0].rpartition(".")[2]
        families.append(ModelFamily(module, model.key_maps, names, {mask_numbers(key) for key in linear}))
    return families


def mask_numbers(name: str) -> str:
    """Return a parameter's name with ``#`` for each number."""
    return re.sub(r"\d+", "#", name)
