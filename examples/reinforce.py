"""A pole is balanced on a cart by trial and error.

Each try lasts until the pole falls; what was done in better tries than usual becomes likelier.
(Williams, "REINFORCE", 1992; the cart: Barto, Sutton and Anderson, 1983.)
"""

import argparse
import math

import numpy as np
from tqdm import trange

from tinygrad import Tensor, TinyJit, nn
from tinygrad.nn.optim import Adam
from tinygrad.nn.state import get_parameters

TRIES, MOST = 32, 200  # at once, and steps of one


class Carts:
    """Many carts with poles: place, speed, angle and its speed of each, (tries, 4)."""

    def __init__(self, random):
        self.state = random.uniform(-0.05, 0.05, (TRIES, 4))

    def push(self, right):
        """A fiftieth of a second later, pushed with 10 N; whether each pole still stands."""
        place, speed, angle, turn = self.state.T
        force = np.where(right, 10.0, -10.0)
        cos, sin = np.cos(angle), np.sin(angle)
        push = (force + 0.05 * turn**2 * sin) / 1.1
        bend = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        pull = push - 0.05 * bend * cos / 1.1
        self.state = np.stack(
            [place + 0.02 * speed, speed + 0.02 * pull, angle + 0.02 * turn, turn + 0.02 * bend], -1
        )
        return (np.abs(self.state[:, 0]) < 2.4) & (np.abs(self.state[:, 2]) < math.radians(12))


class Policy:
    """A state to the scores of pushing left and right."""

    def __init__(self):
        self.first, self.second = nn.Linear(4, 64), nn.Linear(64, 2)

    def __call__(self, states):
        return self.second(self.first(states).tanh())


def main():
    """Tries, and learns from the tries."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=60)
    args = parser.parse_args()
    Tensor.manual_seed(0)
    random = np.random.default_rng(0)
    policy = Policy()
    optimizer = Adam(get_parameters(policy), lr=0.01)

    @TinyJit
    def chances(states):
        return policy(states).softmax()[:, 1].realize()

    @TinyJit
    def learn(states, actions, worth):
        optimizer.zero_grad()
        logs = policy(states).log_softmax()  # (MOST·TRIES, 2)
        loss = -(logs.gather(1, actions.reshape(-1, 1)).squeeze(1) * worth).mean()
        loss.backward()
        optimizer.step()
        return loss.realize()

    lengths = np.zeros(TRIES)
    for _ in (bar := trange(args.rounds)):
        carts, standing = Carts(random), np.ones(TRIES, bool)
        states = np.zeros((MOST, TRIES, 4), np.float32)
        actions, alive = np.zeros((MOST, TRIES), np.int32), np.zeros((MOST, TRIES), np.float32)
        for i in range(MOST):
            states[i], alive[i] = carts.state, standing
            given = Tensor(states[i]).realize()
            actions[i] = random.random(TRIES) < chances(given).numpy()
            standing = standing & carts.push(actions[i] == 1)
            if not standing.any():
                break
        lengths = alive.sum(0)
        left = np.flip(np.cumsum(np.flip(alive, 0), 0), 0)  # steps from here on
        usual = (left * alive).sum(1, keepdims=True) / np.maximum(alive.sum(1, keepdims=True), 1)
        worth = (left - usual) * alive
        worth /= worth.std() + 1e-6
        with Tensor.train():
            flat = states.reshape(-1, 4), actions.reshape(-1), worth.reshape(-1).astype(np.float32)
            learn(*(Tensor(x).realize() for x in flat))
        bar.set_description(f"{lengths.mean():.0f} of {MOST} steps")
    print(f"the last tries lasted {lengths.mean():.0f} steps of {MOST}")


if __name__ == "__main__":
    main()
