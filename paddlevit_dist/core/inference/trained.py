"""Load trained weights without their training data: configuration, metadata and model."""

import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from .. import settings as configuration
from ..checkpoint.download import silent
from ..checkpoint.file_formats import SUFFIXES, find_format, may_be_weights
from ..checkpoint.finding import find_run_settings
from ..checkpoint.integrity import fingerprint
from ..checkpoint.load import count_classes, load_weights
from ..checkpoint.load_report import LoadReport
from ..checkpoint.network_facts import find_config
from ..checkpoint.output_names import are_names, get_class_names, read_class_names
from ..checkpoint.published import find_published
from ..checkpoint.records import find_about_file, read_weights_info
from ..checkpoint.weight_files import evaluated_weights, local_file
from ..checkpoint.weights import list_shards, read_weights
from ..engine.compatibility import to_plain_settings
from ..registry.extension_points import BUILD_EXPORTED, OPEN_EXPORTED
from ..registry.lookup import (
    annotation_type,
    find_built_in,
    find_name,
    find_package,
    require_derived,
    resolve,
)
from ..registry.manifest import CLASS_LABELS
from ..registry.names import REGISTRY
from ..runtime.errors import UserError
from ..runtime.files import readable
from ..runtime.printing import shorten
from ..runtime.text_files import read_json_facts
from ..settings.command_line import format_words
from ..settings.every_run import RunSettings
from ..tasks.aspects import get_aspect
from ..tasks.model import Model, as_model
from ..tasks.model_factory import accelerate, build_outline, prepare, variant_options
from ..tasks.prediction import CheckpointMeta
from ..tasks.protocols import Predictable, load_meta
from ..tasks.task import Task
from ..tasks.task_factory import make_task, name_network
from .changed_keys import find_changed_keys, find_ignored_words, require_prediction_keys, require_same_network

_IMAGES, _PROCESSOR = "folder", "preprocessor_config.json"
_GAPS = {"", "N/A"}  # names of numbers without a class
_EXPORTED = (".pdiparams", ".pdmodel", ".onnx")
_PARTS = (".pdmodel", ".json", ".onnx.data")  # of an exported model, next to its file
_OVERRIDES: dict[str, Any] = {  # settings of the run for training, resuming and writing do not apply
    "EVAL": True,
    "SAVE_PREDICTIONS": False,
    "ALLOW_CHANGES": False,
}


