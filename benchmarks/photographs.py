"""A folder of JPEGs for the image benchmarks, cut from photographs that come with scikit-image and scikit-learn."""

from pathlib import Path

import numpy as np
from PIL import Image
from smallest import lacks

_SCIKIT_IMAGE = ("astronaut", "chelsea", "coffee", "motorcycle_left", "rocket", "hubble_deep_field", "ihc", "retina")
_SCIKIT_LEARN = ("china", "flower")


def sources() -> list[Path]:
    """The photographs that are installed."""
    found = []
    for package, folder, names in (("skimage", "data", _SCIKIT_IMAGE), ("sklearn", "datasets/images", _SCIKIT_LEARN)):
        try:
            module = __import__(package)
        except ImportError:
            continue
        paths = [Path(module.__file__).parent / folder / name for name in names]
        found += [p.with_suffix(end) for p in paths for end in (".png", ".jpg") if p.with_suffix(end).exists()]
    return found


def write_folder(target: Path, number: int, size: tuple[int, int] = (500, 375), val_every: int = 5) -> int:
    """Write ``number`` JPEGs (quality 90), one class per photograph, as ``train/<class>`` and ``val/<class>``.

    Each is a random window of its photograph, scaled to ``size``, so that no two are alike. Returns how many classes
    there are.

    Raises:
        SystemExit: no photographs are installed.
    """
    photographs = sources()
    if not photographs:
        raise lacks("skimage or sklearn, for their photographs: not installed here")
    generator = np.random.default_rng(0)
    for count in range(number):
        path = photographs[count % len(photographs)]
        image = Image.open(path).convert("RGB")
        share = generator.uniform(0.6, 1.0)
        width, height = int(image.width * share), int(image.height * share)
        left = int(generator.integers(0, image.width - width, endpoint=True))
        top = int(generator.integers(0, image.height - height, endpoint=True))
        window = image.crop((left, top, left + width, top + height)).resize(size, Image.Resampling.LANCZOS)
        split = "val" if count // len(photographs) % val_every == 0 else "train"
        folder = target / split / path.stem
        folder.mkdir(parents=True, exist_ok=True)
        window.save(folder / f"{count:05d}.jpg", quality=90)
    return len(photographs)
