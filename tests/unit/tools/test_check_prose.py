"""The constructions that ``make lint`` finds in docstrings, comments, messages and pages."""

import importlib.util

import pytest
from support.processes import ROOT

_spec = importlib.util.spec_from_file_location("check_prose", ROOT / "tools" / "check_prose.py")
check_prose = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(check_prose)
find_in_page, find_in_program, find_in_text = (
    check_prose.find_in_page,
    check_prose.find_in_program,
    check_prose.find_in_text,
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from paddlevit_dist import train\nfrom paddlevit_dist.core.tasks import Task\n", []),
        ("x\nfrom paddlevit_dist.core.engine import step\n", [(2, "from paddlevit_dist.core.engine")]),
        ("import paddlevit_dist.points.sparse as sparse", []),
        ("    import paddlevit_dist.extensions.compare", [(1, "import paddlevit_dist.extensions.compare")]),
        ('"from paddlevit_dist.core import tasks\\n"', [(1, "from paddlevit_dist.core")]),
        ("::: paddlevit_dist.core.tasks.Task", []),
        ("::: paddlevit_dist.core.launch.spawn", [(1, "::: paddlevit_dist.core.launch.spawn")]),
    ],
)
def test_pages_and_examples_import_from_packages_that_export_public_names(text, found):
    assert [(line, words) for line, words, _ in check_prose.find_imports(text)] == found


def test_imports_are_checked_in_chinese_pages_and_notebooks_too(tmp_path):
    (tmp_path / "examples").mkdir()
    for name in ("README_cn.md", "examples/x.ipynb", "examples/x.py"):
        (tmp_path / name).write_text("from paddlevit_dist.core.data import loader  # whoever\n")
        assert len(list(check_prose.find_in_file(tmp_path / name))) == 1
    assert check_prose.PUBLIC <= {"paddlevit_dist", *map(".".join, list_packages())}


def list_packages():
    return [path.parent.relative_to(ROOT).parts for path in (ROOT / "paddlevit_dist").rglob("__init__.pyi")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A voxel is no millimeter.", "is no millimeter"),
        ("Weights and those of the head.", "those of"),
        ("Whoever calls it resizes them.", "Whoever"),
        ("It stops a training early.", "a training"),
        ("The file stands in the folder.", "stands in"),
        ("KEY: leave it out", "leave it out"),
    ],
)
def test_a_forbidden_construction_is_found(text, words):
    assert [found for _, found, _ in find_in_text(text)] == [words]


@pytest.mark.parametrize(
    "text", ["There is no file.", "It is no longer read.", "a training run", "A rank stands for a process.", "besides"]
)
def test_plain_english_is_not(text):
    assert list(find_in_text(text)) == []


def test_a_program_is_checked_in_docstrings_comments_and_messages_alone():
    source = '"""The same."""\nleave_it_out = {"those of": 1}  # whoever\nraise ValueError("goes on here")\n'
    assert sorted((line, words) for line, words, _ in find_in_program(source)) == [
        (1, "The same."),
        (2, "those of"),
        (2, "whoever"),
        (3, "goes on"),
    ]


def test_code_and_addresses_of_a_page_are_not_checked():
    page = "Run `those of`.\n\n```\nwhoever\n```\n\n[beside](whoever.md) the page\n"
    assert [(line, words) for line, words, _ in find_in_page(page)] == [(7, "beside")]
