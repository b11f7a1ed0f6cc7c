"""Files of the directory of a checkpoint, and its name: believed only where they are what this package writes."""

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec
import numpy as np
from msgspec import Meta

from ..runtime.errors import UserError
from ..runtime.printing import shorten
from ..runtime.text_files import parse_yaml, read_bytes
from .array_files import read_npz

MODEL, AVERAGED = "model.pdparams", "model_ema.pdparams"  # weights, and their averages where the run has them
OPTIMIZER, STATE, MANIFEST = "optimizer.npz", "state.json", "manifest.json"
ABOUT, SAMPLES, EVALUATION = "about.yaml", "samples.npz", "evaluation.json"
REPLACED = ".replaced"  # ending of a checkpoint that is about to be replaced by one of the same name
_NAME = re.compile(r"(epoch|update)_(\d{1,18})(?:\.replaced)?")
_BLOCK_BYTES = 32 << 20  # of a file that is hashed while another thread may read it
_LARGEST_BYTES = 16 << 20  # of a file of JSON or YAML; ours have some kilobytes


class DamagedCheckpointError(Exception):
    """A checkpoint is incomplete or has changed on disk."""


# ---- names -------------------------------------------------------------------------------------------------------


def epoch_name(epoch: int) -> str:
    """Name of the checkpoint at the end of an epoch."""
    return f"epoch_{epoch:04d}"


def update_name(update: int) -> str:
    """Name of a checkpoint in the middle of an epoch."""
    return f"update_{update:08d}"


def parse_name(name: str) -> tuple[str, int] | None:
    """Kind and number in ``epoch_0004`` or ``update_00000123``, also with ``.replaced`` after it; else None."""
    match = _NAME.fullmatch(name)
    return (match[1], int(match[2])) if match else None


