"""How large the package, its tests and its pages are, beside the aims, and three ways through it. ``make lint`` fails
where something is larger than it may be.

python tools/measure_house.py            sizes; exit code 1 above a bar
python tools/measure_house.py --ways     also how many of our files a DETR process imports, and how many a batch of
                                         images and a file of weights pass; half a minute, needs Paddle
"""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "paddlevit_dist"

_DRIVER = (
    "engine launch distributed runtime settings registry.py other_names.py plugins.py models.py __main__.py __init__.py"
)
_DRIVER += " extension.py checkpoint data logging tasks inference commands"
_EXTENSIONS = "cpu_kernels debug report export compare leakage intervals metrics losses.py"
# Lines of Python: the aim, and what nothing may pass meanwhile: it is lowered by whoever cuts, and never raised without
# something that goes in the same commit.
LINES = {
    "driver": (_DRIVER, 17_000, 23_200),
    "images": ("images", 19_500, 22_970),
    "points": ("points", 10_800, 11_960),
    "volumes": ("volumes", 5_600, 6_320),
    "extensions, metrics, losses": (_EXTENSIONS, 10_500, 13_050),
}
PACKAGE_LINES, PACKAGE_FILES = (62_000, 77_775), (380, 463)
# Lines above a bar, each with its reason.
EXCEPTIONS = {
    "lines: driver": [
        (65, "former names of packages, classes and a task's methods, which go on until the next release"),
        (140, "the keys of every run are typed classes, and so is what makes their rows: settings/section.py"),
        (100, "what an extension may add is a class with types: extension.py"),
        (250, "on GPUs a step is queued before the host knows whether it counts: engine/queued_step.py, steps.py"),
        (150, "what a GPU is tried for or compiles by default: runtime/autocast.py, engine/precision.py"),
        (345, "every device that Paddle has, by any name: runtime/device_kinds.py and whoever asked for a GPU"),
        (
            200,
            "data sets and samplers under any loop, meters that merge, runs of a program; ModelScope; without extras",
        ),
        (50, "60 names of published foundation backbones with licences: checkpoint/published.py"),
        (55, "what epochs are left, for a reading and a step; weights of detectors by name; layouts of boxes"),
        (132, "features of samples that are computed once: engine/kept_rows.py; which weights are gated"),
    ],
    "lines: images": [
        (30, "RoiAlign and assignments that wait less for a GPU"),
        (2225, "RT-DETR, RT-DETRv2, D-FINE, HGNetV2, ResNet-vd, their losses, noise and names: detection/rtdetr/"),
        (415, "probes: classification/probes.py and their keys; better weights that a device has room for"),
        (840, "foundation backbones: options and blocks of vit.py, their names, a pyramid and a linear head on them"),
        (260, "sizes that change with updates, SSD's transforms, held out where missing, images a second: detection/"),
    ],
    "lines: volumes": [(5, "a meter of landmarks merges another's")],
    "lines: extensions, metrics, losses": [
        (210, "each extension is a class with typed methods, no table of strings"),
        (190, "deformable attention on CPUs, three times torch's speed: cpu_kernels/sampling.py"),
        (
            280,
            "detectors as one graph from pixels to boxes, also in float16: export/half.py, pixels.py, differences.py",
        ),
    ],
    "lines: package": [
        (220, "types of keys and of extensions, less what they and other cuts made shorter"),
        (430, "for GPUs, as above: steps that are queued, biases, compiled passes, fewer waits"),
        (2452, "real-time detectors, as above"),
        (1320, "devices, and the package as a library: library/, and as above"),
        (240, "meters refuse what would count as something else: library/checks.py; calls without Paddle"),
        (855, "foundation backbones, as above"),
        (535, "probes, as above"),
        (335, "detectors as one graph, as above"),
        (315, "detectors trained as their authors do, on own boxes, as above"),
    ],
    "files: package": [
        (1, "engine/queued_step.py"),
        (7, "library/, runtime/device_kinds.py"),
        (13, "detection/rtdetr/, models/hgnetv2.py, cpu_kernels/sampling.py"),
        (3, "export/: half.py, pixels.py, differences.py"),
        (2, "engine/kept_rows.py, images/classification/probes.py"),
        (5, "models/: foundation_names.py, foundation_variants.py, rotary.py, simple_pyramid.py, vit_blocks.py"),
    ],
    "lines: tests": [
        (160, "annotations of keys and the rows that follow; names of before; a signal amid a meeting"),
        (20, "a damaged figure among others; a report without the library that fills it"),
        (130, "steps that a device makes or leaves out are those of the host, bit for bit; Ctrl-C of a terminal"),
        (335, "for GPUs, forced on a CPU: biases, compiled passes, waits, messages by pinned memory"),
        (1440, "devices on a made-up one, the library, its examples, what is installed without extras"),
        (145, "what meters, calls without Paddle, cells and releases refuse"),
        (1480, "real-time detectors against golden files, brute force and other numbers of processes"),
        (270, "exported detectors find what the network finds, in each format and precision"),
        (400, "foundation backbones against golden files, each name, pyramids and heads on them"),
        (320, "changing sizes, strong transforms, own boxes: test_transforms_sizes.py, test_samples_own_boxes.py"),
        (265, "probes against brute force, the rule of SGD and other numbers of processes"),
    ],
    "kB: English pages": [
        (7, "docs/library.md, docs/devices.md, less what README lost"),
        (9, "docs/backbones.md"),
        (3, "docs/exporting.md: boxes, uint8, float16"),
        (4, "docs/detection.md: from own boxes to a real-time detector"),
    ],
}
# What stands between a size and its aim: what people would lose, and where it is. Its lines are counted (--names).
STANDS = {
    "lines: driver": [
        (
            "weights of torch, safetensors, pickle and the hub, and nothing in them that runs",
            "checkpoint/unpickling.py "
            "checkpoint/torch_files.py checkpoint/array_files.py checkpoint/download.py checkpoint/published.py "
            "checkpoint/weights.py checkpoint/load.py",
        ),
        (
            "a resume to the same bit, kills at any moment, and what may differ",
            "engine/compatibility.py engine/resume.py "
            "engine/checkpointer.py checkpoint/store.py checkpoint/content.py checkpoint/finding.py",
        ),
        (
            "every failure of a rank is named, on one machine and on several",
            "launch/watchdog.py launch/group_watch.py "
            "launch/status.py launch/failures.py launch/rendezvous.py launch/secret.py distributed/stops.py",
        ),
        (
            "signals, full disks, odd names and terminals end in one line",
            "runtime/signals.py runtime/printing.py "
            "runtime/files.py runtime/text_files.py runtime/limits.py runtime/ending.py launch/leftovers.py "
            "launch/lock.py",
        ),
        ("keys with types, help, schema and errors that name the line", "settings commands/schema.py"),
        (
            "batch norm that is the same for any number of processes",
            "distributed/batch_norm.py distributed/wrapping.py",
        ),
        (
            "updates of all parameters at once; numbers that are not finite",
            "engine/multi_tensor.py engine/fused_optimizers.py engine/nan_guard.py engine/gpu_memory.py",
        ),
        (
            "scores and intervals of anybody's files",
            "commands/scored.py commands/evaluate_detections.py "
            "commands/evaluate_results.py tasks/scored.py tasks/sample_groups.py tasks/truth.py engine/confidence.py",
        ),
    ],
    "lines: images": [
        (
            "the layouts in which images, boxes, masks and classes come",
            "images/data images/detection/data images/segmentation/data images/prepare",
        ),
        (
            "weights of six owners under their names",
            "images/models/key_names.py images/models/segmentation_names.py images/detection/key_names.py",
        ),
        ("COCO's scores, bit for bit, with intervals", "images/detection/evaluation"),
        ("augmentation equal to timm's, on the host and on the device", "images/transforms"),
    ],
    "lines: points": [
        ("formats of scanners and sets", "points/prepare points/data/ply.py points/data/scene_store.py"),
        ("drawn rooms, without which nothing can be tried or tested", "points/data/rooms.py points/shapes/solids.py"),
        ("PointGroup in a fraction of its memory", "points/instances"),
    ],
    "lines: volumes": [
        (
            "formats of hospitals and of nnU-Net",
            "volumes/dicom.py volumes/reading.py volumes/slicer_files.py "
            "volumes/landmark_files.py volumes/segmentation/nnunet.py volumes/segmentation/fingerprint.py",
        ),
        ("drawn phantoms", "volumes/phantoms.py volumes/segmentation/phantoms.py"),
    ],
    "lines: extensions, metrics, losses": [
        ("layers, updates and transforms on CPUs, the one lead over torch there", "cpu_kernels"),
        (
            "ONNX in its fast form, and the scores of what was exported",
            "export/fusion.py export/graph.py export/scoring.py",
        ),
        ("runs compared sample by sample, seeds, leaks", "compare leakage"),
    ],
}
SMALL_FILES = (30, 30)  # below 60 lines, but for those that say what a package holds
TEST_LINES = (43_000, 56_480)
README_WORDS = (900, 900)  # code included
PAGES_KB = (260, 345)  # English, written by hand
WAYS = {
    "files that a DETR process imports": 130,
    "from an image to the step": 25,
    "from a score to its line": 25,
    "from a key to its use": 10,
    "from a file of weights to the model": 9,
}

