"""Conventions that no linter checks."""

import ast
import re
from collections import Counter

import pytest
from support.chinese_pages import CHINESE_PAGES
from support.processes import ROOT

from paddlevit_dist.core.commands import COMMANDS, import_command
from paddlevit_dist.core.commands.parser import build_parser
from paddlevit_dist.core.settings.command_line import all_flags
from paddlevit_dist.core.settings.table import find_keys

UNIT = ROOT / "tests" / "unit"

# Folders whose files name pages of docs/, and a page of MinkowskiEngine that a recipe names.
NAMING_PAGES = ("paddlevit_dist", "tests", "tools", "benchmarks", "configs", "examples")
ENTRY_POINTS = ".plugins"  # the group paddlevit_dist.plugins of a package's metadata
PAGE_OF_OTHERS = "docs/demo/multigpu.md"

# Names of PyTorch that files of timm import from the bridge.
SHARED = {"LayerNorm", "Linear"}

# What calls ``json.dumps`` itself: everything else that is written has null for NaN, see ``format_json``.
OTHER_JSON = {
    "core/runtime/json_format.py": "defines format_json",
    "images/described_input.py": "messages show what a file has",
    "core/checkpoint/network_facts.py": "messages show what a file has",
    "extensions/debug/doctor_checks.py": "its own processes exchange numbers",
    "extensions/debug/doctor_updates.py": "its own processes exchange losses, which may be NaN",
    "core/distributed/exchange.py": "messages between processes",
    "core/launch/rendezvous.py": "messages between processes",
    "core/inference/trained.py": "hashed",
    "volumes/store.py": "hashed",
    "core/data/path_index.py": "class names",
}


def is_named_after_a_module(path) -> bool:
    """Whether ``unit/x/test_name.py`` or ``unit/x/test_name_aspect.py`` tests a module ``name`` of the folder ``x``."""
    folder, name = path.parent.relative_to(UNIT), path.stem.removeprefix("test_")
    homes = [ROOT / "paddlevit_dist" / folder, ROOT / folder]  # the latter for tools/
    modules = {file.stem for home in homes for file in home.glob("*.py")} | {homes[0].name}
    return any(name == module or name.startswith(f"{module}_") for module in modules)


def test_a_unit_test_file_is_named_after_the_module_that_it_tests():
    files = set(UNIT.rglob("test_*.py")) - {UNIT / "test_conventions.py"}
    assert [str(path.relative_to(UNIT)) for path in sorted(files) if not is_named_after_a_module(path)] == []


def test_a_public_class_name_stands_once_in_the_package():
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "paddlevit_dist").rglob("*.py")]
    classes = [name for text in texts for name in re.findall(r"^class ([A-Za-z]\w*)", text, re.MULTILINE)]
    repeated = {name for name, number in Counter(classes).items() if number > 1}
    assert repeated - SHARED == set(), "give the new class a name of its own"


def test_pages_that_code_names_exist():
    files = [path for folder in NAMING_PAGES for path in (ROOT / folder).rglob("*.*") if "golden" not in path.parts]
    named = {
        page
        for path in files
        if path.suffix in (".py", ".yaml", ".sh", ".md") and path.is_file()
        for page in re.findall(r"\bdocs/[\w/]+\.md", path.read_text(encoding="utf-8", errors="replace"))
    }
    assert len(named) > 10
    assert sorted(page for page in named - {PAGE_OF_OTHERS} if not (ROOT / page).is_file()) == []


def test_files_that_the_architecture_names_exist():
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", page))
    assert len(named) > 40
    assert (
        sorted(name for name in named if not any((ROOT / top / name).is_file() for top in ("paddlevit_dist", ".")))
        == []
    )


def test_packages_that_pages_name_exist():
    """In full, or as ".points" after another: "`paddlevit_dist.images`, `.points` and `.core.tasks`"."""
    named = set()
    for path in [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]:
        for lists in re.findall(
            r"`paddlevit_dist\.[\w.]+`(?:[,、和 and]+`\.[\w.]+`)*", path.read_text(encoding="utf-8")
        ):
            named |= {(path.name, name.removeprefix("paddlevit_dist")) for name in re.findall(r"`([\w.]+)`", lists)}
    modules = {
        each: each[1].rpartition(".")[0] if each[1].rpartition(".")[2][:1].isupper() else each[1] for each in named
    }
    places = {each: ROOT / "paddlevit_dist" / name[1:].replace(".", "/") for each, name in modules.items()}
    assert len(named) > 10
    assert sorted(each for each in named if not is_module(places[each]) and each[1] != ENTRY_POINTS) == []


def is_module(path):
    return path.parent.joinpath(f"{path.name}.py").is_file() or (path / "__init__.py").is_file()


