"""Learn to read handwritten digits: `python -m tinygrad.demo`, a few seconds on a laptop.

The first program to read. It has the five parts that all training has: data, a network, a step
that makes the network a little better, a loop around it, and an honest test at the end, on images
that the network has never seen.

    python -m tinygrad.demo              one network; draws how it went to digits.png
    python -m tinygrad.demo --accuracy   five networks, each with its own fifth held out
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from tinygrad.command import run_command
from tinygrad.data.digits import load_digits, train_test_split
from tinygrad.engine.jit import TinyJit
from tinygrad.nn import BatchNorm, Conv2d, Linear
from tinygrad.nn.optim import Adam
from tinygrad.nn.state import get_parameters
from tinygrad.tensor import Tensor

Images = NDArray[np.float32]
Numbers = NDArray[np.int32]

BATCH = 128  # images in a step
PASSES = 3  # over the training images, each of which is there in nine places
RATE = 0.01  # how far a step goes, at most
TESTS = 10  # how often the network is tested on the way
PICTURE = Path("digits.png")


# ---- the data ------------------------------------------------------------------------------------


def load(seed: int) -> tuple[Images, Numbers, Images, Numbers]:
    """Training images and labels, test images and labels; a fifth is held out for the test.

    Images are (n, 1, 8, 8): n images of one channel, from 0 (paper) to 1 (ink).
    """
    x_train, y_train, x_test, y_test = train_test_split(*load_digits(), seed=seed)
    images = [(x[:, None] / 16).astype(np.float32) for x in (x_train, x_test)]
    labels = [y.astype(np.int32) for y in (y_train, y_test)]
    return images[0], labels[0], images[1], labels[1]


def in_nine_places(images: Images) -> Images:
    """Each image as it is and moved by a pixel to all sides: (n, 1, 8, 8) → (9n, 1, 8, 8).

    A three is a three wherever it stands. Shown that, the network errs a third as often.
    """
    wide = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))  # (n, 1, 10, 10)
    moved = [wide[:, :, y : y + 8, x : x + 8] for y in range(3) for x in range(3)]
    return np.concatenate(moved)


def batches(count: int, seed: int) -> Iterator[Numbers]:
    """Which images each step sees: all `count` in a new random order, `PASSES` times."""
    draw = np.random.default_rng(seed)
    for _ in range(PASSES):
        order = draw.permutation(count).astype(np.int32)
        yield from (order[i : i + BATCH] for i in range(0, count - BATCH + 1, BATCH))


# ---- the network ---------------------------------------------------------------------------------


class Net:
    """Three convolutions and a linear layer: 33,658 numbers to learn."""

    def __init__(self) -> None:
        self.layers: list[Callable[[Tensor], Tensor]] = [
            Conv2d(1, 16, 3, padding=1, bias=False),  # 16 strokes, looked for everywhere
            BatchNorm(16),
            Tensor.relu,
            Conv2d(16, 32, 3, stride=2, padding=1, bias=False),  # 8x8 → 4x4
            BatchNorm(32),
            Tensor.relu,
            Conv2d(32, 64, 3, padding=1, bias=False),
            BatchNorm(64),
            Tensor.relu,
            lambda x: x.flatten(1),
            Linear(64 * 4 * 4, 10),
        ]

    def __call__(self, images: Tensor) -> Tensor:
        """Images (n, 1, 8, 8) → a score for each digit (n, 10); the highest is the guess."""
        return images.sequential(self.layers)


def rate_at(step: int, steps: int) -> float:
    """The learning rate of a step: up over the first tenth, then down along a cosine to 0."""
    done = (step + 0.5) / steps
    return RATE * min(1.0, done / 0.1) * (1 + math.cos(math.pi * done)) / 2


# ---- training ------------------------------------------------------------------------------------


class Run:
    """A network, the data that it learns from, and how it went so far."""

    def __init__(self, seed: int) -> None:
        Tensor.manual_seed(seed)
        self.seed = seed
        x_train, y_train, self.x_test, self.y_test = load(seed)
        self.images = Tensor(in_nine_places(x_train)).realize()  # (12933, 1, 8, 8)
        self.labels = Tensor(np.tile(y_train, 9)).realize()  # (12933,)
        self.unseen = Tensor(self.x_test).realize()  # (360, 1, 8, 8)
        self.net = Net()
        self.optimizer = Adam(get_parameters(self.net), lr=RATE)
        self.losses: list[float] = []
        self.accuracies: list[float] = []

    @TinyJit
    def step(self, numbers: Tensor, rate: Tensor) -> Tensor:
        """One step, on the images with these numbers (BATCH,); returns the loss before it."""
        self.optimizer.lr.assign(rate)
        self.optimizer.zero_grad()
        batch = self.images[numbers].contiguous()  # (BATCH, 1, 8, 8), copied out once
        loss = self.net(batch).sparse_categorical_crossentropy(self.labels[numbers])
        loss.backward()
        self.optimizer.step()
        return loss.realize()

    @TinyJit
    def guess(self) -> Tensor:
        """What the network takes the test images for, (360,)."""
        return self.net(self.unseen).argmax(1).realize()

    def test(self) -> float:
        """The share of the test images that the network reads correctly."""
        return float((self.guess().numpy() == self.y_test).mean())

    def train(self, steps: int | None = None, silent: bool = False) -> float:
        """Trains to the end, or for `steps` steps; returns the accuracy on the test images."""
        plan = list(batches(len(self.images), self.seed))[:steps]
        with tqdm(total=len(plan) * BATCH, unit=" images", disable=silent) as bar:
            for i, numbers in enumerate(plan):
                with Tensor.train():
                    loss = self.step(Tensor(numbers), Tensor([rate_at(i, len(plan))]))
                self.losses.append(loss.item())
                if (i + 1) * TESTS // len(plan) > i * TESTS // len(plan):
                    self.accuracies.append(self.test())
                    bar.set_postfix_str(
                        f"loss {self.losses[-1]:.3f}, accuracy {self.accuracies[-1]:.1%}"
                    )
                bar.update(BATCH)
        return self.accuracies[-1]

    def draw(self, path: Path) -> None:
        """Saves a picture of the losses, the accuracies and the digits read wrongly."""
        from tinygrad.viz.picture import demo_picture

        guesses = self.guess().numpy()
        wrong = np.flatnonzero(guesses != self.y_test)
        demo_picture(
            path,
            self.losses,
            self.accuracies,
            self.x_test[wrong],
            self.y_test[wrong].tolist(),
            guesses[wrong].tolist(),
        )


# ---- the command ---------------------------------------------------------------------------------


def main() -> None:
    """Trains one network and draws it, or five and prints how they differ."""
    parser = argparse.ArgumentParser(prog="tinygrad.demo", description="learn to read digits")
    parser.add_argument("--accuracy", action="store_true", help="train with five seeds")
    parser.add_argument("--seed", type=int, default=0, help="which fifth is held out, and chance")
    options = parser.parse_args()
    if options.accuracy:
        accuracies = [Run(seed).train() for seed in range(5)]
        print("test accuracies " + " ".join(f"{100 * each:.2f}%" for each in accuracies))
        low, high = 100 * min(accuracies), 100 * max(accuracies)
        print(f"median {100 * statistics.median(accuracies):.2f}%, from {low:.2f}% to {high:.2f}%")
        return
    start = time.perf_counter()
    run = Run(options.seed)
    accuracy = run.train()
    print(f"trained in {time.perf_counter() - start:.1f} s")
    try:
        run.draw(PICTURE)
        print(f"drew how it went to {PICTURE.resolve()}")
    except ImportError as error:
        print(f"drew nothing: {error}")
    print(f"test accuracy {100 * accuracy:.2f}%")


if __name__ == "__main__":
    sys.exit(run_command(main))
