"""Change one thing at a time in the package and see whether a test notices: ``python tools/mutants.py [PATH ...]``.

Each mutant runs in a copy of the project: first the unit tests that execute its line, then those near its module, then
integration tests of its package. What all of them pass has survived: a test is missing, or the change changes nothing.
Which tests execute a line is measured once for a commit, by a run of the unit tests under coverage. Survivors are
printed, and all results are written as lines of JSON with ``-results``.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from coverage import CoverageData
from mutations import Mutant, draw

ROOT, PACKAGE = Path(__file__).resolve().parents[1], "paddlevit_dist"
MAP = ROOT / ".mutants"  # ignored by git
NO_TESTS = 5  # pytest's exit code
Tests = dict[tuple[str, int], set[str]]  # (file, line) -> unit tests that execute it

_COVERAGE = """[run]
source = paddlevit_dist
parallel = true
dynamic_context = test_function
data_file = {folder}/coverage
"""


def measure_tests(jobs: int) -> Tests:
    """Measure which unit tests execute each line, or read what was measured for this commit."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    folder = MAP / (commit or "unknown")
    if not (folder / "complete").exists():
        shutil.rmtree(MAP, ignore_errors=True)
        folder.mkdir(parents=True)
        settings = folder / "coveragerc"
        settings.write_text(_COVERAGE.format(folder=folder), encoding="utf-8")
        print("measuring which unit tests execute each line, once for this commit", flush=True)
        command = [
            sys.executable,
            "-m",
            "coverage",
            "run",
            f"--rcfile={settings}",
            "-m",
            "pytest",
            "-q",
            "-n",
            str(jobs),
        ]
        names = os.environ | {"COVERAGE_PROCESS_START": str(settings), "OMP_NUM_THREADS": "1"}
        subprocess.run([*command, "tests/unit"], cwd=ROOT, env=names, stdout=subprocess.DEVNULL, check=False)
        (folder / "complete").touch()
    return read_tests(folder.glob("coverage.*"))


def read_tests(files: Any) -> Tests:
    """Read the unit tests of each line from files of coverage with a context for each test."""
    tests: Tests = {}
    for path in files:
        data = CoverageData(str(path))
        data.read()
        for file in data.measured_files():
            name = file[file.rindex(f"/{PACKAGE}/") + 1 :]
            for line, contexts in data.contexts_by_lineno(file).items():
                tests.setdefault((name, line), set()).update(filter(None, map(_parse_context, contexts)))
    return tests


def _parse_context(context: str) -> str:
    """Return the identifier of a test for pytest: "tests/unit/x/test_y.py::test_z"; empty for another context."""
    if "unit." not in context:
        return ""
    *parts, test = context[context.index("unit.") :].split(".")
    return f"tests/{'/'.join(parts)}.py::{test}"


def list_stages(mutant: Mutant, tests: Tests) -> list[list[str]]:
    """List the tests that may notice a mutant, in stages: the cheapest first."""
    inside, unit = Path(mutant.file).relative_to(PACKAGE).with_suffix(""), Path("tests/unit")
    lines = (tests.get((mutant.file, mutant.line - back)) for back in range(6))  # a statement can have several lines
    executing = sorted(next(filter(None, lines), ()), key=lambda test: (inside.name not in test, test))[:60]
    files = sorted(file.relative_to(ROOT) for file in (ROOT / unit).rglob("test_*.py"))
    near = [file for file in files if inside.name in file.stem and inside.parts[0] in file.parts]
    near += [file for file in files if file.parent == unit / inside.parent]
    whole = [f"tests/integration/{name}" for name in ("test_promises.py", inside.parts[0])]
    stages = [executing, list(dict.fromkeys(map(str, near))), *([name] for name in whole if (ROOT / name).exists())]
    return [stage for stage in stages if stage]


