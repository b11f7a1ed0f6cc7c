"""What was loaded into a model and what was not, and the errors if that is not enough."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..registry.names import REGISTRY
from ..runtime.errors import UserError
from ..runtime.json_format import format_json
from ..runtime.printing import shorten
from ..tasks.model import Model
from .class_rows import ClassNames, find_class_axis, pair_names
from .finding import find_run_settings
from .foreign_names import statistics_in
from .low_rank import LowRankBase
from .output_names import are_names
from .records import read_weights_info

Shape = tuple[int, ...]


@dataclass
class LoadReport:
    """The result of loading, for every parameter and buffer, by the model's names.

    Attributes:
        source: the file, or "the given state".
        origin: the naming scheme and the layout of Linear weights that were recognized.
        loaded: names of parameters that were copied, including resized ones.
        resized: names of parameters that were resized, such as a position embedding for another grid.
        reinitialized: names of the classifier's initial parameters, if the source has none or one for other classes.
        missing: names of parameters that the source lacks or has in another shape: they keep their initial values.
        unexpected: names in the source that the model does not have.
        shapes: (shape in the source, shape in the model) by name; None where it does not exist.
        classes_by_name: if the classifier's rows were matched by class name: number of matched classes, and number of
            the model's classes; None: rows were copied in order.
        outputs: name of each output, if rows were matched for an evaluation.
        loaded_fraction: share of the model's elements that were loaded, without re-initialized parameters.
        notices: unusual properties of the source, such as other weights in it.
        base: for a model with matrices of low rank, the whole weights that its checkpoints leave out; else None.
        trained_size: height and width of the images of the run that the source is from; None: unknown.
    """

    source: str
    origin: str
    loaded: list[str] = field(default_factory=list)
    resized: list[str] = field(default_factory=list)
    reinitialized: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    shapes: dict[str, tuple[Shape | None, Shape | None]] = field(default_factory=dict)
    classes_by_name: tuple[int, int] | None = None
    outputs: tuple[str, ...] = ()
    loaded_fraction: float = 0.0
    notices: list[str] = field(default_factory=list)
    base: LowRankBase | None = None
    trained_size: tuple[int, int] | None = None

    def summary(self) -> str:
        """Format the report in one line for the log."""
        total = len(self.loaded) + len(self.reinitialized) + len(self.missing)
        exception = " apart from the new classifier" if self.reinitialized else ""
        share = f"{_percent(self.loaded_fraction)} % of parameters{exception}"
        if self.unexpected:  # the source is another network, even if it has all parameters of this one
            used = len(self.loaded) + len(self.reinitialized)
            share = f"{used} of {used + len(self.unexpected)} entries of the source used"
        head = f"loaded {len(self.loaded)} of {total} ({share})"
        parts = []
        if self.classes_by_name is not None:
            matched, classes = self.classes_by_name
            parts.append(
                f"{matched:,} of {classes:,} classes by name" + (", the rest new" if matched < classes else "")
            )
        if self.reinitialized:
            parts.append(f"re-initialized {list_some(self.reinitialized, 4)}")
        if self.resized:
            parts.append(
                "resized " + ", ".join("{} {} -> {}".format(name, *self.shapes[name]) for name in self.resized)
            )
        if self.missing:
            parts.append(f"{len(self.missing)} missing, which stay random: {_describe(self, self.missing)}")
        if self.unexpected:
            parts.append(f"not used {list_some(self.unexpected)}")
        parts += self.notices
        return head + (", " + "; ".join(parts) if parts else "")

    def text(self) -> str:
        """Format all parameters that were not simply copied, with their shapes, in several lines."""
        lines = [f"{self.source}: {self.origin}", self.summary()]
        kinds = {
            "resized": self.resized,
            "re-initialized": self.reinitialized,
            "missing": self.missing,
            "unexpected": self.unexpected,
        }
        for kind, names in kinds.items():
            lines += [f"  {kind:14} {shorten(name)}: {_shapes(*self.shapes[name])}" for name in names]
        return "\n".join(lines)

    def json(self) -> str:
        """Format the whole report as JSON."""
        kinds = ("resized", "reinitialized", "missing", "unexpected")
        names = ("source", "origin", "loaded_fraction", "loaded", "classes_by_name", *kinds, "notices")
        content = {name: vars(self)[name] for name in names}
        for kind in kinds:
            shapes = ((name, *self.shapes[name]) for name in content[kind])
            content[kind] = [
                {"name": name, "source_shape": a and list(a), "model_shape": b and list(b)} for name, a, b in shapes
            ]
        return format_json(content, indent=1)


def require_everything(report: LoadReport, interface: Model, class_names: ClassNames | None = None) -> None:
    """Raise UserError if the source lacks parameters of the model, or has a classifier of other shapes.

    ``class_names`` of both sides, if known, decide what to do about another number of classes.
    """
    if not report.missing and not report.reinitialized:
        return
    reasons = []
    if report.missing:
        reasons.append(f"it lacks {_describe(report, report.missing)}")
    if report.reinitialized:
        reasons.append(f"its classifier does not fit: {_describe(report, report.reinitialized)}")
    for name in report.reinitialized:
        source_shape, model_shape = report.shapes[name]
        axis = find_class_axis(source_shape or (), interface.class_layout(name))
        if source_shape and model_shape and axis is not None and source_shape[axis] != model_shape[axis]:
            theirs, ours = (interface.outputs_to_classes(shape[axis]) for shape in (source_shape, model_shape))
            remedy = _advise_classes(class_names, interface, theirs, ours)
            reasons.append(f"it has {theirs} classes and the model {ours}: {remedy}")
            break  # further heads may have several outputs per class
    hint = _suggest_model(report) if report.missing else ""
    raise UserError(
        f"{report.source} does not contain the whole model, which evaluating and resuming need: "
        f"{'; '.join(reasons)}{hint}"
    )


def _advise_classes(names: ClassNames | None, interface: Model, theirs: int, ours: int) -> str:
    """Return what to do about weights of ``theirs`` classes and a model of ``ours``."""
    if names is not None and names.theirs and are_names(names.theirs):
        found = {here for _, here in pair_names(names.theirs, names.ours, interface)}
        missing = [name for label, name in enumerate(names.ours) if label not in found]
        if missing:
            own, lacking = list_some(list(names.theirs)), list_some(missing)
            return f"its classes are {own}, without {lacking} of the data: evaluate data of its classes"
    if theirs > ours or (names is not None and len(names.ours) <= theirs):
        return f"set MODEL.NUM_CLASSES to {theirs}"
    return f"use data of at most {theirs} classes; MODEL.NUM_CLASSES, if it is set, has to be {theirs}"


def require_trained(
    report: LoadReport, own_parts: Sequence[str] = (), remedy: str = "add -allow_changes to train them anew"
) -> None:
    """Raise UserError if a parameter outside of the classifier keeps its random values.

    ``own_parts``: beginnings of names that the source cannot have; ``remedy``: what to do if this is intended.
    """
    random = [name for name in report.missing if not name.startswith(tuple(own_parts))]
    if random:
        total = len(report.loaded) + len(report.reinitialized) + len(report.missing)
        raise UserError(
            f"{report.source} lacks {len(random)} of this model's {total} tensors, which would stay random: "
            f"{_describe(report, random)}; use weights of this model, or {remedy}{_suggest_model(report)}"
        )


def refuse_unused(report: LoadReport, unused: list[str]) -> None:
    """Raise UserError for unused entries: a network without them computes other results."""
    distilled = ""
    if any(name.startswith(("dist_token", "head_dist.")) for name in unused):
        distilled = ". They belong to a distilled DeiT, with MODEL.NAME deit_SIZE_distilled_patch16_SIDE"
    raise UserError(
        f"{report.source} belongs to another network: this model does not have "
        f"{_describe(report, unused)}; set MODEL.NAME to the weights' model, or add -allow_changes to evaluate "
        f"without them{distilled or _suggest_model(report)}"
    )


def require_statistics(report: LoadReport) -> None:
    """Raise UserError for batch norms with trained weights but initial statistics, which compute other results."""
    missing = [name for name in statistics_in(report.missing) if f"{name.rpartition('.')[0]}.weight" in report.loaded]
    if missing:
        raise UserError(
            f"{report.source} has the weights of batch norms without their running statistics "
            f"{_describe(report, missing)}, so their results would differ from training; expected _mean and _variance, "
            "or PyTorch's running_mean and running_var, for each weight"
        )


def require_finite(source: str, values: Mapping[str, np.ndarray]) -> None:
    """Raise UserError if parameters or buffers, arrays by name, have NaN or infinity: every output would be one.

    Negative infinity is accepted: masks of attention have it.
    """
    numbers = {name: int(np.count_nonzero(~(value < np.inf))) for name, value in values.items()}
    if total := sum(numbers.values()):
        first = next(name for name, number in numbers.items() if number)
        raise UserError(
            f"{source}: {total:,} of {sum(value.size for value in values.values()):,} parameters are NaN or infinite, "
            f"the first in {shorten(first)}: its training diverged, or the file is damaged; use weights saved earlier"
        )


# Names in the models of transformers 5; its ``save_pretrained`` writes the names of version 4, which are supported.
_is_transformers5_name = re.compile(
    r"layers\.\d+\.(blocks\.\d+\.)?attention\.q_proj\.|stages\.\d+\.patch_embeddings\."
).search
_TRANSFORMERS5_HINT = (
    ". This is a state_dict() of transformers 5: save the model with save_pretrained, and give that folder"
)


def refuse_small_share(report: LoadReport, minimum_loaded: float) -> None:
    """Raise UserError with the share of parameters that was loaded, and what is missing."""
    reasons = [f"missing {_describe(report, report.missing)}"]
    if report.unexpected:
        reasons.append(f"unexpected {_describe(report, report.unexpected)}")
    is_raw = any(map(_is_transformers5_name, report.unexpected))
    hint = _TRANSFORMERS5_HINT if is_raw else _suggest_model(report)
    raise UserError(
        f"{report.source} has only {_percent(report.loaded_fraction)} % of the model's parameters, at least "
        f"{100 * minimum_loaded:g} % are needed (MODEL.MIN_LOADED_FRACTION): {'; '.join(reasons)}"
        f"{hint}"
    )


def _suggest_norm(report: LoadReport) -> str:
    """Say which key moves a ViT's last norm to where the source has it, such as a fine-tuned MAE; "" for others."""
    before, behind = "norm.weight", "fc_norm.weight"  # of the average over the patches
    if behind in report.unexpected and before in report.missing:
        return ". Its last norm follows the average: set MODEL.OPTIONS.pool average and MODEL.OPTIONS.pool_norm true"
    if before in report.unexpected and behind in report.missing:
        return ". Its last norm is before the head's average or token: set MODEL.OPTIONS.pool_norm false"
    return ""


