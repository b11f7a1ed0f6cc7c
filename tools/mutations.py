"""Single changes of Python code that a test should notice, such as a dropped sign or a loop that ends early.

Changes that depend on other code of a function, such as another variable of it, are in ``mutations_in_context``.
"""

import ast
import copy
import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import mutations_in_context

_OPERATORS = {
    ast.Lt: ast.LtE,
    ast.Gt: ast.GtE,
    ast.Eq: ast.NotEq,
    ast.In: ast.NotIn,
    ast.Is: ast.IsNot,
    ast.Mult: ast.Div,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.Add: ast.Sub,
}
_FUNCTIONS = {
    "sum": "mean",
    "min": "max",
    "minimum": "maximum",
    "any": "all",
    "floor": "ceil",
    "argmin": "argmax",
    "amin": "amax",
    "zeros": "ones",
    "append": "extend",
    "std": "var",
    "round": "trunc",
}
_OTHER_OPERATOR = {**_OPERATORS, **{other: one for one, other in _OPERATORS.items()}}
_OTHER_FUNCTION = {
    **_FUNCTIONS,
    **{other: one for one, other in _FUNCTIONS.items()},
    "sorted": "list",
    "reversed": "list",
}
_OTHER_FUNCTION |= {"median": "mean", "rint": "floor", "unique": "sort"}
_PASSING_CALLS = ("reduce", "gather", "broadcast", "clip", "abs", "detach")  # of which the first argument stays
_PASSING_METHODS = ("astype", "copy", "clone", "detach")  # of which the object stays
_SEEDED = ("default_rng", "Generator", "Random", "RandomState", "PCG64")
_DTYPES = {"float64": "float32", "float32": "float16", "int64": "int32", "int32": "int16", "uint8": "int8"}
_TEXT_CALLS = frozenset(
    "print info warning warn debug error say log note write_line log_and_print cast TypeVar".split()
)
_SKIPPED_FIELDS = frozenset(("annotation", "returns", "decorator_list", "msg"))  # they decide nothing
_SKIPPED_NODES = (ast.JoinedStr, ast.Import, ast.ImportFrom, ast.Assert, ast.ExceptHandler)
_TEXT_NODES = (ast.JoinedStr, ast.List, ast.Tuple)

Change = tuple[str, ast.AST, ast.AST]  # kind, what is replaced, replacement


class Mutant(NamedTuple):
    """A file with one change.

    Attributes:
        file: path below the project.
        line: first changed line.
        kind: what kind of change it is.
        before, after: the changed code.
        source: the whole changed file.
    """

    file: str
    line: int
    kind: str
    before: str
    after: str
    source: str


def _copy_with(node: ast.AST, **fields: object) -> ast.AST:
    other = copy.copy(node)
    other.__dict__.update(fields)
    return other


