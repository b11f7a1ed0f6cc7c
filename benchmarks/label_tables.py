"""What it takes to open images with labels in a table: a million rows ``image,label``, and as many of 80 classes.

    python benchmarks/label_tables.py [--rows N] [--classes N] [--folder FOLDER]

The goals are 5 and 15 s. The images are empty files in 1,000 folders, all of them named in the table, apart from three
missing ones: ``read_table`` lists the folders, and skips these three. "stat" asks the file system for each image
instead, once the table is read. The peak is of memory of the process, which holds one table after the other; at its end
labels are a memory-mapped file. Seconds are of processor time, because a process that waits for others on a shared
machine is not slow; the wall's are shown next to them.
"""

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

from rounds import print_machine, print_result, print_table  # noqa: E402
from smallest import sized  # noqa: E402

from paddlevit_dist.images.data.label_tables import TableOptions, read_table  # noqa: E402

FOLDERS = sized(1000, 10)
MISSING = 3
CELLS = ("0", "1", "", "0.0", "1.0", "-1.0", "0")


def name_image(number: int) -> str:
    return f"train/{number * 7919 % FOLDERS:04d}/image_{number:07d}.jpg"


def write_images(root: Path, rows: int) -> None:
    """Create the images, without the last ones."""
    for folder in range(FOLDERS):
        (root / f"train/{folder:04d}").mkdir(parents=True)
    for number in range(rows - MISSING):
        os.close(os.open(root / name_image(number), os.O_CREAT | os.O_WRONLY))


def write_label_column(path: Path, rows: int) -> None:
    with path.open("w", encoding="utf-8") as out:
        out.write("image,label\n")
        out.writelines(f"{name_image(number)},class {number * 31 % 1000:03d}\n" for number in range(rows))


def write_class_columns(path: Path, rows: int, classes: int) -> None:
    """One column of each class, with some of the ways to write 0, 1 and not known."""
    cells = [CELLS[number % len(CELLS)] for number in range(2 * classes)]
    ends = [",".join(cells[start : start + classes]) for start in range(classes)]
    with path.open("w", encoding="utf-8") as out:
        out.write(",".join(["image", *(f"class {number}" for number in range(classes))]) + "\n")
        out.writelines(f"{name_image(number)},{ends[number % classes]}\n" for number in range(rows))


def measure(function: Callable[[], Any]) -> tuple[float, float, Any]:
    """Seconds of processor time, and of the wall, and the result."""
    busy, began = time.process_time(), time.perf_counter()
    result = function()
    return time.process_time() - busy, time.perf_counter() - began, result


def ask_for_each(root: Path, rows: int) -> int:
    return sum(not os.path.exists(os.path.join(root, name_image(number))) for number in range(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=sized(1_000_000, 5_000))
    parser.add_argument("--classes", type=int, default=sized(80, 8))
    parser.add_argument("--folder", help="where the images are created; default: the folder of temporary files")
    options = parser.parse_args()
    print_machine()
    rows, result = [], {}
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        root = Path(name)
        write_images(root, options.rows)
        for key, has_several in (("label", False), ("classes", True)):
            path = root / f"{key}.csv"
            if has_several:
                write_class_columns(path, options.rows, options.classes)
            else:
                write_label_column(path, options.rows)
            how = TableOptions(allows_missing=True)
            busy, wall, found = measure(
                lambda path=path, how=how, few=has_several: read_table(str(path), "train", how, few)
            )
            assert len(found.paths) == options.rows - MISSING and found.skipped_files.num_images == MISSING
            assert found.labels.shape == ((len(found.paths), options.classes) if has_several else (len(found.paths),))
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
            what = f"{options.classes} columns of classes" if has_several else "image,label"
            rows.append([f"{options.rows:,} rows, {what}", f"{busy:.2f}", f"{wall:.2f}", f"{peak:,.0f}"])
            result[f"{key} s"] = round(busy, 2)
            path.unlink()
        busy, wall, missing = measure(lambda: ask_for_each(root, options.rows))
        assert missing == MISSING
        rows.append(["stat of each image alone", f"{busy:.2f}", f"{wall:.2f}", ""])
        result["stat s"] = round(busy, 2)
    print_table("Tables of labels", ["", "processor s", "wall s", "peak MiB"], rows)
    print_result(result)


if __name__ == "__main__":
    main()
