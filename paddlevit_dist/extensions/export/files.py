"""Find the files of an exported model and read its description; needs neither Paddle nor onnxruntime."""

import io
import mmap
import os
from pathlib import Path
from typing import IO, Any, NamedTuple

from ...core.checkpoint.about_schema import ABOUT
from ...core.checkpoint.records import parse_about
from ...core.runtime.errors import UserError
from ...core.runtime.files import open_regular, readable
from ...core.runtime.printing import shorten
from ...core.runtime.run_folders import suggest_runs
from ...core.runtime.text_files import LARGEST_YAML_BYTES, parse_yaml, read_bytes

ONNX, PARAMETERS = ".onnx", ".pdiparams"
ONNX_WEIGHTS = f"{ONNX}.data"  # of a model that exceeds the size of an ONNX file
PROGRAMS = (".json", ".pdmodel")  # Paddle 3, Paddle 2.6
PROPERTY = "about"  # of an ONNX file, with its description
_ADVICE = "; export the model again or remove the file"
_WORDS = ("classes",)  # keys whose values stay as written
_VARINT, _BYTES, _FIXED = 0, 2, {1: 8, 5: 4}  # types of fields in ONNX files, and bytes of those that have one length
_PROPERTIES, _KEY, _VALUE = 14, 1, 2  # numbers of fields
_QUANTIZES = b"uantizeLinear"  # Quantize, Dequantize, DynamicQuantize: names of operators are plain text in the file
_MOST_FIELDS = 100_000
_SMALL = 1 << 10  # bytes of an entry in addition to its value
_EXPECTED = (
    f"expected a run's folder, MODEL{ONNX}, or MODEL{PARAMETERS} with MODEL.json or MODEL.pdmodel; to evaluate "
    "weights without an about.yaml, use -cfg and -pretrained"
)


class ExportedModel(NamedTuple):
    """An exported model."""

    file: Path  # the ONNX file, or the file of Paddle's parameters
    about: dict[str, Any]  # the description that ``export`` wrote; empty for models of other programs
    described_by: Path = Path()  # the file that has it: an ONNX file itself, or its neighbor
    note: str = ""  # that the neighbor of an ONNX file describes another model, or ""

    @property
    def is_onnx(self) -> bool:
        """Whether this is an ONNX file; if not, it is an inference model of Paddle."""
        return self.file.suffix == ONNX

    @property
    def prefix(self) -> str:
        """The common path of its files, without extension."""
        return str(self.file.with_suffix(""))

    def weights(self) -> str | None:
        """Return the path of the weights that the model was exported from; None if the description has none."""
        weights = self.about.get("weights")
        return weights if isinstance(weights, str) else None


def is_quantized(file: Path) -> bool:
    """Return whether an ONNX file, of any program, converts numbers to integers or back: it has operators for that."""
    with readable(file, _ADVICE), open_regular(file) as stream, mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ) as m:
        return m.find(_QUANTIZES) >= 0


def parse_evaluated_argument(word: str) -> tuple[str, str | None, str] | None:
    """Translate the argument of ``evaluate MODEL.onnx`` to KEY=VALUE; None if it does not name an exported model.

    Return also the path of the weights that the model was exported from, if known, and why there is no such model.
    """
    path = Path(os.path.expanduser(word))
    is_path = "=" not in word and ("/" in word or path.suffix in (ONNX, PARAMETERS, ".pdmodel"))
    files = _candidates(path)
    if not is_path and not files:
        return None
    try:
        return f"EXPORTED={word}", find_exported(word).weights(), ""
    except UserError as error:
        return f"EXPORTED={word}", None, str(error)


def find_exported(source: str) -> ExportedModel:
    """Find the exported model of a path: one of its files, the path without extension, or its folder.

    Raises:
        UserError: there are no or several exported models, or the description is damaged.
    """
    path = Path(os.path.expanduser(source))
    files = _candidates(path)
    if len(files) > 1:
        raise UserError(f"EXPORTED {source}: several models: {', '.join(map(str, files))}: name one of them")
    if not files:
        if not os.path.lexists(path):  # what was meant is unknown
            raise UserError(f"{shorten(source)} does not exist; {_EXPECTED}{suggest_runs(source)}")
        reason = "contains no exported model" if os.path.isdir(path) else "is not an exported model"
        raise UserError(f"EXPORTED {source}: {reason}; {_EXPECTED}")
    (file,) = files
    if file.suffix == PARAMETERS and not any(file.with_suffix(ending).is_file() for ending in PROGRAMS):
        raise UserError(f"EXPORTED {source}: the .json or .pdmodel of {file} is missing; {_EXPECTED}")
    return _describe(file)


def read_exported_about(source: str) -> tuple[str, dict[str, Any]]:
    """Return the file that describes the exported model of a path, and its content; UserError as ``find_exported``."""
    model = find_exported(source)
    return str(model.described_by), model.about


