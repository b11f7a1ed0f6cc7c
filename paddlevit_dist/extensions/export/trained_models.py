"""Load a trained model to export it: a run's, or weights of another program in a registered network."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.checkpoint.download import silent
from ...core.runtime.errors import UserError
from ...core.settings import load
from ...core.settings.key import OPTIONS
from .descriptions import describe_model, describe_run, require_exportable

if TYPE_CHECKING:
    from paddle import nn

    from ...core.inference.trained import TrainedWeights
    from ...core.tasks.step_types import ExportParts
    from .foreign_weights import Size


class TrainedModel(NamedTuple):
    """Model with its weights, and the information needed to use it."""

    model: "nn.Layer"  # in evaluation mode
    about: dict[str, Any]  # content of ``OUT.about.yaml``; "input_shape" is (None, channels, ...), for float inputs
    parts: "ExportParts | None" = None  # of its task; None: no run of this package trained the weights
    source: "TrainedWeights | None" = None  # its run; None as well


def load_trained_model(
    source: str,
    name: str | None = None,
    image_size: "Size" = None,
    in_channels: int | None = None,
    part: str | None = None,
    words: Sequence[str] = (),
    log: Callable[[str], None] = silent,
    reads_data: bool = False,
) -> TrainedModel:
    """Build the model for the weights in ``source``, in evaluation mode.

    Args:
        source: a run's output folder, whose best checkpoint is used, or a checkpoint, or any weights. Averaged weights
            of a checkpoint are preferred, as in an evaluation.
        name: name of the model; None uses the run's configuration.
        image_size: pixels, or (height, width); None uses the run's, or the variant's.
        in_channels: channels of the images; None uses the run's, or the variant's.
        part: entry of the file; None uses the run's.
        words: flags and keys of a command line, which override the run's.
        log: called with a line for each of the words that has no effect.
        reads_data: the export opens the data of the run.

    Raises:
        UserError: weights are missing, damaged or from another architecture, or the model is unknown.
    """
    if name is not None:
        others = [word for word in words if not word.startswith(OPTIONS)]
        if others:
            raise UserError(
                f"export: {others[0]}: -model={name} builds a network without a run's keys; remove one of both"
            )
        return _load_foreign_weights(source, name, image_size, in_channels, part, words)
    from ...core.inference.trained import build_trained, open_source
    from ...core.tasks.protocols import load_meta
    from ...core.tasks.task_factory import make_task, name_network

    options = {"DATA.IMAGE_CHANNELS": in_channels} if in_channels else {}
    advice = "name the model with -model=NAME"
    command = "export -precision=int8" if reads_data else "export"
    opened = open_source(source, command, words=words, options=options, advice=advice, log=log)
    _require_tensors(opened.config.MODEL.NAME)
    task = make_task(opened.config)
    if image_size:
        size_key = require_exportable(task).image_size_key
        options[size_key] = parse_size(size_key, image_size)
        opened = open_source(source, command, words=words, options=options, advice=advice)
        task = make_task(opened.config)
    exportable = require_exportable(task)
    exportable.check_export()
    load_meta(task, opened.learned)
    parts = exportable.export_parts()
    parts = parts._replace(is_any_size=parts.is_any_size and not image_size)
    model, report = build_trained(task, opened, part, is_fast=False)
    about = {
        "task": opened.config.TASK,
        **describe_model(name_network(opened.config, task), opened.weights, model, parts),
        **parts.about,
        "report": report.summary(),
    }
    about.update(_describe_outputs(model, opened.learned.class_names, about))
    about.update(describe_run(opened.config, opened.learned))
    exported = exportable.exported_model(model)
    exported.eval()
    return TrainedModel(exported, about, parts, opened)


def _describe_outputs(model: Any, names: Sequence[str] | None, about: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the branches of a model in training form, and return the note on it and the names of the classes."""
    from ...core.tasks.class_names import name_outputs
    from ...core.tasks.model import as_model

    described: dict[str, Any] = {"note": note} if (note := as_model(model).merge_branches()) else {}
    if names is not None and len(names) <= about["num_classes"] and "landmarks" not in about:
        described["classes"] = name_outputs(names, about["num_classes"])
    return described


