"""How -selftest is run on models of these tests."""

import sys
from pathlib import Path

from support.processes import Finished, run_command

SCRIPT = Path(__file__).with_name("broken_models.py")
OTHERS = ["-image_size=16", "-dataset=digits", "-batch_size=64", "-num_workers=0", "-epochs=1"]
GRAY = ["DATA.IMAGE_CHANNELS", "1"]


def selftest(output: Path, *arguments: str) -> Finished:
    command = [sys.executable, str(SCRIPT), "-selftest", "-ngpus=2", f"-output={output}", *arguments]
    ended = run_command(command)
    assert not output.exists(), "it writes nothing"
    return ended
