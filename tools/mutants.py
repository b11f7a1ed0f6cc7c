"""Change one thing at a time in the package and see whether a test notices: ``python tools/mutants.py [PATH ...]``.

Each mutant runs in a copy of the project: first the unit tests that execute its line, then those near its module, then
integration tests that execute it. What all of them pass has survived: a test is missing, or the change changes nothing.
Which tests execute a line is measured once for a commit, by a run of the tests under coverage: of unit tests when it is
missing, of integration tests with ``-measure integration``; until then those of the package are run. A measurement that
is interrupted goes on where it was. Survivors are printed, and all results are written as lines of JSON with
``-results``.
"""

import argparse
import ast
import collections
import concurrent.futures
import contextlib
import json
import os
import queue
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from coverage.numbits import num_in_numbits, numbits_union
from mutations import Mutant, draw, list_files

ROOT, PACKAGE = Path(__file__).resolve().parents[1], "paddlevit_dist"
sys.path.append(str(ROOT / "tests"))
from support import prepared  # noqa: E402

MAP = ROOT / ".mutants"  # ignored by git
NO_TESTS = 5  # pytest's exit code
KINDS, COMPLETE = ("unit", "integration"), "tests.sqlite"
STATEMENT = 6  # a statement can have several lines: its first is at most so many before a changed one
Tests = dict[tuple[str, int], set[str]]  # (file, line) -> tests that execute it, and files whose fixtures do

_COVERAGE = """[run]
include = */paddlevit_dist/*
parallel = true
patch = fork, _exit
context = ${{MEASURED_TEST-}}
disable_warnings = no-data-collected
data_file = {folder}/coverage
"""
_ROWS = """SELECT file.path, context.context, line_bits.numbits
FROM line_bits JOIN file ON file.id = line_bits.file_id JOIN context ON context.id = line_bits.context_id
WHERE context.context != ''
"""


def measure_commit(kind: str, jobs: int) -> None:
    """Measure which tests of a kind execute each line, if it was not done for this commit."""
    folder = find_map() / kind
    if not (folder / COMPLETE).exists():
        print(f"measuring which {kind} tests execute each line, once for this commit", flush=True)
        measure_tests(folder, [f"tests/{kind}"], jobs)


def measure_tests(folder: Path, tests: list[str], jobs: int) -> None:
    """Measure which of these tests execute each line; with what was begun in this folder, go on."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = folder / "coveragerc"
    settings.write_text(_COVERAGE.format(folder=folder), encoding="utf-8")
    finished = [line for file in folder.glob("finished.*") for line in file.read_text(encoding="utf-8").splitlines()]
    (folder / "skipped").write_text("\n".join(finished), encoding="utf-8")
    names = os.environ | {
        "COVERAGE_PROCESS_START": str(settings),
        "COVERAGE_CORE": "ctrace",  # what Python 3.14 prefers knows no contexts
        "MEASURED_FOLDER": str(folder),
        "MEASURED_TEST": "",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "support.measured_tests", "-p", "no:cacheprovider"]
    command += ["--tb=no", "-n", str(jobs), *tests]
    with (folder / "log").open("a", encoding="utf-8") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=names, stdout=log, stderr=log)
        while process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            print(f"{sum(file.read_bytes().count(10) for file in folder.glob('finished.*'))} measured", flush=True)
    if process.returncode not in (0, 1, NO_TESTS):  # some fail under coverage, which is slow
        sys.exit(f"pytest ended with {process.returncode}: see {folder / 'log'}")
    merge_files(sorted(folder.glob("coverage.*")), folder / COMPLETE)


def merge_files(files: list[Path], merged: Path) -> None:
    """Merge files of coverage, one of each process, into a table: which lines of a file a test executes."""
    lines: dict[tuple[str, str], bytes] = {}
    for path in files:
        with contextlib.closing(sqlite3.connect(path)) as data, contextlib.suppress(sqlite3.DatabaseError):
            for file, context, bits in data.execute(_ROWS):  # an error: its process was killed before it wrote
                place = file[file.rindex(f"/{PACKAGE}/") + 1 :], context.rpartition("|")[2]
                lines[place] = numbits_union(lines[place], bits) if place in lines else bits
    unfinished = merged.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(unfinished)) as table:
        table.execute("CREATE TABLE lines (file TEXT, test TEXT, numbits BLOB)")
        table.executemany("INSERT INTO lines VALUES (?, ?, ?)", [(*place, bits) for place, bits in lines.items()])
        table.commit()
    unfinished.rename(merged)
    for path in files:
        path.unlink()


def find_map() -> Path:
    """Find the folder of what was measured for this commit; what was measured for others is removed."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    folder = MAP / (commit or "unknown")
    for other in MAP.glob("*"):
        if other != folder:
            shutil.rmtree(other)
    return folder


