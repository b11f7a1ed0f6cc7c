"""Importing the package changes nothing in a user's program: warnings, signals, environment, classes of libraries."""

import sys

from support.processes import run_command

PROGRAM = """
import importlib, os, pkgutil, signal, sys, types, warnings
import numpy, paddle, paddle.distributed, PIL.Image, PIL.ImageFile

def list_state():
    state = dict.fromkeys(f"filter {each}" for each in warnings.filters)
    state |= {f"signal {number}": signal.getsignal(number) for number in signal.valid_signals()}
    state |= dict.fromkeys(f"variable {name}={value}" for name, value in os.environ.items())
    for module in libraries:
        for name, value in list(vars(module).items()):
            state[f"{module.__name__}.{name}"] = value
            if isinstance(value, type):
                state |= {f"{module.__name__}.{name}.{key}": one for key, one in list(vars(value).items())}
    return state

names = ("PIL", "logging", "multiprocessing", "numpy", "os", "paddle", "sys", "threading", "warnings")
modules = [one for name, one in list(sys.modules.items()) if name.partition(".")[0] in names]
libraries = [one for one in modules if isinstance(one, types.ModuleType)]
before = list_state()
import paddlevit_dist
for info in pkgutil.walk_packages(paddlevit_dist.__path__, "paddlevit_dist."):
    if "gpu_kernels" not in info.name and not info.name.endswith("__main__"):  # Triton is optional
        importlib.import_module(info.name)
after = list_state()
assert "paddlevit_dist.points.sparse.tensor" in sys.modules
changed = [name for name, value in before.items() if name not in after or after[name] is not value]
is_new_submodule = lambda name: isinstance(after[name], types.ModuleType) or name.startswith("numpy.")
print(*changed, *(name for name in after.keys() - before.keys() if not is_new_submodule(name)), sep="\\n", end="")
"""


def test_importing_every_module_changes_nothing_outside_the_package():
    ended = run_command([sys.executable, "-W", "ignore", "-c", PROGRAM], is_copy=False)
    assert ended.code == 0, ended.err
    assert ended.out.split() == []
