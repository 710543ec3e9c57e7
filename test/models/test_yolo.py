"""YOLOv8 gives what ultralytics 8.4 gives for the same weights, and the boxes that are left."""

import zlib

import numpy as np

from tinygrad import Tensor
from tinygrad.models.checkpoint import translated
from tinygrad.models.yolo import Found, YOLOConfig, YOLOv8, found
from tinygrad.nn.state import get_state_dict


def weight(name, shape):
    """Numbers that follow from the name in ultralytics' checkpoint."""
    values = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape)
    values = values.astype(np.float32)
    if name.endswith("running_var"):
        return 0.5 + np.abs(values)
    if name.endswith("running_mean") or len(shape) < 2:
        return 0.1 * values + np.float32(name.endswith("bn.weight"))
    return values * np.float32((1.5 / np.prod(shape[1:])) ** 0.5)


def checkpoint(model):
    """A checkpoint with ultralytics' names, found by asking the table where each leads."""
    places = get_state_dict(model)
    numbered = [row.replace("{}", str(i)) for row in model.NAMES for i in range(6)]
    ends = ("weight", "bias", "running_mean", "running_var")
    names = dict.fromkeys(f"{row}.{end}" for row in numbered for end in ends)
    state = {}
    for name in names:
        for ours in translated({name: Tensor(0.0)}, model.NAMES):
            if ours in places:
                state[name] = Tensor(weight(name, places[ours].shape))
    return state


# rows 0 to 10 of every 25th anchor, from ultralytics.nn.tasks.DetectionModel("yolov8n.yaml", nc=7)
BOXES = [
    [3.6491, 11.578, 19.675, 27.578, 70.764, 81.639],
    [4.8858, 20.55, 36.439, 52.691, 10.659, 50.638],
    [119.25, 118.71, 118.36, 118.73, 239.59, 481.32],
    [121.07, 121.69, 121.39, 121.54, 241.16, 477.91],
]
SCORES = [
    [0.52599, 0.5245, 0.52035, 0.51792, 0.51927, 0.49597],
    [0.52184, 0.52538, 0.52602, 0.52742, 0.45848, 0.47762],
    [0.52338, 0.52912, 0.52392, 0.5234, 0.51573, 0.4898],
    [0.52883, 0.53307, 0.52875, 0.52449, 0.48814, 0.42866],
    [0.49124, 0.49074, 0.49628, 0.49896, 0.53721, 0.49566],
    [0.52642, 0.54123, 0.53929, 0.53605, 0.5185, 0.46739],
    [0.52221, 0.53347, 0.53654, 0.53363, 0.47875, 0.50459],
]


def test_boxes_and_scores():
    model = YOLOv8(YOLOConfig(classes=7))
    state = checkpoint(model)
    counters = [n for n in get_state_dict(model) if n.endswith("num_batches_tracked")]
    assert len(state) + len(counters) == len(get_state_dict(model)) == 354
    model.load(state, strict=False)
    image = np.random.default_rng(0).standard_normal((1, 3, 64, 96)).astype(np.float32)
    boxes, scores = (t.numpy()[0, :, ::25] for t in model(Tensor(image)))
    np.testing.assert_allclose(boxes, BOXES, rtol=1e-4)
    np.testing.assert_allclose(scores, SCORES, rtol=1e-4)


def test_the_likeliest_of_overlapping_boxes_of_a_class_is_left():
    boxes = np.array([[10, 11, 10, 40], [10, 10, 11, 10], [8, 8, 8, 4], [8, 8, 8, 4]], float)
    scores = np.array([[0.9, 0.8, 0.1, 0.3], [0.0, 0.1, 0.7, 0.2]])
    assert found(boxes, scores, overlap=0.5) == [
        Found(6, 6, 14, 14, 0, 0.9),
        Found(6, 7, 14, 15, 1, 0.7),
        Found(38, 8, 42, 12, 0, 0.3),
    ]
