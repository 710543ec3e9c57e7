"""Draws how a training run went: the loss, the accuracy, and the images that it got wrong.

It uses Pillow, which the extra `plot` installs: one figure does not justify a plotting library.
Everything is drawn three times too large and scaled down at the end, which smooths the lines; sizes
in this file are in pixels of the finished picture.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

try:
    from PIL import Image, ImageDraw, ImageFont
except ImportError as error:
    raise ImportError("pictures need Pillow: pip install 'tinygrad[plot]'") from error

Floats = NDArray[np.float64]

OVERSAMPLE = 3
WIDTH = 1200
MARGIN = 60
RIGHT = WIDTH - MARGIN
TITLE_BASE = 52  # where the title's letters stand
PLOT_TOP = 112
PLOT_BOTTOM = 412
PLOT_GAP = 80  # between two plots, for the tick labels of the right one
WRONG_BASE = 524  # where the heading of the wrong digits stands
WRONG_TOP = WRONG_BASE + 20
NONE_HEIGHT = 64

TILE = 112
ROW_HEIGHT = TILE + 50  # a tile, its caption and the space below
TILES_A_ROW = 8
MAX_TILES = 24
TILE_STEP = (RIGHT - MARGIN - TILE) / (TILES_A_ROW - 1)  # from one tile to the next

PAPER = "#ffffff"
PANEL = "#f7f8fa"
GRID = "#dfe3e8"
INK = "#1c2733"
GREY = "#66727f"
BLUE = "#1f6fd1"
PALE_BLUE = "#b9d3f3"
GREEN = "#23875a"
PALE_GREEN = "#e6f4ec"
RED = "#c8372d"
TILE_PAPER = (240, 243, 247)
TILE_INK = (22, 34, 48)


@dataclass(frozen=True)
class Style:
    """How a text looks, and which of its points is placed (Pillow's anchor: across, down)."""

    size: float
    color: str
    anchor: str


TITLE = Style(28, INK, "ls")
RESULT = Style(28, GREEN, "rs")
HEADING = Style(17, INK, "ls")
NOTE = Style(14, GREY, "ls")
TICK_BELOW = Style(13, GREY, "ma")
TICK_LEFT = Style(13, GREY, "rm")
AXIS_NAME = Style(14, GREY, "ma")
TRUTH = Style(19, GREEN, "rs")
MISTAKE = Style(19, RED, "ls")
PRAISE = Style(18, GREEN, "mm")


@dataclass(frozen=True)
class Canvas:
    """A sheet of paper that takes sizes in finished pixels."""

    image: Image.Image

    @property
    def pen(self) -> ImageDraw.ImageDraw:
        """What draws on the sheet."""
        return ImageDraw.Draw(self.image)

    def box(self, left: float, top: float, right: float, bottom: float, color: str) -> None:
        """Fill a rectangle."""
        corners = OVERSAMPLE * np.array([left, top, right, bottom])
        self.pen.rectangle([*corners], color)

    def line(self, x: ArrayLike, y: ArrayLike, color: str, width: float = 1) -> None:
        """Draw a line through points; a number in place of a list serves all of them."""
        across, down = np.broadcast_arrays(x, y)
        points = OVERSAMPLE * np.stack([across, down], axis=1)
        thickness = round(OVERSAMPLE * width)
        self.pen.line([*points.ravel()], color, thickness, joint="curve")

    def dot(self, x: float, y: float, color: str, radius: float) -> None:
        """Fill a disc."""
        center = (OVERSAMPLE * x, OVERSAMPLE * y)
        self.pen.circle(center, OVERSAMPLE * radius, color)

    def text(self, x: float, y: float, text: str, style: Style) -> float:
        """Write a line of text and return its length."""
        font = ImageFont.load_default(OVERSAMPLE * style.size)
        place = (OVERSAMPLE * x, OVERSAMPLE * y)
        self.pen.text(place, text, style.color, font, style.anchor)
        return font.getlength(text) / OVERSAMPLE


@dataclass(frozen=True)
class Axis:
    """How values become pixels along one direction, and where its ticks are."""

    low: float
    high: float
    start: float  # the pixel of `low`
    stop: float  # the pixel of `high`
    ticks: tuple[tuple[float, str], ...]

    def __call__(self, value: ArrayLike) -> Floats:
        """Return the pixels of some values."""
        share = (np.asarray(value, float) - self.low) / (self.high - self.low)
        return self.start + share * (self.stop - self.start)


def linear_axis(low: float, high: float, start: float, stop: float, unit: str = "") -> Axis:
    """Make an axis with about five ticks, at multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / 5
    decade = 10 ** math.floor(math.log10(rough))
    steps = (decade * factor for factor in (1, 2, 5, 10))
    step = next(step for step in steps if step >= 0.999 * rough)
    first = math.ceil(low / step)
    last = math.floor(high / step)
    values = [step * i for i in range(first, last + 1)]
    ticks = tuple((value, f"{value:,g}{unit}") for value in values)
    return Axis(low, high, start, stop, ticks)


def log_axis(low: float, high: float, start: float, stop: float) -> Axis:
    """Make an axis of decimal logarithms, with ticks at powers of ten (and 2, 5 where few)."""
    first = math.floor(math.log10(low))
    last = math.ceil(math.log10(high))
    factors = (1, 2, 5) if last - first <= 2 else (1,)
    values = [factor * 10.0**power for power in range(first, last + 1) for factor in factors]
    ticks = tuple((math.log10(v), f"{v:g}") for v in values if low <= v <= high)
    return Axis(math.log10(low), math.log10(high), start, stop, ticks)


def step_axis(steps: int, left: float, right: float) -> Axis:
    """Make the horizontal axis of a plot, which counts training steps."""
    return linear_axis(0, max(steps, 5), left, right)


def draw_frame(canvas: Canvas, title: str, x: Axis, y: Axis) -> None:
    """Draw a plot's panel, grid, ticks and title."""
    canvas.box(x.start, y.stop, x.stop, y.start, PANEL)
    canvas.text(x.start, y.stop - 14, title, HEADING)
    for value, label in y.ticks:
        height = float(y(value))
        canvas.line([x.start, x.stop], height, GRID)
        canvas.text(x.start - 10, height, label, TICK_LEFT)
    for value, label in x.ticks:
        place = float(x(value))
        canvas.line(place, [y.start, y.start + 6], GREY)
        canvas.text(place, y.start + 12, label, TICK_BELOW)
    canvas.line([x.start, x.stop], y.start, GREY)
    canvas.text((x.start + x.stop) / 2, y.start + 34, "step", AXIS_NAME)


def running_mean(values: Floats) -> Floats:
    """Average each value with its neighbours, over about a fortieth of the run."""
    window = np.ones(1 + 2 * (len(values) // 80))
    counts = np.convolve(np.ones(len(values)), window, "same")
    return np.convolve(values, window, "same") / counts


def draw_losses(canvas: Canvas, losses: Floats, left: float, right: float) -> None:
    """Draw every loss faintly and their running mean on top, on a logarithmic scale."""
    positive = np.clip(np.nan_to_num(losses, nan=1e3), 1e-6, 1e3)
    high = 1.25 * positive.max()
    low = min(0.8 * positive.min(), high / 2)
    x = step_axis(len(losses), left, right)
    y = log_axis(low, high, PLOT_BOTTOM, PLOT_TOP)
    draw_frame(canvas, "Training loss", x, y)

    steps = x(np.arange(1, len(losses) + 1))
    exponents = np.log10(positive)
    means = y(running_mean(exponents))
    canvas.line(steps, y(exponents), PALE_BLUE, 1.2)
    canvas.line(steps, means, BLUE, 2.4)
    canvas.dot(steps[-1], means[-1], BLUE, 5)


def draw_accuracies(
    canvas: Canvas, accuracies: Floats, steps: int, left: float, right: float
) -> None:
    """Draw the accuracies, in percent, evenly spread over the steps."""
    percent = 100 * accuracies
    low = min(10 * math.floor(percent.min() / 10), 90)
    x = step_axis(steps, left, right)
    y = linear_axis(low, 100, PLOT_BOTTOM, PLOT_TOP, unit="%")
    draw_frame(canvas, "Accuracy on the held-out digits", x, y)

    places = x(np.linspace(0, steps, len(percent) + 1)[1:])
    heights = y(percent)
    canvas.line(places, heights, GREEN, 2.4)
    if len(percent) <= 40:
        for place, height in zip(places, heights, strict=True):
            canvas.dot(place, height, GREEN, 3.5)
    canvas.dot(places[-1], heights[-1], GREEN, 5)  # the result


def draw_tile(canvas: Canvas, image: Floats, left: float, top: float) -> None:
    """Draw one image, dark ink on light paper, its pixels as squares."""
    share = np.clip(image / max(image.max(), 1e-9), 0, 1)[:, :, None]
    colors = (1 - share) * TILE_PAPER + share * TILE_INK  # (height, width, 3)
    pixels = Image.fromarray(colors.astype(np.uint8))
    size = (OVERSAMPLE * TILE, OVERSAMPLE * TILE)
    place = (round(OVERSAMPLE * left), round(OVERSAMPLE * top))
    canvas.image.paste(pixels.resize(size, Image.Resampling.NEAREST), place)


def draw_caption(canvas: Canvas, label: int, predicted: int, middle: float, base: float) -> None:
    """Write what a digit is, an arrow, and what it was taken for."""
    canvas.text(middle - 18, base, str(label), TRUTH)
    canvas.text(middle + 18, base, str(predicted), MISTAKE)
    tip = middle + 9
    axis = base - 7
    canvas.line([middle - 9, tip], axis, GREY, 1.6)
    canvas.line([tip - 5, tip, tip - 5], [axis - 4.5, axis, axis + 4.5], GREY, 1.6)


def draw_wrong(
    canvas: Canvas, images: Floats, labels: Sequence[int], predicted: Sequence[int]
) -> None:
    """Draw the images that were read wrongly, eight a row, or say that there is none."""
    length = canvas.text(MARGIN, WRONG_BASE, "Test digits that it got wrong", HEADING)
    if not len(images):
        canvas.box(MARGIN, WRONG_TOP, RIGHT, WRONG_TOP + NONE_HEIGHT, PALE_GREEN)
        message = "None: it read every digit of the test set."
        canvas.text(WIDTH / 2, WRONG_TOP + NONE_HEIGHT / 2, message, PRAISE)
        return
    shown = min(len(images), MAX_TILES)
    note = "what it is, and what the network read"
    if shown < len(images):
        note += f"; {shown} of {len(images)} shown"
    canvas.text(MARGIN + length + 14, WRONG_BASE, note, NOTE)
    for i in range(shown):
        row, column = divmod(i, TILES_A_ROW)
        left = MARGIN + column * TILE_STEP
        top = WRONG_TOP + row * ROW_HEIGHT
        draw_tile(canvas, images[i], left, top)
        draw_caption(canvas, labels[i], predicted[i], left + TILE / 2, top + TILE + 24)


def demo_picture(
    path: str | Path,
    losses: Sequence[float],
    accuracies: Sequence[float],
    wrong_images: ArrayLike,
    wrong_labels: Sequence[int],
    predicted: Sequence[int],
) -> None:
    """Save a PNG with the loss curve, the accuracy curve and the digits that were read wrongly.

    Args:
        path: where to save it.
        losses: the training loss at each step, at least one.
        accuracies: the share of the held-out digits read correctly, from 0 to 1, measured at even
            intervals; the last is the result. A single one is written but has no curve.
        wrong_images: the n images that were read wrongly, shape (n, ..., height, width); the
            first 24 are shown.
        wrong_labels: what they are, n integers.
        predicted: what the network took them for, n integers.

    Raises:
        ValueError: without a loss or an accuracy, or when the three lists differ in length.
    """
    images = np.asarray(wrong_images, dtype=float)
    if not len(losses) or not len(accuracies):
        raise ValueError("demo_picture: give at least one loss and one accuracy")
    if not len(images) == len(wrong_labels) == len(predicted):
        counts = f"{len(images)} images, {len(wrong_labels)} labels, {len(predicted)} predictions"
        raise ValueError(f"demo_picture: {counts}; give one each for every wrong digit")
    if len(images):
        images = images.reshape(len(images), *images.shape[-2:])

    rows = math.ceil(min(len(images), MAX_TILES) / TILES_A_ROW)
    height = WRONG_TOP + (rows * ROW_HEIGHT or NONE_HEIGHT + MARGIN // 2)
    sheet = Image.new("RGB", (OVERSAMPLE * WIDTH, OVERSAMPLE * height), PAPER)
    canvas = Canvas(sheet)
    canvas.text(MARGIN, TITLE_BASE, "Reading handwritten digits", TITLE)
    canvas.text(RIGHT, TITLE_BASE, f"test accuracy {100 * accuracies[-1]:.2f}%", RESULT)

    loss_curve = np.asarray(losses, float)
    accuracy_curve = np.asarray(accuracies, float)
    if len(accuracies) == 1:
        draw_losses(canvas, loss_curve, MARGIN, RIGHT)
    else:
        middle = WIDTH / 2
        draw_losses(canvas, loss_curve, MARGIN, middle - PLOT_GAP / 2)
        draw_accuracies(canvas, accuracy_curve, len(losses), middle + PLOT_GAP / 2, RIGHT)
    draw_wrong(canvas, images, wrong_labels, predicted)
    sheet.resize((WIDTH, height), Image.Resampling.LANCZOS).save(path, optimize=True)
