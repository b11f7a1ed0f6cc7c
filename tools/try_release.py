"""Install a wheel or a source archive in an empty environment, train with it in an empty folder, and evaluate.

Usage: python tools/try_release.py FILE [FILE ...]

Each file gets an environment of its own, with Paddle's CPU build from the registry. The exit code is 1 if a command
fails, or if the evaluation of the saved checkpoint does not print the score that training ended with.
"""

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path


def main():
    """Try every file that the command line names."""
    files = [Path(word).resolve() for word in sys.argv[1:]]
    if not files or not all(file.is_file() for file in files):
        sys.exit("error: name the files of a release, such as dist/*: make dist builds them")
    for file in files:
        with tempfile.TemporaryDirectory() as folder:
            print(f"== {file.name}", flush=True)
            score = try_file(file, Path(folder))
            print(f"== {file.name}: the checkpoint gives what training ended with: {score}", flush=True)


def try_file(file, folder):
    """Return the score of a training run with the package in ``file``, which its evaluation has repeated."""
    venv.create(folder / "environment", with_pip=True)
    programs, elsewhere = folder / "environment" / "bin", folder / "elsewhere"
    elsewhere.mkdir()
    run(elsewhere, programs / "python", "-m", "pip", "install", "-q", f"{file}[cpu]")
    command = programs / "paddlevit-dist"
    print(run(elsewhere, command, "version"))
    trained = run(elsewhere, command, "train", "-cfg=vit_digits", "-epochs=2", "-output=run").partition(" (")[0]
    evaluated = run(elsewhere, command, "evaluate", "-cfg=run/config.yaml", "-pretrained=run", "-output=again")
    if trained != evaluated:
        sys.exit(f"error: training ended with '{trained}', the evaluation of its checkpoint says '{evaluated}'")
    return evaluated


def run(folder, *words):
    """Run a command in ``folder`` and return its last line; exit with what it printed if it fails."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run(
        [*map(str, words)], cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if ended.returncode != 0:
        sys.exit(f"{ended.stdout}\nerror: {' '.join(map(str, words))}: exit code {ended.returncode}")
    return (ended.stdout.strip().splitlines() or [""])[-1]


if __name__ == "__main__":
    main()