# Programs, each in a process of its own, that end with numbers of files in lines of stderr.
_TRAINER = """
import sys
from pathlib import Path
from paddlevit_dist import Run, settings
from paddlevit_dist.registry import resolve

folder, package = Path(sys.argv[1]), sys.argv[2]


def trainer_of(*words):
    values = settings.load([f"-output={folder}", "-num_workers=0", "-batch_size=16", *words]).values
    task = resolve("task", values.TASK)(values)
    return Run(values, task, {split: task.build_dataset(split, folder) for split in ("train", "val")})


"""
_IMPORTED = """
trainer_of("-cfg=detr_shapes", "REPORT", "False").prepare_training()
print(sum(name.startswith("paddlevit_dist") for name in sys.modules), file=sys.stderr)
"""
_PASSED = """
import contextlib

import paddle
from paddlevit_dist.checkpoint.load import load_weights
from paddlevit_dist.engine.steps import accumulation_groups
from paddlevit_dist.tasks.task import Step


def files_in(function):
    seen = set()
    sys.setprofile(lambda frame, event, _: seen.add(frame.f_code.co_filename))
    try:
        function()
    finally:
        sys.setprofile(None)
    return len({name for name in seen if name.startswith(package)})


def update():
    with contextlib.closing(images.loader.epochs(1, 1)) as batches:
        images.updater(next(accumulation_groups(batches, 1, 1)), Step(1, 0, 10), 0.1)


images = trainer_of("-cfg=vit_digits")
images.prepare_training()
print(files_in(update), file=sys.stderr)
print(files_in(lambda: images.evaluation("evaluation")), file=sys.stderr)
print(files_in(lambda: settings.load(["-cfg=vit_digits", f"-output={folder}"])), file=sys.stderr)
paddle.save(images.model.state_dict(), str(folder / "weights.pdparams"))
print(files_in(lambda: load_weights(images.model, str(folder / "weights.pdparams"))), file=sys.stderr)
"""


