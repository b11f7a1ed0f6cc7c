"""Create a virtual environment with this package and a Paddle that works on this machine.

Usage: python tools/install.py FOLDER [--paddle auto|cpu|gpu-wheel]

``auto`` installs paddlepaddle-gpu if an NVIDIA driver answers and a product on the GPU is correct, otherwise the
CPU build, with a line that says why. ``gpu-wheel`` installs paddlepaddle-gpu 2.6.2 with or without a GPU, for
the tests that a CPU can run. Needs nothing but Python.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOR_THIS_CARD = "`paddlevit-dist doctor` names Paddle's build for this GPU"
TIMM = re.search(r'^TIMM = "(.+)"', (ROOT / "setup.py").read_text(encoding="utf-8"), re.MULTILINE)[1]
# 2.6.2 imports setuptools; later versions of pyarrow need NumPy 2 and do not say so to pip.
GPU_WHEEL = ["paddlepaddle-gpu==2.6.2", "numpy>=1.21,<2", "setuptools", "pyarrow<22"]

WSL_DRIVER = "/usr/lib/wsl/lib"  # of WSL 2, not always in PATH

# Whole numbers that TF32 represents exactly.
PRODUCT = """
import numpy, paddle
paddle.set_device("gpu")
a = paddle.ones([64, 64]) * 2
assert numpy.allclose(paddle.matmul(a, a).numpy(), 256.0)
"""


def main():
    """Create the environment that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--paddle", choices=("auto", "cpu", "gpu-wheel"), default="auto")
    options = parser.parse_args()
    check_python(options.paddle)
    make_environment(options.folder)
    python = options.folder / "bin" / "python"
    install(python, "pip", "--upgrade")
    if options.paddle == "gpu-wheel":
        install(python, *GPU_WHEEL, "-e", f"{ROOT}[dev]")
    else:
        install_with_paddle(python, wants_gpu=options.paddle == "auto")
    install(python, "--no-deps", TIMM)  # for tests; with dependencies it would install PyTorch
    (options.folder / ".ready").write_text("made by tools/install.py\n", encoding="utf-8")


def check_python(paddle):
    """Exit with an error if Paddle has no wheel for this Python."""
    version = sys.version_info[:2]
    last = (3, 12) if paddle == "gpu-wheel" else (3, 13)
    if not (3, 10) <= version <= last:
        sys.exit(
            f"error: this is Python {version[0]}.{version[1]}; Paddle has wheels for 3.10 to {last[0]}.{last[1]}: "
            "run make with PYTHON=/path/to/another/python3"
        )


def make_environment(folder):
    """Create an empty virtual environment; replace an unfinished one."""
    print(f"making {folder}", flush=True)
    if folder.is_symlink():  # to an environment of another copy, which stays
        folder.unlink()
    elif folder.exists():  # left by an unfinished installation
        shutil.rmtree(folder)
    try:
        venv.create(folder, with_pip=True)
    except subprocess.CalledProcessError:
        shutil.rmtree(folder, ignore_errors=True)
        sys.exit("error: this Python cannot create virtual environments; on Debian: apt-get install python3-venv")


def install_with_paddle(python, wants_gpu):
    """Install the package with the CUDA build if it works, else with the CPU build, and print which."""
    reason = explain_no_gpu() if wants_gpu else "the CPU build was requested"
    if not reason:
        reason = try_gpu_build(python)
    if reason:
        print(f"Paddle for the CPU: {reason}", flush=True)
        install(python, "-e", f"{ROOT}[cpu,dev]")
    else:
        print("Paddle for the GPU: a product on it is correct", flush=True)


def explain_no_gpu():
    """Return why the CUDA build cannot work; empty if it may."""
    program = shutil.which("nvidia-smi") or shutil.which("nvidia-smi", path=WSL_DRIVER)
    if program is None:
        return "no NVIDIA driver on this machine"
    answer = subprocess.run([program, "-L"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if answer.returncode != 0:
        return f"the NVIDIA driver does not answer (nvidia-smi -L ends with {answer.returncode})"
    if sys.version_info[:2] > (3, 12):
        return f"PyPI has no CUDA build for this Python; use 3.10 to 3.12, or install another build: {FOR_THIS_CARD}"
    return ""


def try_gpu_build(python):
    """Install PyPI's CUDA build; if it does not work, remove it and return why."""
    install(python, *GPU_WHEEL, "-e", f"{ROOT}[dev]")  # together: a later installation would install numpy 2
    check = subprocess.run([str(python), "-c", PRODUCT], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if check.returncode == 0:
        return ""
    subprocess.run([str(python), "-m", "pip", "uninstall", "-q", "-y", "paddlepaddle-gpu"], check=True)
    lines = check.stdout.decode(errors="replace").strip().splitlines()
    return (
        f"paddlepaddle-gpu 2.6.2 does not compute here ({lines[-1][:120] if lines else 'no message'}); it needs CUDA "
        f"11.8, cuDNN and a GPU up to Ada: {FOR_THIS_CARD}"
    )


def install(python, *what):
    """Install packages with the environment's pip; exit with its output if it fails."""
    command = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *what]
    names = [str(word).replace(str(ROOT), ".") for word in what if not str(word).startswith("-")]
    print(f"installing {' '.join(names)}", flush=True)
    environment = {**os.environ, "PIP_ROOT_USER_ACTION": "ignore"}
    # Even a quiet pip prints boxes of setuptools about editable installations, so its output is shown after a failure.
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        sys.stdout.write(done.stdout.decode(errors="replace"))
        sys.stdout.flush()
        sys.exit(f"error: pip could not install {' '.join(map(str, what))}; see above")


if __name__ == "__main__":
    main()
