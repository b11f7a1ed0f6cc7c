"""Trained weights without the data that they were trained on: their configuration, what they know, their model."""

import hashlib
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from .. import settings as configuration
from ..checkpoint.class_rows import get_class_names
from ..checkpoint.content import find_run_settings, fingerprint, read_weights_info
from ..checkpoint.download import silent
from ..checkpoint.load import LoadReport, count_classes, load_weights
from ..checkpoint.weights import INDEX_ENDING, SUFFIXES, evaluated_weights, list_shards, local_file, read_weights
from ..engine.compatibility import to_plain_settings
from ..models import prepare
from ..registry import find_package
from ..runtime.errors import UserError
from ..settings.every_run import RunSettings
from ..settings.table import find_keys
from ..tasks.prediction import CheckpointMeta
from ..tasks.task import Task

_IMAGES = "folder"
_LEAST_SCORE, _MOST, _WINDOW = "DETECTION.SCORE_THRESHOLD", "DETECTION.MAX_DETECTIONS", "SEGMENTATION.CROP"
_OF_MODELS = {
    _LEAST_SCORE: "-least_score is for models that find boxes",
    _MOST: "-max_detections is for models that find boxes",
    _WINDOW: "-window is for segmentation",
}
_EXPORTED = (".pdiparams", ".pdmodel", ".onnx")
_FOR_USE: dict[str, Any] = {  # nothing is trained, resumed or written by the run that these settings are from
    "EVAL": True,
    "SAVE_PREDICTIONS": False,
    "ALLOW_CHANGES": False,
}


class TrainedWeights(NamedTuple):
    """Everything that is known of trained weights before their model is built.

    Attributes:
        weights: file or folder of the weights that an evaluation would use.
        config: the frozen configuration that they were trained with, for use without training.
        settings: nested plain values that this is from: what the weights say, or a recipe.
        learned: what follows from the data that they were trained on.
    """

    weights: str
    config: RunSettings
    settings: dict[str, Any]
    learned: CheckpointMeta

    def digests(self) -> dict[str, str]:
        """SHA-256 of the weights, and of everything else that decides what they predict, in hexadecimal."""
        others = json.dumps([self.settings, self.learned.class_names, dict(self.learned.input)], default=str)
        return {"weights_sha256": _digest_of_weights(self.weights), "settings_sha256": _digest(others.encode())}


def open_source(
    source: str,
    command: str,
    *,
    recipe: str | None = None,
    class_names: Sequence[str] | None = None,
    words: Sequence[str] = (),
    least_score: float | None = None,
    max_detections: int | None = None,
    window: int | Sequence[int] | None = None,
    say: Callable[[str], None] = silent,
    advice: str = "name the recipe that it was trained with: -cfg=FILE",
) -> TrainedWeights:
    """Find the weights that ``source`` means, and how they were trained.

    Args:
        source: a run's folder, whose best checkpoint is used, else its last; a checkpoint; or weights with an
            ``about.yaml`` or the ``config.yaml`` of a run beside them; or weights with an address or a name, which
            are fetched. Averaged weights are used as in an evaluation.
        command: for messages.
        recipe: YAML file or name of a recipe, for weights that say nothing of themselves.
        class_names: in place of what the weights say.
        words: of a command line, which win over the settings of the weights.
        least_score: of a box that counts as found; None: as the weights say.
        max_detections: of an image and category, the best; None: as the weights say.
        window: pixels, or height and width, of windows that slide over images; None: as the weights say.
        say: gets a line when weights are fetched.
        advice: what to do where nothing says how they were trained.
    Raises:
        UserError: there are no weights, or nothing says how they were trained; or an option does not fit them.
    """
    weights = Path(evaluated_weights(source))
    if weights.suffix.lower() in _EXPORTED or weights.with_name(f"{weights.name}.pdiparams").is_file():
        raise UserError(f"{command}: {source} is an exported model; give the weights that it was exported from")
    file = local_file(evaluated_weights(source), log=say).path
    about = read_weights_info(file)
    if recipe is not None:
        settings = None
    else:
        settings = find_run_settings(about, file)
        if settings is None and file.suffix.lower() not in SUFFIXES and not file.name.endswith(INDEX_ENDING):
            raise UserError(
                f"{command}: {file} holds no weights; expected a run's folder, a checkpoint, or weights "
                f"({', '.join(SUFFIXES)})"
            )
        if settings is None:
            raise UserError(
                f"{command}: {file} does not say of which model it is, and there is neither an about.yaml nor a run's "
                f"config.yaml beside it: {advice}"
            )
    loaded = build_configuration(str(file), settings, recipe, words)
    sides = [window, window] if isinstance(window, int) else window and list(window)
    given = (_LEAST_SCORE, least_score), (_MOST, max_detections), (_WINDOW, sides)
    chosen = {key: value for key, value in given if value is not None}
    for key in chosen:
        if key not in find_keys(loaded.values):
            raise UserError(f"{command}: {_OF_MODELS[key]}; leave it out")
    if chosen:
        more = [word for key, value in chosen.items() for word in (key, str(value))]
        more += ["SEGMENTATION.PROTOCOL", "slide", "SEGMENTATION.STRIDE", "None"] if window else []
        loaded = build_configuration(str(file), settings, recipe, [*words, *more])
    learned = read_trained_meta(about, loaded.values.MODEL.NUM_CLASSES)
    if class_names is not None:
        learned = learned._replace(class_names=tuple(class_names))
    if settings is None:
        settings = to_plain_settings(loaded.values)
        settings["MODEL"].pop("PRETRAINED")  # where the weights are
    settings = {**settings, **chosen}  # other predictions than those of the weights' own
    return TrainedWeights(str(file), loaded.values, settings, learned)


