"""Digits through a bottleneck of two numbers, and back; the plane of all digits goes to vae.png.

(Kingma and Welling, "Auto-Encoding Variational Bayes", 2014.)
"""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image
from tqdm import trange

from tinygrad import Tensor, TinyJit, nn
from tinygrad.data.digits import load_digits
from tinygrad.nn.optim import Adam
from tinygrad.nn.state import get_parameters

SIDE, CODE, HIDDEN = 8, 2, 128


class VAE:
    """An image to a normal distribution of codes, a code to an image."""

    def __init__(self):
        self.seen, self.code = nn.Linear(SIDE * SIDE, HIDDEN), nn.Linear(HIDDEN, 2 * CODE)
        self.drawn, self.image = nn.Linear(CODE, HIDDEN), nn.Linear(HIDDEN, SIDE * SIDE)

    def encode(self, images):
        """(n, 64) → mean and log-variance (n, 2)."""
        return self.code(self.seen(images).relu()).chunk(2, -1)

    def decode(self, codes):
        """(n, 2) → scores of ink (n, 64)."""
        return self.image(self.drawn(codes).relu())

    def loss(self, images):
        """How badly the images come back, and how far the codes are from one normal cloud."""
        mean, variance = self.encode(images)
        codes = mean + Tensor.randn(*mean.shape) * (variance * 0.5).exp()
        wrong = self.decode(codes).binary_crossentropy_logits(images, reduction="none").sum(-1)
        spread = (mean.square() + variance.exp() - 1 - variance).sum(-1) / 2
        return (wrong + spread).mean()


def plane(net, count=16):
    """What the net draws for codes on a grid, as one picture."""
    places = np.linspace(-2.2, 2.2, count, dtype=np.float32)
    codes = np.stack(np.meshgrid(places, places), -1).reshape(-1, 2)
    ink = net.decode(Tensor(codes)).sigmoid().numpy().reshape(count, count, SIDE, SIDE)
    paper = 255 * (1 - ink.transpose(0, 2, 1, 3).reshape(count * SIDE, count * SIDE))
    return Image.fromarray(paper.astype(np.uint8)).resize((640, 640), Image.Resampling.NEAREST)


def main():
    """Trains and draws."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=Path("vae.png"))
    args = parser.parse_args()
    Tensor.manual_seed(0)
    images = Tensor(load_digits()[0].reshape(-1, SIDE * SIDE).astype(np.float32) / 16).realize()
    net = VAE()
    optimizer = Adam(get_parameters(net), lr=2e-3)

    @TinyJit
    def step():
        chosen = Tensor.randint(128, high=images.shape[0])
        optimizer.zero_grad()
        loss = net.loss(images[chosen]).backward()
        optimizer.step()
        return loss.realize()

    with Tensor.train():
        for number in (bar := trange(args.steps)):
            loss = step()
            if number % 50 == 49:
                bar.set_description(f"loss {loss.item():.2f}")
    plane(net).save(args.out)
    print(f"the plane of digits is in {args.out}")


if __name__ == "__main__":
    main()
