"""The session in docs/tutorials/finetuning.md, extracted and run on the embedded digits instead of Fashion-MNIST."""

import re
import sys
from pathlib import Path

from support.processes import ROOT, run_command

PAGE = (ROOT / "docs" / "tutorials" / "finetuning.md").read_text(encoding="utf-8")
FILES = r"`(\S+\.(?:py|yaml))`:\n\n```\w+\n(.*?)```"
EXAMPLE, DIGITS = "fashion_mnist /usr/share/datasets/fashion-mnist", "digits -"


def test_the_session_runs_as_it_stands(tmp_path):
    for name in ("configs", "main_multi_gpu.py", "paddlevit_dist"):
        (tmp_path / name).symlink_to(ROOT / name)
    files = dict(re.findall(FILES, PAGE, re.DOTALL))
    assert set(files) == {"write_folders.py", "six.yaml", "four.yaml"}
    compare = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[-1]
    for name, text in {**files, "compare.py": compare}.items():
        (tmp_path / name).write_text(text)
    commands = "".join(re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL))
    assert commands.count(EXAMPLE) == 2
    commands = commands.replace("-cfg=six.yaml -epochs=2", "-cfg=six.yaml -epochs=15")  # of far fewer images
    commands = f"set -e\ncd {tmp_path}\n{commands.replace(EXAMPLE, DIGITS)}python compare.py\n"
    out = run_in_bash(commands, tmp_path)
    assert "resized" in out and "re-initialized" in out
    assert re.findall(r"^epoch (\d+)/10 training", out, re.MULTILINE) == [str(epoch) for epoch in range(1, 11)]
    top1 = float(re.findall(r"^top-1 ([\d.]+)", out, re.MULTILINE)[-1])
    assert top1 > 60, out  # of four classes
    assert float(re.search(r"largest difference ([\d.e-]+)", out)[1]) < 1e-4


def run_in_bash(commands: str, folder: Path) -> str:
    ended = run_command(["bash", "-c", commands], timeout=1800, PATH=f"{Path(sys.executable).parent}:/usr/bin:/bin")
    assert ended.code == 0, ended.out + ended.err
    return ended.out + ended.err