def _suggest_model(report: LoadReport) -> str:
    """Say what the source is of, and which key fits it."""
    if norm := _suggest_norm(report):
        return norm
    file = Path(report.source)
    model = (find_run_settings(read_weights_info(file), file) or {}).get("MODEL")
    if isinstance(model, dict) and isinstance(model.get("NAME"), str):
        return f". It is from a run with MODEL.NAME {shorten(model['NAME'])}: use that run's MODEL settings"
    candidates = [name for name in REGISTRY.models if file.name.startswith((f"{name}.", f"{name}-"))]
    return f". Its name suggests MODEL.NAME {candidates[0]}" if candidates else ". Is it for another architecture?"


def _describe(report: LoadReport, names: list[str]) -> str:
    def describe(name: str) -> str:
        source_shape, model_shape = report.shapes[name]
        if source_shape and model_shape:
            return f"{shorten(name)} ({source_shape} in the source, {model_shape} in the model)"
        return f"{shorten(name)} {source_shape or model_shape}"

    return list_some([describe(name) for name in names])


def _percent(share: float) -> str:
    """Format a share with one decimal, rounded down: 100.0 is the whole."""
    return f"{np.floor(1000 * share) / 10:.1f}"


def list_some(texts: list[str], limit: int = 3) -> str:
    """List the first ``limit`` texts, and how many more there are."""
    shown = ", ".join(shorten(text) for text in texts[:limit])
    return shown if len(texts) <= limit else f"{shown} and {len(texts) - limit} more"


def _shapes(source_shape: Shape | None, model_shape: Shape | None) -> str:
    in_source = f"{source_shape} in the source" if source_shape is not None else "not in the source"
    in_model = f"{model_shape} in the model" if model_shape is not None else "not in the model"
    return f"{in_source}, {in_model}"
