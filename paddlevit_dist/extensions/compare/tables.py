"""Write and read the results of each sample of an evaluation, a file in the run's folder."""

import hashlib
import shlex
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from ...core.checkpoint.array_files import read_npz
from ...core.registry.lookup import find_package
from ...core.registry.plugins import find_missing
from ...core.registry.required_methods import is_builtin
from ...core.runtime.errors import UserError
from ...core.runtime.files import atomic_file
from ...core.runtime.json_format import format_json
from ...core.runtime.printing import shorten
from ...core.runtime.run_folders import suggest_runs
from ...core.runtime.text_files import parse_json
from ...core.tasks.sample_groups import GROUP, SampleGroups
from ...core.tasks.score_kind import CROSS_ENTROPY, LOSS, ScoreKind, find_score_kind
from ...core.tasks.score_report import ScoreReport
from .run_settings import load_run_settings

if TYPE_CHECKING:
    from ...core.engine.evaluation import Evaluator

FILES = ("eval_scored_samples.npz", "scored_samples.npz")  # of an evaluation, of a training run's last evaluation
RESULTS = "results "  # prefix for results of other programs, whose weights are not known
_FORMAT = 1
_INVALID = (AttributeError, LookupError, TypeError, ValueError)  # of content that has another form
_ABOUT, _NAMES, INDICES, _GROUPS = "about", "names", "indices", "groups"
_TEXTS = ("task", "kind", "score", "split", "dataset", "of", "digest")


class TableArrays(dict[str, np.ndarray]):
    """The arrays of a file by name; ``file`` and ``kind``, the kind of scores that reads them, are for messages."""

    def __init__(self, arrays: Mapping[str, np.ndarray], file: Path, kind: str) -> None:
        super().__init__(arrays)
        self.file, self.kind = file, kind

    def __missing__(self, name: str) -> NoReturn:
        raise UserError(
            f"compare: {self.file} has no array {shorten(name)}, which scores of the kind {shorten(self.kind)} are "
            f"computed from (it has {shorten(', '.join(self))}): evaluate the run again with the same metrics"
        )


class EvaluationTable(NamedTuple):
    """Results of each sample of an evaluation."""

    run: str  # the folder, as the user named it
    #: "task", "kind", "score", "more_is_better", "classes", "split", "dataset", "of" (the weights), "digest" of the
    #: names, and "protocol" and "input", which affect the score
    about: dict[str, Any]
    names: list[str]  # names of the samples, independent of the folder of the data
    arrays: Mapping[str, np.ndarray]  # see ``tasks.metrics.SampleTable``
    file: Path  # the file of the table
    groups: SampleGroups | None = None  # groups of the samples; None for single samples

    @property
    def kind(self) -> ScoreKind:
        """What computes scores from the arrays; raises a UserError if none of this name is registered."""
        kind = find_score_kind(self.about["kind"])
        if kind is None:
            raise UserError(_explain_unregistered(self.file, self.about))
        return kind


def write_evaluated(intervals: Path, evaluation: "Evaluator", facts: dict[str, Any]) -> None:
    """Write the table of the last evaluation atomically, in the main process.

    Args:
        intervals: file of the evaluation's intervals; the table is written to the same folder.
        evaluation: nothing is written if it has no table.
        facts: "epoch" of a training run, or "weights" and "split".

    Raises:
        UserError: if the file cannot be written.
    """
    from ...core.settings.table import effects, leaves

    table = evaluation.table
    sample_table = table.to_sample_table() if table else None
    if table is None or sample_table is None:
        return
    config, task = evaluation.config, evaluation.task
    score, more_is_better = task.best_metric
    if score == LOSS and LOSS not in evaluation.intervals:  # samples have no loss of a user's own
        if CROSS_ENTROPY in evaluation.intervals:
            score = CROSS_ENTROPY
        else:  # of pixels and voxels
            built_in: Any = next(cls for cls in type(task).__mro__ if is_builtin(cls))
            score, more_is_better = built_in.best_metric
    key_effects, names = effects(config), [evaluation.samples.name(index) for index in table.indices.tolist()]
    settings = {name: value for name, value in leaves(config).items() if key_effects[name] == "score"}
    about = {
        "task": config.TASK,
        "kind": sample_table.kind,
        "score": score,
        "more_is_better": more_is_better,
        "classes": [str(name) for name in sample_table.classes],
        "split": facts.get("split", "val"),
        "dataset": str(config.DATA.DATASET),
        "of": f"epoch {facts['epoch']}" if "epoch" in facts else str(facts.get("weights")),
        "protocol": {**evaluation.facts, **settings},
        "input": task.signature(),
    }
    file = intervals.with_name(intervals.name.replace("intervals.json", "scored_samples.npz"))
    arrays = {INDICES: table.indices.astype(np.int32), **sample_table.arrays}
    write_table(file, about, names, arrays, table.groups)


