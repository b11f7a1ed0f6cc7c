"""Training and evaluation import nothing that only other commands ask of a task; of other tasks at night."""

import subprocess
import sys

from support.processes import environment

RUNS = {
    "classification": """
from support.trainings.small_runs import build
words, sizes = ["-batch_size=16", "SAVE_FREQ", "1"], {"train_size": 32, "val_size": 16}
build(f"{folder}/run", "-epochs=1", *words, **sizes).train()
evaluate_only(build(f"{folder}/eval", "-eval", f"-pretrained={folder}/run", *words, **sizes))
""",
    "detection": """
from support.trainings.small_detections import build
build(f"{folder}/run").train()
evaluate_only(build(f"{folder}/eval", "-eval", f"-pretrained={folder}/run"))
""",
    "image_segmentation": """
from support.trainings.small_segmenters import build
build(f"{folder}/run").train()
evaluate_only(build(f"{folder}/eval", "-eval", f"-pretrained={folder}/run"))
""",
}
PROGRAM = """
import sys
from paddlevit_dist.core.inference.evaluation import evaluate_only
folder = sys.argv[1]
{run}
parts = ("prediction", "figures", "export", "drawn_samples", "classifier_prediction", "classifier_figures")
modules = [name.split(".") for name in sys.modules if name.startswith("paddlevit_dist.")]
wings = [name for name in modules if name[1] in ("images", "points", "volumes") or name[2:3] == ["metrics"]]
extensions = [name for name in modules if name[1] == "extensions" and len(name) > 3]
extensions = [name for name in extensions if name[2] in ("export", "debug", "leakage")]
unasked = [name for name in extensions if name[3] not in ("manifest", "settings", "files")]  # files: of a key
print("imported:", *[".".join(name) for name in wings if name[-1] in parts], *[".".join(name) for name in unasked])
"""


def test_nothing_of_predictions_figures_exports_and_debugging_is_imported(tmp_path):
    require_lean_imports("classification", tmp_path)


def require_lean_imports(task, tmp_path):
    program = PROGRAM.replace("{run}", RUNS[task])
    arguments = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=600, env=environment(1), check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "imported:", done.stdout