def read_tests(merged: Path, mutants: Iterable[Mutant]) -> Tests:
    """Read which tests execute the lines of mutants, and those just before, from what ``merge_files`` wrote."""
    wanted: dict[str, set[int]] = {}
    for mutant in mutants:
        wanted.setdefault(mutant.file, set()).update(range(max(1, mutant.line - STATEMENT + 1), mutant.line + 1))
        for name, lines in list_calling_lines(mutant) if is_compiled(mutant) else ():
            wanted.setdefault(name, set()).update(lines)
    tests: Tests = {}
    with contextlib.closing(sqlite3.connect(merged)) as table:
        for name, lines in wanted.items():
            for test, bits in table.execute("SELECT test, numbits FROM lines WHERE file = ?", (name,)):
                for line in lines:
                    if num_in_numbits(line, bits):
                        tests.setdefault((name, line), set()).add(test)
    return tests


def list_stages(mutant: Mutant, tests: dict[str, Tests]) -> list[list[str]]:
    """List the tests that may notice a mutant, in stages: the cheapest first.

    Args:
        mutant: a changed file.
        tests: which tests of each kind execute a line; without integration tests those of the package are listed.
    """
    inside, unit = Path(mutant.file).relative_to(PACKAGE).with_suffix(""), Path("tests/unit")
    area = find_area(mutant.file)
    executing = {}
    callers = list_calling_lines(mutant) if is_compiled(mutant) else []
    for kind, of_kind in tests.items():
        lines = (of_kind.get((mutant.file, mutant.line - back)) for back in range(STATEMENT))
        called = (set().union(*(of_kind.get((name, line), ()) for line in inner)) for name, inner in callers)
        found = sorted(next(filter(None, called if callers else lines), ()))
        executing[kind] = sorted(
            found, key=lambda test: (inside.name not in test, f"/{area}/" not in test, "::" not in test)
        )
    files = sorted(file.relative_to(ROOT) for file in (ROOT / unit).rglob("test_*.py"))
    near = [file for file in files if inside.name in file.stem and f"/{area}/" in str(file)]
    near += [file for file in files if file.parent == unit / inside.parent]
    stages = [executing["unit"][: None if callers else 60], list(dict.fromkeys(map(str, near)))]
    if "integration" in tests and not is_compiled(mutant):
        parts = [spread(executing["integration"])[first : first + 12] for first in range(0, 48, 12)]
        stages += [parts[0], executing["unit"][60:], *parts[1:]]
    else:  # not measured
        whole = (f"tests/integration/{name}" for name in ("test_promises.py", area))
        stages += [[name] for name in whole if (ROOT / name).exists()]
    return [stage for stage in stages if stage]


def find_area(file: str) -> str:
    """Find the folder of the package that a file is in, such as images, or core/engine."""
    room, *rest = Path(file).relative_to(PACKAGE).parts
    return "/".join((room, *rest[:1])) if room in ("core", "extensions") else room


def is_compiled(mutant: Mutant) -> bool:
    """Whether a change may be in a compiled function: coverage does not see its lines, and numba caches it."""
    return any(word in mutant.source for word in ("@compiled", "njit", "intrinsic")) or "memory.py" in mutant.file


