"""Rewrite a dataset in parallel as tar files of smaller JPEGs or of decoded pages; it continues after an interruption.

Next to the tar files are ``prepared.json`` with the settings, ``classes.txt`` if the classes have names, and
``quarantine.tsv`` if images were skipped. In a tar file, ``000000017.jpg`` is followed by ``000000017.json`` with its
label and the path of its source. A page is a PPM or PGM file; a crop reads only its rows (``data/parts.py``).
"""

import contextlib
import functools
import io
import os
import tarfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from PIL import Image

from ...core.data.prepare_workers import check_stop, spans, work
from ...core.runtime.errors import UserError
from ...core.runtime.files import atomic_file, is_temporary
from ...core.runtime.json_format import format_json
from ...core.runtime.outages import read_through_outages
from ..data.image_dataset import FILE as CLASSES_FILE
from ..data.prepared import FILE as RECORD_FILE
from ..data.prepared import Preparation, read_preparation, write_preparation
from ..data.quarantine import QUARANTINE_FILE, UnreadableFile, read_quarantine, write_quarantine
from ..data.reading import ReadConfig, UnreadableImage, open_image, orientation, raise_as_unreadable

JPEG, PAGES = STORED = "jpeg", "pages"


class ShardSettings(NamedTuple):
    """Settings of the tar files."""

    shorter_side: int  # limit in pixels
    quality: int  # of JPEG
    shard_size: int  # images in each tar file
    skip_bad: bool = False  # skip unreadable images
    stored: str = JPEG  # one of STORED


def prepare_shards(
    datasets: dict[str, Any], source: str, output: Path, settings: ShardSettings, workers: int
) -> Preparation:
    """Write ``datasets`` by split to tar files in ``output`` and return its record; ``source`` is the data's path.

    Raises:
        UserError: ``output`` has other content, an image is unreadable and not to be skipped, or the disk is full.
    """
    first = next(iter(datasets.values()))
    num_classes = max(data.num_classes for data in datasets.values())
    preparation = Preparation(
        source=source,
        shorter_side=settings.shorter_side,
        quality=settings.quality,
        shard_size=settings.shard_size,
        num_classes=num_classes,
        fingerprints={subset: data.content_key for subset, data in datasets.items()},
        stored=settings.stored,
    )
    start_time = time.time()
    _begin(output, preparation)
    if first.class_names:
        with atomic_file(output / CLASSES_FILE) as out:
            out.write("".join(f"{name}\n" for name in first.class_names).encode("utf-8", "surrogateescape"))
    names = []
    jobs = []
    for split, dataset in datasets.items():
        for number, (start, end) in enumerate(spans(len(dataset), settings.shard_size)):
            names.append(f"{split}-{number:05d}")
            if not (output / f"{names[-1]}.tar").exists():
                jobs.append((end - start, (dataset, start, end, str(output / names[-1]), source, settings)))
    for _ in work(_write_shard, jobs, workers, sum(images for images, _ in jobs), "preparing"):
        pass
    for abandoned in output.glob("*.*.tmp"):  # from a killed run
        with contextlib.suppress(FileNotFoundError):  # newer files belong to another run, which may rename them now
            if abandoned.stat().st_mtime < start_time:
                abandoned.unlink()
    not_opened = sum(d.skipped_files.num_images for d in datasets.values() if d.skipped_files)
    num_skipped = _gather_bad(output, names) + not_opened
    preparation = msgspec.structs.replace(preparation, complete=True, left_out=num_skipped)
    write_preparation(output, preparation)
    return preparation


def _begin(output: Path, preparation: Preparation) -> None:
    """Create ``output``, or check that its contents belong to this preparation."""
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{output} cannot be created: {error.strerror}; choose another folder") from error
    existing = read_preparation(str(output), unfinished=True)
    if existing is None:
        if not all(is_temporary(file.name) for file in output.iterdir()):  # such as this record's, from a killed run
            raise UserError(f"{output} is not empty and has no {RECORD_FILE}; choose a new folder")
    else:
        difference = existing.difference(preparation)
        if difference:
            raise UserError(
                f"{output} was prepared with other settings ({difference}); give the same ones or choose a new folder"
            )
        if existing.complete:
            return
    write_preparation(output, preparation)


def _write_shard(dataset: Any, first: int, end: int, base: str, source: str, settings: ShardSettings) -> None:
    """Write the images ``first`` to ``end - 1`` to ``base.tar``, and the unreadable ones to ``base.unreadable``."""
    bad: list[UnreadableFile] = []
    with atomic_file(Path(f"{base}.tar")) as out:
        with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for index in range(first, end):
                check_stop()
                path = dataset.describe(index)
                try:
                    encoded = read_through_outages(functools.partial(dataset.encoded, index), was_there=True)
                    suffix, content = shrink_image(encoded, path, dataset.reading, settings)
                except UnreadableImage as error:
                    if not settings.skip_bad:
                        raise UserError(
                            f"{error}; repair it, or skip such images with --on_bad_sample=skip "
                            "(prepare images IN without OUT lists them all)"
                        ) from error
                    bad.append(UnreadableFile.from_error(error))
                    continue
                facts = {"label": int(dataset.labels[index]), "source": os.path.relpath(path, source)}
                _add(tar, f"{index:09d}{suffix}", content)
                _add(tar, f"{index:09d}.json", format_json(facts).encode("ascii"))
        if bad:  # before the tar file exists, which marks the work as done
            write_quarantine(Path(f"{base}.unreadable"), bad)


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def shrink_image(encoded: bytes, path: str, reading: ReadConfig, settings: ShardSettings) -> tuple[str, bytes]:
    """Return suffix and content of the image's new file, whose shorter side is at most the setting.

    A JPEG that is small enough is copied unchanged, unless pages are stored. Raises UnreadableImage.
    """
    with raise_as_unreadable(path), open_image(encoded, path, reading) as image:
        turned = orientation(image)
        kind = image.format
        image.load()  # also detects damage in an image that is only copied
        shorter = min(image.size)
        is_page = settings.stored == PAGES and turned == 1  # a page cannot store an orientation
        if kind == "JPEG" and shorter <= settings.shorter_side and not is_page:
            return ".jpg", encoded
        pixels = image if image.mode == "L" else image.convert("RGB")
    if shorter > settings.shorter_side:
        size = tuple(max(1, round(side * settings.shorter_side / shorter)) for side in pixels.size)
        pixels = pixels.resize(size, Image.Resampling.BICUBIC)
    out = io.BytesIO()
    if is_page:
        pixels.save(out, "PPM")
        return ".pgm" if pixels.mode == "L" else ".ppm", out.getvalue()
    exif = Image.Exif()
    if turned != 1:  # the pixels are not turned, so the orientation is stored
        exif[0x0112] = turned
    pixels.save(out, "JPEG", quality=settings.quality, exif=exif.tobytes() if turned != 1 else b"")
    return ".jpg", out.getvalue()


def _gather_bad(output: Path, names: list[str]) -> int:
    """Merge the lists of the tar files; return the number of skipped images."""
    parts = [output / f"{name}.unreadable" for name in names]
    unreadable = [line for file in parts if file.exists() for line in read_quarantine(file)]
    if unreadable:
        write_quarantine(output / QUARANTINE_FILE, unreadable)
    elif (output / QUARANTINE_FILE).exists():
        return len(read_quarantine(output / QUARANTINE_FILE))
    for part in parts:
        part.unlink(missing_ok=True)
    return len(unreadable)
