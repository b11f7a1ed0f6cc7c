"""Which files an export may replace, and which remain."""

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.extensions.export.outputs import check_output, require_replaceable, write_together


def write_export(path, files: dict[str, str], kind: str = "paddle") -> None:
    """Write files as an export does, by their suffixes."""
    with write_together(path) as folder:
        for suffix, text in {**files, ".about.yaml": f"format: {kind}\n"}.items():
            (folder / f"{path.name}{suffix}").write_text(text)


def list_names(folder) -> set[str]:
    return {file.name for file in folder.iterdir()}


def test_an_export_in_the_same_format_is_replaced_with_all_its_files(tmp_path):
    write_export(tmp_path / "net", {".json": "a", ".pdiparams": "b", ".yml": "of PaddleX"})
    (tmp_path / "net.txt").write_text("a note of the user's")
    require_replaceable(tmp_path / "net", "paddle")
    write_export(tmp_path / "net", {".json": "c", ".pdiparams": "d"})
    assert list_names(tmp_path) == {"net.json", "net.pdiparams", "net.about.yaml", "net.txt"}
    assert (tmp_path / "net.json").read_text() == "c"


FOREIGN = {
    "another format": ({".onnx": "a", ".about.yaml": "format: onnx\n"}, "paddle"),
    "other operators": ({".onnx": "a", ".about.yaml": "format: onnx\n"}, "onnxruntime"),
    "two formats": ({".onnx": "a", ".pdiparams": "b", ".about.yaml": "format: onnx\n"}, "onnx"),
    "another program's": ({".onnx": "a"}, "onnx"),
    "another description": ({".about.yaml": "author: me\n"}, "onnx"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_anything_else_is_refused_and_deleted_if_asked_for(tmp_path, name):
    files, kind = FOREIGN[name]
    for suffix, text in files.items():
        (tmp_path / f"net{suffix}").write_text(text)
    with pytest.raises(UserError, match=rf"^export: .*net.*: not an earlier export with -format={kind}: .* -replace"):
        require_replaceable(tmp_path / "net", kind)
    assert list_names(tmp_path) == {f"net{suffix}" for suffix in files}
    write_export(tmp_path / "net", {".json": "new"})
    assert list_names(tmp_path) == {"net.json", "net.about.yaml"}


def test_a_path_is_a_file_name(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert check_output("~/a.b") == tmp_path / "a.b" == check_output(str(tmp_path / "a.b"))
    for folder in (str(tmp_path), f"{tmp_path}/", f"{tmp_path}/new/", "~", "."):
        with pytest.raises(UserError, match=rf"^export: {folder} is a folder: add a file name, such as .*/?model$"):
            check_output(folder)


@pytest.mark.parametrize("path", ["\udcff", "folder\udcff/model"])
def test_a_path_that_paddle_cannot_write_is_refused_in_a_line(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"^export: .*\\xff.* is not UTF-8, which Paddle needs: choose another OUT$"):
        check_output(path)
