"""Digests of the source code of a run. Machines compare them, because equal versions may have different sources."""

import hashlib
import sys
from pathlib import Path

from ..registry import plugins

_PACKAGE = Path(__file__).resolve().parents[1]


def digest_sources(folder: Path = _PACKAGE) -> bytes:
    """Return the SHA-256 digest of the names and contents of all Python files below ``folder``."""
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(folder).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.digest()


def list_source_digests() -> dict[str, bytes]:
    """Return the digests of this package and of the user's modules that the run imported, by description."""
    digests = {f"sources of {_PACKAGE.name}": digest_sources()}
    for module in plugins.collect_imports().modules:
        file = getattr(sys.modules.get(module.name), "__file__", None)
        if file is not None and Path(file).is_file():
            digests[f"sources of {module.name}"] = hashlib.sha256(Path(file).read_bytes()).digest()
    return digests
