"""What a checkpoint has on record: its state, metadata, samples and scores, and which checkpoint a path means.

Files are used only if their content is what this package writes.
"""

import contextlib
import copy
import errno
import functools
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from ..runtime.errors import UserError
from ..runtime.files import readable
from ..runtime.printing import shorten
from ..runtime.text_files import convert_facts, parse_yaml, read_bytes
from .about_schema import ABOUT, ABOUT_ADVICE, AboutFacts, require_valid_settings
from .array_files import read_npz
from .directory_names import (
    AVERAGED,
    EVALUATION,
    MODEL,
    OPTIMIZER,
    OWN,
    REPLACED,
    SAMPLES,
    STATE,
    epoch_name,
    list_checkpoints,
    parse_name,
)
from .integrity import (
    LARGEST_BYTES,
    Count,
    DamagedCheckpointError,
    convert_record,
    describe_reason,
    find_damage,
    parse_record,
    read_manifest,
    verify_while_reading,
)

_Number = Annotated[float, Meta(ge=-(1 << 53), le=1 << 53)]  # JSON has finite numbers only
_Positive = Annotated[float, Meta(gt=0, le=1 << 53)]


class _TrainingPosition(msgspec.Struct):
    epoch: Count
    consumed: Count
    update: Count


class _BestRecord(msgspec.Struct):
    name: str
    value: float | None  # not defined
    epoch: Count
    line: str


class _EvaluationRecord(msgspec.Struct):
    best: _BestRecord
    evaluations: list[tuple[Count, float | None]] = []  # epoch and value of each
    values: dict[str, float] = {}  # of this checkpoint


class _SkippedSteps(msgspec.Struct):
    total: Count
    in_a_row: Count


class _EpochMeans(msgspec.Struct):
    """State that ``engine.hooks`` saves in the middle of an epoch."""

    names: list[str]
    sums: dict[str, float]
    counts: dict[str, float]
    windows: list[list[list[float]]]
    pace: dict[Literal["updates", "reported", "seconds", "unreported", "waited", "unreported_wait"], float]


class _ExtraState(msgspec.Struct):
    best: _BestRecord | None
    global_batch_size: Annotated[int, Meta(gt=0, le=1 << 53)]
    scaler: dict[str, Any]  # empty, or a ``_ScalerState``
    skipped_updates: _SkippedSteps
    evaluation_due: bool
    undecayed: list[str]
    training_means: _EpochMeans | None
    evaluations: list[tuple[Count, float | None]] = []
    weights_digest: str = ""
    paddle: str = ""
    seed: int = 0


class _TrainingState(msgspec.Struct):
    position: _TrainingPosition
    extra: _ExtraState


class _ScalerState(msgspec.Struct):
    """State of ``paddle.amp.GradScaler.state_dict``; restoring needs every field."""

    scale: Annotated[list[_Positive], Meta(min_length=1, max_length=1)] | _Positive
    incr_ratio: _Number
    decr_ratio: _Number
    incr_every_n_steps: _Number
    decr_every_n_nan_or_inf: _Number
    incr_count: _Number
    decr_count: _Number
    use_dynamic_loss_scaling: bool | _Number


def resolve_checkpoint(path: str | os.PathLike) -> Path:
    """Return the checkpoint that the path of a run's folder means where weights are needed: ``best``, else ``last``.

    If a copy has lost the links, it is the best one on record, else the newest. Other paths are returned, ``~``
    expanded. A path without a name, such as ``.``, is the absolute one. Raises UserError if it cannot be a path, such
    as a text that is too long.
    """
    with readable(shorten(os.fspath(path))):
        return _find_checkpoint(Path(os.path.expanduser(path)))


def _find_checkpoint(path: Path) -> Path:
    expanded = path if path.name else path.resolve()
    for folder in (expanded / "checkpoints", expanded):
        for name in ("best", "last"):
            if (folder / name).is_dir() and (folder / name).is_symlink():
                return folder / name
        checkpoints = sorted(entry for entry in list_checkpoints(folder) if not entry[2].name.endswith(REPLACED))
        if checkpoints:  # some methods of copying lose links
            copies = [folder / link for link in ("best",) if (folder / link / STATE).is_file()]
            # Epochs before updates.
            newest = [checkpoint for kind, _, checkpoint in checkpoints if kind == checkpoints[0][0]][-1:]
            return [*_find_recorded_best([checkpoint for *_, checkpoint in checkpoints]), *copies, *newest][0]
    return expanded


