"""Programs and cells that train beside what they have loaded already, stopped and with several devices."""

import pytest
from support.trainings.calling_programs import run_program

LATE = """
import paddle
paddle.ones([2]).numpy()
views = paddle.get_flags(["FLAGS_use_stride_kernel"])
first = pv.train("vit_digits", epochs=1, output="first", **TINY)
interrupt("second")
try:
    pv.train("vit_digits", epochs=400, output="second", **TINY)
except KeyboardInterrupt as error:
    stopped = str(error)
deadline = time.monotonic() + 120  # Paddle's threads look every five seconds
while threading.active_count() > 1 and time.monotonic() < deadline:
    time.sleep(0.1)
is_kept = paddle.get_flags(["FLAGS_use_stride_kernel"]) == views and threading.active_count() == 1
print(json.dumps([first.values, stopped, is_kept]))
"""


def test_paddle_that_was_imported_before_trains_too_and_ctrl_c_saves(tmp_path):
    values, stopped, is_kept = run_program(LATE, tmp_path)
    assert set(values) >= {"top-1", "loss"} and is_kept
    assert stopped.startswith("asked to stop (SIGINT): saved second/checkpoints/update_")
    log = (tmp_path / "second" / "log.txt").read_text()
    assert "stopped: asked to stop (SIGINT)" in log


CELL = """
from paddlevit_dist.images.models.vit import VisionTransformer
class Mine(VisionTransformer):
    pass
pv.register_model("mine", Mine)
from paddlevit_dist.core.launch import launch_workers, plan_processes
def work():
    pass
try:
    launch_workers(work, (), plan_processes(2))
except pv.UserError as error:
    of_a_cell = str(error)
before = state()
own = pv.train("vit_digits", epochs=1, output="own", **{**TINY, "MODEL.NAME": "mine"})
try:
    pv.train("vit_digits", epochs=1, output="none", devices=2, **{**TINY, "MODEL.NAME": "mine"})
except pv.UserError as error:
    refused = str(error)
TINY["batch_size"] = 64
open("of_a_file.py", "w").write("class Blur:\\n    def __call__(self, image, mask):\\n        pass\\n")
sys.path.insert(0, "")
import of_a_file
pv.register_transform("blur", of_a_file.Blur())  # an object that workers can have
two = pv.train("vit_digits", epochs=1, output="two", devices=2, **TINY)
interrupt("stopped")
try:
    pv.train("vit_digits", epochs=400, output="stopped", devices=2, **TINY)
except KeyboardInterrupt as error:
    stopped = str(error)
open("of_mine.py", "w").write(
    "import paddlevit_dist as pv\\nfrom paddlevit_dist.images.models.vit import VisionTransformer\\n"
    "class InFile(VisionTransformer):\\n    pass\\npv.register_model('in_file', InFile)\\n")
in_file = pv.train("vit_digits", epochs=1, output="in_file", devices=2, IMPORTS=["of_mine.py"],
                   **{**TINY, "MODEL.NAME": "in_file"})
print(json.dumps([own.values, refused, of_a_cell, two.values, stopped, in_file.values, state() == before]))
"""


def test_a_cell_trains_on_two_devices_and_says_what_workers_cannot_know(tmp_path):
    own, refused, of_a_cell, two, stopped, in_file, is_kept = run_program(CELL, tmp_path, is_cell=True)
    assert of_a_cell.startswith("Can't get attribute 'work': worker processes do not run notebook cells")
    assert refused.startswith("model 'mine'") and "IMPORTS=['my_things.py']" in refused and "\n" not in refused
    for one in (two, in_file):
        assert one["top-1"] == pytest.approx(own["top-1"], abs=0.6)
        assert one["loss"] == pytest.approx(own["loss"], abs=2e-3)  # the same batches, added in another order
    assert stopped.startswith("asked to stop (SIGINT): saved stopped/checkpoints/update_") and is_kept
