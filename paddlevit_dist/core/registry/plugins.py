"""Users' modules that join a run: those named by -import or IMPORTS, and entry points of installed packages.

A module joins by what it registers when it is imported. The parent of a run imports it first, and its workers import it
again before they unpickle anything else; loader processes are forked from these. An installed package joins without an
option, by an entry point of the group ``paddlevit_dist.plugins`` that names a module, a function without arguments or a
``Manifest``. It is loaded when an unregistered name, key or command is requested.
"""

import contextlib
import importlib
import importlib.machinery
import os
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..runtime.errors import OwnCodeError, UserError
from ..runtime.hints import find_similar
from ..runtime.lazy_names import import_object
from .manifest import Manifest

GROUP = "paddlevit_dist.plugins"
_REGISTER_FEATURE = "paddlevit_dist.core.registry.register:register_feature"


class ModuleLocation(NamedTuple):
    """A module's name, importable once ``folder`` is in Python's path."""

    name: str
    folder: str


class WorkerImports(NamedTuple):
    """The modules that a worker imports like its parent, and whether also entry points."""

    modules: tuple[ModuleLocation, ...]
    with_installed: bool


_loaded: list[ModuleLocation] = []
_folders: list[str] = []  # added to Python's path
_installed_are_loaded = False


def load(names: Sequence[str], origin: str) -> None:
    """Import users' modules.

    Args:
        names: dotted names, searched in the current folder first, or paths of files.
        origin: where they are named, for messages: "-import", or the file and line of IMPORTS.

    Raises:
        UserError: one of them does not exist, or its name is in use.
        OwnCodeError: one of them raised an exception.
    """
    for name in names:
        module = _locate(name, origin)
        _import(module, f"{origin}={name}" if origin == "-import" else f"{origin} {name}")
        if module not in _loaded:
            _loaded.append(module)


def find_missing(names: Sequence[str]) -> list[str]:
    """Return the ``names`` that this process has not imported from any location."""
    return [name for name in names if last_part(name) not in {last_part(module.name) for module in _loaded}]


def last_part(name: str) -> str:
    """Return ``things`` for my_project.things and for my_project/things.py."""
    return os.path.basename(name).removesuffix(".py").rpartition(".")[2]


def collect_imports() -> WorkerImports:
    """Return the modules that ``load_imports`` imports in a worker."""
    return WorkerImports(tuple(_loaded), _installed_are_loaded)


def load_imports(imports: WorkerImports) -> None:
    """Import in a worker the modules that its parent has imported; raises errors as ``load`` does."""
    for module in imports.modules:
        _import(module, f"-import={module.name}")
        if module not in _loaded:
            _loaded.append(module)
    if imports.with_installed:
        load_installed()


@contextlib.contextmanager
def folders_hidden() -> Iterator[None]:
    """Hide the folders of users from processes that are spawned inside the block.

    A process begins with this one's path. It might import a user's file instead of a library's from these folders
    before it calls ``load_imports``.
    """
    before = list(sys.path)
    sys.path[:] = [folder for folder in before if folder not in _folders]
    try:
        yield
    finally:
        sys.path[:] = before


def load_installed() -> bool:
    """Load the entry points of installed packages, once, and return whether any were loaded by this call.

    An entry point that cannot be loaded is skipped with a note on stderr.
    """
    global _installed_are_loaded
    if _installed_are_loaded:
        return False
    _installed_are_loaded = True
    from importlib import metadata

    any_loaded = False
    for point in metadata.entry_points(group=GROUP):
        try:
            joined = point.load()
            if isinstance(joined, Manifest):
                import_object(_REGISTER_FEATURE)(joined)
            elif callable(joined):
                joined()
            any_loaded = True
        except Exception as error:  # of a package that this run may not need
            reason = f"{type(error).__name__}: {error}".split("\n")[0]
            print(f"note: the plugin {point.name} ({point.value}) cannot be loaded: {reason}", file=sys.stderr)
    return any_loaded


def _locate(name: str, origin: str) -> ModuleLocation:
    """Find a module's name as Python imports it, and its folder."""
    text = os.path.expanduser(name.strip())
    if not text:
        raise UserError(f"{origin} needs the name of a module or of a file: -import=my_things or -import=my_things.py")
    if not (text.endswith(".py") or os.sep in text or text.startswith(".")):
        return ModuleLocation(text, _current_folder())
    path = os.path.abspath(text)
    if os.path.isdir(path):
        if not os.path.isfile(os.path.join(path, "__init__.py")):
            raise UserError(f"{origin} {name}: {path} is a folder without __init__.py: name a file in it")
    elif not os.path.isfile(path):
        raise UserError(f"{origin} {name}: there is no file {path}{_closest(os.path.basename(path), path)}")
    folder, file = os.path.split(path)
    parts = [file.removesuffix(".py")]
    if parts == ["__init__"]:
        folder, parts[0] = os.path.split(folder)
    while os.path.isfile(os.path.join(folder, "__init__.py")):  # part of a package, which may use relative imports
        folder, package = os.path.split(folder)
        parts.insert(0, package)
    return ModuleLocation(".".join(parts), folder)


def _current_folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise UserError("the current folder has been removed: change to another one") from None


def _import(module: ModuleLocation, source: str) -> None:
    if module.folder not in sys.path:
        sys.path.insert(0, module.folder)
        _folders.append(module.folder)
    importlib.invalidate_caches()
    try:
        importlib.import_module(module.name)
    except UserError as error:  # such as a name that is registered twice
        raise UserError(f"{source}: {error}") from error
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module.name}.".startswith(f"{error.name}."):
            raise _wrap_error(source, error) from error  # the module exists, but imports a missing one
        close = _closest(module.name.partition(".")[0], os.path.join(module.folder, "x"))
        raise UserError(
            f"{source}: there is no module {error.name} in {module.folder}, nor is one installed{close}"
        ) from None
    except (Exception, SystemExit) as error:
        raise _wrap_error(source, error) from error
    _require_origin(module, source)


def _wrap_error(source: str, error: BaseException) -> OwnCodeError:
    return OwnCodeError.wrap(f"{source} raises {type(error).__name__} when it is imported: {error}", error)


def _require_origin(module: ModuleLocation, source: str) -> None:
    """Check that the file in the folder was imported, and not a library of the same name."""
    if getattr(sys.modules[module.name], "__file__", None) is None and module.name not in sys.builtin_module_names:
        raise UserError(f"{source}: it is a folder without __init__.py: name a module in it")
    first = module.name.partition(".")[0]
    expected = importlib.machinery.PathFinder.find_spec(first, [module.folder])
    if expected is None or expected.origin is None:
        return
    is_builtin = first in sys.builtin_module_names
    imported = "a part of Python itself" if is_builtin else getattr(sys.modules.get(first), "__file__", None)
    if imported is not None and os.path.realpath(expected.origin) != os.path.realpath(imported):
        raise UserError(f"{source}: {expected.origin} has the name of a module that is in use, {imported}: rename it")


def _closest(name: str, path: str) -> str:
    """Suggest the module or file next to ``path`` with the spelling closest to ``name``."""
    folder = os.path.dirname(path)
    has_ending = name.endswith(".py")
    names = []
    for entry in os.listdir(folder) if os.path.isdir(folder) else []:
        if entry.endswith(".py"):
            names.append(entry if has_ending else entry.removesuffix(".py"))
        elif os.path.isfile(os.path.join(folder, entry, "__init__.py")):
            names.append(entry)
    near = find_similar(name, names)
    return f": did you mean {near[0]}?" if near else ""
