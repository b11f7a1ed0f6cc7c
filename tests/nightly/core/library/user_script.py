"""A program of a user: mypy --strict reads it, nobody runs it."""

import numpy as np
import paddle

import paddlevit_dist as pv
from paddlevit_dist import Accuracy, CocoAP, MeanIoU, RadialError, ScanNetAP, TrainingSampler, VolumeDice

values = pv.load_config("vit_digits", batch_size=16)
rate: float = values.TRAIN.BASE_LR
run = pv.train("vit_digits", epochs=2, **{"TRAIN.BASE_LR": 1e-3})
score: float = run.values["top-1"]
low, high = run.intervals["top-1"]
again: pv.TrainedRun = pv.evaluate(run)
rows = pv.predict(run.folder, ["cat.jpg"])
label = rows[0]["class"]
model = pv.create_model("resnet18", pretrained=True, num_classes=3)
maps = pv.create_model(run.folder, pretrained=True, features_only=True)
transform = pv.create_transform(model)
x: paddle.Tensor = transform("cat.jpg")
names: list[str] = pv.list_models("vit*")
meter = Accuracy(["a", "b"])
meter.update(np.zeros((2, 2)), np.zeros(2))
total = meter.merge(Accuracy(["a", "b"])).compute()
print(total.values["top-1"], total.intervals["top-1"].low)
others = [MeanIoU(3), CocoAP(3), ScanNetAP(3, instance_classes=[1]), RadialError(2), VolumeDice(3)]
samples = pv.open_dataset("vit_digits", "val")
sampler = TrainingSampler(samples, 8)
sampler.set_epoch(1)
for batch in paddle.io.DataLoader(samples, batch_sampler=sampler, collate_fn=samples.collate):
    print(batch)
sums = pv.reduce_dict({"loss": 1.0}, average=False)
everyone = pv.all_gather([1])
pv.barrier()
pv.load_weights(model, "file.pdparams")
predictor = pv.Predictor(run.folder)
print(predictor(["cat.jpg"]), pv.is_main(), pv.rank(), pv.world_size(), sums["loss"], pv.__version__)


class Told(pv.Callback):
    pass


pv.register_callback("told", Told)
try:
    pv.train("nothing")
except (pv.UserError, pv.Stopped) as error:
    print(error)
