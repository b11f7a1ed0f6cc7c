"""Write images of which few have labels: the digits as PNG files, and a table with 20 labels of each class.

``python examples/few_labels.py FOLDER`` writes the training images to FOLDER/train and the held-out ones to FOLDER/val.
FOLDER/labels.csv has 200 rows of training images and all held-out ones. docs/guides/pretraining.md uses it.
"""

import csv
import sys
from pathlib import Path

import numpy as np

import paddlevit_dist as pv

LABELS_OF_CLASS = 20


def write_images(folder: Path, split: str) -> list[tuple[str, int]]:
    """Write the images of a split; return the path and the class of each."""
    dataset = pv.open_dataset("vit_digits", split).dataset
    (folder / split).mkdir(parents=True, exist_ok=True)
    rows = []
    for index in range(len(dataset)):
        image, label = dataset[index]
        name = f"{split}/{index:04d}.png"
        image.save(folder / name)
        rows.append((name, int(label)))
    return rows


def choose_labeled(rows: list[tuple[str, int]], seed: int) -> list[tuple[str, int]]:
    """Choose as many rows of each class."""
    order = np.random.default_rng(seed).permutation(len(rows)).tolist()
    classes = sorted({label for _, label in rows})
    return [rows[index] for each in classes for index in [i for i in order if rows[i][1] == each][:LABELS_OF_CLASS]]


def main(folder: Path) -> None:
    """Write images and table."""
    labeled = choose_labeled(write_images(folder, "train"), seed=0)
    held_out = write_images(folder, "val")
    with (folder / "labels.csv").open("w", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(["image", "label", "split"])
        table.writerows([*row, "train"] for row in labeled)
        table.writerows([*row, "val"] for row in held_out)
    print(f"{folder}: labels of {len(labeled)} training images and of {len(held_out)} held-out ones")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("give the folder to write: python examples/few_labels.py FOLDER")
    main(Path(sys.argv[1]))
