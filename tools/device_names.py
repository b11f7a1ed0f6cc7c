"""See that only the table of devices names a GPU to Paddle; ``make lint`` fails where another file does.

python tools/device_names.py [FOLDER]    of the package, else that of this repository; exit code 1 with each such line

Forbidden elsewhere are the text "gpu" (also "gpu:0"), ``is_compiled_with_cuda`` and ``CUDAPlace``: whoever writes one
has forgotten the devices that are not NVIDIA's.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "paddlevit_dist"
TABLE = Path("runtime", "device_kinds.py")
NAMES = ("is_compiled_with_cuda", "CUDAPlace")


def named(path: Path) -> Iterator[tuple[int, str]]:
    """The lines on which a file names a GPU to Paddle, each with what stands there."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node.value == "gpu" or node.value.startswith("gpu:"):
                yield node.lineno, f'"{node.value}"'
        elif isinstance(node, ast.Attribute) and node.attr in NAMES:
            yield node.lineno, node.attr
        elif isinstance(node, ast.alias) and node.name in NAMES:
            yield node.lineno, node.name


def main(package: Path) -> int:
    files = sorted(path for path in package.rglob("*.py") if path.relative_to(package) != TABLE)
    found = [f"{path}:{line}: {what}" for path in files for line, what in named(path)]
    for line in found:
        print(f"{line}: ask {package.name}/{TABLE} instead, which knows every kind of device")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else PACKAGE))
