"""A convolutional net learns to read digits.

MNIST if it can be fetched else the 1,797 bundled digits; it says which.
"""

import argparse

import numpy as np
from tqdm import trange

from tinygrad import Tensor, TinyJit, nn
from tinygrad.data.digits import load_digits, train_test_split
from tinygrad.nn.datasets import mnist
from tinygrad.nn.optim import Adam
from tinygrad.nn.state import get_parameters


def load():
    """Training images and labels, test images and labels; images (n, 1, side, side) from 0 to 1."""
    try:
        x, y, x_test, y_test = (t.numpy() for t in mnist())
        print("data: MNIST, 60,000 images of 28 x 28 pixels")
        return x.astype(np.float32) / 255, y, x_test.astype(np.float32) / 255, y_test
    except OSError as error:
        print(f"data: the bundled digits, 1,797 images of 8 x 8 pixels; no MNIST: {error}")
        x, y, x_test, y_test = train_test_split(*load_digits(), seed=0)
        return (
            x[:, None].astype(np.float32) / 16,
            y,
            x_test[:, None].astype(np.float32) / 16,
            y_test,
        )


class Net:
    """Two pairs of convolutions, each halving the image where it is large, and a linear layer."""

    def __init__(self, side):
        pool = [lambda x: x.max_pool2d()] if side > 8 else []
        inner = 64 * (side // 4 if side > 8 else side // 2) ** 2
        self.layers = [
            nn.Conv2d(1, 32, 3, padding=1), Tensor.relu,
            nn.Conv2d(32, 32, 3, padding=1, bias=False), nn.BatchNorm(32), Tensor.relu,
            lambda x: x.max_pool2d(),
            nn.Conv2d(32, 64, 3, padding=1), Tensor.relu,
            nn.Conv2d(64, 64, 3, padding=1, bias=False), nn.BatchNorm(64), Tensor.relu,
            *pool,
            lambda x: x.flatten(1), nn.Linear(inner, 10),
        ]  # fmt: skip

    def __call__(self, images):
        return images.sequential(self.layers)


def main():
    """Trains, and tests on images that the net has never seen."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=256)
    args = parser.parse_args()
    x, y, x_test, y_test = load()
    images, labels = Tensor(x).realize(), Tensor(y.astype(np.int32)).realize()
    unseen, answers = Tensor(x_test).realize(), Tensor(y_test.astype(np.int32)).realize()
    net = Net(x.shape[-1])
    optimizer = Adam(get_parameters(net))

    @TinyJit
    def step():
        chosen = Tensor.randint(args.batch, high=len(x))
        optimizer.zero_grad()
        loss = net(images[chosen]).sparse_categorical_crossentropy(labels[chosen]).backward()
        optimizer.step()
        return loss.realize()

    @TinyJit
    def accuracy():
        return (net(unseen).argmax(1) == answers).mean().realize()

    for number in (bar := trange(args.steps)):
        with Tensor.train():
            loss = step()
        if number % 20 == 19 or number == args.steps - 1:
            bar.set_description(f"loss {loss.item():.3f}, accuracy {accuracy().item():.2%}")


if __name__ == "__main__":
    main()
