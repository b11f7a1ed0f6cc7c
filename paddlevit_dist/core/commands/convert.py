"""``python -m paddlevit_dist convert IN OUT``: convert weights to ``.pdparams`` or ``.safetensors``."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from ..checkpoint.about_schema import ABOUT
from ..checkpoint.array_files import write_safetensors
from ..checkpoint.families import CONVERTED, ConvertedWeights, require_whole, with_our_names
from ..checkpoint.finding import find_run_settings
from ..checkpoint.foreign_names import to_torch_names
from ..checkpoint.load import describe_dropped, find_pretraining_part
from ..checkpoint.low_rank import KEY as LOW_RANK
from ..checkpoint.low_rank import has_factors
from ..checkpoint.model_record import read_record
from ..checkpoint.output_names import read_class_names
from ..checkpoint.published import fetch_record, is_fetched
from ..checkpoint.records import read_weights_info
from ..checkpoint.store import HostTensor, write_tensors
from ..checkpoint.weight_files import EXTENSION, evaluated_weights, local_file
from ..checkpoint.weights import SourceWeights, read_weights
from ..launch.tuning import import_paddle
from ..registry.extension_points import DESCRIBE_INPUT
from ..registry.lookup import annotation_type, find_name, find_package
from ..registry.manifest import BOX_LABELS
from ..registry.names import REGISTRY
from ..runtime.errors import UserError
from ..runtime.files import atomic_file, remove_abandoned
from ..runtime.lazy_names import import_object
from ..runtime.printing import one_line, shorten, without_credentials
from ..settings.table import effects, split_paths
from .differences import add_backbone
from .parser import CommandParser

_SAFETENSORS = ".safetensors"
_MOST_NAMED = 5  # layers in a line


def run(words: list[str]) -> None:
    """Run the command."""
    parser = CommandParser(
        "convert",
        "Write weights of a classifier, segmenter, detector or network of points under timm's names, or of another run "
        "under its own: .pdparams with Linear weights (in, out), Paddle's layout, or .safetensors with (out, in), the "
        "layout of timm and PyTorch. The origin of IN is detected; networks of your own, registered by -import, keep "
        "their names. What TRAIN.LORA trained is merged with its base. OUT.about.yaml keeps the known settings, "
        "preprocessing, class names and thresholds, for evaluate, predict and export.",
        ("vit.npz vit.safetensors", "output/vit_digits digits.pdparams", "timm/vit_small_patch16_224 vit.pdparams"),
        imports=True,
    )
    parser.add_argument("input", metavar="IN", help="a file, folder or URL, as for -pretrained")
    parser.add_argument("output", metavar="OUT", help=f"a file ending in {EXTENSION} or {_SAFETENSORS}")
    parser.option("part", None, "entry to convert if the file has several, such as model_ema or student")
    meanings = ["timm", *(f"{name}: {text}" for name, (_, text) in REGISTRY.namings.items())]
    parser.option("names", "timm", ", or ".join(meanings), choices=("timm", *REGISTRY.namings))
    parser.option("base", None, "backbone to which IN holds differences, such as DINOv3 of an EoMT")
    options = parser.parse_args(words)
    import_paddle()
    converted = convert(options.input, options.output, options.part, options.names, options.base)
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


def convert(
    source: str, target: str, part: str | None = None, names: str = "timm", base: str | None = None
) -> ConvertedWeights:
    """Read weights, convert names and layout, and write them to ``target``, and what is known of them next to it.

    ``base``: a file with the backbone that is added to the weights, see ``differences``.

    Raises:
        UserError: the source cannot be read or its model family is unknown; the target has another extension, is a
            folder, or cannot be written.
    """
    path = Path(target).expanduser()
    if path.suffix not in (EXTENSION, _SAFETENSORS):
        raise UserError(f"convert: {target} has to end in {EXTENSION} or {_SAFETENSORS}")
    path_or_name = evaluated_weights(source)
    converted = _read_converted(path_or_name, part)
    if base is not None:
        whole = with_our_names(read_weights(evaluated_weights(base)))
        added = add_backbone(converted.state, whole.state, converted.source, base)
        converted = converted._replace(state=added, notices=(*converted.notices, *whole.notices))
    converted, of_pretraining = _split_pretraining(converted)
    dropped = [*of_pretraining]
    if names != "timm":
        converted, dropped = _name_like(names, converted, of_pretraining, path)
    about, lacking = _describe(path_or_name)
    lacking += _describe_without_place(names, dropped)
    converted = converted._replace(notices=(*converted.notices, *describe_dropped(dropped), *lacking))
    try:
        _write(path, converted, about)
    except OSError as error:
        raise UserError(f"convert: {target} cannot be written: {error.strerror or error}") from error
    return converted


def _read_converted(source: str, part: str | None) -> ConvertedWeights:
    """Read weights and convert names and layout: a run by its record, others by their names.

    Raises UserError: they cannot be read, or their model family is unknown.
    """
    weights = read_weights(source, part)
    if _is_rebuilt(source, weights):
        return rebuild(source, part)
    converted = keep_timm_names(source, weights) or with_our_names(weights, *_find_models(source))
    is_partly_named = any(not find_pretraining_part(name) for name in converted.unknown)
    return rebuild(source, part) if is_partly_named and _has_record(source) else converted


def _split_pretraining(converted: ConvertedWeights) -> tuple[ConvertedWeights, dict[str, np.ndarray]]:
    """Return weights without the unknown entries that only pretraining needs, and these entries."""
    dropped = {name: converted.state[name] for name in converted.unknown if find_pretraining_part(name)}
    kept = {name: value for name, value in converted.state.items() if name not in dropped}
    return converted._replace(state=kept, unknown=[name for name in converted.unknown if name not in dropped]), dropped


def _write(path: Path, converted: ConvertedWeights, about: Mapping[str, Any]) -> None:
    """Write weights in the layout of the file's format, and what is known of them next to it. OSError: it cannot."""
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(path.parent, path.name)
    if path.suffix == _SAFETENSORS:
        transposed = {name: value.T if name in converted.linear else value for name, value in converted.state.items()}
        write_safetensors(path, to_torch_names(transposed), {"format": "pt"})
    else:
        with atomic_file(path) as stream:
            write_tensors(stream, {name: HostTensor(value, name) for name, value in converted.state.items()})
    with atomic_file(path.with_name(f"{path.name}.{ABOUT}")) as stream:
        stream.write(yaml.safe_dump(about, sort_keys=False).encode())


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
    rename = import_object(REGISTRY.namings[program][0])
    renamed, without_place = rename({name: value.T if name in linear else value for name, value in state.items()})
    return converted._replace(state=renamed, linear=set(), unknown=[]), without_place