class TrainedWeights(NamedTuple):
    """Trained weights with configuration and metadata, before the model is built.

    ``weights`` are those that an evaluation would use. ``config`` is frozen and changed for use without training;
    ``settings`` are the nested plain values that it was built from: stored with the weights, or a recipe's.
    ``is_exported``: ``weights`` is an exported model, which is used unchanged.
    """

    weights: str
    config: RunSettings
    settings: dict[str, Any]
    learned: CheckpointMeta
    is_exported: bool = False

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of the weights, and of all settings that affect predictions, in hexadecimal."""
        others = json.dumps([self.settings, self.learned.class_names, dict(self.learned.input)], default=str)
        return {
            "weights_sha256": _compute_weights_digest(self.weights),
            "settings_sha256": _compute_digest(others.encode()),
        }


def open_source(
    source: str,
    command: str,
    *,
    recipe: str | None = None,
    class_names: Sequence[str] | None = None,
    words: Sequence[str] = (),
    options: Mapping[str, Any] = MappingProxyType({}),
    log: Callable[[str], None] = silent,
    advice: str = "name the recipe that it was trained with: -cfg=FILE",
) -> TrainedWeights:
    """Find trained weights and their training settings.

    Raises UserError if the weights do not exist, their training settings are unknown, or the words do not fit them.

    Args:
        source: a run's folder, whose best checkpoint is used, else its last; a checkpoint; weights with an
            ``about.yaml`` or the ``config.yaml`` of a run in their folder; or a URL or published name, which is
            downloaded, also without training settings: of a classifier, if timm's ``config.json`` is next to them.
            Averaged weights are preferred, as in an evaluation. For ``predict`` also an exported model.
        recipe: YAML file or name of a recipe, for weights without stored training settings.
        class_names: replace the class names of the weights.
        words: flags and keys of a command line, which override the settings of the weights.
        options: keys that options of the command set, which may differ from the ones of the weights.
        log: called with a line when weights are downloaded, and for each of the words that has no effect.
        advice: what to do if the training settings are unknown, for messages.
    """
    if not source:
        raise UserError(f"{command}: the path of the weights is empty: name a run's folder, a checkpoint, or weights")
    weights_source, network = evaluated_weights(source), None
    exported = _open_exported(command, source, Path(weights_source))
    if exported is None:
        file = local_file(weights_source, log=log).path
        about, described_by = read_weights_info(file), find_about_file(file)
        settings = None if recipe is not None else find_run_settings(about, file)
        if recipe is None and settings is None:
            network = _find_network(weights_source, file)
        if recipe is None and (network is None or find_format(file) is None):
            settings = _require_settings(command, file, settings, advice)
    else:
        file, about, missing = exported
        described_by = file
        settings = _require_exported_settings(command, file, about, missing) if recipe is None else None
    own = format_words(options)
    if network is not None:
        named = f"-pretrained={weights_source}"  # by which its preprocessing is known
        loaded = configuration.load([f"-dataset={_IMAGES}", "-eval", named, *network.words, *own, *words])
        log(f"network: {loaded.values.MODEL.NAME} ({network.source})")
    else:
        loaded = build_configuration(str(file), settings, recipe, [*own, *words], is_exported=exported is not None)
    learned = read_trained_meta(about, loaded.values.MODEL.NUM_CLASSES)
    learned = learned._replace(source=str(described_by))
    if learned.class_names is None and exported is not None and isinstance(about.get("classes"), list):
        learned = learned._replace(class_names=tuple(map(str, about["classes"])))  # exported without a run
    elif learned.class_names is None and exported is None:
        learned = learned._replace(class_names=_read_listed_names(weights_source))
    if class_names is not None:
        before = learned.class_names or ()
        _require_names(str(file), class_names, learned.num_classes or len(before), before)
        learned = learned._replace(class_names=tuple(class_names))
    if words:
        require_prediction_keys(command, str(file), loaded.values, exported is not None)
        for line in find_ignored_words(command, loaded):
            if exported is None or not line.startswith("EXPORTED "):  # no word of the user's
                log(line)
    recorded = about.get("settings") if settings is None else settings if words else None
    stored: RunSettings | None = None
    # A recipe may replace settings that cannot be read here: then there is nothing to compare it with.
    with contextlib.suppress(*([UserError] if recipe else [])):
        if isinstance(recorded, dict):
            stored = build_configuration(str(file), recorded, None, own, False, exported is not None).values
    if stored is not None:
        require_same_network(str(file), stored, loaded.values, learned, recipe)
    if settings is None:
        settings = to_plain_settings(loaded.values)
        settings["MODEL"].pop("PRETRAINED")  # a path must not change the digest
    elif stored is not None:
        settings = {**settings, **find_changed_keys(stored, loaded.values)}  # part of the digest
    return TrainedWeights(str(file), loaded.values, settings, learned, exported is not None)


def _open_exported(command: str, source: str, weights: Path) -> tuple[Path, dict[str, Any], str] | None:
    """Return the exported model at a path, its description, and why it has none; None if the path is not one's.

    Raises UserError for a command that needs weights.
    """
    is_program = weights.suffix == ".json" and weights.with_suffix(".pdiparams").is_file()
    named = weights.suffix.lower() in _EXPORTED or is_program
    if not named and not any(Path(f"{weights}{suffix}").is_file() for suffix in _EXPORTED):
        return None
    found = OPEN_EXPORTED.find() if command == "predict" else None
    if found is None:
        raise UserError(f"{command}: {source} is an exported model; give the weights that it was exported from")
    return found(source)


def _require_exported_settings(command: str, file: Path, about: dict[str, Any], missing: str) -> dict[str, Any]:
    """Return the settings of the run that an exported model is from, or raise UserError."""
    settings = about.get("settings")
    if isinstance(settings, dict):
        return settings
    if missing:
        raise UserError(f"{command}: {missing}")
    raise UserError(
        f"{command}: {file} does not say with which settings it is used: export the run again, as earlier versions did "
        "not write them, or name the recipe that it was trained with: -cfg=FILE"
    )


class _PublishedNetwork(NamedTuple):
    """The classifier that published weights are of: keys of a run with it, and what says so."""

    words: list[str]
    source: str


def _find_network(source: str, file: Path) -> _PublishedNetwork | None:
    """Find the classifier of weights that have a published name, or a ``config.json``; None for any others.

    The file is timm's, or transformers' of a family that reads it (``Model.read_described``).

    Raises UserError: the file is damaged.
    """
    published = find_published(source)
    if published is not None:
        return _PublishedNetwork([f"MODEL.NAME={published.model}"], published.name)
    config = find_config(source, file, may_download=True)
    content = {} if config is None else read_json_facts(config)
    name, number = content.get("architecture"), content.get("num_classes")
    if not isinstance(name, str):
        words = _find_described(content)
        if words is None:
            return None
        if find_config(source, file, may_download=True, name=_PROCESSOR) is None:
            raise UserError(
                f"{config} has no {_PROCESSOR} next to it, which says size, crop, mean and deviation of the images: "
                "add the file, or name a recipe with these: -cfg=FILE"
            )
        return _PublishedNetwork(words, str(config))
    try:
        name = find_name("model", name)
    except UserError:  # not one of ours
        name = find_name("model", f"timm:{name}")
    classes = [f"MODEL.NUM_CLASSES={number}"] if type(number) is int and number > 0 else []
    return _PublishedNetwork([f"MODEL.NAME={name}", *classes], str(config))


def _find_described(content: Mapping[str, Any]) -> list[str] | None:
    """Return the words for the classifier that transformers' ``config.json`` describes; None if no family reads it."""
    if not str(next(iter(content.get("architectures") or ()), "")).endswith("ForImageClassification"):
        return None
    families: dict[str, list[str]] = {}
    for name, target in REGISTRY.models.items():
        if annotation_type("model", name) == CLASS_LABELS:
            families.setdefault(str(target), []).append(name)
    for names in families.values():
        try:
            options = require_derived(resolve("model", names[0]), Model).read_described(content)
        except (KeyError, TypeError):  # a damaged file, which only says less
            continue
        if options is not None:
            equal = [name for name in names if variant_options(name) == options][-1:]  # a variant after the family
            given = {name: value for name, value in options.items() if name != "image_size"}
            own = f"MODEL.OPTIONS={json.dumps(given)}"
            return [f"MODEL.NAME={equal[0]}"] if equal else [f"MODEL.NAME={names[0]}", own]
    return None


