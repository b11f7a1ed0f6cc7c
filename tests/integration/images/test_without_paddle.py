"""What needs no Paddle is seen not to import it: lists of models, a guess, scores of other programs' tables."""

import sys
from pathlib import Path

from PIL import Image
from support.processes import ROOT, Finished, run_command
from unit.images.classification.test_evaluate_command import LABELS, SCORES, score_rows, table, truth_rows

from paddlevit_dist.core.registry.lookup import list_models
from paddlevit_dist.core.registry.names import REGISTRY

WITHOUT_PADDLE = "import sys; sys.modules['paddle'] = None\n"  # any import of paddle fails


def run_program(program: str, *words: str, folder: Path | None = None) -> Finished:
    """In a process of its own: one that has Paddle loaded would have it here, too."""
    ended = run_command([sys.executable, "-c", program, *words], timeout=600, folder=folder, is_copy=False)
    assert ended.code == 0, ended.err
    return ended


def test_listing_models_does_not_import_paddle():
    program = "import sys, paddlevit_dist as m; names = m.list_models(); print('paddle' in sys.modules, len(names))"
    ours = [
        name for name in list_models() if ("model", name) not in REGISTRY.registrations
    ]  # other tests register theirs
    assert run_program(program).out.split() == ["False", str(len(ours))]


def test_the_command_that_lists_models_imports_no_paddle():
    program = (
        "import sys; from paddlevit_dist.core.commands import inspect_model as m; m.run(sys.argv[1:]); "
        "print('paddle' in sys.modules)"
    )
    lines = [line.split() for line in run_program(program, "--list", "pvt", folder=ROOT).out.splitlines()]
    assert lines[-1] == ["False"]
    assert ["pvt_v2_b2_linear", "=", "pvt_v2_b2_li"] in lines
    assert ["pvt_v2_b0", "paddlevit_dist.images.models.pvt_v2", "pvt_v2_b0.in1k", "(Apache-2.0)"] in lines


def test_a_guess_needs_no_paddle(tmp_path):
    for place in ("train/ant/1.jpg", "train/bee/1.jpg", "val/ant/2.jpg", "val/bee/2.jpg"):
        (tmp_path / place).parent.mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(tmp_path / place)
    guess = "from paddlevit_dist.images.data.guessing import guess; print(guess(sys.argv[1]).dataset)"
    assert run_program(WITHOUT_PADDLE + guess, str(tmp_path)).out == "folder\n"


def test_scores_of_a_table_need_neither_paddle_nor_the_wing_of_comparisons(tmp_path):
    for name, rows in (("truth", truth_rows(LABELS)), ("scores", score_rows(SCORES))):
        (tmp_path / f"{name}.csv").write_text(table(rows))
    program = (
        f"{WITHOUT_PADDLE}sys.modules['paddlevit_dist.extensions.compare.tables'] = None\n"
        "from paddlevit_dist.core.registry.names import REGISTRY; del REGISTRY.functions['write_scored']\n"
        "from paddlevit_dist.__main__ import main; sys.exit(main(['evaluate', 'classes', *sys.argv[1:]]))"
    )
    ended = run_program(program, "truth.csv", "scores.csv", "-output=out", folder=tmp_path)
    assert ended.out.count("\n") == 16
    assert (
        ended.err.startswith("note: the interval is rough: 40 images (below 50), 8 right (below 10)")
        and ended.err.count("\n") == 1
    )
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["scores.json"]
