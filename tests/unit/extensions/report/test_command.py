"""Where the command writes the page."""

import os

import pytest
from support.trainings.report_runs import write_run

from paddlevit_dist import UserError
from paddlevit_dist.extensions.report import command


def test_the_page_is_in_the_run_here_or_where_it_was_asked_for(tmp_path, monkeypatch, capsys):
    first, second = (write_run(tmp_path / name) for name in "ab")
    (tmp_path / "pages").mkdir()
    monkeypatch.chdir(tmp_path)
    for words, target in (
        ([str(first)], first / "report.html"),
        (["b"], second / "report.html"),
        (["a", "b"], tmp_path / "report.html"),
        (["a", f"-output={tmp_path / 'pages'}"], tmp_path / "pages" / "report.html"),
        (["a", "-output=new/er/page.html"], tmp_path / "new" / "er" / "page.html"),
    ):
        command.run(words)
        shown = os.path.relpath(target) if words[0] != str(first) and "pages" not in words[-1] else str(target)
        assert target.is_file() and capsys.readouterr().out.startswith(f"{shown}, 0.")
    second.joinpath("file").write_text("")
    with pytest.raises(UserError, match="report: b/file/page.html: "):
        command.run(["a", "-output=b/file/page.html"])
