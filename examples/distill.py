"""A small net learns from a large one's doubts: not only that this is a 3, but how much it is an 8.

Few images have labels; the large net can be asked about all of them. (Hinton, Vinyals and Dean,
"Distilling the Knowledge in a Neural Network", 2015.)
"""

import argparse

import numpy as np
from tqdm import trange

from tinygrad import Tensor, TinyJit, nn
from tinygrad.data.digits import load_digits, train_test_split
from tinygrad.nn.optim import Adam
from tinygrad.nn.state import get_parameters

WARMTH = 1.0  # scores are divided by it, so that more of it shows more doubt


class Net:
    """Two linear layers."""

    def __init__(self, hidden):
        self.layers = [nn.Linear(64, hidden), Tensor.relu, nn.Linear(hidden, 10)]

    def __call__(self, images):
        return images.sequential(self.layers)


def trained(hidden, images, labels, steps, title, teacher=None):
    """The net after training, on labels, or on what a teacher thinks of the images."""
    Tensor.manual_seed(0)  # equal nets begin alike
    net = Net(hidden)
    optimizer = Adam(get_parameters(net), lr=3e-3)

    @TinyJit
    def step():
        chosen = Tensor.randint(64, high=images.shape[0])
        x, y = images[chosen], labels[chosen]
        optimizer.zero_grad()
        scores = net(x)
        if teacher is None:
            loss = scores.sparse_categorical_crossentropy(y)
        else:
            doubts = (teacher(x).detach() / WARMTH).softmax()
            loss = -(doubts * (scores / WARMTH).log_softmax()).sum(-1).mean()
        loss.backward()
        optimizer.step()
        return loss.realize()

    with Tensor.train():
        for number in (bar := trange(steps, desc=title)):
            loss = step()
            if number % 50 == 49:
                bar.set_description(f"{title}: loss {loss.item():.3f}")
    return net


def main():
    """A large net, a small one by itself, and a small one with the large one's help."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--labels", type=int, default=150, help="images that have labels")
    args = parser.parse_args()
    x, y, x_test, y_test = train_test_split(*load_digits(), seed=0)
    images, unseen = (
        Tensor(a.reshape(-1, 64).astype(np.float32) / 16).realize() for a in (x, x_test)
    )
    labels, few = Tensor(y.astype(np.int32)).realize(), slice(0, args.labels)

    def right(net):
        return float((net(unseen).argmax(1).numpy() == y_test).mean())

    teacher = trained(256, images, labels, args.steps, "large")
    small = [images[few].contiguous().realize(), labels[few].contiguous().realize(), args.steps]
    alone = trained(8, *small, "small alone")
    helped = trained(8, images, labels, args.steps, "small, helped", teacher)
    for name, net in (("large", teacher), ("small alone", alone), ("small, helped", helped)):
        print(
            f"{name:14} {sum(t.numel() for t in get_parameters(net)):6,} numbers  {right(net):.1%}"
        )


if __name__ == "__main__":
    main()