def try_mutant(mutant: Mutant, stages: list[list[str]], copied: Path, limit: float) -> dict[str, Any]:
    """Run stages of tests on a mutant in a copy of the project until one fails; one that takes too long has passed."""
    path = copied / mutant.file
    source, status = path.read_bytes(), path.stat()
    path.write_text(mutant.source, encoding="utf-8")
    row: dict[str, Any] = {**mutant._asdict(), "killed": False, "last": []}
    row.pop("source")
    names = os.environ | {"PYTHONPATH": f"{copied}{os.pathsep}{copied / 'tests'}", "OMP_NUM_THREADS": "1"}
    for stage in stages:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *stage]
        with tempfile.TemporaryFile("w+") as out:
            process = subprocess.Popen(command, cwd=copied, env=names, stdout=out, stderr=out, start_new_session=True)
            try:
                row["killed"] = process.wait(limit) not in (0, NO_TESTS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            out.seek(0)
            lines = out.read().splitlines() or [""]
        row["last"].append(([line for line in lines if line.startswith("FAILED")] or lines)[-1][:300])
        if row["killed"]:
            break
    path.write_bytes(source)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # what was compiled from it stays valid
    return row


def copy_project(folder: Path) -> Path:
    """Copy the project for one worker, with generous time limits of unit tests: a busy machine kills no mutant."""
    shutil.copytree(
        ROOT, folder, True, shutil.ignore_patterns(".venv*", ".git", ".mutants", "output", "dist", "*_cache")
    )
    limits = folder / "tests/unit/conftest.py"
    limits.write_text(limits.read_text(encoding="utf-8").replace("SECONDS = 2.0", "SECONDS = 60.0"), encoding="utf-8")
    return folder


def main() -> None:
    """Draw mutants, run their tests, and print the survivors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", help="folders or files of the package (default: all)")
    parser.add_argument("-count", type=int, default=30, help="mutants in all, equally of each path")
    parser.add_argument("-seed", type=int, help="default: from the clock")
    parser.add_argument("-jobs", type=int, default=os.cpu_count(), help="mutants at once")
    parser.add_argument("-limit", type=float, default=120, help="seconds of a stage; what does not end, passes")
    parser.add_argument("-minutes", type=float, default=1e9, help="no mutant begins later")
    parser.add_argument("-results", type=Path, help="write a line of JSON for each mutant to this file")
    options = parser.parse_args()
    seed = int(time.time()) if options.seed is None else options.seed
    tests, generator = measure_tests(options.jobs), random.Random(seed)
    paths = options.paths or sorted(
        file.name for file in (ROOT / PACKAGE).iterdir() if file.is_dir() or file.suffix == ".py"
    )
    paths = [path for path in paths if not path.startswith("__")]
    generator.shuffle(paths)
    mutants = draw_equally(paths, options.count, generator)
    deadline, rows = time.monotonic() + 60 * options.minutes, []
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        copies: queue.Queue[Path] = queue.Queue()
        for job in range(options.jobs):
            copies.put(copy_project(Path(folder, str(job))))

        def run(mutant: Mutant) -> None:
            if time.monotonic() > deadline:
                return
            copied = copies.get()
            row = try_mutant(mutant, list_stages(mutant, tests), copied, options.limit)
            copies.put(copied)
            rows.append(row)
            print(f"{'killed' if row['killed'] else 'SURVIVED'}: {mutant.file}:{mutant.line} {mutant.kind}", flush=True)

        list(pool.map(run, mutants))
    report(rows, seed, options.results)


def draw_equally(paths: list[str], count: int, generator: random.Random) -> list[Mutant]:
    """Draw mutants of each path in turn."""
    shares = collections.Counter(paths[number % len(paths)] for number in range(count))
    drawn = [mutant for path in paths for mutant in draw(ROOT, ROOT / PACKAGE / path, shares[path], generator)]
    generator.shuffle(drawn)
    return drawn


def report(rows: list[dict[str, Any]], seed: int, results: Path | None) -> None:
    """Print what has survived, the score of each package and of all."""
    if results is not None:
        results.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    for row in rows:
        if not row["killed"]:
            print(f"\n{row['file']}:{row['line']} {row['kind']}\n- {row['before']}\n+ {row['after']}")
    totals = collections.Counter(Path(row["file"]).parts[1] for row in rows)
    killed = collections.Counter(Path(row["file"]).parts[1] for row in rows if row["killed"])
    for name, total in sorted(totals.items()):
        print(f"{name}: {killed[name]} of {total}")
    print(f"{killed.total()} of {totals.total()} mutants are noticed, seed {seed}")


if __name__ == "__main__":
    main()
