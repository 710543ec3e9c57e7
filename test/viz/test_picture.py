"""The demo's picture is a PNG of the right size, whatever the run was like."""

import numpy as np
import pytest
from PIL import Image

from tinygrad.viz.picture import demo_picture

LOSSES = [2.3, 1.1, 0.5, 0.2, 0.1]
ACCURACIES = [0.6, 0.9, 0.98]


def draw(folder, n_wrong, losses=LOSSES, accuracies=ACCURACIES):
    path = folder / "demo.png"
    images, labels = np.ones((n_wrong, 1, 8, 8)), [3] * n_wrong
    demo_picture(path, losses, accuracies, images, labels, labels)
    with Image.open(path) as picture:
        assert picture.format == "PNG"
        return picture.size


@pytest.mark.parametrize("n_wrong, rows", [(1, 1), (8, 1), (9, 2), (24, 3), (100, 3)])
def test_it_grows_by_a_row_of_eight_up_to_three(tmp_path, n_wrong, rows):
    width, height = draw(tmp_path, n_wrong)
    assert (width, height - draw(tmp_path, 1)[1]) == (1200, 162 * (rows - 1))


@pytest.mark.parametrize(
    "losses, accuracies",
    [
        (LOSSES, [1.0]),
        ([0.0], [0.1]),
        ([1.0], [0.1, 1.0]),
        ([float("nan"), 1.0], [0.0, 0.0]),
        (np.linspace(3, 0, 10_000), np.linspace(0, 1, 300)),
    ],
)
def test_it_draws_unusual_runs_and_no_wrong_digit(tmp_path, losses, accuracies):
    assert draw(tmp_path, 0, losses, accuracies)[0] == 1200


def test_lengths_that_differ_are_refused(tmp_path):
    with pytest.raises(ValueError, match="2 images, 1 labels, 2 predictions"):
        demo_picture(tmp_path / "x.png", LOSSES, ACCURACIES, np.ones((2, 8, 8)), [1], [2, 3])


def test_a_run_without_a_loss_is_refused(tmp_path):
    with pytest.raises(ValueError, match="at least one loss"):
        demo_picture(tmp_path / "x.png", [], ACCURACIES, np.ones((0, 8, 8)), [], [])
