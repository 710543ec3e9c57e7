"""A residual net learns CIFAR-10, from its archive or by download.

Without network: put cifar-10-binary.tar.gz where the message says.
"""

import argparse

import numpy as np
from tqdm import trange

from tinygrad import Tensor, TinyJit
from tinygrad.models.resnet import ResNet, ResNetConfig
from tinygrad.nn.datasets import cifar
from tinygrad.nn.optim import SGD, OneCycleLR
from tinygrad.nn.state import get_parameters

MEAN, SPREAD = (125.3, 123.0, 113.9), (63.0, 62.1, 66.7)  # of the training images' channels


def scaled(images):
    """(n, 3, 32, 32) of bytes → mean 0 and variance 1 a channel."""
    mean, spread = (np.array(x, np.float32).reshape(1, 3, 1, 1) for x in (MEAN, SPREAD))
    return ((images.astype(np.float32) - mean) / spread).astype(np.float32)


def varied(images, random):
    """Half of the images mirrored, each moved by up to four pixels."""
    flip = random.random(len(images)) < 0.5
    images = np.where(flip[:, None, None, None], images[..., ::-1], images)
    wide = np.pad(images, ((0, 0), (0, 0), (4, 4), (4, 4)))
    places = random.integers(0, 9, (len(images), 2))
    return np.stack([w[:, y : y + 32, x : x + 32] for w, (y, x) in zip(wide, places, strict=True)])


def main():
    """Trains, and tests on images that the net has never seen."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--widths", type=int, nargs="+", default=[64, 128, 256])
    args = parser.parse_args()
    try:
        x, y, x_test, y_test = (t.numpy() for t in cifar())
    except OSError as error:
        parser.exit(1, f"no CIFAR-10: {error}\n")
    random = np.random.default_rng(0)
    Tensor.manual_seed(0)
    depths = (2,) * len(args.widths)
    net = ResNet(ResNetConfig(depths, tuple(args.widths), False, args.widths[0], 3, 10))
    optimizer = SGD(get_parameters(net), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    schedule = OneCycleLR(optimizer, max_lr=0.2, total_steps=args.steps)

    @TinyJit
    def step(images, labels):
        optimizer.zero_grad()
        loss = net(images).sparse_categorical_crossentropy(labels, label_smoothing=0.1).backward()
        optimizer.step()
        schedule.step()
        return loss.realize()

    @TinyJit
    def guesses(images):
        return net(images).argmax(1).realize()

    with Tensor.train():
        for number in (bar := trange(args.steps)):
            chosen = random.integers(0, len(x), args.batch)
            images = scaled(varied(x[chosen], random))
            loss = step(Tensor(images).realize(), Tensor(y[chosen].astype(np.int32)).realize())
            if number % 10 == 9:
                bar.set_description(f"loss {loss.item():.3f}")
    parts = range(0, len(x_test) - 99, 100)
    right = [
        (
            guesses(Tensor(scaled(x_test[i : i + 100])).realize()).numpy() == y_test[i : i + 100]
        ).mean()
        for i in parts
    ]
    print(f"accuracy on unseen images: {np.mean(right):.2%}")


if __name__ == "__main__":
    main()