def list_checkpoints(folder: Path) -> list[tuple[str, int, Path]]:
    """Kind, number and path of each checkpoint in a folder.

    Raises:
        UserError: the folder cannot be read.
    """
    try:
        found = [(parse_name(path.name), path) for path in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UserError(f"{folder} cannot be read: {error.strerror}; make it readable for this user") from error
    return [(*name, path) for name, path in found if name]


def linked_name(folder: Path, name: str) -> str | None:
    """The name of the checkpoint in the same folder that a link points at; None for anything else of that name."""
    try:
        beside, linked = os.path.split(os.readlink(folder / name))
    except OSError:
        return None
    is_beside = beside in ("", ".") or os.path.realpath(folder / beside) == os.path.realpath(folder)
    return linked if is_beside and parse_name(linked) else None


def resolve_checkpoint(path: str | os.PathLike) -> Path:
    """The checkpoint that a run's folder means where weights are wanted: ``best``, else ``last``, and where the links
    did not survive a copy the best that is recorded, else the newest.

    Any other path is what it is; ``~`` is the home folder."""
    given = Path(path).expanduser()
    for folder in (given / "checkpoints", given):
        for name in ("best", "last"):
            if (folder / name).is_dir() and (folder / name).is_symlink():
                return folder / name
        there = sorted(entry for entry in list_checkpoints(folder) if not entry[2].name.endswith(REPLACED))
        if there:  # links do not survive every method of copying
            copies = [folder / name for name in ("best",) if (folder / name / STATE).is_file()]
            newest = [path for kind, _, path in there if kind == there[0][0]][-1:]  # epochs before updates
            return [*_find_recorded_best([path for *_, path in there]), *copies, *newest][0]
    return given


def _find_recorded_best(there: list[Path]) -> list[Path]:
    """The checkpoint among these that the last of their evaluations has called the best, if it is there."""
    noted = []
    for path in there:
        with contextlib.suppress(DamagedCheckpointError):
            noted.append(_parse(path / EVALUATION, _EvaluationRecord)["best"])
    latest = max((best["epoch"] for best in noted), default=-1)  # a later best takes an earlier one's place
    return [path for path in there if path.name == epoch_name(latest)]


def find_directory(source: str) -> Path:
    """The directory of the checkpoint that ``source`` means, or of the file that it is."""
    path = resolve_checkpoint(source)
    return path if path.is_dir() else path.parent


def is_run_checkpoint(source: str) -> bool:
    """Whether ``source`` is a checkpoint that a run of this package wrote, its directory or a file in it."""
    return (find_directory(source) / STATE).is_file()


# ---- whether it is complete and unchanged ------------------------------------------------------------------------


def fingerprint(path: Path) -> dict[str, Any]:
    """Size and SHA-256 of a file."""
    digest, size = hashlib.sha256(), 0
    with open(path, "rb", buffering=0) as stream:
        # Reading and hashing release the interpreter's lock, which a thread gets back late while another one computes.
        block = memoryview(bytearray(min(_BLOCK_BYTES, max(os.fstat(stream.fileno()).st_size, 1))))
        while number := stream.readinto(block):
            digest.update(block[:number])
            size += number
    return {"bytes": size, "sha256": digest.hexdigest()}


def verify(directory: Path) -> None:
    """Compare every file with the manifest, and see that the small ones hold what they should.

    Raises:
        Damaged: something is missing, differs or makes no sense.
    """
    files = _manifest(directory)
    ours = {name for name in (AVERAGED, ABOUT, SAMPLES) if (directory / name).exists()}
    for name in sorted({MODEL, OPTIMIZER, STATE, *ours, *files}):
        if not (directory / name).is_file():
            raise DamagedCheckpointError(f"{directory / name} is missing")
        damage = _damage(directory / name, files.get(name))
        if damage:
            raise DamagedCheckpointError(damage)
    read_state(directory)
    if ABOUT in ours:
        try:
            read_about_file(directory / ABOUT)
        except UserError as error:
            raise DamagedCheckpointError(str(error).partition(";")[0]) from error


@contextlib.contextmanager
def verify_while_reading(path: Path) -> Iterator[None]:
    """Context in which a file is read that may be one of a checkpoint of this package: it is compared with the
    checkpoint's manifest meanwhile, in a thread. Where there is no manifest, or it does not list the file, it is not.

    Raises:
        UserError: it has changed since it was written, whatever reading it has raised.
    """
    directory, advice = path.parent, "restore it, or take another checkpoint of the run"
    expected = None
    if (directory / STATE).is_file() and (directory / MANIFEST).is_file():
        try:
            expected = _manifest(directory).get(path.name)
        except DamagedCheckpointError as error:
            raise UserError(f"{error}: the checkpoint is damaged; {advice}") from error
    if expected is None:
        yield
        return
    with ThreadPoolExecutor(1) as pool:
        damage = pool.submit(_damage, path, expected)
        try:
            yield
        finally:
            found = damage.result()
            if found:
                raise UserError(f"{found}: the checkpoint is damaged; {advice}")


def _damage(path: Path, expected: dict[str, Any] | None) -> str | None:
    """How a file differs from what its manifest says was written, in words; None: it does not."""
    try:
        size = path.stat().st_size
        if expected is None or size != expected["bytes"]:
            return f"{path} has {size} bytes, {expected and expected['bytes']} were written"
        if fingerprint(path) != expected:
            return f"{path} has changed since it was written (SHA-256 differs)"
    except OSError as error:
        return f"{path} cannot be read ({error.strerror or error})"
    return None


# ---- what it says ------------------------------------------------------------------------------------------------


class RunState(NamedTuple):
    """All that is needed, besides the configuration, to continue exactly where a run stopped.

    Attributes:
        position: epochs that are done, samples consumed of the one after them, updates since the start.
        optimizer: accumulators by structured name.
        extra: everything else, plain JSON values (scaler, best metric, whether an evaluation is due, versions).
    """

    position: dict[str, int]
    optimizer: dict[str, np.ndarray]
    extra: dict[str, Any]


def read(directory: Path) -> RunState:
    """The run state in a verified checkpoint directory.

    Raises:
        UserError: it cannot be read.
    """
    try:
        position, extra = read_state(directory)
    except DamagedCheckpointError as error:
        raise UserError(f"{error}; continue from another checkpoint") from error
    # Until its evaluation is noted, and where what was noted cannot be read, it is due.
    with contextlib.suppress(DamagedCheckpointError):
        noted = _parse(directory / EVALUATION, _EvaluationRecord)
        extra = {**extra, "best": noted["best"], "evaluation_due": False}
    return RunState(position, read_npz(directory / OPTIMIZER), extra)


def read_state(directory: Path) -> tuple[dict[str, int], dict[str, Any]]:
    """Position and further state.

    Raises:
        Damaged: they cannot be read, or are not what a training of that name can have saved.
    """
    file = directory / STATE
    content = _parse(file, _TrainingState)
    position, extra, name = content["position"], content["extra"], parse_name(directory.name)
    if extra["scaler"]:
        _convert(file, extra["scaler"], _ScalerState)
    if name and (position[name[0]] != name[1] or (name[0] == "epoch" and position["consumed"])):
        raise DamagedCheckpointError(f"{file} is of another checkpoint: {shorten(position)}")
    return position, extra


def read_about(source: str) -> dict[str, Any] | None:
    """Say what the checkpoint at ``source``, its directory or a file in it, says about its weights.

    Returns:
        An empty dictionary for a checkpoint that has lost its ``about.yaml``, None if ``source`` is not a checkpoint of
        a run.
    Raises:
        UserError: its ``about.yaml`` is damaged.
    """
    if not is_run_checkpoint(source):
        return None
    file = find_directory(source) / ABOUT
    if not file.exists():
        return {}
    with verify_while_reading(file):
        return read_about_file(file)


def read_weights_info(file: Path) -> dict[str, Any]:
    """Find what is said of the weights in ``file``: by their checkpoint, else by an ``about.yaml`` or
    ``NAME.about.yaml`` beside them; empty if nothing is.

    Raises:
        UserError: it cannot be read.
    """
    about = read_about(str(file))
    if about is not None:
        return about
    beside = (file.with_name(name) for name in (f"{file.stem}.{ABOUT}", f"{file.name}.{ABOUT}", ABOUT))
    found = next((path for path in beside if path.is_file()), None)
    return read_about_file(found) if found else {}


def find_run_settings(about: dict[str, Any], file: Path) -> dict[str, Any] | None:
    """The settings of the run that trained the weights in ``file``: what ``about`` says, else the ``config.yaml`` of
    the run's folder that they are in; None if there is neither."""
    if isinstance(about.get("settings"), dict):
        return dict(about["settings"])
    for folder in list(file.absolute().parents)[:3]:  # run / checkpoints / epoch_0004 / model.pdparams
        if (folder / "config.yaml").is_file():
            return read_about_file(folder / "config.yaml")  # plain values as well
    return None


def read_samples(source: str) -> dict[str, np.ndarray] | None:
    """The samples that the training of the checkpoint at ``source`` had in each split, as
    ``TransformedDataset.identities`` has
    them: uint64 (samples,) by split, and of what only earlier sessions were trained on.

    Returns:
        None if ``source`` is not a checkpoint of a run, or lists none.
    Raises:
        UserError: the list is damaged.
    """
    file = find_directory(source) / SAMPLES
    if not file.is_file():
        return None
    with verify_while_reading(file):
        return read_npz(file)


def read_about_file(file: Path) -> dict[str, Any]:
    """The content of an ``about.yaml``: plain values, with mappings where this package reads mappings.

    Raises:
        UserError: it cannot be read, or says something else.
    """
    advice = "remove the file to continue without it"
    try:
        content = parse_yaml(read_bytes(file, _LARGEST_BYTES))
    except (OSError, ValueError, MemoryError) as error:
        raise UserError(f"{file} cannot be read ({_reason(error)}); {advice}") from error
    try:
        msgspec.convert(content, _CheckpointInfo)
    except msgspec.ValidationError as error:
        raise UserError(f"{file}: {_reason(error)}; {advice}") from error
    return content


# ---- what the files must look like -------------------------------------------------------------------------------

_Count = Annotated[int, Meta(ge=0, le=1 << 53)]
_Number = Annotated[float, Meta(ge=-(1 << 53), le=1 << 53)]  # JSON has none that is not finite
_Positive = Annotated[float, Meta(gt=0, le=1 << 53)]


class _FileRecord(msgspec.Struct, forbid_unknown_fields=True):
    bytes: _Count
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]