def _describe_without_place(program: str, names: Iterable[str]) -> list[str]:
    """Return a line about the layers that a program has no place for, but for those that only pretraining needs."""
    lost = [name for name in names if not find_pretraining_part(name)]
    layers = list(dict.fromkeys(name.rpartition(".")[0] or name for name in lost))
    shown = ", ".join(shorten(layer, 60) for layer in layers[:_MOST_NAMED]) + ", ..." * (len(layers) > _MOST_NAMED)
    return [f"{shown}, which -names={program} has no place for, dropped ({len(lost)} entries)"] if lost else []


def _describe(source: str) -> tuple[dict[str, Any], list[str]]:
    """Return the record of weights, as far as known, in the form of an ``about.yaml``, and lines about what it lacks.

    It has no files and folders of this computer: converted weights are passed on.
    """
    file = local_file(source).path
    record, lost = read_record(file), list[str]()
    about = {"converted_from": without_credentials(source), **record.about, **record.describe_choices()}
    about.pop(LOW_RANK, None)  # they are whole now
    if (settings := find_run_settings(about, file)) is not None:
        about["settings"], paths = split_paths(settings)
        known = effects(settings)
        lost = [f"{name} {value}" for name, value in paths.items() if known.get(name) == "score"]
    elif (describe := DESCRIBE_INPUT.find()) is not None and (described := describe(source)):
        about["described_by"] = described
    if not about.get("data") and (names := read_class_names(source)[0]):
        about["data"] = {"weights": {"classes": names}}
    return about, [f"{text} is of this computer and not written: name it where the weights are used" for text in lost]


def _has_record(source: str) -> bool:
    """Return whether weights have the settings of a run whose network this package builds."""
    name = _find_model(source)
    return name is not None and ":" not in name and isinstance(REGISTRY.models.get(name), str)


def _is_rebuilt(source: str, weights: SourceWeights) -> bool:
    """Return whether the record of weights says their network, and their names alone do not.

    These are all networks but classifiers, segmenters, detectors and those on points, and weights of TRAIN.LORA, which
    have to be merged with their base.
    """
    name = _find_model(source)
    if name is None or not isinstance(REGISTRY.models.get(name, ""), str):
        return False
    if has_factors(weights.state) and LOW_RANK in read_weights_info(local_file(source).path):
        return True
    name = find_name("model", name)
    return (
        ":" not in name and annotation_type("model", name) not in CONVERTED and find_package("model", name) != "points"
    )


def rebuild(source: str, part: str | None) -> ConvertedWeights:
    """Build the network of a run by its record, and return all of its weights, under its own names.

    Raises UserError if the record lacks the settings, or the weights do not fit them.
    """
    import paddle

    from ..inference.trained import build_trained, open_source
    from ..tasks.protocols import load_meta
    from ..tasks.task_factory import make_task

    opened = open_source(source, "convert")
    task = make_task(opened.config)
    load_meta(task, opened.learned)
    model, report = build_trained(task, opened, part)
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    layers = model.named_sublayers(include_self=True)
    linear = {f"{name}.weight" for name, layer in layers if isinstance(layer, paddle.nn.Linear)}
    origin = f"{opened.config.MODEL.NAME}, its own names, Linear weights (in, out)"
    return ConvertedWeights(state, linear & state.keys(), origin, [], opened.weights, tuple(report.notices))


def keep_timm_names(source: str, weights: SourceWeights) -> ConvertedWeights | None:
    """Return the weights unchanged if timm built the model of the run: names and layout are timm's already."""
    name = _find_model(source)
    if name is None or not name.startswith("timm:"):
        return None
    require_whole(weights.name, weights.state)
    unknown = [name for name in weights.state if find_pretraining_part(name)]
    origin = f"{name}, timm's own names and layout"
    return ConvertedWeights(weights.state, set(), origin, unknown, weights.name, weights.notices)


def _find_model(source: str) -> str | None:
    """Return the name of the model of the run that weights are from; None if it is unknown."""
    if is_fetched(source) and fetch_record(source) is None:
        return None
    file = local_file(source).path
    model = (find_run_settings(read_weights_info(file), file) or {}).get("MODEL")
    name = model.get("NAME") if isinstance(model, dict) else None
    return name if isinstance(name, str) else None


def _find_models(source: str) -> tuple[tuple[str, ...], str | None]:
    """List the models that weights may be of, in addition to classifiers, and return the model of their run, if known.

    The first are the run's detector or user's model. A run's model has to be registered; without a run these are all
    imported models.
    """
    name = _find_model(source)
    if name is None:
        return tuple(model for model, target in REGISTRY.models.items() if not isinstance(target, str)), None
    name = find_name("model", name)
    is_detector = annotation_type("model", name) == BOX_LABELS
    return ((name,) if is_detector or not find_package("model", name) else ()), name
