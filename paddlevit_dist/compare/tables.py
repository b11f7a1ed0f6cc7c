"""The samples of an evaluation in a file of the run's folder, beside its intervals."""

import contextlib
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..checkpoint.array_files import read_npz
from ..checkpoint.content import find_directory, find_run_settings, read_about, read_about_file
from ..runtime.errors import UserError
from ..runtime.files import atomic_file
from ..runtime.text_files import parse_json
from ..tasks.sample_groups import GROUP, SampleGroups
from ..tasks.score_report import ScoreReport
from .scores import SORTS

FILES = ("eval_scored_samples.npz", "scored_samples.npz")  # of an evaluation, of a training's last one
RESULTS = "results "  # before what results of others are called: nothing is known of their weights
_FORMAT = 1
_ABOUT, _NAMES, _INDICES, _GROUPS = "about", "names", "indices", "groups"
_NOT_COMPARED = ("start", "place", "machine")  # effects of settings that change no score
_STARTED_FROM = ("MODEL.PRETRAINED", "MODEL.BACKBONE_PRETRAINED")  # but these do
_TEXTS = ("task", "kind", "score", "split", "dataset", "of", "digest")


class EvaluationTable(NamedTuple):
    """Everything that is known of the samples of an evaluation.

    Attributes:
        run: the folder, as the user named it.
        about: of the evaluation: "task", "kind", "score" and whether "more_is_better", "classes", "split", "dataset",
            "of" which weights, "digest" of the names, and what a score depends on: "protocol" and "input".
        names: of the samples, whatever folder the data are in.
        arrays: see ``tasks.metrics.SampleTable``.
        file: that it was read from.
        groups: of the samples; None: each is alone.
    """

    run: str
    about: dict[str, Any]
    names: list[str]
    arrays: dict[str, np.ndarray]
    file: Path
    groups: SampleGroups | None = None


def write_beside(intervals: Path, evaluation: Any, facts: dict[str, Any]) -> None:
    """Write the table of the last evaluation beside the file of its intervals, whole or not at all. Called in the main
    process.

    Args:
        evaluation: an ``engine.evaluation.Evaluator`` that has a table.
        facts: "epoch" of a training, or "weights" and "split".
    Raises:
        UserError: the file system refuses.
    """
    from ..settings.table import effects, leaves

    indices, kept = evaluation.table.indices, evaluation.table.to_sample_table()
    if kept is None:
        return
    config, task = evaluation.config, evaluation.task
    score, more_is_better = task.best_metric
    effect_of, names = effects(), [evaluation.samples.name(index) for index in indices.tolist()]
    settings = {name: value for name, value in leaves(config) if effect_of[name] == "score"}
    about = {
        "task": config.TASK,
        "kind": kept.kind,
        "score": score,
        "more_is_better": more_is_better,
        "classes": [str(name) for name in kept.classes],
        "split": facts.get("split", "val"),
        "dataset": str(config.DATA.DATASET),
        "of": f"epoch {facts['epoch']}" if "epoch" in facts else str(facts.get("weights")),
        "protocol": {**evaluation.facts, **settings},
        "input": task.preprocess_signature(),
    }
    file = intervals.with_name(intervals.name.replace("intervals.json", "scored_samples.npz"))
    _write(file, about, names, {_INDICES: indices.astype(np.int32), **kept.arrays}, evaluation.table.groups)


def write_scored(file: Path, scored: ScoreReport, results: str, groups: SampleGroups | None = None) -> None:
    """Write the table of results that this package did not make, whole or not at all.

    Args:
        results: their file or folder.
    Raises:
        UserError: the file system refuses.
    """
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
    _write(file, about, scored.names, {_INDICES: indices, **scored.arrays}, groups)


def _write(
    file: Path,
    about: dict[str, Any],
    names: Sequence[str],
    arrays: Mapping[str, np.ndarray],
    groups: SampleGroups | None,
) -> None:
    joined = _join(names)
    facts = {"format": _FORMAT, "time": round(time.time(), 3), "digest": hashlib.sha256(joined).hexdigest()}
    texts = {_NAMES: joined}
    if groups is not None:
        facts[GROUP], texts[_GROUPS] = groups.by, _join(groups.names.tolist())
    texts[_ABOUT] = json.dumps({**facts, **about}, default=str).encode()
    with atomic_file(file) as out:
        np.savez_compressed(out, **{name: np.frombuffer(text, np.uint8) for name, text in texts.items()}, **arrays)