def _find_recorded_best(checkpoints: list[Path]) -> list[Path]:
    """Return the checkpoint that the latest of their evaluations names as the best, if it is among them."""
    best_records = []
    for path in checkpoints:
        with contextlib.suppress(DamagedCheckpointError):
            best_records.append(parse_record(path / EVALUATION, _EvaluationRecord)["best"])
    latest = max((best["epoch"] for best in best_records), default=-1)  # a later best replaces an earlier one
    return [checkpoint for checkpoint in checkpoints if checkpoint.name == epoch_name(latest)]


def find_directory(source: str) -> Path:
    """Return the directory of the checkpoint that ``source`` means, or of the file that it is."""
    path = resolve_checkpoint(source)
    return path if path.is_dir() else path.parent


def is_run_checkpoint(source: str) -> bool:
    """Return whether ``source`` is a checkpoint that a run of this package wrote: its directory or a file in it."""
    return (find_directory(source) / STATE).is_file()


def verify(directory: Path) -> None:
    """Compare every file of a checkpoint with its manifest, and check the content of the small files.

    Raises DamagedCheckpointError if a file is missing, differs or has invalid content.
    """
    files = read_manifest(directory)
    optional = {key for key in (AVERAGED, OWN, ABOUT, SAMPLES) if (directory / key).exists()}
    for name in sorted({MODEL, OPTIMIZER, STATE, *optional, *files}):
        if not (directory / name).is_file():
            missing = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(directory / name))
            raise DamagedCheckpointError(f"{directory / name} is missing") from missing
        damage = find_damage(directory / name, files.get(name))
        if damage:
            raise DamagedCheckpointError(damage)
    read_state(directory)
    if ABOUT in optional:
        try:
            read_about_file(directory / ABOUT)
        except UserError as error:
            raise DamagedCheckpointError(str(error).partition(";")[0]) from error


class RunState(NamedTuple):
    """Everything apart from configuration and weights that a run needs to continue exactly where it stopped.

    Attributes:
        position: completed epochs, samples consumed of the next one, and steps since the start.
        optimizer: accumulators by structured name.
        extra: other state as plain JSON values (loss scaler, scores, whether an evaluation is due, versions).
        own: state of the task by name; empty if it has none.
    """

    position: dict[str, int]
    optimizer: dict[str, np.ndarray]
    extra: dict[str, Any]
    own: Mapping[str, np.ndarray] = MappingProxyType({})


def read(directory: Path) -> RunState:
    """Read the run state of a verified checkpoint directory. Raises UserError if it cannot be read."""
    try:
        position, extra = read_state(directory)
    except DamagedCheckpointError as error:
        raise UserError(f"{error}; continue from another checkpoint") from error
    # Until the evaluation is recorded, or if its record cannot be read, it is due.
    with contextlib.suppress(DamagedCheckpointError):
        evaluation = parse_record(directory / EVALUATION, _EvaluationRecord)
        extra = {**extra, **evaluation, "evaluation_due": False}
        extra.pop("values", None)
    own = read_npz(directory / OWN) if (directory / OWN).is_file() else {}
    return RunState(position, read_npz(directory / OPTIMIZER), extra, own)


def read_state(directory: Path) -> tuple[dict[str, int], dict[str, Any]]:
    """Read position and other state; DamagedCheckpointError if unreadable, or of a checkpoint of another name."""
    file = directory / STATE
    content = parse_record(file, _TrainingState)
    position, extra, name = content["position"], content["extra"], parse_name(directory.name)
    if extra["scaler"]:
        convert_record(file, extra["scaler"], _ScalerState)
    if name and (position[name[0]] != name[1] or (name[0] == "epoch" and position["consumed"])):
        raise DamagedCheckpointError(f"{file} is of another checkpoint: {shorten(position)}")
    return position, extra