def _require_settings(command: str, file: Path, settings: dict[str, Any] | None, advice: str) -> dict[str, Any]:
    """Return the settings of the run that trained the weights in a file, or raise UserError."""
    found = "named so" if may_be_weights(file) else find_format(file)
    if settings is not None and found is not None:
        return settings
    if found not in ("named so", "index", "torch"):
        raise UserError(
            f"{command}: {file} does not contain weights; expected a run's folder, a checkpoint, or weights "
            f"({', '.join(SUFFIXES)})"
        )
    raise UserError(
        f"{command}: the model of {file} is unknown: its folder contains neither an about.yaml with settings, a run's "
        f"config.yaml nor the config.json of a classifier of timm or transformers that is known; {advice}"
    )


def _read_listed_names(weights: str) -> tuple[str, ...] | None:
    """Return the class names in a file next to the weights; None if there is none, or numbers without a class."""
    names = read_class_names(weights)[0]
    return tuple(names) if names and not _GAPS.intersection(names) else None


def _require_names(weights: str, names: Sequence[str], number: int, own: Sequence[str] = ()) -> None:
    """Raise UserError unless there is a name for each class, or for each one with an ``own`` name, in their order."""
    order = shorten(", ".join(own), 200) if own else "of its outputs"
    if number and len(names) not in (number, len(own)):
        raise UserError(
            f"{weights} has {number:,} classes, and there are {len(names):,} class names: give {number:,}, in the "
            f"order {order}"
        )
    places = {name.casefold(): label for label, name in enumerate(own)}
    new = ((label, name) for label, name in enumerate(names) if name not in own[label : label + 1])
    moved = next((name for label, name in new if places.get(name.casefold(), label) != label), None)
    if moved is not None and are_names(own):
        raise UserError(
            f"{weights} has the class '{moved}' at another place: give the names in the order {order}, or none"
        )


