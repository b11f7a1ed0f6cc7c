"""The 80 categories of COCO's boxes, by their ids, which leave out eleven numbers from 1 to 91."""

from __future__ import annotations

from typing import Dict

# Source: the entry ``categories`` of instances_val2017.json, cocodataset.org.
_NAMES = (
    "person, bicycle, car, motorcycle, airplane, bus, train, truck, boat, traffic light, fire hydrant, -, stop sign, "
    "parking meter, bench, bird, cat, dog, horse, sheep, cow, elephant, bear, zebra, giraffe, -, backpack, umbrella, "
    "-, -, handbag, tie, suitcase, frisbee, skis, snowboard, sports ball, kite, baseball bat, baseball glove, "
    "skateboard, surfboard, tennis racket, bottle, -, wine glass, cup, fork, knife, spoon, bowl, banana, apple, "
    "sandwich, orange, broccoli, carrot, hot dog, pizza, donut, cake, chair, couch, potted plant, bed, -, dining "
    "table, -, -, toilet, -, tv, laptop, mouse, remote, keyboard, cell phone, microwave, oven, toaster, sink, "
    "refrigerator, -, book, clock, vase, scissors, teddy bear, hair drier, toothbrush"
)
COCO_CATEGORIES: Dict[int, str] = {
    number: name for number, name in enumerate(_NAMES.split(", "), start=1) if name != "-"
}
