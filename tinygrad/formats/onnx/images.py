"""Operators on images: resizing, sampling at given points, boxes."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError
from tinygrad.formats.onnx.casts import wide_enough
from tinygrad.formats.onnx.host import MOST_PLACES, axes_of, checked
from tinygrad.formats.onnx.registry import Array, Row, Table, on_host, one
from tinygrad.numeric.sampling import affine_grid, sampled
from tinygrad.tensor import Tensor
from tinygrad.tensor.long_tail.resizing import cubic, triangle

# ---- resizing ------------------------------------------------------------------------------------


def _source_places(how: str, size: int, goal: int, scale: float, low: float, high: float) -> Array:
    """Where in an axis of `size` each of `goal` places of the result lies."""
    at = np.arange(checked(goal, MOST_PLACES), dtype=np.float64)
    width = scale * size
    if how == "align_corners":
        return at * 0 if width == 1 else at * (size - 1) / (width - 1)
    if how == "asymmetric":
        return at / scale
    if how == "tf_crop_and_resize":
        if width == 1:
            return at * 0 + (high - low) * (size - 1) / 2 + low * (size - 1)
        return at * (high - low) * (size - 1) / (width - 1) + low * (size - 1)
    if how == "pytorch_half_pixel" and width == 1:
        return at * 0 - 0.5
    if how == "half_pixel_symmetric":
        return size / 2 * (1 - goal / width) + (at + 0.5) / scale - 0.5
    if how in ("half_pixel", "pytorch_half_pixel"):
        return (at + 0.5) / scale - 0.5
    raise ArgumentError(f"coordinate_transformation_mode {how!r}")


NEAREST: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


KERNELS: dict[str, tuple[int, Callable[[Array, float], Array]]] = {
    "linear": (1, lambda x, _: triangle(x)),
    "cubic": (2, cubic),
}


def _taps(mode: str, at: Array, scale: float, antialias: bool, a: float) -> tuple[Array, Array]:
    """(places, weights), each (goal, taps): what a place of the result is the sum of."""
    reach, kernel = KERNELS[mode]
    shrink = min(scale, 1.0) if antialias else 1.0
    first = math.floor(-reach / shrink) + 1
    base = np.ceil(at) - 1  # the tap before, also where the place is a whole number
    checked(max(len(at), 1) * (2 - 2 * first), 8 * MOST_PLACES)
    places = base[:, None] + np.arange(first, 2 - first)
    weights = kernel((places - at[:, None]) * shrink, a)
    return places, weights / weights.sum(1, keepdims=True)


def _scales(
    shape: tuple[int, ...], axes: tuple[int, ...], scales: Any, sizes: Any, policy: str
) -> tuple[list[float], list[int]]:
    """The factor and the new size of each axis in `axes`."""
    if sizes is None or np.size(sizes) == 0:
        factors = [float(s) for s in np.asarray(scales).reshape(-1)]
        return factors, [int(f * shape[i]) for f, i in zip(factors, axes, strict=True)]
    goals = [int(n) for n in np.asarray(sizes).reshape(-1)]
    factors = [n / shape[i] for n, i in zip(goals, axes, strict=True)]
    if policy == "stretch":
        return factors, goals
    one = min(factors) if policy == "not_larger" else max(factors)
    return [one] * len(axes), [math.floor(one * shape[i] + 0.5) for i in axes]


def _resize(
    x: Tensor,
    roi: Any = None,
    scales: Any = None,
    sizes: Any = None,
    antialias: int = 0,
    axes: list[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Tensor:
    where = tuple(range(x.ndim)) if axes is None else axes_of(axes, x.ndim)
    factors, goals = _scales(x.shape, where, scales, sizes, keep_aspect_ratio_policy)
    box = np.zeros(2 * len(where)) if roi is None else np.asarray(roi).reshape(-1)
    how = coordinate_transformation_mode
    out = x if mode == "nearest" else x.cast(wide_enough(x.dtype))
    outside: list[tuple[int, Array]] = []
    for i, axis in enumerate(where):
        size, goal = x.shape[axis], goals[i]
        low, high = (box[i], box[i + len(where)]) if box.size == 2 * len(where) else (0.0, 1.0)
        if size == goal and factors[i] == 1 and how != "tf_crop_and_resize":
            continue
        at = _source_places(how, size, goal, factors[i], low, high)
        if how == "tf_crop_and_resize":
            outside.append((axis, (at < 0) | (at > size - 1)))
        if mode == "nearest":
            places = np.where(at == np.floor(at), at, NEAREST[nearest_mode](at))
            index = np.clip(places, 0, size - 1).astype(np.int32)
            out = out._at(axis, Tensor(index, device=x.device))
            continue
        taps, weights = _taps(mode, at, factors[i], bool(antialias), cubic_coeff_a)
        if exclude_outside:
            weights = np.where((taps < 0) | (taps >= size), 0, weights)
            weights = weights / weights.sum(1, keepdims=True)
        out = out._resized(axis, taps, weights)
    for axis, gone in outside:
        if gone.any():
            mask = x._along(axis, Tensor(gone, device=x.device))
            out = mask.where(extrapolation_value, out)
    if dtypes.is_int(x.dtype) and mode != "nearest":
        out = out.round().clamp(int(dtypes.min(x.dtype)), int(dtypes.max(x.dtype)))
    return out.cast(x.dtype)


def _resize_plain(x: Tensor, scales: Any, mode: str = "nearest") -> Tensor:
    """Version 10, and Upsample: places are divided by the scale and cut off."""
    return _resize(
        x,
        scales=scales,
        mode=mode,
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


def _upsample_old(x: Tensor, scales: Any = None, mode: str = "nearest", **more: float) -> Tensor:
    """Version 7 with scales as an attribute; version 1 with two."""
    if scales is None:
        scales = [1.0, 1.0, more["height_scale"], more["width_scale"]]
    return _resize_plain(x, scales, mode)


# ---- sampling ------------------------------------------------------------------------------------


def _affine_grid(theta: Tensor, size: Any, align_corners: int = 0) -> Tensor:
    """The standard's own definition fails for a batch of one: it drops that axis too."""
    return affine_grid(theta, tuple(int(n) for n in size), bool(align_corners))


