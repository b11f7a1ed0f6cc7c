"""Which files are images, as decided by the installed Pillow rather than a fixed list, and what else looks like one."""

from __future__ import annotations

import functools
import importlib
import os
import re
from typing import Dict, FrozenSet, Optional, Tuple

from PIL import Image, ImageFile, features

# Registered with Pillow, but not read from datasets: EPS starts Ghostscript on the file, MPEG has no decoder.
_NEVER_READ = ("EPS", "MPEG")
_OPENED_AS = {"MPO": "JPEG"}  # registered as a separate format, but opened by another format's reader

_HEIF_SUFFIXES = (".heic", ".heics", ".heif", ".heifs", ".hif")
_AVIF_SUFFIXES = (".avif", ".avifs")
HEIF_HINT = "pip install pillow-heif"
_AVIF_HINT = "pip install -U pillow"
_CONVERT_HINT = "convert to PNG or JPEG"
_RAW = ".3fr .arw .cr2 .cr3 .dng .erf .iiq .kdc .mrw .nef .nrw .orf .pef .raf .raw .rw2 .sr2 .srf .srw .x3f"
_OTHERS = ".jxl .jxr .wdp .hdp .exr .hdr .svg .svgz .eps .ps .wmf .emf .dcm .xcf .webp .jp2 .j2k .jpx .tif .tiff"
# Suffixes of images that some Pillow versions cannot open, and what to do about them.
_PICTURE_HINTS: Dict[str, str] = {
    **dict.fromkeys(f"{_RAW} {_OTHERS}".split(), _CONVERT_HINT),
    **dict.fromkeys(_AVIF_SUFFIXES, _AVIF_HINT),
    **dict.fromkeys(_HEIF_SUFFIXES, HEIF_HINT),
}

# Files that operating systems and NAS devices leave next to images, in lower case, besides those with a leading dot.
_SYSTEM_NAMES = frozenset((b"thumbs.db", b"ehthumbs.db", b"desktop.ini", b"__macosx", b"@eadir", b"$recycle.bin"))

_PLAIN_SUFFIX = re.compile(rb"\.[a-z0-9_~-]{1,12}")
_HEIF_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"heif")
_AVIF_BRANDS = (b"avif", b"avis")
HEAD_BYTES = 16


@functools.lru_cache(maxsize=None)
def readable_formats() -> Tuple[str, ...]:
    """Pillow's names for the formats that are read from datasets, the common ones first.

    Formats that Pillow only recognises (stubs) or hands to another program are excluded. HEIF is included if
    pillow-heif is installed.
    """
    _register_heif()
    Image.init()
    return tuple(name for name in Image.ID if name not in _NEVER_READ and _decodes(name))


@functools.lru_cache(maxsize=None)
def readable_suffixes() -> FrozenSet[bytes]:
    """Lower-case suffixes of the images that this installation can open, such as ``b".jpg"``."""
    formats = readable_formats()
    registered = Image.registered_extensions()
    return frozenset(
        os.fsencode(suffix.lower()) for suffix, name in registered.items() if _OPENED_AS.get(name, name) in formats
    )


def _register_heif() -> None:
    try:
        plugin = importlib.import_module("pillow_heif")
    except ImportError:
        return
    plugin.register_heif_opener()


def _decodes(name: str) -> bool:
    factory = Image.OPEN[name][0]
    if isinstance(factory, type) and issubclass(factory, ImageFile.StubImageFile):
        return False
    if name == "JPEG2000":
        return features.check_codec("jpg_2000")
    return name != "WEBP" or name in Image.SAVE  # recognised by every Pillow, but saved only if its library is there


def is_hidden(name: bytes) -> bool:
    """Whether a file or folder of this name is silently ignored, e.g. ``.DS_Store``, ``._1.jpg``, ``Thumbs.db``."""
    return name.startswith(b".") or name.lower() in _SYSTEM_NAMES


def suffix_of(name: bytes) -> bytes:
    """The lower-case suffix of a file name including the dot; empty if it has none, or nothing that looks like one."""
    at = name.rfind(b".")
    suffix = name[at:].lower()
    return suffix if at > 0 and _PLAIN_SUFFIX.fullmatch(suffix) else b""


def hint_of(suffix: str) -> Optional[str]:
    """What to do about an image with this suffix that cannot be opened; None if it is not an image suffix."""
    return _PICTURE_HINTS.get(suffix)


def picture_kind(head: bytes) -> Optional[str]:
    """The image type of a file according to its first 16 bytes, None if they are not those of an image.

    Only formats with an unambiguous signature are recognised.
    """
    if head[4:8] == b"ftyp":
        return "HEIC" if head[8:12] in _HEIF_BRANDS else "AVIF" if head[8:12] in _AVIF_BRANDS else None
    if head.startswith(b"RIFF"):
        return "WebP" if head[8:12] == b"WEBP" else None
    for beginning, kind in (
        (b"\xff\xd8\xff", "JPEG"),
        (b"\x89PNG\r\n\x1a\n", "PNG"),
        (b"GIF87a", "GIF"),
        (b"GIF89a", "GIF"),
        (b"II*\0", "TIFF"),
        (b"MM\0*", "TIFF"),
        (b"\0\0\0\x0cjP  \r\n\x87\n", "JPEG 2000"),
        (b"\xff\x0a", "JPEG XL"),
        (b"\0\0\0\x0cJXL \r\n\x87\n", "JPEG XL"),
    ):
        if head.startswith(beginning):
            return kind
    return None