def length(file: Path) -> int:
    return len(file.read_text(encoding="utf-8").splitlines())


def english_pages() -> list[Path]:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    return [page for page in pages if page.stem not in ("CHANGELOG", "README_cn")]


def sizes() -> list[tuple[str, int, int, int]]:
    """Name, size, aim and bar of all that is measured."""
    lengths = {file.relative_to(PACKAGE).as_posix(): length(file) for file in PACKAGE.rglob("*.py")}
    rows = []
    for name, (places, *limits) in LINES.items():
        own = [lines for file, lines in lengths.items() if file.split("/")[0] in places.split()]
        rows.append((f"lines: {name}", sum(own), *limits))
    small = [lines for file, lines in lengths.items() if lines < 60 and not file.endswith("__init__.py")]
    kilobytes = sum(page.stat().st_size for page in english_pages()) // 1000
    rows += [
        ("lines: package", sum(lengths.values()), *PACKAGE_LINES),
        ("files: package", len(lengths), *PACKAGE_FILES),
        ("files below 60 lines", len(small), *SMALL_FILES),
        ("words: README.md", len((ROOT / "README.md").read_text(encoding="utf-8").split()), *README_WORDS),
        ("lines: tests", sum(map(length, (ROOT / "tests").rglob("*.py"))), *TEST_LINES),
        ("kB: English pages", kilobytes, *PAGES_KB),
    ]
    return [
        (name, size, aim, most + sum(lines for lines, _ in EXCEPTIONS.get(name, []))) for name, size, aim, most in rows
    ]


def report() -> bool:
    """Print all sizes; whether none is above its bar."""
    rows = sizes()
    print(f"{'':36}{'now':>8}{'aim':>9}{'at most':>9}")
    for name, size, aim, most in rows:
        print(f"{name:36}{size:8,}{aim:9,}{most:9,}{'  too large' if size > most else ''}")
        for lines, why in EXCEPTIONS.get(name, []):
            print(f"{'':36}{'':17}{lines:9,}  {why}")
    return all(size <= most for _, size, _, most in rows)


def names() -> None:
    """Print what stands between each size and its aim."""
    for size, rows in STANDS.items():
        print(f"\n{size}")
        for what, places in rows:
            found = [PACKAGE / place for place in places.split()]
            files = {file for place in found for file in ([place] if place.is_file() else place.rglob("*.py"))}
            assert all(place.exists() for place in found), places
            print(f"{sum(map(length, files)):8,}  {what}: {places}")
    for folder in (PACKAGE, ROOT / "tests"):
        counts = {child.name: list(child.rglob("*.py")) for child in folder.iterdir() if child.is_dir()}
        told = (f"{name} {len(files)} ({sum(map(length, files)):,})" for name, files in sorted(counts.items()) if files)
        print(f"\nfiles (lines) of {folder.name}: {', '.join(told)}")
    longest = sorted(((length(file), file) for file in (ROOT / "tests").rglob("test_*.py")), reverse=True)[:40]
    print(f"\nlongest tests: {', '.join(f'{file.stem} {lines}' for lines, file in longest)}")
    largest = sorted(((page.stat().st_size / 1000, page) for page in english_pages()), reverse=True)
    print(f"\nkB of pages: {', '.join(f'{page.stem} {size:.1f}' for size, page in largest)}")


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
    fits = report()
    if "--names" in sys.argv[1:]:
        names()
    if "--ways" in sys.argv[1:]:
        ways()
    sys.exit(0 if fits else "a size is above its bar: say what goes instead of what was added")
