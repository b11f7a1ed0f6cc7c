"""How large the package is: lines and files of each room beside what they are to be, and three ways through it.

python tools/measure_house.py            the rooms
python tools/measure_house.py --ways     also how many of our files a DETR process imports, and how many a batch of
                                         pictures and a file of weights pass; half a minute, needs Paddle
"""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "paddlevit_dist"

# Room -> at most so many lines, and what belongs to it: places below the package. The first that fits counts.
ROOMS = {
    "cpu": (3500, "cpu"),
    "diagnosis": (1900, "diagnosis"),
    "report, exporting": (2400, "report exporting"),
    "leaks": (700, "leaks"),
    "comparing": (1950, "comparing"),
    "prediction": (1900, "prediction contracts/prediction.py"),
    "contracts": (950, "contracts"),
    "config, registry": (2900, "config registry.py other_names.py own_code.py"),
    "parallel": (2500, "parallel"),
    "engine": (3000, "engine"),
    "checkpoint": (2000, "checkpoint"),
    "loading": (1500, "loading"),
    "observe": (1200, "observe"),
    "images/detection": (6500, "images/detection"),
    "images/segmentation": (1800, "images/segmentation"),
    "images/models": (2600, "images/models"),
    "images/data, transforms": (4800, "images/data images/transforms"),
    "images, other": (2200, "images"),
    "points": (8000, "points"),
    "volumes": (3600, "volumes"),
    "commands": (3000, "commands"),
    "intervals": (300, "intervals"),
    "labelling": (600, "labelling"),
    "runtime, ground files": (1600, ""),
}
LINES, FILES = 50_000, 320
WAYS = {
    "files that a DETR process imports": 120,
    "files that a batch of pictures passes": 25,
    "files that weights pass": 9,
}

# Programs, each in a process of its own, that end with numbers of files in lines of stderr.
_TRAINER = """
import sys
from pathlib import Path
from paddlevit_dist import Trainer, config
from paddlevit_dist.registry import resolve

folder, package = Path(sys.argv[1]), sys.argv[2]


def trainer_of(*words):
    values = config.load([f"-output={folder}", "-num_workers=0", "-batch_size=16", *words]).values
    task = resolve("task", values.TASK)(values)
    return Trainer(values, task, {split: task.build_dataset(split, folder) for split in ("train", "val")})


"""
_IMPORTED = """
boxes = trainer_of("-cfg=detr_shapes", "REPORT", "False").training()
print(sum(name.startswith("paddlevit_dist") for name in sys.modules), file=sys.stderr)
"""
_PASSED = """
import paddle
from paddlevit_dist.checkpoint.load import load_weights


def files_in(function):
    seen = set()
    sys.setprofile(lambda frame, event, _: seen.add(frame.f_code.co_filename))
    try:
        function()
    finally:
        sys.setprofile(None)
    return len({name for name in seen if name.startswith(package)})


pictures = trainer_of("-cfg=vit_digits")
print(files_in(lambda: pictures.evaluation("evaluation")), file=sys.stderr)
paddle.save(pictures.model.state_dict(), str(folder / "weights.pdparams"))
print(files_in(lambda: load_weights(pictures.model, str(folder / "weights.pdparams"))), file=sys.stderr)
"""


def room_of(path: str) -> str:
    for room, (_, places) in ROOMS.items():
        if any(path == place or path.startswith((f"{place}/", f"{place}.", f"{place}_")) for place in places.split()):
            return room
    return "runtime, ground files"


def rooms() -> None:
    lines, files = dict.fromkeys(ROOMS, 0), dict.fromkeys(ROOMS, 0)
    for file in PACKAGE.rglob("*.py"):
        room = room_of(file.relative_to(PACKAGE).as_posix())
        lines[room] += len(file.read_text(encoding="utf-8").splitlines())
        files[room] += 1
    print(f"{'room':26}{'lines':>8}{'at most':>9}{'files':>7}")
    for room, (most, _) in ROOMS.items():
        print(f"{room:26}{lines[room]:8,}{most:9,}{files[room]:7}")
    print(f"{'all':26}{sum(lines.values()):8,}{LINES:9,}{sum(files.values()):7} (at most {FILES})")


def ways() -> None:
    found = []
    for program in (_IMPORTED, _PASSED):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-W", "ignore", "-c", _TRAINER + program, folder, str(PACKAGE)]
            done = subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        numbers = [line for line in done.stderr.splitlines() if line.isdigit()]
        if done.returncode:
            sys.exit(done.stderr)
        found += numbers
    for (way, most), number in zip(WAYS.items(), found):
        print(f"{way}: {number} (at most {most})")


if __name__ == "__main__":
    rooms()
    if "--ways" in sys.argv[1:]:
        ways()
