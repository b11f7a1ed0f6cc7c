"""Headers of MetaImage and NRRD, looked at before the library that reads them is.

That library keeps words in buffers of a fixed length, and ends the process where a line is not as it expects: what is
longer than any honest header is refused here. And which other files they name, and whether those are beside them:
a header can name any file of the machine, whose content would then be taken for voxels and end up in predictions. Only
plain names are allowed, of files in the header's own folder. Every line that the library could take for such a name is
looked at, since its grammar is wider than the format's: MetaImage's also splits at a colon, and goes on in the middle
of a very long line.
"""

import glob
import os
import re

from ..runtime.errors import UserError

_LONGEST_HEADER = 1 << 20
_LONGEST_LINE, _LONGEST_WORD = 1000, 100  # of what is no comment and no remark
_MOST_AXES = 8
_REMARK = re.compile(r"#|[^:=]*:=")  # NRRD's comments, and its key:=value, which are the user's own
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_AXES = re.compile(r"^\s*(?:NDims|dimension)\s*[=:](.*)", re.IGNORECASE | re.MULTILINE)
_META_FILE = re.compile(r"ElementDataFile\s*[=:]?(.*)", re.IGNORECASE)
_NRRD_FILE = re.compile(r"^\s*data ?file\s*:(.*)", re.IGNORECASE)
_LOCAL = re.compile(rb"^ElementDataFile\s*[=:]\s*(?:LOCAL|Local|local)[ \t]*\n", re.MULTILINE)
_PACKED = re.compile(r"^\s*CompressedData\s*[=:]\s*T|^\s*encoding\s*:\s*(?:gz|bz)", re.IGNORECASE | re.MULTILINE)
_TEXT = re.compile(r"^\s*BinaryData\s*[=:]\s*F|^\s*encoding\s*:\s*(?:text|txt|ascii)", re.IGNORECASE | re.MULTILINE)
_NUMBERED = re.compile(r"%[-+ 0#]*\d*d")


def require_plain(header: str) -> None:
    """Refuse a header with lines and numbers that none has.

    Raises:
        UserError: names the line.
    """
    text = _text_of(header)
    for number, line in enumerate(text.split("\n"), 1):
        if _REMARK.match(line) and not _is_meta(header):
            continue
        is_too_long = len(line) > _LONGEST_LINE or any(len(word) > _LONGEST_WORD for word in line.split())
        if is_too_long or _CONTROL.search(line):
            raise UserError(
                f"{header}, line {number}: not a line of such a header ({ascii(line[:40])}); is the file damaged? "
                "Copy it again"
            )
    for axes in _AXES.findall(text):
        if axes.strip() not in map(str, range(1, _MOST_AXES + 1)):
            raise UserError(f"{header} announces {ascii(axes.strip()[:40])} axes, expected 3; copy the file again")


def named_files(header: str) -> list[str]:
    """Paths of the files beside ``header`` that hold its voxels, there or not; none if it holds them itself.

    Raises:
        UserError: it names one in another place.
    """
    folder, found = os.path.dirname(header), []
    for name in _names(_text_of(header), _META_FILE if _is_meta(header) else _NRRD_FILE):
        if "/" in name or "\\" in name or name == "..":
            raise UserError(
                f"{header} names {ascii(name[:80])} as the file of its voxels; only one beside the header is read: "
                "copy it there and write its name alone"
            )
        if "%" in name:  # numbered files: "slice%03d.raw 1 20 1"
            pattern = _NUMBERED.sub("*", glob.escape(name.split()[0]))
            found += sorted(glob.glob(os.path.join(glob.escape(folder), pattern)))
        else:
            found.append(os.path.join(folder, name))
    return found


def _names(text: str, pattern: re.Pattern[str]) -> list[str]:
    """What any line says after the word for the file of the voxels; after LIST, all lines that follow."""
    names = []
    lines = text.split("\n")
    for number, line in enumerate(lines):
        said = pattern.search(line)
        if said is None:
            continue
        name = said.group(1).strip()
        if name.split()[:1] == ["LIST"]:
            names += [line.strip() for line in lines[number + 1 :]]
        elif name.upper() != "LOCAL":
            names.append(name)
    return [name for name in names if name]


def require_beside(header: str) -> list[str]:
    """``named_files``, each of which is there, as a regular file.

    Raises:
        UserError: one is missing, in another place, or no regular file.
    """
    files = named_files(header)
    for file in files:
        if not os.path.lexists(file):
            raise UserError(f"{header}: its voxels are in {file}, which does not exist; copy it beside the header")
        if not os.path.isfile(file):
            raise UserError(f"{header}: its voxels are in {file}, which is not a file; copy the file there")
    return files


def is_packed(header: str) -> bool:
    """Whether the voxels are compressed."""
    return _PACKED.search(_text_of(header)) is not None


def is_text(header: str) -> bool:
    """Whether the voxels are written as numbers in text."""
    return _TEXT.search(_text_of(header)) is not None


def _is_meta(header: str) -> bool:
    return header.lower().endswith((".mha", ".mhd"))


def _text_of(header: str) -> str:
    """The lines of a header, up to the voxels that may follow in the same file."""
    with open(header, "rb") as content:
        text = content.read(_LONGEST_HEADER + 1)
    text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if _is_meta(header):
        local = _LOCAL.search(text)
        ended, text = local is not None, text[: local.end()] if local else text
    else:
        text, ended, _ = text.partition(b"\n\n")
    if not ended and len(text) > _LONGEST_HEADER:
        raise UserError(f"{header}: its header has no end within {_LONGEST_HEADER:,} bytes; write the file again")
    return text.decode("latin-1")
