"""What ``predict`` writes for scenes besides the tables: the files of the evaluations' writers."""

from __future__ import annotations

from typing import Any, Iterable, List

from ..contracts.prediction import OutputWriter, Row
from ..environment import program
from .data.scannet_classes import CLASS_NAMES, TEST_SCENES
from .inputs import SceneInputs


class SceneOutputs(OutputWriter):
    """Reads each scene once more and hands it to a writer, with the coordinates of its source.

    Args:
        samples: the inputs, whose scenes are named as their files will be.
        writer: the task's writer of predictions; without truth.
    """

    def __init__(self, samples: SceneInputs, writer: Any) -> None:
        self.samples = samples
        self.writer = writer

    def write(self, index: int, prediction: Any) -> Row:
        scene = self.samples.scene(index)
        names = self.writer.write_predicted(scene, prediction)
        ends = {"ply": ".ply", "picture": ".png", "text": ".txt"}
        return {kind: next((name for name in names if name.endswith(end)), None) for kind, end in ends.items()}

    def finish(self, rows: Iterable[Row]) -> List[str]:
        if not len(self.samples):
            return []
        lines = [f"for each scene in {self.writer.folder}: {self.writer.predicted_files}"]
        is_hidden = not set(TEST_SCENES).isdisjoint(self.samples.samples.dataset.names)  # type: ignore[attr-defined]
        if is_hidden and tuple(self.writer.class_names) == CLASS_NAMES:
            lines.append(
                f"for ScanNet's benchmark: {program('inspect submission')} {self.writer.folder} "
                "--data_path=DOWNLOAD --zip=submission.zip"
            )
        return lines