class _FileManifest(msgspec.Struct):
    format: Literal[1]
    files: dict[Annotated[str, Meta(pattern=r"^[^/\\\x00]{1,255}\Z")], _FileRecord]


class _TrainingPosition(msgspec.Struct):
    epoch: _Count
    consumed: _Count
    update: _Count


class _BestRecord(msgspec.Struct):
    name: str
    value: float
    epoch: _Count
    line: str


class _EvaluationRecord(msgspec.Struct):
    best: _BestRecord


class _SkippedSteps(msgspec.Struct):
    total: _Count
    in_a_row: _Count


class _EpochMeans(msgspec.Struct):
    """State that ``engine.reports`` saves of an epoch that has begun."""

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
    weights_digest: str = ""
    paddle: str = ""
    seed: int = 0


class _TrainingState(msgspec.Struct):
    position: _TrainingPosition
    extra: _ExtraState


class _ScalerState(msgspec.Struct):
    """State of ``paddle.amp.GradScaler.state_dict``, which cannot be restored without it."""

    scale: Annotated[list[_Positive], Meta(min_length=1, max_length=1)] | _Positive
    incr_ratio: _Number
    decr_ratio: _Number
    incr_every_n_steps: _Number
    decr_every_n_nan_or_inf: _Number
    incr_count: _Number
    decr_count: _Number
    use_dynamic_loss_scaling: bool | _Number


class _SplitRecord(msgspec.Struct):
    classes: list[Any] | None = None


class _CheckpointInfo(msgspec.Struct):
    input: dict[str, Any] | None = None
    data: dict[str, _SplitRecord | None] | None = None
    settings: dict[str, Any] | None = None
    versions: dict[str, Any] | None = None


_Checked = TypeVar("_Checked", bound=msgspec.Struct)


def _manifest(directory: Path) -> dict[str, dict[str, Any]]:
    return _parse(directory / MANIFEST, _FileManifest)["files"]


def _parse(file: Path, kind: type[_Checked]) -> dict[str, Any]:
    """The plain values in a file of JSON that has to look like ``kind``."""
    try:
        content = msgspec.json.decode(read_bytes(file, _LARGEST_BYTES))
    except (OSError, ValueError, MemoryError, RecursionError) as error:
        raise DamagedCheckpointError(f"{file} cannot be read ({_reason(error)})") from error
    _convert(file, content, kind)
    return content


def _convert(file: Path, content: Any, kind: type[_Checked]) -> _Checked:
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise DamagedCheckpointError(f"{file} cannot be read ({_reason(error)})") from error


def _reason(error: Exception) -> str:
    said = error.strerror if isinstance(error, OSError) else None
    return shorten(said or str(error) or type(error).__name__)
