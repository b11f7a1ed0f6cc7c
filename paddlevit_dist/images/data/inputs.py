"""Images without labels, read for predictions, and annotated copies of them."""

import io
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ...core.data.path_index import PathIndex, ensure_path_index, make_batch
from ...core.runtime.errors import UserError
from ...core.runtime.files import atomic_file, map_array
from ...core.runtime.printing import count
from ...core.tasks.dataset import TransformedDataset
from ...core.tasks.prediction import InputSamples, note_counted, output_names
from ...core.tasks.sample_checks import BadSample
from .formats import stems
from .inspection import PAGES, TURNED, list_found, note_pixels
from .listing import NO_ARCHIVE, InputListing, VideoFile, is_video
from .reading import (
    ReadConfig,
    UnreadableImage,
    convert,
    decode_image,
    has_more_pages,
    orientation,
    read_file,
    require_8_bits,
)
from .tar_files import OpenFiles

IMAGES = "pictures"  # folder
EXAMPLE_IMAGE = np.full((64, 64, 3), 128, np.uint8)  # gray
_QUALITY = 92  # of JPEG
_ENCODED = (bytes, bytearray, memoryview)
Transform = Callable[..., Any]


class IndexedNames(Sequence):
    """The listed paths of an index; the pickle contains only the name of the index."""

    def __init__(self, index: PathIndex) -> None:
        self._index = index

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, position: int | slice) -> Any:
        if isinstance(position, slice):
            return [self._index.path(number) for number in range(*position.indices(len(self)))]
        return self._index.path(position)


class InputImages(InputSamples):
    """Images with the transform of an evaluation, called with a PIL image of ``mode`` and a generator."""

    def __init__(self, transform: Transform, mode: str, reading: ReadConfig) -> None:
        self._transform, self._mode, self._reading = transform, mode, reading

    def sample(self, index: int, generator: np.random.Generator) -> Any:
        """Read and transform image ``index``; an ``UnreadableImage`` if it cannot be decoded."""
        return self._transform(self.image(index), generator)

    def image(self, index: int) -> Image.Image:
        """Read image ``index`` without the transform; ``UnreadableImage`` if damaged, ``BadSample`` if not an image."""
        raise NotImplementedError


class ImageInputs(InputImages):
    """Images listed from paths of files, folders, tar files and videos; processes map the list in ``cache_folder``."""

    def __init__(
        self, paths: Sequence[str], cache_folder: Path, transform: Transform, mode: str, reading: ReadConfig
    ) -> None:
        super().__init__(transform, mode, reading)
        listing = InputListing()
        for path in paths:
            listing.add(os.fsencode(path))
        key, images = listing.digest(paths), listing.images
        numbers = np.array([image.archive for image in images], np.int32)
        self._index = ensure_path_index(
            cache_folder, "inputs", key, lambda: [make_batch([image.name for image in images], numbers)]
        )
        self._locations_file = str(cache_folder / f"inputs-{key.hex()[:16]}.npy")
        with atomic_file(Path(self._locations_file)) as file:
            np.save(file, np.array([image[2:] for image in images], np.int64).reshape(-1, 2), allow_pickle=False)
        self.names = IndexedNames(self._index)
        self.unreadable, self._archives = listing.unreadable, listing.archives
        self._locations: np.ndarray | None = None
        self._files = OpenFiles()
        self._videos: dict[tuple[int, int], VideoFile] = {}
        notes = note_pixels(len(self.names), self._encode, self.names.__getitem__, reading.exif_rotate)
        self.notices = [*listing.notices, *notes]

    def __getstate__(self) -> Any:
        return {**self.__dict__, "_locations": None, "_videos": {}}

    def content(self) -> str:
        """Return a hash of the listed images."""
        return self._index.key.hex()

    def image(self, index: int) -> Image.Image:
        """Decode image or frame ``index``."""
        archive = self._archive(index)
        if archive is not None and is_video(archive):
            return convert(self._frame(archive, index), self._mode, self._reading)
        return decode_image(self._encode(index), self.names[index], self._mode, self._reading)

    def stored_bytes(self, index: int) -> bytes:
        """Return the encoded content of image ``index``; empty for a frame of a video."""
        return self._encode(index)

    def _archive(self, index: int) -> str | None:
        """Return the tar file or video that contains image ``index``; None if it is a file."""
        number = self._index.label(index)
        return None if number == NO_ARCHIVE else self._archives[number]

    def _frame(self, video: str, index: int) -> Image.Image:
        reader = os.getpid(), threading.get_ident()  # a video file has a position, so each thread opens it
        if reader not in self._videos or self._videos[reader].path != video:
            self._videos[reader] = VideoFile(video)
        return self._videos[reader].frame(self._location(index)[0])

    def _encode(self, index: int) -> bytes:
        """Return the bytes of an image; empty for a frame."""
        name, archive = self.names[index], self._archive(index)
        if archive is None:
            return read_file(name)
        if is_video(archive):
            return b""
        offset, size = self._location(index)
        try:
            content = self._files.read(archive, offset, size)
        except OSError as error:
            raise UnreadableImage(name, error.strerror or str(error)) from error
        if len(content) != size:
            raise UnreadableImage(name, "the archive has become shorter since it was listed")
        return content.tobytes()

    def _location(self, index: int) -> list[int]:
        if self._locations is None:
            self._locations = map_array(self._locations_file)
        return self._locations[index].tolist()


