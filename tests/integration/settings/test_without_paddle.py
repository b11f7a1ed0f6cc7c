"""A configuration is loaded, described and written without Paddle."""

import sys

from support.processes import run_command


def test_nothing_here_imports_paddle(tmp_path):
    (tmp_path / "x.yaml").write_text("TRAIN: {BASE_LR: 3e-3}")
    script = (
        "import sys; from paddlevit_dist.settings import load, dump_yaml;"
        "c = load(['-cfg=x.yaml', '-amp']); c.describe(); dump_yaml(c.values);"
        "print(sorted(m for m in sys.modules if m.split('.')[0] in ('paddle', 'numpy', 'PIL')))"
    )

    done = run_command([sys.executable, "-c", script], timeout=600, folder=tmp_path, is_copy=False)

    assert done.code == 0, done.err
    assert done.out.strip() == "[]"