def test_text_is_read_and_written_with_its_encoding():
    """Without one, it would be that of the user's locale."""
    guessed, positional = [], {"read_text": 1, "write_text": 2}
    for file in sorted((ROOT / "paddlevit_dist").rglob("*.py")):
        source = file.read_text(encoding="utf-8")
        opens = re.search(r"\bopen\(|\b(read|write)_text\(", source)
        for call in ast.walk(ast.parse(source if opens else "")):
            if not isinstance(call, ast.Call) or any(keyword.arg in ("encoding", None) for keyword in call.keywords):
                continue
            if isinstance(call.func, ast.Attribute):
                is_guessed = len(call.args) < positional.get(call.func.attr, 0)
            else:
                is_opened = isinstance(call.func, ast.Name) and call.func.id == "open"
                is_guessed = is_opened and "b" not in "".join(map(ast.unparse, call.args[1:2]))
            if is_guessed:
                guessed.append(f"{file.relative_to(ROOT)}:{call.lineno}")
    assert guessed == []


def test_json_files_have_null_where_a_number_is_not_finite():
    """Python writes NaN, which browsers, jq and msgspec refuse."""
    files = sorted((ROOT / "paddlevit_dist").rglob("*.py"))
    found = [path for path in files if re.search(r"\bjson\.dumps?\b|from json", path.read_text(encoding="utf-8"))]
    names = {path.relative_to(ROOT / "paddlevit_dist").as_posix() for path in found}
    assert names == OTHER_JSON.keys(), "write JSON with runtime.json_format.format_json"


def list_texts(path):
    """Yield the texts of a file but its docstrings, with ``{}`` for each value in them."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= set(map(id, node.values))
            yield "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.value


def test_keys_and_options_that_messages_name_exist():
    known = {".".join(name.split(".")[:number]) for name in find_keys() for number in range(1, 9)}
    known |= {"DATA.MINE.FOLD", "MODEL.IMG_SIZE"}  # a user's key, and PaddleViT's
    parsers = filter(None, (build_parser(import_command(command)) for command in COMMANDS))
    options = {row.partition("=")[0] for parser in parsers for row, _ in parser.rows()}
    options |= {f"-{flag.name}" for flag in all_flags().values()} | {"-flag"}

    def find_unknown(text):
        names = set(re.findall(r"\b(?:DATA|POINTS|VOLUMES|MODEL|TRAIN|EVALUATION)(?:\.[A-Z][A-Z0-9_]*)+\b(?!\{)", text))
        return names - known | set(re.findall(r"(?<=[ (])-[a-z_]{3,}(?==)", text)) - options

    paths = sorted((ROOT / "paddlevit_dist").rglob("*.py"))
    suspects = [path for path in paths if find_unknown(path.read_text(encoding="utf-8"))]  # parsing all takes long
    found = {
        (path.name, name)
        for path in suspects
        for text in list_texts(path)
        if " " in text
        for name in find_unknown(text)
    }
    assert found == set()


def test_each_chinese_page_is_named_after_a_page():
    pages = {f"docs/cn/{path.name}" for path in (ROOT / "docs" / "cn").iterdir()}
    assert {*pages, "README_cn.md"} == CHINESE_PAGES.keys()


@pytest.mark.parametrize("chinese, english", CHINESE_PAGES.items())
def test_both_languages_of_a_page_have_the_same_figures_and_commands(chinese, english):
    translated = list_figures(chinese)
    for kind, figures in list_figures(english).items():
        assert translated[kind] == figures, kind
    assert len(translated["codes"]) > 15


def list_figures(page):
    """Decimal numbers, dates, names of GPUs, commands and other code of a page, each once."""
    text = (ROOT / page).read_text(encoding="utf-8")
    prose = re.sub(r"```.*?```", "", re.sub(r"\]\([^)]*\)", "]", text), flags=re.DOTALL)
    blocks = "\n".join(text.split("```")[1::2])
    commands = {line.partition("#")[0].strip() for line in blocks.splitlines()}
    return {
        "numbers": set(re.findall(r"\d+[.,]\d+", prose)) | set(re.findall(r"\d{4}-\d\d-\d\d", prose)),
        "GPUs": set(re.findall(r"(?<![A-Za-z])[ABHV]\d00(?!\d)", prose)),
        "codes": commands | {" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose)},
    }


@pytest.mark.parametrize("page", ("README.md", "README_cn.md"))
def test_the_first_screen_of_the_readme_has_both_commands_of_a_clone(page):
    first_screen = (ROOT / page).read_text(encoding="utf-8").splitlines()[:35]
    blocks = "\n".join(first_screen).split("```")[1::2]
    commands = [line.partition("#")[0].strip() for line in blocks[0].splitlines() if line]
    assert commands == ["make demo", "make test"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(re.search(rf"^{command.split()[1]}: ", makefile, re.MULTILINE) for command in commands)


def test_the_checks_of_a_change_run_the_test_command_of_the_readme():
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert "make test" in [line.partition("#")[0].strip() for line in lines]


@pytest.mark.parametrize(
    "page, number", [("README.md", "Fourteen"), ("README_cn.md", "十四"), ("CHANGELOG.md", "fourteen")]
)
def test_pages_count_the_tasks_of_the_package(page, number):
    sections = re.findall(
        r"^## TASK (.+)$", (ROOT / "docs/reference/keys.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    tasks = {name for section in sections for name in section.split(" and ") if not name.endswith("_probe")}
    assert len(tasks) == 14
    assert number in (ROOT / page).read_text(encoding="utf-8")
