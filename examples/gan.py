"""Two nets against each other: one draws digits, the other tells them from real ones.

What is drawn goes to gan.png. (Goodfellow and others, "Generative Adversarial Nets", 2014.)
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

SIDE, CODE, BATCH = 8, 16, 128


class Net:
    """Linear layers with leaky corners between them."""

    def __init__(self, *sizes):
        self.layers = [nn.Linear(a, b) for a, b in zip(sizes, sizes[1:], strict=False)]

    def __call__(self, x):
        for layer in self.layers[:-1]:
            x = layer(x).leaky_relu(0.2)
        return self.layers[-1](x)


def main():
    """Trains both, and draws."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--out", type=Path, default=Path("gan.png"))
    args = parser.parse_args()
    Tensor.manual_seed(0)
    images = Tensor(load_digits()[0].reshape(-1, SIDE * SIDE).astype(np.float32) / 8 - 1).realize()
    draws, judges = Net(CODE, 128, 128, SIDE * SIDE), Net(SIDE * SIDE, 128, 64, 1)
    artist = Adam(get_parameters(draws), lr=5e-4, b1=0.5)
    judge = Adam(get_parameters(judges), lr=5e-4, b1=0.5)

    def drawn():
        return draws(Tensor.randn(BATCH, CODE)).tanh()

    @TinyJit
    def step():
        real, ones = images[Tensor.randint(BATCH, high=images.shape[0])], Tensor.ones(BATCH, 1)
        judge.zero_grad()
        told = judges(real).binary_crossentropy_logits(ones * 0.9)
        fooled = judges(drawn().detach()).binary_crossentropy_logits(ones * 0)
        (told + fooled).backward()
        judge.step()
        artist.zero_grad()
        judge.zero_grad()
        loss = judges(drawn()).binary_crossentropy_logits(ones).backward()
        artist.step()
        return (told + fooled).realize(), loss.realize()

    with Tensor.train():
        for number in (bar := trange(args.steps)):
            against, loss = step()
            if number % 50 == 49:
                bar.set_description(f"judge {against.item():.2f}, artist {loss.item():.2f}")
    rows = drawn().numpy()[:100].reshape(10, 10, SIDE, SIDE).transpose(0, 2, 1, 3)
    paper = (127.5 * (1 - rows.reshape(10 * SIDE, 10 * SIDE))).astype(np.uint8)
    Image.fromarray(paper).resize((640, 640), Image.Resampling.NEAREST).save(args.out)
    print(f"a hundred drawn digits are in {args.out}")


if __name__ == "__main__":
    main()
