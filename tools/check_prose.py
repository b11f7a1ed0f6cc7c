"""Check the package's docstrings, comments and messages, and the pages, for constructions that readers stumble over.

Programs of pages and examples have to import public names from the packages that export them.

python tools/check_prose.py [PATH ...]    files or folders; without one, the package, the pages and the examples

Each line of output names the file, the line, what is there, and what to write instead. Exit code 1 if there is any.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PATHS = ("paddlevit_dist", "docs", "examples")
PATHS += ("README.md", "README_cn.md", "CONTRIBUTING.md", "RELEASING.md", "SECURITY.md", "CHANGELOG.md")
PATHS += ("CODE_OF_CONDUCT.md",)
PUBLIC = {  # packages that export public names
    "paddlevit_dist",
    *("paddlevit_dist.images", "paddlevit_dist.points", "paddlevit_dist.points.sparse", "paddlevit_dist.volumes"),
    *(f"paddlevit_dist.core.{name}" for name in ("tasks", "losses", "metrics", "intervals")),
}
_IMPORTS = re.compile(r"(?:\b(?:from|import)|:::) (paddlevit_dist(?:\.\w+)*)")
FORBIDDEN = {
    r"(?<!there )\b(is|are|was|were) no (?!longer|more\b|fewer|less|\w+er than)\w+": (
        "write 'is not a ...' or 'there is no ...'"
    ),
    r"\bthose of\b": "repeat the noun",
    r"\b(whoever|whatever|whichever|whosever)\b": "name the actor or the thing",
    r"\bnobody\b": "name who does not, or use the passive",
    r"\ba training(?! (run|set|step|loop|batch|epoch|image|sample|scene|example|job|loss|log|script|command|recipe|"
    r"process|split|crop|dataset|data|state|mode|program|folder|class|volume|update|world|file|graph|pass))\b": (
        "write 'a training run', 'training'"
    ),
    r"\b(stands?|stood) (in|on|for itself|still|beside|behind|there|at|next|once|twice|before|after|as|with)\b": (
        "write 'is', 'is in', 'hangs', 'contains'"
    ),
    r"\b(lies|lie|lay) (in|beside|behind|at|there|below|above|on|next)\b": "write 'is in', 'is at'",
    r"\bleav(e|es|ing) (it|them|this|that) out\b": "say what to type: 'remove KEY from config.yaml'",
    r"\bleft out\b": "write 'skipped', 'omitted' or 'excluded'",
    r"\bmend(s|ed|ing)?\b": "write 'fix'",
    r"\bmade-up\b": "write 'fake', 'synthetic' or 'simulated'",
    r"\bgo(es)? on\b(?! (to|GPU|CPU))": "write 'continues'",
    r"\btak(e|es|ing|en) (its|their|the) place\b": "write 'replaces'",
    r"\bbeside(?!s)\b": "write 'in addition to', 'next to' or 'with'",
    r"\b(tells?|told|said) (by|of|apart|what|which|how|whether|in|once|beside)\b": "write 'logged' or 'reported'",
    r"\bpictures?\b": "write 'image'",
    r"\b(as|so) many (?!as\b|of\b|\w+ as\b)": "write 'this number of'",
    r"\b(as|than) others? (have|has|do|does)\b": "name the others",
    r"\bof its own\b": "write 'its own ...' or 'separate'",
    r"\bof which\b": "split the sentence",
    r"(?<!such )\bas (it|they|he) (is|are|was|were)\b": "write 'unchanged'",
    r"\bhav(e|es) (it|them|that|this) (so|too)\b": "say what they do",
}
BY_REFERENCE = re.compile(r"(The same\b|As (?!\w+ (mode|soon))\w|Like \w|See above)")
_RULES = [(re.compile(pattern, re.IGNORECASE), advice) for pattern, advice in FORBIDDEN.items()]
_CODE = re.compile(r"^(```|~~~).*?^\1[^\n]*$|`[^`\n]*`|\]\([^)\s]*\)", re.MULTILINE | re.DOTALL)


def find_in_text(text: str, first_line: int = 1) -> Iterator[tuple[int, str, str]]:
    """Yield line number, the forbidden words and what to write instead, for each finding in plain text."""
    for rule, advice in _RULES:
        for match in rule.finditer(text):
            yield first_line + text.count("\n", 0, match.start()), " ".join(match.group().split()), advice


def find_in_program(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield findings in the comments, docstrings and messages of a Python program.

    A string is a message if it contains a space. Keys of tables and names are not checked.
    """
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield from find_in_text(token.string, token.start[0])
    tree = ast.parse(source)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, documented) and (text := ast.get_docstring(node)) and BY_REFERENCE.match(text):
            yield node.body[0].lineno, text.split("\n")[0], "a docstring has to make sense on its own"
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            yield from find_in_text(node.value, node.lineno)


def find_in_page(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield findings in a page of Markdown, outside its code and the addresses of its links."""
    yield from find_in_text(_CODE.sub(lambda code: re.sub(r"[^\n]", " ", code.group()), text))


def find_imports(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield findings in the programs of a page, in an example, and in the names that the page of the API shows."""
    for match in _IMPORTS.finditer(text):
        package = match[1].rpartition(".")[0] if match[0].startswith(":::") else match[1]
        if package not in PUBLIC:
            yield 1 + text.count("\n", 0, match.start()), match[0], f"import it from one of {', '.join(sorted(PUBLIC))}"


def find_in_file(file: Path) -> Iterator[tuple[int, str, str]]:
    """Yield the findings in a file. Chinese pages, and the words of examples, are not checked for constructions."""
    text, is_example = file.read_text(encoding="utf-8"), "examples" in file.parts
    if is_example or file.suffix == ".md":
        yield from find_imports(text)
    if not is_example and file.parent.name != "cn" and not file.stem.endswith("_cn"):
        yield from (find_in_program if file.suffix == ".py" else find_in_page)(text)


def main() -> int:
    """Print the findings and return the exit code."""
    paths = [Path(argument) for argument in sys.argv[1:]] or [ROOT / path for path in PATHS]
    files = [file for path in paths for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]
    number = 0
    for file in files:
        if file.suffix not in (".py", ".md", ".ipynb") or "golden" in file.parts:
            continue
        for line, words, advice in sorted(find_in_file(file)):
            number += 1
            print(f'{file}:{line}: "{words}": {advice}')
    return min(number, 1)


if __name__ == "__main__":
    sys.exit(main())
