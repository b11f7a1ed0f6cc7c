"""What a checkpoint's small files say, believed only where it is what this package writes."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import math
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

from ..errors import UserError
from ..text_files import parse_json, parse_yaml, read_bytes
from .names import AVERAGED, MODEL, parse_name

OPTIMIZER, STATE, MANIFEST = "optimizer.npz", "state.json", "manifest.json"
ABOUT, SAMPLES, EVALUATION = "about.yaml", "samples.npz", "evaluation.json"
_OURS = (MODEL, AVERAGED, OPTIMIZER, STATE, ABOUT, SAMPLES)

_BLOCK_BYTES = 32 << 20  # of a file that is hashed while another thread may read it
_LARGEST_BYTES = 16 << 20  # of a file of JSON or YAML; ours have some kilobytes
_LARGEST_NUMBER = 1 << 53
_DEEPEST, _MOST_VALUES = 32, 1_000_000


class Damaged(Exception):
    """A checkpoint is incomplete or has changed on disk."""


def fingerprint(path: Path) -> Dict[str, Any]:
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
    ours = {name for name in _OURS if (directory / name).exists()}
    for name in sorted({MODEL, OPTIMIZER, STATE, *ours, *files}):
        path, expected = directory / name, files.get(name)
        if not path.is_file():
            raise Damaged(f"{path} is missing")
        damage = _damage(path, expected)
        if damage:
            raise Damaged(damage)
    read_state(directory)
    if (directory / ABOUT).exists():
        try:
            read_about_file(directory / ABOUT)
        except UserError as error:
            raise Damaged(str(error).partition(";")[0]) from error


def _damage(path: Path, expected: Optional[Dict[str, Any]]) -> Optional[str]:
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


@contextlib.contextmanager
def intact(path: Path) -> Iterator[None]:
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
        except Damaged as error:
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


def has_all_files(directory: Path) -> bool:
    """Whether each file has the size that the manifest says: enough for a checkpoint that this process has written."""
    try:
        return all((directory / name).stat().st_size == entry["bytes"] for name, entry in _manifest(directory).items())
    except (OSError, Damaged):
        return False


def read_state(directory: Path) -> Tuple[Dict[str, int], Dict[str, Any]]:
    """Position and further state.

    Raises:
        Damaged: they cannot be read, or are not what a training of that name can have saved.
    """
    file = directory / STATE
    position, extra = _parsed(file, _state)
    name = parse_name(directory.name)
    said = {"epoch": position["epoch"], "update": position["update"]}
    if name and (said[name.kind] != name.number or (name.kind == "epoch" and position["consumed"])):
        raise Damaged(f"{file} is of another checkpoint: {_shown(position)}")
    return position, extra


def read_position(directory: Path) -> Optional[Dict[str, int]]:
    """Where in the training it was saved; None where it does not say."""
    try:
        return read_state(directory)[0]
    except Damaged:
        return None


def read_best(directory: Path) -> Optional[Dict[str, Any]]:
    """The best evaluation so far, if this checkpoint's own has been noted; None while it is due, also if what was noted
    cannot be read: it is then done again."""
    try:
        return _parsed(directory / EVALUATION, lambda content: _best(_mapping(content)["best"]))
    except Damaged:
        return None


def read_about_file(file: Path) -> Dict[str, Any]:
    """The content of an ``about.yaml``: plain values, with mappings where this package reads mappings.

    Raises:
        UserError: it cannot be read, or says something else.
    """
    advice = "remove the file to continue without it"
    try:
        content = parse_yaml(_bytes(file))
    except (OSError, ValueError, MemoryError) as error:
        raise UserError(f"{file} cannot be read ({_reason(error)}); {advice}") from error
    if not isinstance(content, dict):
        raise UserError(f"{file}: expected a mapping of names to values; {advice}")
    try:
        _require_plain(content)
        data = content.get("data")
        _require(all(isinstance(content.get(name) or {}, dict) for name in ("input", "data", "settings", "versions")))
        for of_split in (data or {}).values():
            _require(isinstance(_mapping(of_split or {}).get("classes") or [], list))
    except ValueError as error:
        raise UserError(f"{file}: expected mappings for input, data and settings; {advice}") from error
    return content


# ---- what the files must look like -------------------------------------------------------------------------------


def _manifest(directory: Path) -> Dict[str, Dict[str, Any]]:
    return _parsed(directory / MANIFEST, _files_of)


def _files_of(content: Any) -> Dict[str, Dict[str, Any]]:
    files = _mapping(_mapping(content)["files"])
    _require(content["format"] == 1)
    for name, entry in files.items():
        _require(bool(re.fullmatch(r"[^/\\\0]{1,255}", name)) and name not in (".", "..", MANIFEST))
        _require(set(_mapping(entry)) == {"bytes", "sha256"})
        _count(entry["bytes"])
        _require(isinstance(entry["sha256"], str) and bool(re.fullmatch(r"[0-9a-f]{64}", entry["sha256"])))
    return files


def _state(content: Any) -> Tuple[Dict[str, int], Dict[str, Any]]:
    position, extra = (_mapping(_mapping(content)[name]) for name in ("position", "extra"))
    for name in ("epoch", "consumed", "update"):
        _count(position[name])
    _require_plain(extra, numbers_are_finite=True)
    if extra["best"] is not None:
        _best(extra["best"])
    _require(isinstance(extra.get("evaluation_due", False), bool))
    _require(_count(extra["global_batch_size"]) > 0)
    for name in ("weights_digest", "paddle"):
        _require(isinstance(extra.get(name, ""), str))
    _require(isinstance(extra.get("seed", 0), int))
    scaler = _mapping(extra["scaler"])
    if scaler:
        (scale,) = [scaler["scale"]] if isinstance(scaler["scale"], float) else scaler["scale"]
        _require(all(isinstance(scaler[name], (int, float)) for name in _SCALER) and scale > 0)
    return position, extra


# What ``paddle.amp.GradScaler.state_dict`` has besides its scale, and cannot be restored without.
_SCALER = (
    "incr_ratio decr_ratio incr_every_n_steps decr_every_n_nan_or_inf incr_count decr_count "
    "use_dynamic_loss_scaling".split()
)


def _best(best: Any) -> Dict[str, Any]:
    _require(isinstance(_mapping(best)["name"], str) and isinstance(best["value"], (int, float)))
    _require(math.isfinite(best["value"]) and isinstance(best.get("line", ""), str))
    _count(best["epoch"])
    return best


def _parsed(file: Path, read: Callable[[Any], Any]) -> Any:
    """What ``read`` makes of a file of JSON; it raises ValueError, KeyError or TypeError where it cannot."""
    try:
        return read(parse_json(_bytes(file)))
    except (OSError, ValueError, TypeError, MemoryError) as error:
        raise Damaged(f"{file} cannot be read ({_reason(error)})") from error
    except KeyError as error:
        raise Damaged(f"{file} does not say {_shown(error.args[0])}") from error


def _bytes(file: Path) -> bytes:
    if not file.is_file():  # a pipe would be waited for
        raise FileNotFoundError(errno.ENOENT, "no such file")
    return read_bytes(file, _LARGEST_BYTES)


def _reason(error: Exception) -> str:
    text = (error.strerror or "") if isinstance(error, OSError) else str(error)
    return _shown(text or type(error).__name__)


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError("it holds something that is never written there")


def _mapping(value: Any) -> Dict[str, Any]:
    _require(isinstance(value, dict))
    return value


def _count(value: Any) -> int:
    _require(type(value) is int and 0 <= value <= _LARGEST_NUMBER)
    return value


def _require_plain(value: Any, numbers_are_finite: bool = False) -> None:
    """Nothing is nested without end, and numbers are of a size that counts and loss scales can have."""
    left = [(value, 0)]
    for _ in range(_MOST_VALUES):
        if not left:
            return
        item, depth = left.pop()
        if isinstance(item, (dict, list)):
            _require(depth < _DEEPEST)
            left += [(inner, depth + 1) for inner in (item.values() if isinstance(item, dict) else item)]
        elif isinstance(item, (int, float)):
            _require(not numbers_are_finite or abs(item) <= _LARGEST_NUMBER)
    _require(False)


def _shown(value: Any) -> str:
    text = str(value)
    text = text if text.isprintable() else ascii(text)
    return text if len(text) <= 160 else text[:157] + "..."
