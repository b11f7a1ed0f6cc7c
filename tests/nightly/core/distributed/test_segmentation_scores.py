"""The score of a segmentation network does not depend on how many processes evaluate it, nor on their batches."""

import pytest
from support.processes import ROOT, run_main
from support.trainings.runs import read_events, well

# Images of different sizes, of which seven go to three processes unevenly.
DRAWN = [f"-cfg={ROOT}/configs/segformer_b0_shapes.yaml", "-num_workers=0", "REPORT", "False", "DATA.SHAPES.SIDES"]
DRAWN += ["[40,72]", "DATA.SHAPES.TRAIN", "64", "DATA.SHAPES.VAL", "7"]
WINDOWS = "SEGMENTATION.PROTOCOL slide SEGMENTATION.CROP [40,40] SEGMENTATION.STRIDE [24,30]".split()
PROTOCOLS = {
    "whole": [],
    "windows, two scales, mirrored": [*WINDOWS, "SEGMENTATION.SCALES", "[1.0,1.5]", "SEGMENTATION.FLIP", "true"],
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("segmentation") / "run"
    well(run_main(*DRAWN, "-ngpus=1", "-epochs=2", f"-output={folder}"))
    return folder


def evaluated(trained, name, *words):
    """The last line, and all numbers."""
    folder = trained.with_name(name)
    ended = well(run_main(*DRAWN, "-eval", f"-pretrained={trained}", f"-output={folder}", *words))
    (event,) = read_events(folder)
    return ended.out.splitlines()[-1], {name: value for name, value in event.items() if "seconds" not in name}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_one_and_three_processes_with_other_batches_print_the_same_line(trained, protocol):
    words = PROTOCOLS[protocol]
    line, numbers = evaluated(trained, f"1 {protocol}", "-ngpus=1", "-batch_size_eval=1", *words)
    again, others = evaluated(trained, f"3 {protocol}", "-ngpus=3", "-batch_size_eval=4", *words)
    assert line == again and line.startswith("mIoU 0.")
    same = {
        name for name in numbers if name.startswith(("IoU", "mIoU", "Dice", "mean", "boundary", "accuracy", "pixels"))
    }
    assert len(same) > 8 and {name: others[name] for name in same} == {name: numbers[name] for name in same}
