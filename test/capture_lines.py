"""The lines of `fuzz_captures`: (way, a tensor, another one, a number) → a tensor; a write gives
None. `FEATURES` are for our tensors alone; those of `SIZED` also take a size, which may be a
variable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinygrad import nn
from tinygrad.nn.optim.optimizer import with_gradients


class Trouble(Exception):
    """What a step of the program raises."""


def other(m, t, u):
    """`u`, or a number of it, as something that has the shape of `t`."""
    if u.shape == t.shape:
        return u
    return m.sum(u.reshape(-1), 0).reshape(*[1] * len(t.shape))


def part(t, n):
    """A part of the first axis, or another axis, by a slice."""
    axis = n % len(t.shape)
    size = t.shape[axis]
    start, n = n // 3 % size, n // 7
    end, n = min(size, start + 1 + n % size), n // 5
    cut = (
        slice(start, end),
        slice(None, None, 2),
        slice(None, None, -1),
        slice(start, end, 2),
        slice(None, None, -2),
        slice(start, start + 1),
        slice(1 if size > 1 else 0, None, 2),
    )
    return (*[slice(None)] * axis, cut[n % len(cut)])  # fmt: skip


def reshaped(m, t, u, n):
    count = int(np.prod(t.shape))
    shapes = [(count,), (count, 1), (1, count), tuple(t.shape[::-1])]
    shapes += [(k, count // k) for k in (2, 3, 4) if count % k == 0]
    return t.reshape(shapes[n % len(shapes)])


def expanded(m, t, u, n):
    if 1 in t.shape:
        return m.expand(t, tuple(3 if size == 1 else size for size in t.shape))
    return m.expand(t.reshape(1, *t.shape), (2, *t.shape))


def permuted(m, t, u, n):
    axes = np.random.default_rng(n).permutation(len(t.shape))
    return m.permute(t, tuple(map(int, axes)))


def write_part(m, t, u, n):
    if not t.shape or 0 in t.shape:
        return
    at = part(t, n)
    shape = t[at].shape
    t[at] = other(m, t[at], u) if 0 not in shape else 0


def write_more(m, t, u, n):
    t += other(m, t, u)


VIEWS: tuple[Callable[..., Any], ...] = (
    lambda m, t, u, n: t[part(t, n)] if t.shape else t,
    lambda m, t, u, n: t[part(t, n)] if t.shape else t,
    reshaped,
    expanded,
    permuted,
    lambda m, t, u, n: t[n % t.shape[0]] if len(t.shape) > 1 else t[: 1 + n % t.shape[0]],
    lambda m, t, u, n: m.detach(t),
)
VALUES: tuple[Callable[..., Any], ...] = (
    lambda m, t, u, n: t + other(m, t, u),
    lambda m, t, u, n: t * other(m, t, u),
    lambda m, t, u, n: t * 3 - n % 5,
    lambda m, t, u, n: -t,
    lambda m, t, u, n: m.where(t > other(m, t, u), t, u if u.shape == t.shape else t * 0),
    lambda m, t, u, n: m.pad(t, ((n % 2, 1),) + ((0, 0),) * (len(t.shape) - 1)),
    lambda m, t, u, n: m.sum(t, n % len(t.shape)),
    lambda m, t, u, n: m.copy(t),
    lambda m, t, u, n: m.full(tuple(t.shape), n % 9),
)
WRITES: tuple[Callable[..., Any], ...] = (
    lambda m, t, u, n: m.assign(t, m.copy(other(m, t, u)) + m.full(tuple(t.shape), 1)),
    lambda m, t, u, n: m.assign(t, t * 2 + n % 7),
    write_more,
    write_part,
    write_part,
)


def drawn(m, t, u, n):
    return m.rand(tuple(t.shape))


def replaced(m, t, u, n):
    m.box[0] = m.box[0] + other(m, m.box[0], t)
    return m.box[0]


def troubled(m, t, u, n):
    if m.trouble:
        raise Trouble


def nested(m, t, u, n):
    result = m.inner[n % 3](t)
    return result[n // 3 % 2] if isinstance(result, tuple) else result


def scalar(t):
    """A small float that depends on all of `t`."""
    return t.detach().float().sum().reshape(1) % 4


def spread(t, number):
    """The number in the shape of `t`."""
    return number.detach().reshape(*[1] * len(t.shape)).expand(*t.shape)


def add_to_gradient(m, t, u, n):
    (m.weight * scalar(t)).sum().backward()


def add_the_weights_own(m, t, u, n):
    (m.weight * m.weight * (n % 3)).sum().backward()


def gradient(m, t, u, n):
    return spread(t, nn.utils.get_total_norm([g for _, g in with_gradients([m.weight])]))


def scale_gradient(m, t, u, n):
    for weight, slope in with_gradients([m.weight]):
        weight.grad = slope * 0.5
    nn.optim.clip_grad_norm_([m.weight], 4.0)


def forget_gradient(m, t, u, n):
    m.mover.zero_grad(set_to_none=bool(n % 2))


def descend(m, t, u, n):
    m.mover.step()


def slope(m, t, u, n):
    x = t.float().detach()
    return (x * x * scalar(u)).sum().gradient(x)[0]


def train(m, t, u, n):
    m.optimizer.zero_grad()
    ((m.moved - scalar(t)) * m.moved).sum().backward()
    m.optimizer.step()
    if n % 3:
        m.schedule.step()


def other_kind(m, t, u, n):
    return (t.detach() % 7).cast(("float", "int8", "bool", "double", "uint8", "half")[n % 6])


def normalised(m, t, u, n):
    return m.norm(t.detach().float().reshape(-1, 1)).detach().reshape(*t.shape)


def far_away(m, t, u, n):
    m.far.assign((m.far + scalar(t).to("CPU:1")) % 8)
    return spread(t, m.far.to("CPU"))


def in_two_places(m, t, u, n):
    if t.shape[0] % 2:
        return None
    return (t.detach().shard(("CPU", "CPU:1"), 0) * 2 + 1).to("CPU")


def sum_of_some(m, t, u, n, size):
    return spread(t, t[:size].sum()) if t.shape[0] > 1 else None


def write_some(m, t, u, n, size):
    if t.shape[0] > 1:
        t[:size] = t[:size] * 2 + n % 3


def some_from(m, t, u, n, size):
    return None if t.shape[0] == 1 else t[size - 1 : size if n % 2 else None].sum(0, keepdim=True)


SIZED = (sum_of_some, write_some, some_from)
FEATURES: dict[str, tuple[Callable[..., Any], ...]] = {
    "chance": (drawn, lambda m, t, u, n: t.detach().float().dropout(0.5)),
    "nested": (nested,),
    "rebound": (replaced, lambda m, t, u, n: m.box[0] * 2),
    "numbers": (lambda m, t, u, n: t + m.number(u) % 5,),
    "trouble": (troubled,),
    "kinds": (other_kind, lambda m, t, u, n: t * 0.5),
    "gradients": (
        add_to_gradient,
        add_to_gradient,
        add_the_weights_own,
        gradient,
        scale_gradient,
        forget_gradient,
        descend,
        slope,
    ),
    "training": (train,),
    "norms": (normalised,),
    "devices": (far_away, in_two_places),
    "sizes": SIZED,
}