def parse_size(key: str, size: "Size") -> Any:
    """Return the value of the key that sets the input's size; UserError for (height, width) of cubes."""
    from ...core.settings.table import find_keys

    if find_keys()[key].many or find_keys()[key].or_many:
        return list(size) if isinstance(size, tuple) else [size, size]
    if isinstance(size, tuple):
        raise UserError(f"export: {key} is one number: give -image_size as one number")
    return size


def _load_foreign_weights(
    source: str,
    name: str,
    image_size: "Size",
    in_channels: int | None,
    part: str | None,
    words: Sequence[str],
) -> TrainedModel:
    """Load weights of another program into a registered model, with the preprocessing that they expect, if known."""
    from ...core.checkpoint.load import count_classes, load_weights
    from ...core.checkpoint.weight_files import evaluated_weights
    from ...core.checkpoint.weights import read_weights
    from ...core.registry.lookup import annotation_type, find_name
    from ...core.registry.manifest import CLASS_LABELS, KEYPOINT_LABELS, MASK_LABELS
    from ...core.registry.names import REGISTRY
    from ...core.tasks.model import input_size
    from ...core.tasks.model_factory import build_outline, create_model, explain_options
    from ...core.tasks.prediction import CheckpointMeta
    from .foreign_weights import (
        find_class_names,
        find_detection,
        make_classifier_parts,
        make_detector_parts,
        make_segmenter_parts,
    )

    name = find_name("model", name)
    name = REGISTRY.aliases.get(name, name)
    _require_tensors(name)
    given = load(words).values.MODEL.OPTIONS or {}
    parts, kind = None, annotation_type("model", name)
    if kind == CLASS_LABELS or ":" in name:
        parts, image_size = make_classifier_parts(source, name, image_size, in_channels)
    detection = find_detection(name)
    if detection is not None:
        parts, image_size = make_detector_parts(source, name, image_size, *detection), None  # it takes any size
    path = evaluated_weights(source)
    weights = read_weights(path, part)
    is_one_size = image_size is not None
    options = {**given, "image_size": image_size, **({} if in_channels is None else {"in_channels": in_channels})}
    with explain_options(name, given):
        outline, wider = (
            build_outline(functools.partial(create_model, name, num_classes=number, **options)) for number in (1, 2)
        )
    num_classes = count_classes(outline, weights, wider)
    if num_classes is None:
        raise UserError(f"export: {path} has no classifier for {name}: is it a checkpoint of another network?")
    model = create_model(name, num_classes=num_classes, **options)
    if parts is None and model.image_size is None:
        raise UserError(
            f"export: {name} takes inputs of any size, and weights alone store none: export the run's folder"
        )
    if kind == MASK_LABELS:
        exportable, input_parts = make_segmenter_parts(source, name, input_size(model), num_classes)
        parts = exportable, input_parts._replace(is_any_size=not is_one_size)
    is_named = kind == CLASS_LABELS or detection is not None or ":" in name
    classes = find_class_names(path, num_classes) if is_named else {}
    report = load_weights(model, weights, strict=True, follows=True)
    facts = {**describe_model(name, str(weights.name), model, parts and parts[1]), "report": report.summary()}
    facts.update(classes)
    if kind == KEYPOINT_LABELS and detection is None:
        facts["points"] = None  # whose heatmaps they are
    if parts is not None:
        exportable, input_parts = parts
        notes = [about["note"] for about in (facts, input_parts.about) if "note" in about]
        facts |= input_parts.about
        facts |= {"note": "; ".join(notes)} if notes else {}
        model = exportable.exported_model(model)
        facts.update(describe_run(exportable.task.config, CheckpointMeta(num_classes, facts.get("classes"))))
    model.eval()
    return TrainedModel(model, facts, parts and parts[1])


def _require_tensors(name: str) -> None:
    """Check that all inputs of a model are tensors; raises a UserError for a sparse network."""
    from ...core.registry.names import REGISTRY

    if str(REGISTRY.models.get(name)).startswith("paddlevit_dist.points."):
        raise UserError(
            f"export: {name} is a sparse network, which needs a table of neighboring voxels for every scene; Paddle's "
            "inference models take tensors only: use the command predict instead"
        )