def _get_name(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def list_expression_changes(node: ast.AST) -> Iterator[Change]:
    """Yield the changes of an expression that is not a call."""
    match node:
        case ast.Compare(ops=[op]):
            yield "comparison", node, _copy_with(node, ops=[_OTHER_OPERATOR[type(op)]()])
        case ast.BinOp(op=op) if type(op) in _OTHER_OPERATOR:
            sides = [getattr(side, "value", side) for side in (node.left, node.right)]
            if not any(isinstance(side, (str, bytes, *_TEXT_NODES)) for side in sides):
                yield "arithmetic", node, _copy_with(node, op=_OTHER_OPERATOR[type(op)]())
                yield "left side only", node, node.left
            is_type = ast.unparse(node.right).rpartition(".")[2][:1].isupper()
            if isinstance(op, ast.Sub | ast.Div) or isinstance(op, ast.BitOr) and not is_type:
                yield "sides swapped", node, _copy_with(node, left=node.right, right=node.left)
        case ast.BoolOp(op=op, values=values):
            yield "and/or", node, _copy_with(node, op=ast.Or() if isinstance(op, ast.And) else ast.And())
            for dropped in values:
                rest = [value for value in values if value is not dropped]
                yield "part of a condition dropped", node, _copy_with(node, values=rest) if rest[1:] else rest[0]
        case ast.IfExp():
            yield "branches swapped", node, _copy_with(node, body=node.orelse, orelse=node.body)
        case ast.Attribute(value=ast.Name(id="np" | "paddle"), attr=name) if name in _DTYPES:
            yield "dtype", node, _copy_with(node, attr=_DTYPES[name])
        case ast.Constant(value=str(value)) if value in _DTYPES:
            yield "dtype", node, ast.Constant(_DTYPES[value])
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield "sign or not dropped", node, node.operand
        case ast.Constant(value=bool(value)):
            yield "constant", node, ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield "constant", node, ast.Constant(value + 1)
        case ast.Constant(value=float(value)):
            yield "constant", node, ast.Constant(value * 2 or 1.0)
        case ast.comprehension(ifs=[test]):
            yield "filter dropped", test, ast.Constant(True)
        case ast.Slice(lower=None, upper=None, step=ast.expr() as step):
            yield "step dropped", step, ast.Constant(1)
        case ast.Slice(upper=ast.expr() as end) | ast.Slice(lower=ast.expr() as end):
            yield "slice", end, ast.BinOp(end, ast.Add(), ast.Constant(1))


def _reads(value: ast.AST, target: ast.AST) -> bool:
    """Whether an expression reads what is assigned."""
    name = ast.unparse(target)
    return any(ast.unparse(part) == name for part in ast.walk(value) if isinstance(part, type(target)))


def list_statement_changes(node: ast.AST) -> Iterator[Change]:
    """Yield the changes of a statement, or of the condition of a conditional expression."""
    match node:
        case ast.If(test=test):
            yield "if never", test, ast.Constant(False)
            yield "if always", test, ast.Constant(True)
    match node:
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) if not isinstance(test, ast.Compare):
            yield "condition negated", test, ast.UnaryOp(ast.Not(), test)
        case ast.Expr(value=ast.Call()) | ast.Continue() | ast.Raise():
            yield "statement dropped", node, ast.Pass()
        case ast.AugAssign(target=ast.expr() as target, value=value):
            yield "statement dropped", node, ast.Pass()
            yield "sum becomes its last part", node, ast.Assign([target], value)
        case ast.Assign(targets=[ast.Subscript()]):
            yield "statement dropped", node, ast.Pass()
        case ast.Assign(targets=[ast.Name() | ast.Attribute() as target], value=value) if _reads(value, target):
            yield "statement dropped", node, ast.Pass()
        case ast.Assign(targets=[ast.Tuple(elts=[ast.Name() as one, ast.Name() as other]) as pair]):
            yield "unpacking swapped", pair, _copy_with(pair, elts=[other, one])
        case ast.With(items=[ast.withitem(context_expr=ast.Call() as context)]) if "no_grad" in _get_name(context):
            yield "gradients kept", context, ast.parse("__import__('contextlib').nullcontext()", mode="eval").body
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant | ast.Name):
            yield "nothing returned", value, ast.Constant(None)
        case ast.For(iter=places, body=[first, *_]) if not isinstance(places, ast.Name):
            yield "loop ends early", first, ast.Module([first, ast.Break()], [])


def list_call_changes(node: ast.Call) -> Iterator[Change]:
    """Yield the changes of a call."""
    name, arguments = _get_name(node), node.args
    if any(isinstance(argument, ast.Starred) for argument in arguments):
        return
    if name not in ("isinstance", "max", "min", "maximum", "minimum"):
        for place in range(len(arguments) - 1):
            if place == 0 or type(arguments[place]) is type(arguments[place + 1]):
                swapped = [*arguments[:place], arguments[place + 1], arguments[place], *arguments[place + 2 :]]
                yield "arguments swapped", node, _copy_with(node, args=swapped)
    if name in _OTHER_FUNCTION:
        other = _OTHER_FUNCTION[name]
        function = _copy_with(node.func, **{"attr" if isinstance(node.func, ast.Attribute) else "id": other})
        yield "function", node, _copy_with(node, func=function, keywords=[] if other == "list" else node.keywords)
    if arguments and any(word in name for word in _PASSING_CALLS):
        yield f"{name} dropped", node, arguments[0]
    if name in _PASSING_METHODS and isinstance(node.func, ast.Attribute):
        yield f"{name} dropped", node, node.func.value
    if name in _SEEDED and arguments:
        yield "seed fixed", arguments[0], ast.Constant(0)
    if name == "len":
        yield "one less", node, ast.BinOp(node, ast.Sub(), ast.Constant(1))
    if name == "range":
        end = arguments[min(1, len(arguments) - 1)]
        yield "one less", end, ast.BinOp(end, ast.Sub(), ast.Constant(1))
    for keyword in node.keywords:
        if keyword.arg == "axis" and not isinstance(keyword.value, ast.Name | ast.Tuple):
            other = -1 if ast.unparse(keyword.value) == "0" else 0
            yield "axis", keyword.value, ast.Constant(other)
    for dropped in node.keywords:
        if dropped.arg and not _is_strict(dropped):
            kept = [keyword for keyword in node.keywords if keyword is not dropped]
            yield "keyword dropped", node, _copy_with(node, keywords=kept)