def build_configuration(
    weights: str, settings: dict[str, Any] | None, recipe: str | None = None, words: Sequence[str] = ()
) -> configuration.Configuration:
    """The configuration to use ``weights`` with, from the settings of the run that trained them or from a recipe.

    Args:
        settings: nested, as ``about.yaml`` keeps them; None: those of ``recipe``.
        words: of a command line, which win.
    Raises:
        UserError: a setting is not known or wrong.
    """
    if settings is None:
        named = [f"-cfg={recipe}", "-eval", f"-pretrained={weights}", "MODEL.RESUME", "None", *words]
        loaded = configuration.load(named)
        is_of_images = find_package("task", loaded.values.TASK) == find_package("dataset", _IMAGES)
        if loaded.sources["DATA.DATASET"] == "default" and is_of_images:  # which would be glyphs, and are not cropped
            return configuration.load([*named, f"-dataset={_IMAGES}"])
        return loaded
    model = {**_mapping(settings.get("MODEL")), "PRETRAINED": weights, "PRETRAINED_PART": None, "RESUME": None}
    content = yaml.safe_dump({**settings, **_FOR_USE, "MODEL": model}, allow_unicode=True)
    with tempfile.TemporaryDirectory(prefix="paddlevit_dist_") as folder:
        file = Path(folder, "settings_of_the_run.yaml")
        file.write_text(content, encoding="utf-8", errors="surrogateescape")
        return configuration.load([f"-cfg={file}", *words], is_trusted=False)


def read_trained_meta(about: dict[str, Any], num_classes: int | None = None) -> CheckpointMeta:
    """Read what a checkpoint says of its data and input.

    Args:
        num_classes: as the configuration has it; it may be larger than the number of classes in the data.
    """
    splits = [_mapping(facts) for facts in _mapping(about.get("data")).values()]
    known = next((facts["number of classes"] for facts in splits if facts.get("number of classes")), None)
    said = dict(_mapping(about.get("input")))
    names = get_class_names(_mapping(about.get("data")), said)
    number = num_classes or known or (len(names) if names else None)
    data = next((facts for facts in splits if facts.get("classes")), {})
    return CheckpointMeta(number, tuple(names) if names else None, said, data)


def build_trained(task: Task, source: TrainedWeights, part: str | None = None) -> tuple[Any, LoadReport]:
    """The model in evaluation mode with all its weights, and what became of each of them. Call after
    ``task.load_meta``.

    Raises:
        UserError: the weights are damaged, or those of another model.
    """
    import paddle

    weights = read_weights(source.weights, part or source.config.MODEL.PRETRAINED_PART)
    num_classes = source.learned.num_classes
    if num_classes is None:
        with paddle.LazyGuard():  # names and shapes only
            outline = task.build_model(1)
        num_classes = count_classes(outline, weights)
        if num_classes is None:
            raise UserError(f"{source.weights} has no classifier for {source.config.MODEL.NAME}")
    model = prepare(task.build_model(num_classes))
    report = load_weights(model, weights, strict=True)
    model.eval()
    return model, report


def _digest_of_weights(file: str) -> str:
    path = Path(file)
    parts: list[Path] = [path, *(list_shards(path) if path.name.endswith(INDEX_ENDING) else [])]
    try:
        digests = [fingerprint(part)["sha256"] for part in parts]
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror or error}") from error
    return digests[0] if len(digests) == 1 else _digest("".join(digests).encode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