def explain_undescribed(model: ExportedModel) -> str:
    """Return why a model of this package may have no description; "" if nothing speaks for that."""
    if not model.is_onnx:
        beside = model.described_by
        return (
            "" if beside.is_file() else f"{beside} is missing: export writes it next to {model.file.name}: copy it, too"
        )
    is_whole = model.file.stat().st_size > 0 and _read_fields(model.file)[1]
    return (
        "" if is_whole else f"{model.file} is damaged, or is not an ONNX file: copy it again or export the model again"
    )


def _describe(file: Path) -> ExportedModel:
    """Read the description of the model in ``file``: the one inside of an ONNX file, else the one next to it."""
    neighbor = file.with_name(f"{file.stem}.{ABOUT}")
    beside: dict[str, Any] = {}
    if neighbor.is_file():
        with readable(neighbor, _ADVICE):
            content = read_bytes(neighbor, LARGEST_YAML_BYTES)
        beside = as_mapping(parse_about(content, str(neighbor), _WORDS, _ADVICE.removeprefix("; ")))
    inside = read_property(file) if file.suffix == ONNX else None
    if inside is None or _is_text(inside):  # text of another program
        return ExportedModel(file, beside, neighbor)
    about = as_mapping(parse_about(inside, f"{file}: its property '{PROPERTY}'", _WORDS, "export the model again"))
    others = [name for name, value in about.items() if beside and beside.get(name) != value]
    note = f"note: {neighbor} is not of {file} ({shorten(', '.join(others), 80)}): the description in the file is used"
    return ExportedModel(file, about, file, note if others else "")


def _is_text(content: bytes) -> bool:
    """Return whether YAML is nothing but text."""
    try:
        return isinstance(parse_yaml(content), str)
    except ValueError:
        return False


def as_mapping(value: object) -> dict[str, Any]:
    """Return a dict unchanged, and an empty dict for any other value."""
    return value if isinstance(value, dict) else {}


def read_property(file: Path) -> bytes | None:
    """Read the description inside an ONNX file of this package; None without one, or if it is not ONNX.

    It is JSON, of earlier versions YAML.

    Only the outermost fields of the file are looked at, not its weights. Source: onnx.proto, ``ModelProto`` and
    ``StringStringEntryProto``; each field has a varint of its number and type, then a varint, bytes or their length.
    """
    return _read_fields(file)[0]


def _read_fields(file: Path) -> tuple[bytes | None, bool]:
    """Return what ``read_property`` does, and whether the outermost fields end where the file does."""
    found = None
    with readable(file), open_regular(file, "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        for _ in range(_MOST_FIELDS):
            tag, length = _read_varint(stream), 0
            if tag is None:
                return found, True
            if tag & 7 == _BYTES:
                number = _read_varint(stream)
                length = size if number is None else number
            elif tag & 7 == _VARINT:
                _read_varint(stream)
            else:
                length = _FIXED.get(tag & 7, size)
            if stream.tell() + length > size:
                return None, False
            if tag >> 3 == _PROPERTIES and length <= LARGEST_YAML_BYTES + _SMALL:
                entry = _read_entry(io.BytesIO(stream.read(length)))
                found = entry.get(_VALUE, b"") if entry.get(_KEY) == PROPERTY.encode() else found
            else:
                stream.seek(length, os.SEEK_CUR)
    return found, True


def _read_entry(stream: io.BytesIO) -> dict[int, bytes]:
    """Read the fields of an entry of properties. All are text."""
    fields: dict[int, bytes] = {}
    while (tag := _read_varint(stream)) is not None and tag & 7 == _BYTES:
        fields[tag >> 3] = stream.read(_read_varint(stream) or 0)
    return fields


def _read_varint(stream: IO[bytes]) -> int | None:
    """Read a number of seven bits a byte, the lowest first; None at the end of the file."""
    value = 0
    for shift in range(0, 70, 7):
        byte = stream.read(1)
        if not byte:
            return None
        value |= (byte[0] & 127) << shift
        if byte[0] < 128:
            return value
    return None


def _candidates(path: Path) -> list[Path]:
    """List the weight files that a path may refer to; empty if the path is invalid, such as a too long name."""
    try:
        if path.is_dir():
            files = sorted(file for file in path.iterdir() if file.suffix in (ONNX, PARAMETERS))
        elif path.suffix in (ONNX, PARAMETERS, *PROGRAMS):
            files = [path.with_suffix(PARAMETERS) if path.suffix in PROGRAMS else path]
        else:
            files = [path.with_name(path.name + ending) for ending in (ONNX, PARAMETERS)]
        return [file for file in files if file.is_file()]
    except (OSError, ValueError):
        return []