def _grid_sample(
    x: Tensor,
    grid: Tensor,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Tensor:
    """x (N, C, *spatial) at points (N, *out, axes), the last axis first, in -1..1."""
    kind = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    return sampled(x, grid.float(), kind, padding_mode, bool(align_corners)).cast(x.dtype)


# ---- boxes ---------------------------------------------------------------------------------------


def _roi_align(
    x: Tensor,
    rois: Array,
    batches: Array,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
    coordinate_transformation_mode: str = "half_pixel",
) -> Tensor:
    """Boxes cut out and pooled to one size; the boxes are read on the host."""
    half = coordinate_transformation_mode == "half_pixel"
    outs = []
    for box, batch in zip(rois, batches, strict=True):
        left, top, right, bottom = (float(v) * spatial_scale - 0.5 * half for v in box)
        wide, high = right - left, bottom - top
        if not half:
            wide, high = max(wide, 1.0), max(high, 1.0)
        rows = _bin_places(top, high, output_height, sampling_ratio, x.shape[2])
        columns = _bin_places(left, wide, output_width, sampling_ratio, x.shape[3])
        outs.append(_pooled_box(x[int(batch)], rows, columns, mode))
    return outs[0].stack(*outs[1:], dim=0)


Places = tuple[Array, Array]


def _bin_places(start: float, length: float, bins: int, ratio: int, size: int) -> Places:
    """(places, weights), each (bins, samples, 2), of one axis."""
    each = length / bins
    count = ratio if ratio > 0 else max(1, math.ceil(each))
    checked(bins * count, MOST_PLACES)
    at = start + (np.arange(bins)[:, None] + (np.arange(count) + 0.5) / count) * each
    alive = (at >= -1) & (at <= size)
    at = np.clip(at, 0, size - 1)
    low = np.minimum(np.floor(at), size - 1)
    high = np.minimum(low + 1, size - 1)
    part = np.where(low == high, 0.0, at - low)
    weights = np.stack([1 - part, part], -1) * alive[..., None]
    return np.stack([low, high], -1).astype(np.int64), weights.astype(np.float32)


def _pooled_box(x: Tensor, rows: Places, columns: Places, mode: str) -> Tensor:
    (ys, wy), (xs, wx) = rows, columns
    checked(ys.size * xs.size, MOST_PLACES)
    flat = ys.reshape(-1, 1) * x.shape[2] + xs.reshape(1, -1)
    weights = wy.reshape(-1, 1) * wx.reshape(1, -1)
    index = Tensor(flat.reshape(-1), device=x.device)
    seen = x.reshape(x.shape[0], -1)[:, index] * Tensor(weights.reshape(-1), device=x.device)
    # (channels, bins, samples, 2 corners) twice
    parts: Tensor = seen.reshape(x.shape[0], *ys.shape, *xs.shape)
    if mode == "max":  # of the weighted corners, as the standard has it
        return parts.max((2, 3, 5, 6))
    return parts.sum((2, 3, 5, 6)).div(ys.shape[1] * xs.shape[1])


def _max_roi_pool(
    x: Tensor, rois: Array, pooled_shape: list[int], spatial_scale: float = 1.0
) -> Tensor:
    checked(math.prod(pooled_shape), MOST_PLACES)
    outs = []
    for row in rois:
        batch = int(row[0])
        x1, y1, x2, y2 = (int(math.copysign(abs(v) + 0.5, v)) for v in row[1:] * spatial_scale)
        image, cells = x[batch], []
        for start, end, bins, size in (
            (y1, y2, pooled_shape[0], x.shape[2]),
            (x1, x2, pooled_shape[1], x.shape[3]),
        ):
            each = max(end - start + 1, 1) / bins
            cells.append([
                (min(max(math.floor(i * each) + start, 0), size),
                 min(max(math.ceil((i + 1) * each) + start, 0), size))
                for i in range(bins)
            ])  # fmt: skip
        values = [
            image[:, a:b, c:d].max((1, 2)) if b > a and d > c else image[:, 0, 0] * 0
            for a, b in cells[0]
            for c, d in cells[1]
        ]
        outs.append(values[0].stack(*values[1:], dim=1).reshape(x.shape[1], *pooled_shape))
    return outs[0].stack(*outs[1:], dim=0)


def _suppress(
    boxes: Array,
    scores: Array,
    most: Any = None,
    iou_threshold: Any = None,
    score_threshold: Any = None,
    center_point_box: int = 0,
) -> Array:
    """(batch, class, box) of the best boxes that overlap none better by more than a share."""
    limit = 0 if most is None else int(one(most))
    share = 0.0 if iou_threshold is None else float(one(iou_threshold))
    least = None if score_threshold is None else float(one(score_threshold))
    found: list[tuple[int, int, int]] = []
    for batch, kind in itertools.product(range(scores.shape[0]), range(scores.shape[1])):
        corners = _corners(boxes[batch].astype(np.float64), bool(center_point_box))
        order = np.argsort(-scores[batch, kind], kind="stable")
        kept: list[int] = []
        for i in order:
            if len(kept) >= limit or (least is not None and scores[batch, kind, i] <= least):
                break
            if all(_overlap(corners[i], corners[j]) <= share for j in kept):
                kept.append(int(i))
        found += [(batch, kind, i) for i in kept]
    return np.array(found, np.int64).reshape(-1, 3)


def _corners(boxes: Array, centred: bool) -> Array:
    """(y1, x1, y2, x2), least first."""
    if centred:
        x, y, w, h = boxes.T
        return np.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2], 1)
    one, other = boxes[:, :2], boxes[:, 2:]
    return np.concatenate([np.minimum(one, other), np.maximum(one, other)], 1)


