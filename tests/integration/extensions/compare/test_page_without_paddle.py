"""Without Paddle the page of a comparison has no images, and says so."""

import sys

from support.processes import run_command
from support.trainings.evaluated_digits import evaluated


def test_without_paddle_there_is_a_page_without_images(tmp_path):
    runs = [evaluated(tmp_path / str(number), wrong) for number, wrong in enumerate(([1], [2]))]
    program = (
        "import sys; sys.modules['paddle'] = None\n"
        "from paddlevit_dist.extensions.compare.command import run; run(sys.argv[1:])"
    )
    ended = run_command([sys.executable, "-c", program, *runs, f"-output={tmp_path / 'page.html'}"])
    assert ended.code == 0 and "no images: import of paddle halted" in ended.out, ended.err