def read_about(source: str) -> dict[str, Any] | None:
    """Return the metadata in ``about.yaml`` of the checkpoint at ``source``, its directory or a file in it.

    Returns empty if ``about.yaml`` is lost, None if ``source`` is not a run's checkpoint. Raises UserError if damaged.
    """
    if not is_run_checkpoint(source):
        return None
    file = find_directory(source) / ABOUT
    if not file.exists():
        return {}
    with verify_while_reading(file):
        return read_about_file(file)


def read_weights_info(file: Path) -> dict[str, Any]:
    """Read the metadata of the weights in ``file``; empty if there are none. Raises UserError if they cannot be read.

    They are in its checkpoint, else in a ``FILE.about.yaml`` (of ``convert``), ``NAME.about.yaml`` (of ``export``, with
    other content) or ``about.yaml`` in the same folder.
    """
    about = read_about(str(file))
    if about is not None:
        return about
    about_file = find_about_file(file)
    return read_about_file(about_file) if about_file.is_file() else {}


def find_about_file(file: Path) -> Path:
    """Return the file with the metadata of the weights in ``file``, or where it would be; see ``read_weights_info``."""
    names = (ABOUT,) if is_run_checkpoint(str(file)) else (f"{file.name}.{ABOUT}", f"{file.stem}.{ABOUT}", ABOUT)
    candidates = [file.with_name(name) for name in names]
    return next(filter(Path.is_file, candidates), candidates[-1])


def read_samples(source: str) -> dict[str, np.ndarray] | None:
    """Read the sample lists of the checkpoint at ``source``; None if it is not a run's, or has no lists.

    They are ``TransformedDataset.identities``, uint64 (samples,), by split, and of samples that only earlier sessions
    trained on. Raises UserError if the lists are damaged.
    """
    file = find_directory(source) / SAMPLES
    if not file.is_file():
        return None
    with verify_while_reading(file):
        return read_npz(file)


def read_evaluated_values(source: str) -> dict[str, float]:
    """Read the values by name that a run's evaluation gave for the checkpoint at ``source``; empty if there are none.

    Raises UserError if the record is damaged.
    """
    file = find_directory(source) / EVALUATION
    if not file.is_file():
        return {}
    try:
        values: dict[str, float] = parse_record(file, _EvaluationRecord).get("values", {})
    except DamagedCheckpointError as error:
        raise UserError(f"{error}; restore the file, or remove it") from error
    return values


def read_about_file(file: Path) -> dict[str, Any]:
    """Read an ``about.yaml``: plain values, with mappings where expected. Raises UserError for any other content."""
    try:
        content = read_bytes(file, LARGEST_BYTES)
    except (OSError, ValueError, MemoryError) as error:
        raise UserError(f"{file} cannot be read ({describe_reason(error)}); {ABOUT_ADVICE}") from error
    return parse_about(content, str(file))


def parse_about(
    content: bytes, source: str, text_keys: tuple[str, ...] = (), advice: str = ABOUT_ADVICE
) -> dict[str, Any]:
    """Parse the content of an ``about.yaml``, which may also be inside of ``source``; empty for no content.

    Raises UserError with the source and the advice for anything but plain values, with mappings where expected.

    Args:
        content: YAML, at most as large as such a file may be.
        source: where it is, for messages.
        text_keys: keys of words that stay as written, see ``parse_yaml``.
        advice: what to do if it is damaged.
    """
    try:
        if len(content) > LARGEST_BYTES:
            raise ValueError(f"it has more than {LARGEST_BYTES:,} bytes, far more than such files need")
        about = copy.deepcopy(_parse_about(content, text_keys))
    except (ValueError, MemoryError) as error:
        raise UserError(f"{source} cannot be read ({describe_reason(error)}); {advice}") from error
    require_valid_settings(source, convert_facts(about, AboutFacts, source, advice).settings or {}, advice)
    return about


@functools.lru_cache(maxsize=2)
def _parse_about(content: bytes, text_keys: tuple[str, ...]) -> Any:
    """Parse an ``about.yaml``, which several parts of one evaluation read, once."""
    return parse_yaml(content, text_keys)