def _overlap(a: Array, b: Array) -> float:
    low, high = np.maximum(a[:2], b[:2]), np.minimum(a[2:], b[2:])
    both = float(np.prod(np.maximum(high - low, 0)))
    either = float(np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2])) - both
    return both / either if either > 0 else 0.0


def _decoded(encoded: Array, pixel_format: str = "RGB") -> Array:
    """Pixels (H, W, C) of an encoded image."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ArgumentError("the package pillow reads images: pip install pillow") from error
    kinds = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}
    if pixel_format not in kinds:
        raise ArgumentError(f"pixel_format {pixel_format!r}; legal are {', '.join(kinds)}")
    try:
        with Image.open(io.BytesIO(encoded.tobytes())) as image:
            pixels = np.asarray(image.convert(kinds[pixel_format]))
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ArgumentError(f"a broken image: {error}") from error
    pixels = pixels.reshape(*pixels.shape[:2], -1)
    return np.ascontiguousarray(pixels[:, :, ::-1]) if pixel_format == "BGR" else pixels


ROWS: Table = {
    "AffineGrid": Row(_affine_grid, (1,)),
    "GridSample": _grid_sample,
    "ImageDecoder": on_host(_decoded),
    "MaxRoiPool": Row(_max_roi_pool, (1,)),
    "NonMaxSuppression": on_host(_suppress),
    "Resize": {1: Row(_resize_plain, (1,)), 11: Row(_resize, (1, 2, 3))},
    "RoiAlign": Row(_roi_align, (1, 2)),
    "Upsample": {1: _upsample_old, 9: Row(_resize_plain, (1,))},
}
