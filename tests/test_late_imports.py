"""Packages that are loaded on first use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

SCRIPT = """
import sys, threading
from paddlevit_dist import late_imports
late_imports.install()
import paddle
print("setuptools" in sys.modules)
names = []
def use():
    from paddle.utils.cpp_extension import CppExtension
    names.append(CppExtension.__name__)
threads = [threading.Thread(target=use) for _ in range(3)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(names, "setup" in dir(paddle.utils.cpp_extension), "setuptools" in sys.modules)
import httpx
class Own(httpx.Client): pass
print(issubclass(Own, httpx.Client), hasattr(httpx, "nothing"), httpx.__spec__.name)
"""


def test_paddle_loads_its_compiler_of_operators_only_for_whoever_uses_it():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, timeout=100
    )
    assert done.stdout.splitlines() == [
        "False",
        "['CppExtension', 'CppExtension', 'CppExtension'] True True",
        "True False httpx",
    ], done.stderr
