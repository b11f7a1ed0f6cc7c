"""Digests of the source code of a run: equal versions and weights may have different sources.

Machines compare them, and features that were computed before are of the same code.
"""

import hashlib
import sys
from pathlib import Path

import paddle

from ..registry import plugins
from ..runtime.environment import PACKAGE


def digest_sources(folder: Path = PACKAGE) -> bytes:
    """Return the SHA-256 digest of the names and contents of all Python files below ``folder``."""
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(folder).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.digest()


def list_source_digests() -> dict[str, bytes]:
    """Return the digests of this package and of the user's modules that the run imported, by description."""
    digests = {f"sources of {PACKAGE.name}": digest_sources()}
    for module in plugins.collect_imports().modules:
        file = getattr(sys.modules.get(module.name), "__file__", None)
        if file is not None and Path(file).is_file():
            digests[f"sources of {module.name}"] = hashlib.sha256(Path(file).read_bytes()).digest()
    return digests


def digest_layers(network: paddle.nn.Layer) -> list[str]:
    """Return the SHA-256 digests, sorted, of the files that define a network's layers, but this package's and Paddle's.

    Classes of a notebook's cells are in no file.
    """
    modules = {cls.__module__ for layer in network.sublayers(include_self=True) for cls in type(layer).__mro__}
    own = [module for module in modules if module.partition(".")[0] not in (PACKAGE.name, "paddle")]
    files = [Path(getattr(sys.modules.get(module), "__file__", None) or "") for module in own]
    return sorted(hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.is_file())