class InMemoryImages(InputImages):
    """Images in memory: PIL images, uint8 arrays (height, width[, 1 or 3 or 4]), and contents of files, as bytes."""

    in_memory = True

    def __init__(self, images: Sequence[Any], transform: Transform, mode: str, reading: ReadConfig) -> None:
        super().__init__(transform, mode, reading)
        self._images = list(images)
        self.names = [f"image {number}" for number in range(len(self._images))]
        pictures = [(k, each) for k, each in enumerate(images) if isinstance(each, Image.Image)]
        turned = [k for k, each in pictures if not reading.exif_rotate and orientation(each) != 1]
        # One that a program has moved to a later page is meant so.
        paged = [k for k, each in pictures if not each.tell() and has_more_pages(each)]
        found = list_found({TURNED: turned, PAGES: paged}, count(len(self), "image"), self.describe)
        encoded = [k for k, each in enumerate(images) if isinstance(each, _ENCODED)]
        names = [self.describe(k) for k in encoded]
        notes = note_pixels(len(encoded), lambda k: images[encoded[k]], names.__getitem__, reading.exif_rotate)
        self.notices = [*found, *notes]

    def image(self, index: int) -> Image.Image:
        """Return image ``index``, converted to the mode."""
        image = self._images[index]
        if isinstance(image, _ENCODED):
            return decode_image(bytes(image), self.names[index], self._mode, self._reading)
        if isinstance(image, np.ndarray):
            is_image = image.ndim == 2 or (image.ndim == 3 and image.shape[2] in (1, 3, 4))
            if image.dtype != np.uint8 or not is_image or not image.size:
                raise BadSample(f"expected uint8 (height, width[, 3]), got {image.dtype} {image.shape}")
            image = Image.fromarray(image[:, :, 0] if image.ndim == 3 and image.shape[2] == 1 else image)
        elif not isinstance(image, Image.Image):
            expected = "a path, a PIL image, an array or a file's content as bytes"
            raise BadSample(f"expected {expected}, got {type(image).__name__}")
        require_8_bits(image)
        return convert(image, self._mode, self._reading)


def open_image_inputs(
    inputs: Sequence[Any], cache_folder: Path, transform: Any, mode: str, reading: ReadConfig
) -> ImageInputs | InMemoryImages:
    """Open images from paths or memory; a ``UserError`` if both are mixed."""
    are_paths = [isinstance(item, str) for item in inputs]
    if any(are_paths) and not all(are_paths):
        raise UserError("predict: paths and images in memory are mixed; pass one kind at a time")
    if inputs and not any(are_paths):
        return InMemoryImages(inputs, transform, mode, reading)
    return ImageInputs(inputs, cache_folder, transform, mode, reading)


class AnnotatedImages:
    """Writes annotated copies of inputs, named NAME.jpg, to the folder ``IMAGES`` in the prediction's ``folder``."""

    def __init__(self, folder: Path, samples: TransformedDataset) -> None:
        self._folder, self._samples = folder, samples
        self._names: list[str] | None = None

    def name(self, index: int) -> str:
        """Return the unique name of the files of a sample."""
        if self._names is None:
            self._names = output_names(self._list_stems())
        return self._names[index]

    def notes(self) -> list[str]:
        """Return a note if some samples have the name of another, which their files cannot have."""
        names = self._list_stems()
        return note_counted(names, output_names(names), "image")

    def _list_stems(self) -> list[str]:
        samples = self._samples
        return stems(samples.names if isinstance(samples, InputSamples) else map(samples.name, range(len(samples))))

    def write(self, index: int, draw: Callable[[Image.Image], Image.Image]) -> str | None:
        """Write ``draw`` of image ``index``; return its file's name in the folder, None for a program's samples."""
        if not isinstance(self._samples, InputImages):
            return None
        content = io.BytesIO()
        draw(self._samples.image(index)).save(content, "JPEG", quality=_QUALITY, subsampling=0)
        (self._folder / IMAGES).mkdir(exist_ok=True)
        name = f"{IMAGES}/{self.name(index)}.jpg"
        with atomic_file(self._folder / name) as file:
            file.write(content.getvalue())
        return name