def _is_strict(node: ast.AST) -> bool:
    """Whether it is the ``strict`` of ``zip``, which only raises where this code itself is wrong."""
    return isinstance(node, ast.keyword) and node.arg == "strict"


def list_changes(tree: ast.AST) -> list[Change]:
    """List the changes of a file."""
    return [*walk(tree), *mutations_in_context.list_changes(tree, lambda node: bool(_is_skipped(node)))]


def walk(node: ast.AST) -> Iterator[Change]:
    """Yield the changes of all nodes, apart from annotations, texts for people, errors, imports and ``strict``."""
    if _is_skipped(node):
        return
    yield from list_expression_changes(node)
    yield from list_statement_changes(node)
    if isinstance(node, ast.Call):
        yield from list_call_changes(node)
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if field not in _SKIPPED_FIELDS and isinstance(child, ast.AST):
                yield from walk(child)


def _is_skipped(node: ast.AST) -> bool:
    """Whether nothing in a node decides what the program computes."""
    name = _get_name(node) if isinstance(node, ast.Call) else ""
    is_text = name in _TEXT_CALLS or name.endswith(("Error", "Warning"))
    return isinstance(node, _SKIPPED_NODES) or _is_strict(node) or is_text or _is_for_types(node)


def _is_for_types(node: ast.AST) -> bool:
    """Whether it imports what annotations alone name."""
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def draw(root: Path, path: Path, count: int, generator: random.Random) -> list[Mutant]:
    """Draw mutants of a folder or file below ``root``, at most one of each line.

    A file is drawn by its number of possible changes, then the kind of change, then the change.
    """
    changes = {file: list_changes(ast.parse(file.read_bytes())) for file in list_files(path)}
    changes = {file: found for file, found in changes.items() if found}
    taken: dict[tuple[str, int], Mutant] = {}
    for _ in range(20 * count):
        if len(taken) == count or not changes:
            break
        file = generator.choices(list(changes), [len(found) for found in changes.values()])[0]
        kind = generator.choice(sorted({change[0] for change in changes[file]}))
        mutant = _make(root, file, generator.choice([change for change in changes[file] if change[0] == kind]))
        if mutant is not None:
            taken.setdefault((mutant.file, mutant.line), mutant)
    return list(taken.values())


def list_files(path: Path) -> list[Path]:
    """List the modules of a folder, or the module itself."""
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


def _make(root: Path, file: Path, change: Change) -> Mutant | None:
    """Change a file; None if the result is not Python, or the same program."""
    kind, old, new = change
    source = file.read_bytes()
    starts = [0, *itertools.accumulate(len(line) for line in source.splitlines(keepends=True))]
    start, end = starts[old.lineno - 1] + old.col_offset, starts[old.end_lineno - 1] + old.end_col_offset
    text = ast.unparse(ast.fix_missing_locations(new)).replace("\n", "\n" + " " * old.col_offset)
    if isinstance(new, ast.expr) and not isinstance(new, ast.Constant | ast.Call):
        text = f"({text})"
    changed = source[:start] + text.encode() + source[end:]
    try:
        is_same = ast.dump(ast.parse(changed)) == ast.dump(ast.parse(source))
    except (SyntaxError, ValueError):
        return None
    before = source[start:end].decode()
    return None if is_same else Mutant(str(file.relative_to(root)), old.lineno, kind, before, text, changed.decode())