def _join(names: Sequence[str]) -> bytes:
    return b"\0".join(name.encode("utf-8", "surrogateescape") for name in names)


def _split(array: np.ndarray) -> list[str]:
    return [name.decode("utf-8", "surrogateescape") for name in array.tobytes().split(b"\0")]


def load_settings(table: EvaluationTable) -> dict[str, Any]:
    """The configuration of the training that has made the weights of a table; empty where it is not known any more."""
    of = str(table.about["of"])
    if of.startswith("epoch "):
        return settings_in(table.file.parent)
    with contextlib.suppress(UserError):
        if Path(of).exists():  # never that of RESULTS
            folder = find_directory(of)
            return find_run_settings(read_about(str(folder)) or {}, folder / "weights") or {}
    return {}


def settings_in(run: Path) -> dict[str, Any]:
    """The configuration of the training in a folder; empty where there is none that can be read."""
    file = run / "config.yaml"
    with contextlib.suppress(UserError):
        return read_about_file(file) if file.is_file() else {}
    return {}


def that_differ(ours: dict[str, Any], theirs: dict[str, Any], without: Sequence[str] = ()) -> dict[str, list[Any]]:
    """By name the values of settings of two trainings that differ, as far as both are known and scores may depend on
    them.

    Args:
        without: effects of settings (``settings.key.EFFECTS``) that are told elsewhere.
    """
    from ..settings.table import effects, leaves

    left_out = {None, *_NOT_COMPARED, *without}
    effect_of = {**effects(), **dict.fromkeys(_STARTED_FROM, "training")}
    before, now = dict(leaves(ours)), dict(leaves(theirs))
    shared = [name for name in now if name in before and effect_of.get(name) not in left_out]
    return {name: [before[name], now[name]] for name in shared if before[name] != now[name]}


def read(run: str) -> EvaluationTable:
    """The table of a run: of its last evaluation, in its training or alone.

    Args:
        run: the folder, or a file in it.
    Raises:
        UserError: there is none, or it is damaged.
    """
    return max((_read(run, file) for file in _list_files(run)), key=lambda table: table.about["time"])


def _read(run: str, file: Path) -> EvaluationTable:
    arrays = dict(read_npz(file))
    try:
        about, names, indices = (
            parse_json(arrays.pop(_ABOUT).tobytes()),
            _split(arrays.pop(_NAMES)),
            arrays.pop(_INDICES),
        )
        groups = (
            SampleGroups(about[GROUP], np.array(_split(arrays.pop(_GROUPS))), str(file)) if _GROUPS in arrays else None
        )
        if about["format"] != _FORMAT or not len(names) == len(indices) == len(
            names if groups is None else groups.names
        ):
            raise ValueError
        if not all(isinstance(about[name], str) for name in _TEXTS) or not isinstance(about["classes"], list):
            raise ValueError
        about["protocol"].items(), about["input"].items()
        about["time"] = float(about["time"])
        about["more_is_better"] = bool(about["more_is_better"])
        about["classes"] = [str(name) for name in about["classes"]]
        sort = SORTS.get(about["kind"])
        if sort is None or not sort.fits(arrays, len(names), len(about["classes"])):
            raise ValueError
    except (AttributeError, LookupError, TypeError, ValueError):
        raise UserError(f"compare: {file} is no table of samples of this version; evaluate the run again") from None
    return EvaluationTable(run, about, names, arrays, file, groups)


def _list_files(run: str) -> list[Path]:
    place = Path(run)
    if place.is_file():
        return [place]
    if not place.is_dir():
        raise UserError(f"compare: {run} does not exist; give the -output folder of a training or an evaluation")
    found = [place / name for name in FILES if (place / name).is_file()]
    if found:
        return found
    raise UserError(
        f"compare: {run} has neither {FILES[0]} nor {FILES[1]}, which an evaluation with EVALUATION.INTERVAL writes; "
        f"make one with: paddlevit-dist evaluate -cfg={place / 'config.yaml'} -pretrained={run} -output={run}"
    )
