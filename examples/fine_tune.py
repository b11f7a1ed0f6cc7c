"""Fine-tune trained weights on other classes: a network that knows the digits 0 to 9 learns even and odd.

It takes seconds on two cores and needs no download.
"""

import tempfile
from pathlib import Path

import paddlevit_dist as pv

TINY = {"MODEL.DEPTH": 2, "MODEL.EMBED_DIM": 64, "TRAIN.WARMUP_EPOCHS": 0, "batch_size": 32}


def write_images(folder: Path) -> None:
    """Write class folders: train/even, train/odd, val/even, val/odd."""
    for split, number in (("train", 1400), ("val", 200)):
        digits = pv.open_dataset("vit_digits", split).dataset
        for index in range(number):
            image, label = digits[index]
            place = folder / split / ("odd" if label % 2 else "even")
            place.mkdir(parents=True, exist_ok=True)
            image.save(place / f"{index}.png")


def main() -> None:
    """Train on digits, fine-tune on even and odd, and predict."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        digits = pv.train("vit_digits", epochs=6, output=folder / "digits", **TINY)
        write_images(folder / "images")
        run = pv.train(
            "vit_digits",
            epochs=4,
            dataset="folder",
            data_path=folder / "images",
            pretrained=digits.folder,
            output=folder / "even_or_odd",
            **{**TINY, "DATA.IMAGE_CHANNELS": 1},
        )
        low, high = run.intervals["top-1"]
        print(f"even or odd: {run.values['top-1']:.1f} % [{low:.1f}, {high:.1f}]")
        images = sorted((folder / "images" / "val").glob("*/*.png"))[::50]
        for row in pv.predict(run.folder, images):
            print(Path(row["input"]).parent.name, "is called", row["class"])


if __name__ == "__main__":
    main()