def list_calling_lines(mutant: Mutant) -> list[tuple[str, list[int]]]:
    """List (file, lines inside functions) of a compiled function's module, then of those that import it, and so on.

    Coverage sees no line of a compiled function, but those of the plain functions around it.
    """
    files = {str(file.relative_to(ROOT)): file.read_text(encoding="utf-8") for file in list_files(ROOT / PACKAGE)}
    found, waiting = {}, [mutant.file]
    while waiting:
        file = waiting.pop(0)
        functions = [node for node in ast.walk(ast.parse(files[file])) if isinstance(node, ast.FunctionDef)]
        bodies = (range(node.body[0].lineno, node.end_lineno + 1) for node in functions)
        found[file] = sorted(set().union(*bodies))
        name = re.compile(rf"import\b.*\b{Path(file).stem}\b|from [\w.]*\b{Path(file).stem} import")
        area = find_area(file)
        waiting += [
            other
            for other, text in files.items()
            if f"/{area}/" in other and other not in (*found, *waiting) and name.search(text)
        ]
    return list(found.items())


def spread(tests: list[str]) -> list[str]:
    """Sort tests so that two of each file come first, then all others."""
    seen: collections.Counter[str] = collections.Counter()
    places = {}
    for test in tests:
        file = test.partition("::")[0]
        seen[file] += 1
        places[test] = seen[file] > 2
    return sorted(tests, key=places.__getitem__)


class CopiedProject(NamedTuple):
    """A copy of the project whose files are changed.

    Attributes:
        folder: where it is.
        environment: variables of its tests.
        server: process with Paddle loaded, whose forks run the tests; None where there can be none.
    """

    folder: Path
    environment: dict[str, str]
    server: prepared.Server | None


def try_mutant(mutant: Mutant, stages: list[list[str]], copied: CopiedProject, limit: float) -> dict[str, Any]:
    """Run stages of tests on a mutant in a copy of the project until one fails.

    One that does not end in time has noticed the mutant if it ends in time without the change.
    """
    path = copied.folder / mutant.file
    source, status = path.read_bytes(), path.stat()

    def restore() -> None:
        path.write_bytes(source)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # what was compiled from it stays valid

    row: dict[str, Any] = {**mutant._asdict(), "killed": False, "last": []}
    row.pop("source")
    with tempfile.TemporaryDirectory() as cache:
        if mutant.file.endswith("core/runtime/process_exit.py"):
            copied = copied._replace(server=None)  # a fork of the server ends by this module
        if is_compiled(mutant):
            # Numba's cache of a loop knows nothing of changes in what the loop calls, or in other modules' constants.
            names = copied.environment | {"NUMBA_CACHE_DIR": cache}
            copied = copied._replace(environment=names, server=None)
        for stage in stages:
            path.write_text(mutant.source, encoding="utf-8")
            row["killed"], lines = run_tests(copied, stage, limit)
            restore()
            if row["killed"] is None:
                row["killed"] = run_tests(copied, stage, limit)[0] is False
            row["last"].append(([line for line in lines if line.startswith("FAILED")] or lines)[-1][:300])
            if row["killed"]:
                break
    return row


