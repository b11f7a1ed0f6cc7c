"""Which files are images: those that the installed Pillow opens. Other files are counted, never dropped silently."""

import functools
import importlib
import itertools
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from PIL import Image, ImageFile, features

from ...core.runtime.errors import UserError
from ...core.runtime.files import is_folder, open_regular
from ...core.runtime.outages import read_through_outages

# Names of the folders and files of each split.
SPLIT_WORDS = {"train": ("train", "training"), "val": ("val", "valid", "validation"), "test": ("test", "testing")}
SPLIT_FOLDERS = tuple(word for words in SPLIT_WORDS.values() for word in words)
# Words that folders of splits have in addition, such as seg_train and "Train images".
_SET_WORDS = frozenset(("set", "sets", "data", "dataset", "images", "image", "imgs", "img", "seg", "split", "samples"))
_SHORT_WORDS = {"tr": "train", "ts": "test"}  # next to a word of a set
_SET_ENDING = re.compile(r"(?<=[a-z])(?:sets?|data|images?|imgs?)$")
PACKED_TARS = (".tar.gz", ".tgz", ".tar.bz2", ".tbz", ".tar.xz", ".txz", ".tar.zst")

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
# Suffixes of images that some Pillow versions cannot open, and the remedy.
_IMAGE_HINTS: dict[str, str] = {
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
_SHOWN_SUFFIXES = 8
_SHOWN_NAMES = 3  # of the members of tar files that are not read
# Files that systems and authors put next to images.
_HARMLESS = frozenset(
    (b"thumbs.db", b"ehthumbs.db", b"desktop.ini", b"readme", b"readme.txt", b"readme.md", b"license")
)
# Text files that accompany images by the thousand; they are not opened.
_TEXT_SUFFIXES = frozenset((b".txt", b".json", b".csv", b".tsv", b".xml", b".yaml", b".yml", b".md", b".cls", b".html"))


@functools.cache
def readable_formats() -> tuple[str, ...]:
    """Return Pillow's names for the formats that are read from datasets, the common ones first.

    Formats that Pillow only recognizes (stubs) or hands to another program are excluded. HEIF is included if
    pillow-heif is installed.
    """
    _register_heif()
    Image.init()
    return tuple(name for name in Image.ID if name not in _NEVER_READ and _decodes(name))


@functools.cache
def readable_suffixes() -> frozenset[bytes]:
    """Return the lower-case suffixes of the images that this installation can open, such as ``b".jpg"``."""
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
    return name != "WEBP" or name in Image.SAVE  # every Pillow recognizes it, but saves it only with its library


def is_hidden(name: bytes) -> bool:
    """Return whether a file or folder of this name is silently ignored, such as ``.DS_Store`` or ``Thumbs.db``."""
    return name.startswith(b".") or name.lower() in _SYSTEM_NAMES


def is_hidden_path(path: bytes) -> bool:
    """Return whether any part of a path is hidden."""
    return any(is_hidden(part) for part in path.split(b"/") if part not in (b".", b".."))


def is_image_name(path: bytes) -> bool:
    """Return whether a path is that of an image that can be opened here, and is not hidden."""
    return get_suffix(os.path.basename(path)) in readable_suffixes() and not is_hidden_path(path)


def walk_files(top: bytes, refused: Callable[[bytes, str], None]) -> Iterator[os.DirEntry[bytes]]:
    """Yield all files below a folder, links followed, and hidden folders, which are not entered.

    ``refused`` is called with a folder that cannot be listed and the reason; it may raise.
    """
    folders: list[tuple[bytes, frozenset[tuple[int, int]]]] = [(top, frozenset())]
    while folders:  # no recursion: trees may be deeper than Python's stack
        folder, parents = folders.pop()
        try:
            status = read_through_outages(functools.partial(os.stat, folder))
            file_id = status.st_dev, status.st_ino
            entries = read_through_outages(functools.partial(_scan, folder))
        except OSError as error:
            refused(folder, f"it cannot be listed: {error.strerror}")
            continue
        if file_id in parents:
            refused(folder, "it is a link to a folder that contains it; remove the link")
            continue
        for entry in entries:
            if is_folder(entry) and not is_hidden(entry.name):
                folders.append((entry.path, parents | {file_id}))
            else:
                yield entry


def _scan(folder: Any, most: int | None = None) -> list[os.DirEntry[Any]]:
    with os.scandir(folder) as entries:
        return list(itertools.islice(entries, most))


def iterate_entries(folder: str, may_be_absent: bool = False, most: int | None = None) -> Iterator[os.DirEntry[str]]:
    """Yield the entries of a folder, or the first ``most``, unordered, without hidden ones.

    A folder that cannot be listed has none if it ``may_be_absent``; else a ``UserError`` is raised.
    """
    try:
        for entry in read_through_outages(functools.partial(_scan, folder, most)):
            if not is_hidden(os.fsencode(entry.name)):
                yield entry
    except OSError as error:
        if not may_be_absent:
            raise UserError(f"folder {folder} cannot be listed: {error.strerror}") from error


def list_names(folder: str, may_be_absent: bool = False, most: int | None = None) -> list[str]:
    """Return the sorted names of ``iterate_entries``."""
    return sorted(entry.name for entry in iterate_entries(folder, may_be_absent, most))


def list_folders(folder: str, may_be_absent: bool = True, most: int | None = None) -> list[str]:
    """Return the sorted paths of the folders among ``iterate_entries``."""
    return sorted(entry.path for entry in iterate_entries(folder, may_be_absent, most) if is_folder(entry))


def split_in_name(name: str, is_whole: bool = True) -> str | None:
    """Return the split that a folder's name contains, in any case: Train, TestSet, seg_train, images_tr, training2017.

    If ``is_whole``, the name contains nothing but the split's word, numbers and words for a set of images. None: the
    name contains no split's word, or words of several splits.
    """
    spelled = re.findall("[a-z]+", re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower())
    words = {_SET_ENDING.sub("", word) for word in spelled} - _SET_WORDS
    if len(spelled) > 1 and len(words) == 1:  # images_tr
        words = {_SHORT_WORDS.get(word, word) for word in words}
    found = [split for split, own in SPLIT_WORDS.items() if words & set(own)]
    if len(found) != 1 or (is_whole and words - set(SPLIT_WORDS[found[0]])):
        return None
    return found[0]


def stems(names: Iterable[str]) -> list[str]:
    """Return the names of files without folder and suffix."""
    return [os.path.splitext(os.path.basename(name))[0] for name in names]


def get_suffix(name: bytes) -> bytes:
    """Return a file name's lower-case suffix including the dot; empty if it has none that looks like a suffix."""
    at = name.rfind(b".")
    suffix = name[at:].lower()
    return suffix if at > 0 and _PLAIN_SUFFIX.fullmatch(suffix) else b""


def find_hint(suffix: str) -> str | None:
    """Return the remedy for an image with this suffix that cannot be opened; None if it is not an image suffix."""
    return _IMAGE_HINTS.get(suffix)


def detect_image_type(head: bytes) -> str | None:
    """Return the image type of a file from the unambiguous signature in its first 16 bytes; None if there is none."""
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


class SkippedFiles:
    """The files under one folder, or in tar files, that are skipped; messages have ``place``.

    A file counts as an image if it has the suffix of an image format that cannot be opened here, or if it starts like
    an image file but has no image suffix.
    """

    def __init__(self, place: str) -> None:
        self.place = place
        self.counts: Counter[str] = Counter()  # suffix ("" for none) -> files
        self.images: Counter[str] = Counter()  # images among them
        self.example: str | None = None  # one of the images
        self.outside_classes = 0  # images next to the class folders, which therefore have no class
        self.outside_example: str | None = None
        self.num_links = 0  # images that are links to others, in tar files
        self.unusable: dict[str, list[str]] = {}  # reason, which is also in the counts -> first names

    def add(self, name: bytes, path: bytes, read_head: Callable[[], bytes]) -> None:
        """Count a file; ``read_head`` returns its first 16 bytes and is called if the name is inconclusive."""
        if name.lower() in _HARMLESS:
            return
        suffix = get_suffix(name)
        shown = suffix.decode("ascii")
        self.counts[shown] += 1
        if find_hint(shown) or (suffix not in _TEXT_SUFFIXES and detect_image_type(read_head())):
            self.images[shown] += 1
            self.example = min(self.example or os.fsdecode(path), os.fsdecode(path))

    def add_unusable(self, name: bytes, reason: str, is_lost: bool = True) -> None:
        """Count a member of a tar file that is not read for a ``reason``; an image that ``is_lost`` counts as such."""
        self.counts[reason] += 1
        path = os.path.join(self.place, os.fsdecode(name))
        if is_lost and get_suffix(name) in readable_suffixes():
            self.images[reason] += 1
            self.example = min(self.example or path, path)
        names = self.unusable.setdefault(reason, [])
        names += [os.fsdecode(name)] * (len(names) < _SHOWN_NAMES)

    def add_outside_classes(self, path: bytes) -> None:
        """Count an image that is next to the class folders."""
        self.outside_classes += 1
        self.outside_example = min(self.outside_example or os.fsdecode(path), os.fsdecode(path))

    def merge(self, other: "SkippedFiles") -> None:
        """Add the counts of a part of this folder."""
        self.counts += other.counts
        self.images += other.images
        self.num_links += other.num_links
        for reason, names in other.unusable.items():
            self.unusable[reason] = (self.unusable.get(reason, []) + names)[:_SHOWN_NAMES]
        self.example = min(filter(None, (self.example, other.example)), default=None)

    @property
    def num_images(self) -> int:
        """Number of images among the skipped files."""
        return sum(self.images.values())

    def lines(self) -> list[str]:
        """Return the log lines, one per finding."""
        lines = []
        if self.counts:
            lines.append(self.summary())
        if self.num_links:
            lines.append(f"{self.num_links:,} images in {self.place} are links to other files in it, which are read")
        if self.outside_classes:
            are = "images are" if self.outside_classes > 1 else "image is"
            lines.append(
                f"{self.outside_classes:,} {are} next to the class folders of {self.place}, without a class, and not "
                f"used: {self.outside_example}"
            )
        return lines

    def summary(self) -> str:
        """Return a line like ``skipped below my_data/train: 12 .heic (pip install pillow-heif), 3 .txt``."""
        order = sorted(self.counts, key=lambda suffix: (-self.images[suffix], -self.counts[suffix], suffix))
        shown = max(_SHOWN_SUFFIXES, sum(self.images[suffix] > 0 for suffix in order))  # all image suffixes
        parts = [self._part(suffix) for suffix in order[:shown]]
        rest = order[shown:]
        if rest:
            parts.append(f"{sum(self.counts[suffix] for suffix in rest):,} with {len(rest)} other suffixes")
        return f"skipped below {self.place}: {', '.join(parts)}"

    def _part(self, suffix: str) -> str:
        number, images = self.counts[suffix], self.images[suffix]
        if suffix in self.unusable:
            names = self.unusable[suffix]
            return f"{number:,} {suffix}: {', '.join(names)}{' ...' * (number > len(names))}"
        text = f"{number:,} {suffix or 'without suffix'}"
        if not images:
            return text
        hint = find_hint(suffix)
        if hint:
            return f"{text} ({hint})"
        which = "images" if images == number else f"{images:,} of them images"
        return f"{text} ({which} by their content: rename them, for example to .jpg)"

    def as_json(self) -> dict[str, Any]:
        """Return plain values from which ``from_json`` recreates the object."""
        return dict(self.__dict__)

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> "SkippedFiles":
        """Create the object from ``as_json`` values."""
        skipped = cls(stored["place"])
        skipped.__dict__.update(stored, counts=Counter(stored["counts"]), images=Counter(stored["images"]))
        return skipped


def read_head(path: bytes) -> bytes:
    """Read the first bytes of a file; empty if it cannot be read, since skipped files need not be readable."""
    try:
        with open_regular(path, "rb", buffering=0) as file:
            return file.read(HEAD_BYTES)
    except OSError:
        return b""
