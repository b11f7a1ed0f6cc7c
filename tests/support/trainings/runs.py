"""Short runs of the entry point as a user would start it, and what is expected of each."""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from support.processes import HANG_SECONDS, ROOT, Finished, run_command, run_main

MAIN = ROOT / "main_multi_gpu.py"
TINY = ["-image_size=16", "MODEL.PATCH_SIZE", "8", "MODEL.EMBED_DIM", "16", "MODEL.DEPTH", "1", "MODEL.NUM_HEADS", "2"]
PLAIN = f"-cfg={Path(__file__).with_name('plain.yaml')}"  # a recipe that sets nothing but the model
DIGITS = [PLAIN, *TINY, "-dataset=digits", "-batch_size=64", "-num_workers=0", "-epochs=1", "DATA.IMAGE_CHANNELS", "1"]
# What a checkpoint's state says besides the position, of a run that has neither evaluated nor skipped anything.
STATE = {"scaler": {}, "best": None, "global_batch_size": 8, "evaluation_due": False}
STATE |= {"skipped_updates": {"total": 0, "in_a_row": 0}, "undecayed": [], "training_means": None}
IMAGES = [PLAIN, *TINY, "-dataset=folder", "-batch_size=4", "-num_workers=0", "-epochs=1"]


def run_first_start(*arguments: str, timeout: float = HANG_SECONDS) -> Finished:
    """Run the entry in a process that it has not prepared itself: it replaces itself once."""
    unprepared = ["env", "-u", "PADDLEVIT_DIST_ENVIRONMENT", "-u", "PYTHONWARNINGS", "-u", "GLOG_minloglevel"]
    return run_command([*unprepared, sys.executable, str(MAIN), *arguments], timeout=timeout)


def well(ended: Finished) -> Finished:
    """The same, once it is seen to have ended well and silently."""
    assert ended.code == 0, f"exit code {ended.code}\n{ended.out[-2000:]}\n{ended.err[-5000:]}"
    assert ended.err == ""
    return ended


def refusal(ended: Finished) -> str:
    """The message of a run that must have ended over bad input: one line on stderr and exit code 2."""
    assert ended.code == 2, f"exit code {ended.code}\n{ended.out[-2000:]}\n{ended.err[-5000:]}"
    lines = ended.err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: "), ended.err
    return lines[0][len("error: ") :]


def refused(*arguments: str, timeout: float = HANG_SECONDS) -> str:
    """Run the entry with bad input and return its message."""
    return refusal(run_main(*arguments, timeout=timeout))


def contents(folder: Path) -> dict[str, str]:
    """Every file and link below ``folder`` with a hash of its content or its target; the log aside, which grows."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_file() and name != "log.txt":
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def read_events(output: Path | str) -> list[dict[str, Any]]:
    """The lines of ``metrics.jsonl``, each strict JSON."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    lines = Path(output, "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line, parse_constant=refuse) for line in lines]


def last_line(ended: Finished) -> str:
    return ended.out.splitlines()[-1]


def write_images(root: Path, train: int = 8, val: int = 4) -> Path:
    """A folder with ``train`` and ``val`` images of one class, and as many of two others together, where these are
    more than two."""
    generator = np.random.default_rng(0)
    for split, number in (("train", train), ("val", val)):
        for name, images in (("bee", number), ("ant", number // 2 + 1), ("cow", max(1, number - number // 2 - 1))):
            folder = root / split / name
            folder.mkdir(parents=True)
            for position in range(images):
                pixels = generator.integers(0, 255, (20, 24, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{position:02d}.jpg")
    return root


def write_single_folder(root: Path, sizes: dict[str, int]) -> Path:
    """A folder of classes without splits: name -> number of its images."""
    for name, size in sizes.items():
        (root / name).mkdir(parents=True)
        for number in range(size):
            Image.new("RGB", (3, 3)).save(root / name / f"{number}.png")
    return root