def run_tests(copied: CopiedProject, tests: list[str], limit: float) -> tuple[bool | None, list[str]]:
    """Run tests in a copy of the project; return whether one failed, None after ``limit`` seconds, and the output."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    folder, names = str(copied.folder), copied.environment
    process: subprocess.Popen | prepared.Copy
    if copied.server is not None:
        process = prepared.Copy(copied.server, command, folder, names)
    else:
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        process = subprocess.Popen(command, cwd=folder, env=names, start_new_session=True, **pipes)
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None, ["FAILED to end in time"]
    return process.returncode not in (0, NO_TESTS), [*out.splitlines(), *(err or "").splitlines()] or [""]


def copy_project(folder: Path) -> CopiedProject:
    """Copy the project for one worker, with generous time limits of unit tests: a busy machine kills no mutant."""
    shutil.copytree(
        ROOT, folder, True, shutil.ignore_patterns(".venv*", ".git", ".mutants", "output", "dist", "*_cache")
    )
    limits = folder / "tests/unit/conftest.py"
    limits.write_text(limits.read_text(encoding="utf-8").replace("SECONDS = 2.0", "SECONDS = 60.0"), encoding="utf-8")
    paths = f"{folder}{os.pathsep}{folder / 'tests'}"
    names = os.environ | {"PYTHONPATH": paths, **dict.fromkeys(("OMP_NUM_THREADS", "FLAGS_paddle_num_threads"), "1")}
    names.pop("PYTHONDONTWRITEBYTECODE", None)  # else each run of tests compiles the package
    return CopiedProject(folder, names, prepared.start_server(names))


def main() -> None:
    """Draw mutants, run their tests, and print the survivors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", help="folders or files of the package (default: all)")
    parser.add_argument("-measure", nargs="+", choices=KINDS, help="measure tests of these kinds only; draw no mutant")
    parser.add_argument("-count", type=int, default=30, help="mutants in all, of each path by its lines of code")
    parser.add_argument("-seed", type=int, help="default: from the clock")
    parser.add_argument("-jobs", type=int, default=os.cpu_count(), help="mutants at once")
    parser.add_argument("-limit", type=float, default=180, help="seconds of a stage")
    parser.add_argument("-minutes", type=float, default=1e9, help="no mutant begins later")
    parser.add_argument("-results", type=Path, help="write a line of JSON for each mutant to this file")
    options = parser.parse_args()
    seed = int(time.time()) if options.seed is None else options.seed
    for kind in options.measure or ["unit"]:
        measure_commit(kind, options.jobs)
    if options.measure:
        return
    generator = random.Random(seed)
    paths = options.paths or sorted(
        file.name for file in (ROOT / PACKAGE).iterdir() if file.is_dir() or file.suffix == ".py"
    )
    paths = [path for path in paths if not path.startswith("__")]
    generator.shuffle(paths)
    mutants = draw_by_lines(paths, options.count, generator)
    measured = {kind: find_map() / kind / COMPLETE for kind in KINDS}
    tests = {kind: read_tests(path, mutants) for kind, path in measured.items() if path.exists()}
    deadline, rows = time.monotonic() + 60 * options.minutes, []
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        copies: queue.Queue[CopiedProject] = queue.Queue()
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
            if options.results is not None:  # an interrupted run keeps what it has found
                options.results.write_text("".join(json.dumps(row) + "\n" for row in list(rows)), encoding="utf-8")

        list(pool.map(run, mutants))
    report(rows, seed)


def draw_by_lines(paths: list[str], count: int, generator: random.Random) -> list[Mutant]:
    """Draw mutants of each path in proportion to its lines; remainders go to the largest ones."""
    lines = {path: sum(file.read_bytes().count(b"\n") for file in list_files(ROOT / PACKAGE / path)) for path in paths}
    exact = {path: count * number / max(1, sum(lines.values())) for path, number in lines.items()}
    shares = {path: int(share) for path, share in exact.items()}
    for path in sorted(paths, key=lambda name: shares[name] - exact[name])[: count - sum(shares.values())]:
        shares[path] += 1
    drawn = [mutant for path in paths for mutant in draw(ROOT, ROOT / PACKAGE / path, shares[path], generator)]
    generator.shuffle(drawn)
    return drawn


def report(rows: list[dict[str, Any]], seed: int) -> None:
    """Print what has survived, the score of each package and of all."""
    for row in rows:
        if not row["killed"]:
            print(f"\n{row['file']}:{row['line']} {row['kind']}\n- {row['before']}\n+ {row['after']}")
    for of in (lambda row: Path(row["file"]).parts[1], lambda row: row["kind"]):
        totals = collections.Counter(map(of, rows))
        killed = collections.Counter(of(row) for row in rows if row["killed"])
        print(*(f"{name}: {killed[name]} of {total}" for name, total in sorted(totals.items())), sep="\n")
    print(f"{killed.total()} of {totals.total()} mutants are noticed, seed {seed}")


if __name__ == "__main__":
    main()
