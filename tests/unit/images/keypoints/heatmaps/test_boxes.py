"""Boxes of objects from annotations, whole images, a file and a detector."""

import json
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from PIL import Image
from support.trainings.trained import write_weights

from paddlevit_dist import UserError
from paddlevit_dist.images.detection.data.image_annotations import ImageAnnotations
from paddlevit_dist.images.detection.data.samples import DetectionSample
from paddlevit_dist.images.detection.detections import DetectedObjects
from paddlevit_dist.images.keypoints.data.drawn_figures import DrawnFigures
from paddlevit_dist.images.keypoints.heatmaps import samples
from paddlevit_dist.images.keypoints.heatmaps.boxes import BoxDetector, BoxFile, WholeImages, find_annotated


def make_detector(class_names, least_score=0.25):
    detector = BoxDetector.__new__(BoxDetector)
    detector.run, detector.least_score, detector._model = "run", least_score, "a network"
    detector.task = SimpleNamespace(class_names=class_names)
    return detector


def test_a_run_of_another_task_finds_no_boxes(tmp_path):
    weights = write_weights(tmp_path / "classifier", ["a", "b"])
    with pytest.raises(UserError, match=f"^-detector={weights} is a run of classification: expected a detector's"):
        BoxDetector(str(weights), 0.5)


def test_a_detector_finds_categories_by_name_or_the_only_one():
    detector = make_detector(["hand", "car", "PERSON"])
    assert detector.match_categories(["person", "Hand "]) == ["boxes: detector run finds hand, PERSON"]
    boxes = np.array([[1, 2, 4, 8], [0, 0, 9, 9], [3, 3, 5, 6], [3, 3, 3, 6], [2, 2, 2.5, 3]], np.float32)
    scores = np.array([0.5, 0.9, 0.25, 0.8, 0.3], np.float32)
    found = detector.choose(DetectedObjects(boxes, scores, np.array([0, 1, 2, 2, 0])))
    assert found.boxes.tolist() == [[1, 2, 3, 6], [3, 3, 2, 3], [2, 2, 0.5, 1]]
    assert found.labels.tolist() == [1, 0, 1] and found.scores.tolist() == scores[[0, 2, 4]].tolist()
    assert [column.dtype for column in found] == [np.float64, np.int64, np.float64]
    assert detector.__getstate__()["_model"] is None and detector.__getstate__()["run"] == "run"
    alone = make_detector(["thing"])
    assert alone.match_categories(["person"]) == ["boxes: detector run finds thing"]
    found = alone.choose(DetectedObjects(boxes[:1], scores[:1], np.array([0])))
    assert found.labels.tolist() == [0] and found.labels.dtype == np.int64
    for class_names in (["thing"], ["thing", "car"]):
        with pytest.raises(UserError, match=f"^-detector=run finds {', '.join(class_names)}, and none .*: person, ha"):
            make_detector(class_names).match_categories(["person", "hand"])


class Falling(DrawnFigures):
    """Images whose ids fall."""

    @property
    def image_ids(self):
        return np.array([9, 4, 7])


def test_a_file_has_the_boxes_of_each_image_whatever_the_order_of_ids(tmp_path):
    entries = [
        {"image_id": image, "category_id": category, "bbox": box, "score": score}
        for image, category, box, score in (
            *((4, 1, [1, 2, 3, 4], 0.5), (9, 2, [5, 6, 7, 8], 0.9), (4, 2, [2, 2, 1, 1], 0.25)),
            *((9, 1, [1, 1, 0, 5], 0.9), (9, 1, [1, 1, 5, 5], 0.2), (9, 77, [1, 1, 5, 5], 0.9)),
        )
    ]
    (tmp_path / "boxes.json").write_text(json.dumps(entries))
    file = BoxFile(str(tmp_path / "boxes.json"), Falling(None, "val", None, num_val=3), tmp_path, 0.25)
    found = [file(index, None, None) for index in range(3)]
    assert [each.boxes.tolist() for each in found] == [[[5, 6, 7, 8]], [[1, 2, 3, 4], [2, 2, 1, 1]], []]
    assert [each.labels.tolist() for each in found] == [[1], [0, 1], []] and found[0].labels.dtype == np.int64
    assert [each.scores.tolist() for each in found] == [[0.9], [0.5, 0.25], []]
    assert file.notices[-1] == f"boxes: 3 detections of {tmp_path / 'boxes.json'}"
    assert file.__getstate__()["_rows"] is None


def test_annotations_count_with_a_labeled_point_and_whole_images_for_each_category():
    boxes = np.array([[0, 0, 4, 5], [1, 1, 6, 7], [2, 2, 8, 9]], float)
    points = np.zeros((3, 1, 3))
    points[[0, 2], 0, 2] = 2, 1
    columns = boxes, np.array([1, 0, 2], np.int32), boxes.prod(axis=1) + 1, np.zeros(3, bool), np.arange(3)
    found = find_annotated(0, (3, 4), ImageAnnotations(*columns, points=points))
    assert found.boxes.tolist() == boxes[[0, 2]].tolist() and found.labels.tolist() == [1, 2]
    assert found.labels.dtype == WholeImages([1])(0, (3, 4), None).labels.dtype == np.int64
    assert found.scores.tolist() == [1, 1] and len(find_annotated(0, (3, 4), ImageAnnotations(*columns)).labels) == 3
    whole = WholeImages([2, 0])(0, (30, 50), None)
    assert whole.boxes.tolist() == [[0, 0, 50, 30]] * 2 and whole.labels.tolist() == [2, 0]
    assert whole.scores.tolist() == [1, 1]


def test_a_batch_for_a_detector_has_its_input_and_the_stored_pixels():
    sizes = ((2, 3), (4, 1), (1, 2))
    images = [np.arange(height * width * 3, dtype=np.uint8).reshape(height, width, 3) + 50 for height, width in sizes]

    def prepare(image, generator):
        planes = np.asarray(image).transpose(2, 0, 1)[:, :1]
        return DetectionSample(-1, False, planes, (image.height, image.width), np.zeros((0, 4)), np.zeros(0, int))

    taken = [samples.prepare_detection(5 + n, Image.fromarray(i), prepare, None) for n, i in enumerate(images)]
    batch = samples.collate(taken)
    assert batch[samples.HOST]["indices"] == [5, 6, 7] and samples.list_objects(batch) == []
    batch = {name: paddle.to_tensor(value) if name != samples.HOST else value for name, value in batch.items()}
    found, stored = samples.split_detection(batch)
    assert set(found) == {"images", "indices", "sizes", "original_sizes", "seconds", samples.HOST}
    for pixels, image in zip(stored, images, strict=True):
        np.testing.assert_array_equal(pixels, image.transpose(2, 0, 1))
    assert found[samples.HOST]["indices"] == [5, 6, 7] and found["sizes"].tolist() == [[1, 3], [1, 1], [1, 2]]
    np.testing.assert_array_equal(found["images"].numpy()[1, :, :, :1], images[1].transpose(2, 0, 1)[:, :1])