def write_scored(file: Path, scored: ScoreReport, results: str, groups: SampleGroups | None = None) -> None:
    """Write the table of results of another program, a file or folder, atomically; a UserError says that it cannot."""
    about = {
        "task": scored.task,
        "kind": scored.kind,
        "score": next(iter(scored.shown)),
        "more_is_better": scored.more_is_better,
        "classes": list(scored.classes),
        "split": scored.origin.split,
        "dataset": scored.origin.dataset,
        "of": f"{RESULTS}{results}",
        "protocol": {},
        "input": {},
    }
    indices = np.arange(len(scored.names), dtype=np.int32)
    write_table(file, about, scored.names, {INDICES: indices, **scored.arrays}, groups)


def write_table(
    file: Path,
    about: dict[str, Any],
    names: Sequence[str],
    arrays: Mapping[str, np.ndarray],
    groups: SampleGroups | None,
) -> None:
    """Write a table of samples by index, with their groups if there are any."""
    joined = _encode_names(names)
    facts = {"format": _FORMAT, "time": round(time.time(), 3), "digest": hashlib.sha256(joined).hexdigest()}
    texts = {_NAMES: joined}
    if groups is not None:
        facts[GROUP], texts[_GROUPS] = groups.by, _encode_names(groups.names.tolist())
    texts[_ABOUT] = format_json({**facts, **about}, default=str).encode()
    with atomic_file(file) as out:
        np.savez_compressed(out, **{name: np.frombuffer(text, np.uint8) for name, text in texts.items()}, **arrays)


def _encode_names(names: Sequence[str]) -> bytes:
    return b"\0".join(name.encode("utf-8", "surrogateescape") for name in names)


def _decode_names(array: np.ndarray) -> list[str]:
    return [name.decode("utf-8", "surrogateescape") for name in array.tobytes().split(b"\0")]


def read_table(run: str) -> EvaluationTable:
    """Read the table of a run's last evaluation, during or after training, from its folder or a file in it.

    A folder without a table whose folders have some, such as the five folds of a model, has their samples together.

    Raises:
        UserError: there is no table, it is damaged, or its kind of scores is not registered.
    """
    folds = sorted({str(file.parent) for name in FILES for file in Path(run).glob(f"*/{name}")})
    if len(folds) > 1 and not any(Path(run, name).is_file() for name in FILES):
        return _join(run, [read_table(fold) for fold in folds])
    return max((_read_file(run, file) for file in _list_files(run)), key=lambda table: table.about["time"])


def _join(run: str, tables: Sequence[EvaluationTable]) -> EvaluationTable:
    """Return the samples of tables together; UserError: they share samples, or differ in more than these."""
    first, names = tables[0], [name for table in tables for name in table.names]
    for table in tables[1:]:
        differs = [what for what in ("task", "kind", "score", "classes") if table.about[what] != first.about[what]]
        differs += ["groups"] if (table.groups is None) != (first.groups is None) else []
        if differs:
            raise UserError(
                f"compare: {run}: {table.run} has other {differs[0]} than {first.run}: name one of its folders"
            )
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise UserError(
            f"compare: {run} has no table, and its folders share samples, such as {twice}: name one of them, such as "
            f"{first.run}, or evaluate each on other samples, as folds are"
        )
    of = {str(table.about["of"]) for table in tables}
    source = next(iter(of)) if len(of) == 1 else RESULTS.strip() if all(one.startswith(RESULTS) for one in of) else ""
    about = {**first.about, "digest": "", "of": f"{source} of {len(tables)} folders".strip()}
    arrays = TableArrays(first.kind.join([table.arrays for table in tables]), first.file, first.about["kind"])
    groups = [table.groups.names for table in tables if table.groups is not None]
    joined = first.groups and first.groups._replace(names=np.concatenate(groups))
    return EvaluationTable(run, {**about, "folders": len(tables)}, names, arrays, first.file, joined)


