"""Changes of Python code that take another name of the same function or class: a wrong variable, key or field.

A test notices them only if its inputs differ where the names do, such as the two sides of an image.
"""

import ast
import copy
from collections.abc import Callable, Iterator

Change = tuple[str, ast.AST, ast.AST]  # kind, what is replaced, replacement
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SKIPPED_FIELDS = frozenset(("annotation", "returns", "decorator_list", "msg"))
_SAME_LETTERS = 3  # at either end, of names that are alike


def list_changes(tree: ast.AST, is_skipped: Callable[[ast.AST], bool]) -> Iterator[Change]:
    """Yield the changes of each function; nodes for which ``is_skipped`` is true stay with all that they contain."""
    fields = {method: names for owner in ast.walk(tree) for method, names in _list_fields(owner)}
    for function in ast.walk(tree):
        if isinstance(function, _FUNCTIONS):
            keys = sorted({node.slice.value for node in ast.walk(function) if _has_text_key(node)})
            for statement in function.body:
                yield from _walk(statement, function, keys, fields.get(function, []), is_skipped)


def _walk(
    node: ast.AST, function: ast.AST, keys: list[str], fields: list[str], is_skipped: Callable[[ast.AST], bool]
) -> Iterator[Change]:
    if is_skipped(node) or isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        return
    if isinstance(getattr(node, "ctx", None), ast.Load):
        yield from _list_reads(node, function, keys, fields)
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if field not in _SKIPPED_FIELDS and isinstance(child, ast.AST):
                yield from _walk(child, function, keys, fields, is_skipped)


def _list_reads(node: ast.AST, function: ast.AST, keys: list[str], fields: list[str]) -> Iterator[Change]:
    """Yield the changes of an expression that reads a name, a field or an entry."""
    match node:
        case ast.Name(id=name):
            names = _list_variables(function, node.lineno)
            for other in _find_alike(name, names)[:1] if name in names else ():
                yield "wrong variable", node, ast.Name(other, ast.Load())
        case ast.Attribute(value=ast.Name(id="self"), attr=name) if name in fields:
            for other in _find_alike(name, fields)[:2]:
                changed = copy.copy(node)
                changed.attr = other
                yield "wrong field", node, changed
        case ast.Subscript(slice=ast.Constant(value=str(key)) as place):
            for other in [name for name in keys if name != key][:3]:
                yield "wrong key", place, ast.Constant(other)
        case ast.Subscript(slice=ast.Constant(value=int(index)) as place):
            yield "wrong index", place, ast.Constant(1 - index if index in (0, 1) else index - 1)


def _has_text_key(node: ast.AST) -> bool:
    is_entry = isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)
    return is_entry and isinstance(node.slice.value, str)


def _list_fields(owner: ast.AST) -> Iterator[tuple[ast.AST, list[str]]]:
    """Yield each method of a class with the names of the fields that its methods assign."""
    if not isinstance(owner, ast.ClassDef):
        return
    methods = [node for node in owner.body if isinstance(node, _FUNCTIONS)]
    assigned = {
        node.attr
        for method in methods
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
    }
    for method in methods:
        yield method, sorted(assigned)


def _list_variables(function: ast.AST, before: int) -> list[str]:
    """List the arguments of a function and the variables that are assigned above a line."""
    arguments = [argument.arg for argument in function.args.args if argument.arg not in ("self", "cls")]
    assigned = [
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.lineno < before
    ]
    return sorted({*arguments, *assigned})


def _find_alike(name: str, names: list[str]) -> list[str]:
    """Find other names that begin or end alike, or are as long: often of the same kind."""
    start, end = name[:_SAME_LETTERS], name[-_SAME_LETTERS:]
    return [
        other
        for other in names
        if other != name and (other.startswith(start) or other.endswith(end) or len(other) == len(name))
    ]