def build_configuration(
    weights: str,
    settings: dict[str, Any] | None,
    recipe: str | None = None,
    words: Sequence[str] = (),
    is_checked: bool = True,
    is_exported: bool = False,
) -> configuration.Configuration:
    """Build the configuration for ``weights``, from the ``settings`` of their ``about.yaml`` or else a ``recipe``.

    ``words`` override the settings. ``is_checked``: as in ``StoredSettings``; ``is_exported``: as in
    ``TrainedWeights``. UserError if a setting is wrong.
    """
    named = ["-pretrained=none"] if is_exported else []
    if settings is None:
        named = [*named, f"EXPORTED={weights}"] if is_exported else [f"-pretrained={weights}"]
        arguments = [f"-cfg={recipe}", "-eval", *named, "MODEL.RESUME", "None", *words]
        loaded = configuration.load(arguments)
        task = find_built_in(loaded.values.TASK)
        takes_images = task is not None and find_package("task", task) == find_package("dataset", _IMAGES)
        # The default is synthetic glyphs, which are not cropped.
        if loaded.sources["DATA.DATASET"] == "default" and takes_images:
            return configuration.load([*arguments, f"-dataset={_IMAGES}"])
        return loaded
    model = {**_mapping(settings.get("MODEL")), "PRETRAINED": weights, "PRETRAINED_PART": None, "RESUME": None}
    content = {**settings, **_OVERRIDES, "MODEL": model, **({"EXPORTED": weights} if is_exported else {})}
    stored = configuration.StoredSettings(content, f"settings of {weights}", is_checked)
    return configuration.load([*named, *words], is_trusted=False, stored=stored)


def read_trained_meta(about: dict[str, Any], num_classes: int | None = None) -> CheckpointMeta:
    """Read the metadata of a checkpoint (``about.yaml``) on its data and input.

    ``num_classes``: number in the configuration, which may exceed the number of classes in the data.
    """
    splits = [_mapping(facts) for facts in _mapping(about.get("data")).values()]
    data_classes = next((facts["number of classes"] for facts in splits if facts.get("number of classes")), None)
    input_facts = dict(_mapping(about.get("input")))
    names = get_class_names(_mapping(about.get("data")), input_facts)
    number = num_classes or data_classes or (len(names) if names else None)
    data = next((facts for facts in splits if facts.get("classes")), {})
    return CheckpointMeta(number, tuple(names) if names else None, input_facts, data)


def build_trained(
    task: Task, source: TrainedWeights, part: str | None = None, is_fast: bool = True
) -> tuple[Any, LoadReport]:
    """Build the model in evaluation mode with its weights, after ``task.load_meta``; return it with a load report.

    It has the compiled layers of CPUs, if they are there, unless ``is_fast`` is False: Paddle converts plain ones only.
    Raises UserError if the weights are damaged or belong to another model.
    """
    if source.is_exported:
        return BUILD_EXPORTED.require()(source.config, task)
    weights = read_weights(source.weights, part or source.config.MODEL.PRETRAINED_PART)
    num_classes = source.learned.num_classes
    if num_classes is None:
        model_without_weights = build_outline(lambda: task.build_model(1))
        # Without classifier layers, such as in a regression, no layer is known to depend on the number of classes.
        has_classes = bool(as_model(model_without_weights).classifier_layers)
        num_classes = count_classes(model_without_weights, weights) if has_classes else 1
        if num_classes is None:
            raise UserError(f"{source.weights} has no classifier for {name_network(source.config, task)}")
        if has_classes and source.learned.class_names:
            _require_names(source.weights, source.learned.class_names, num_classes)
        if has_classes:  # only the weights know their number
            load_meta(task, source.learned._replace(num_classes=num_classes))
    model = prepare(task.build_model(num_classes))
    report = load_weights(model, weights, strict=True, follows=True)
    if is_fast:
        accelerate(model)
    model.eval()
    return model, report


def _compute_weights_digest(file: str) -> str:
    path = Path(file)
    parts = [path, *(list_shards(path) or ())]
    if path.suffix in _EXPORTED:
        parts += filter(Path.is_file, map(path.with_suffix, _PARTS))
    with readable(file):
        digests = [fingerprint(part)["sha256"] for part in parts]
    return digests[0] if len(digests) == 1 else _compute_digest("".join(digests).encode())


def _compute_digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def prepare_task(source: TrainedWeights) -> Task:
    """Make the task of the weights, with the metadata of their data. Raises UserError if it cannot predict."""
    task = make_task(source.config)
    require_predictable(task)
    load_meta(task, source.learned)
    return task


def require_predictable(task: Task) -> Predictable:
    """Return the aspect of a task that predicts. Raises UserError if the task cannot predict."""
    aspect = get_aspect(task, Predictable)
    if aspect is None:
        raise UserError(
            f"predict: task {task.config.TASK} cannot predict new inputs: its class is not Predictable "
            "(paddlevit_dist.core.tasks); use evaluate"
        )
    return aspect


def default_batch_size(config: RunSettings) -> int:
    """Return the evaluation batch size of a device."""
    return int(config.DATA.BATCH_SIZE_EVAL or config.DATA.BATCH_SIZE)