def _read_file(run: str, file: Path) -> EvaluationTable:
    arrays = dict(read_npz(file))
    try:
        about = parse_json(arrays.pop(_ABOUT).tobytes())
        names, indices, groups = _decode_names(arrays.pop(_NAMES)), arrays.pop(INDICES), None
        lengths = {len(names), len(indices)}
        if _GROUPS in arrays:
            groups = SampleGroups(about[GROUP], np.array(_decode_names(arrays.pop(_GROUPS))), str(file))
            lengths.add(len(groups.names))
        if about["format"] != _FORMAT or len(lengths) > 1:
            raise ValueError
        if not all(isinstance(about[name], str) for name in _TEXTS) or not isinstance(about["classes"], list):
            raise ValueError
        if not all(isinstance(about[name], dict) for name in ("protocol", "input")):
            raise ValueError
        about["time"] = float(about["time"])
        about["more_is_better"] = bool(about["more_is_better"])
        about["classes"] = [str(name) for name in about["classes"]]
    except _INVALID:
        raise UserError(f"compare: {file} is damaged or from another version; evaluate the run again") from None
    table = EvaluationTable(run, about, names, TableArrays(arrays, file, about["kind"]), file, groups)
    _require_valid(table)
    return table


def _require_valid(table: EvaluationTable) -> None:
    """Raise a ``UserError`` if the kind of scores of a table cannot be computed from its arrays."""
    kind, scores = table.about["kind"], table.kind
    try:
        is_valid = scores.is_valid(table.arrays, len(table.names), len(table.about["classes"]))
    except _INVALID:  # such as an array with fewer dimensions
        is_valid = False
    if is_valid:
        return
    if find_package("score_kind", kind) is not None:
        raise UserError(
            f"compare: {table.file} is damaged or from another version, or its metrics do not write what the kind "
            f"{kind!r} has; evaluate the run again"
        )
    raise UserError(
        f"compare: the arrays of {table.file} ({shorten(', '.join(table.arrays))}) are not valid for scores of the "
        f"kind {kind!r}: evaluate the run again with the metrics that this kind belongs to"
    )


def _explain_unregistered(file: Path, about: dict[str, Any]) -> str:
    """Format the error for a table whose kind of scores no imported module registers, with the modules to import."""
    names = _list_imports(file.parent)
    missing, call = find_missing(names), f"register_score_kind({about['kind']!r}, ...)"
    advice = f"call {call} in your module" if names else f"import the module that calls {call} with -import=MODULE"
    if missing:
        advice = f"add -import={','.join(missing)}, which has to call {call}"
    return (
        f"compare: the metrics of task {about['task']} have results of the kind {about['kind']!r} ({file}), and no "
        f"ScoreKind of this name is registered: {advice} (docs/guides/extending.md)"
    )


def _list_imports(run: Path) -> list[str]:
    """Return the modules that a run's settings import; empty if they cannot be read."""
    imports = load_run_settings(run).get("IMPORTS")
    return [str(name) for name in imports] if isinstance(imports, list) else []


def _list_files(run: str) -> list[Path]:
    """List the tables of a run's folder, or the file itself; UserError: there is none."""
    place = Path(run)
    if place.is_file():
        return [place]
    if not place.is_dir():
        raise UserError(
            f"compare: {run} does not exist; give the -output folder of a training run or an evaluation"
            f"{suggest_runs(run)}"
        )
    files = [place / name for name in FILES if (place / name).is_file()]
    if files:
        return files
    words = shlex.join(["evaluate", run, *(f"-import={name}" for name in _list_imports(place))])
    raise UserError(
        f"compare: {run} has neither {FILES[0]} nor {FILES[1]}, which an evaluation with EVALUATION.INTERVAL writes; "
        f"to write one, run: paddlevit-dist {words}; "
        "metrics of your own write it if they have to_sample_table (docs/guides/extending.md)"
    )
