"""The demo learns, draws, and says how well it did; a short run here, the whole one if slow."""

import numpy as np
import pytest
from PIL import Image

from tinygrad import demo


@pytest.fixture(scope="module")
def run():
    """Thirty steps of the demo."""
    short = demo.Run(seed=0)
    short.train(steps=30, silent=True)
    return short


def test_the_loss_falls(run):
    assert len(run.losses) == 30
    assert run.losses[0] > 2 and np.mean(run.losses[-5:]) < 0.7


def test_it_reads_most_digits_it_has_never_seen(run):
    assert len(run.accuracies) == demo.TESTS
    assert run.accuracies[-1] > 0.9


def test_it_draws_how_it_went(run, tmp_path):
    run.draw(tmp_path / "digits.png")
    with Image.open(tmp_path / "digits.png") as picture:
        assert picture.format == "PNG" and picture.width == 1200


def test_no_image_is_both_learned_and_tested():
    x_train, y_train, x_test, y_test = demo.load(seed=0)
    assert len(x_train) == len(y_train) == 1437 and len(x_test) == len(y_test) == 360
    assert not {x.tobytes() for x in x_train} & {x.tobytes() for x in x_test}


def test_images_move_by_a_pixel():
    image = np.zeros((1, 1, 8, 8), np.float32)
    image[0, 0, 3, 4] = 1
    moved = demo.in_nine_places(image)
    places = {tuple(int(i) for i in np.argwhere(one[0])[0]) for one in moved}
    assert moved.shape == (9, 1, 8, 8)
    assert places == {(y, x) for y in (2, 3, 4) for x in (3, 4, 5)}


def test_every_pass_sees_each_image_once():
    orders = list(demo.batches(5 * demo.BATCH + 3, seed=0))
    assert len(orders) == demo.PASSES * 5
    seen = np.concatenate(orders[:5])
    assert len(set(seen.tolist())) == 5 * demo.BATCH


def test_the_rate_goes_up_and_then_down_to_nothing():
    rates = [demo.rate_at(step, 100) for step in range(100)]
    assert max(rates) < demo.RATE and np.argmax(rates) in (9, 10)
    assert rates[0] < 0.1 * demo.RATE and rates[-1] < 0.001 * demo.RATE


@pytest.mark.slow
def test_the_whole_demo(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["demo"])
    demo.main()
    last = capsys.readouterr().out.splitlines()[-1]
    assert float(last.removeprefix("test accuracy ").removesuffix("%")) >= 98.5
    assert (tmp_path / "digits.png").exists()
