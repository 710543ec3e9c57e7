"""Training loops as users write them, each written once for both libraries: `loops.py` times them.

A program takes a `Kit` and gives its step. All of a step stands in one function, as in a script, so
whatever it has a name for lives while the optimizer steps.
"""

# ruff: noqa: D103  a program's name says what it is

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from steps_models import Kit as Models

Step = Callable[[], float]


@dataclass
class Kit(Models):
    """The same, and what a loop needs: optimizers, random numbers, derivatives."""

    optim: Any = None
    parameters: Callable[[Any], list[Any]] = list
    randn: Callable[..., Any] = print
    rand: Callable[..., Any] = print
    randperm: Callable[[int], Any] = print
    no_grad: Any = None
    gradient: Callable[[Any, Any], Any] = print

    def adam(self, *layers: Any) -> Any:
        """An optimizer of these layers' parameters."""
        params = [param for layer in layers for param in self.parameters(layer)]
        return self.optim.Adam(params, lr=1e-3)

    def move(self, optimizer: Any, loss: Any) -> float:
        """A step down the loss, which is read."""
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.item())


def gated(k: Kit) -> Step:
    """The halves of a layer's output live."""
    one, two, x = k.nn.Linear(32, 16), k.nn.Linear(8, 1), k.normal(64, 32)
    optimizer = k.adam(one, two)

    def step() -> float:
        hidden = one(x)
        value, gate = hidden.chunk(2, 1)
        return k.move(optimizer, two(value * gate.sigmoid()).square().mean())

    return step


def variational(k: Kit) -> Step:
    """An autoencoder whose weight of one loss grows."""
    layers = [k.nn.Linear(*sizes) for sizes in ((196, 64), (64, 16), (8, 64), (64, 196))]
    optimizer, x, turn = k.adam(*layers), k.normal(64, 196).sigmoid(), [0]
    encode, code, decode, out = layers

    def step() -> float:
        turn[0] += 1
        hidden = code(encode(x).relu())
        mean, spread = hidden[:, :8], hidden[:, 8:]
        drawn = mean + k.randn(64, 8) * (spread * 0.5).exp()
        seen = out(decode(drawn).relu()).sigmoid()
        kept = k.F.binary_cross_entropy(seen, x)
        apart = -0.5 * (1 + spread - mean.square() - spread.exp()).mean()
        return k.move(optimizer, kept + min(1.0, turn[0] / 1000) * apart)

    return step


def mixture_density(k: Kit) -> Step:
    layer, x, y = k.nn.Linear(4, 15), k.normal(64, 4), k.normal(64, 1)
    optimizer = k.adam(layer)

    def step() -> float:
        share, mean, width = layer(x).split(5, 1)
        width = k.F.softplus(width) + 1e-3
        chance = -0.5 * ((y - mean) / width).square() - width.log() + k.F.log_softmax(share, 1)
        return k.move(optimizer, -chance.logsumexp(1).mean())

    return step


def coupling_flow(k: Kit) -> Step:
    one, two, x = k.nn.Linear(2, 16), k.nn.Linear(16, 4), k.normal(64, 4)
    optimizer = k.adam(one, two)

    def step() -> float:
        fixed, moved = x.chunk(2, 1)
        scale, shift = two(one(fixed).relu()).chunk(2, 1)
        scale = scale.tanh()
        made = k.cat([moved * scale.exp() + shift, fixed], 1)
        return k.move(optimizer, (made.square().sum(1) / 2 - scale.sum(1)).mean())

    return step


def attention(k: Kit) -> Step:
    """Queries, keys and values by one product."""
    inner, out, x = k.nn.Linear(32, 96), k.nn.Linear(32, 32), k.normal(4, 16, 32)
    optimizer = k.adam(inner, out)

    def step() -> float:
        parts = inner(x).chunk(3, -1)
        q, key, v = [part.reshape(4, 16, 4, 8).transpose(1, 2) for part in parts]
        seen = k.F.scaled_dot_product_attention(q, key, v, is_causal=True)
        made = out(seen.transpose(1, 2).reshape(4, 16, 32))
        return k.move(optimizer, (made - x).square().mean())

    return step


def speech(k: Kit) -> Step:
    layer, x = k.nn.Linear(16, 12), k.normal(20, 8, 16)
    labels, turns, counts = k.below(11, 8, 6) + 1, k.tensor([20] * 8), k.tensor([6] * 8)
    optimizer = k.adam(layer)

    def step() -> float:
        said = k.F.log_softmax(layer(x), -1)
        return k.move(optimizer, k.F.ctc_loss(said, labels, turns, counts))

    return step


def critic_with_penalty(k: Kit) -> Step:
    """The slope of the critic between real and made samples is a part of its loss."""
    one, two, real, made = k.nn.Linear(8, 16), k.nn.Linear(16, 1), k.normal(64, 8), k.normal(64, 8)
    optimizer = k.adam(one, two)

    def step() -> float:
        share = k.rand(64, 1)
        between = share * real + (1 - share) * made
        between.requires_grad = True
        slope = k.gradient(two(one(between).tanh()).sum(), between)
        penalty = (slope.square().sum(1).sqrt() - 1).square().mean()
        apart = two(one(real).tanh()).mean() - two(one(made).tanh()).mean()
        return k.move(optimizer, apart + 10 * penalty)

    return step


def policy(k: Kit) -> Step:
    """Proximal policy optimisation on a shuffled part of what was played."""
    base, actor, critic = k.nn.Linear(8, 64), k.nn.Linear(64, 4), k.nn.Linear(64, 1)
    optimizer = k.adam(base, actor, critic)
    seen, done = k.normal(256, 8), k.below(4, 256)
    gain, total, before = k.normal(256), k.normal(256), k.normal(256) / 10 - 1.4
    params = [param for layer in (base, actor, critic) for param in k.parameters(layer)]

    def step() -> float:
        chosen = k.randperm(256)[:64]
        x, action, adv, value, old = [each[chosen] for each in (seen, done, gain, total, before)]
        hidden = base(x).tanh()
        chances = k.F.log_softmax(actor(hidden), -1)
        ratio = (chances.gather(1, action.unsqueeze(1)).squeeze(1) - old).exp()
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        surrogate = (ratio * adv).minimum(ratio.clamp(0.8, 1.2) * adv).mean()
        entropy = -(chances.exp() * chances).sum(-1).mean()
        loss = 0.5 * (critic(hidden).squeeze(-1) - value).square().mean() - surrogate
        loss = loss - 0.01 * entropy
        optimizer.zero_grad()
        loss.backward()
        k.nn.utils.clip_grad_norm_(params, 0.5)
        optimizer.step()
        return float(loss.item())

    return step


def q_learning(k: Kit) -> Step:
    """The network of targets follows that which learns."""
    one, two, x = k.nn.Linear(4, 32), k.nn.Linear(32, 2), k.normal(64, 4)
    held = k.nn.Linear(4, 32), k.nn.Linear(32, 2)
    then, action, gain = k.normal(64, 4), k.below(2, 64), k.normal(64)
    optimizer = k.adam(one, two)
    slow, quick = (
        [param for layer in layers for param in k.parameters(layer)]
        for layers in (held, (one, two))
    )

    def step() -> float:
        value = two(one(x).relu()).gather(1, action.unsqueeze(1)).squeeze(1)
        with k.no_grad():
            wanted = gain + 0.99 * held[1](held[0](then).relu()).amax(1)
        loss = k.move(optimizer, k.F.smooth_l1_loss(value, wanted))
        with k.no_grad():
            for mine, theirs in zip(slow, quick, strict=True):
                mine.mul_(0.995).add_(0.005 * theirs)
        return loss

    return step


def mixed_up(k: Kit) -> Step:
    """Two samples and their labels, in a share that is drawn by the host."""
    layer, x, y = k.nn.Linear(16, 4), k.normal(32, 16), k.normal(32, 4)
    optimizer = k.adam(layer)

    def step() -> float:
        share = float(k.random.beta(0.2, 0.2))
        sample, label = (share * each + (1 - share) * each.flip(0) for each in (x, y))
        return k.move(optimizer, (layer(sample) - label).square().mean())

    return step


def by_hand(k: Kit) -> Step:
    """A rate that falls, without an optimizer."""
    weight, x, y, turn = k.normal(16, 4), k.normal(32, 16), k.normal(32, 4), [0]
    weight.requires_grad = True

    def step() -> float:
        turn[0] += 1
        loss = (x @ weight - y).square().mean()
        weight.grad = None
        loss.backward()
        with k.no_grad():
            weight.sub_(0.1 / turn[0] * weight.grad)
        return float(loss.item())

    return step


def adversaries(k: Kit) -> Step:
    makes, judges, real = k.nn.Linear(8, 16), k.nn.Linear(16, 1), k.normal(32, 16)
    maker, judge = k.adam(makes), k.adam(judges)
    told = k.F.binary_cross_entropy_with_logits

    def step() -> float:
        made = makes(k.randn(32, 8)).tanh()
        seen, unseen = judges(real), judges(made.detach())
        first = told(seen, k.F.sigmoid(seen.detach() * 0 + 9)) + told(unseen, unseen.detach() * 0)
        loss = k.move(judge, first)
        back = judges(made)
        return loss + k.move(maker, told(back, k.F.sigmoid(back.detach() * 0 + 9)))

    return step


def denoising(k: Kit) -> Step:
    """A small U-Net of a diffusion model."""
    time, into, out = k.nn.Linear(32, 64), k.nn.Conv2d(3, 16, 3, padding=1), k.nn.Conv2d(16, 3, 1)
    down = k.nn.Conv2d(16, 32, 3, stride=2, padding=1)
    blocks = [_residual(k, *sizes) for sizes in ((16, 16), (32, 32), (48, 16))]
    optimizer = k.adam(time, into, down, out, *[layer for block in blocks for layer in block[0]])
    x, share = k.normal(8, 3, 16, 16), k.tensor([1 - i / 101 for i in range(100)])
    waves = k.tensor([math.exp(-i / 16 * math.log(10000)) for i in range(16)])

    def step() -> float:
        at = (k.rand(8) * 100).long()
        noise, kept = k.randn(8, 3, 16, 16), share[at].reshape(-1, 1, 1, 1)
        seen = kept.sqrt() * x + (1 - kept).sqrt() * noise
        angle = at.float()[:, None] * waves[None]
        when = k.F.silu(time(k.cat([angle.sin(), angle.cos()], 1)))
        one = blocks[0][1](into(seen), when)
        two = blocks[1][1](down(one), when)
        both = k.cat([k.F.interpolate(two, (16, 16), mode="nearest"), one], 1)
        made = out(blocks[2][1](both, when))
        return k.move(optimizer, (made - noise).square().mean())

    return step


def _residual(k: Kit, inputs: int, outputs: int) -> tuple[list[Any], Callable[[Any, Any], Any]]:
    norms = k.nn.GroupNorm(4, inputs), k.nn.GroupNorm(4, outputs)
    first = k.nn.Conv2d(inputs, outputs, 3, padding=1)
    second, skip = k.nn.Conv2d(outputs, outputs, 3, padding=1), k.nn.Conv2d(inputs, outputs, 1)
    when = k.nn.Linear(64, outputs)

    def call(x: Any, at: Any) -> Any:
        hidden = first(k.F.silu(norms[0](x))) + when(at)[:, :, None, None]
        return second(k.F.silu(norms[1](hidden))) + skip(x)

    return [*norms, first, second, skip, when], call


def held_numbers(k: Kit) -> Step:
    """What was made before the loop: a scaled batch, a grid and a mask."""
    layer, x, hits = k.nn.Linear(32, 9), k.normal(64, 32) / 255, k.normal(64, 9) > 0
    grid, lower = k.tensor(list(range(9))) / 8, k.normal(9, 9).tril()
    optimizer = k.adam(layer)

    def step() -> float:
        made = (layer(x) - grid) * hits @ lower
        return k.move(optimizer, made.square().mean())

    return step


def recurrent_by_hand(k: Kit) -> Step:
    inner, again, out = k.nn.Linear(8, 16), k.nn.Linear(16, 16), k.nn.Linear(16, 8)
    optimizer, x, begin = k.adam(inner, again, out), k.normal(4, 10, 8), k.normal(4, 16)

    def step() -> float:
        state, made = begin, []
        for turn in range(9):
            state = (inner(x[:, turn]) + again(state)).tanh()
            made.append(out(state))
        return k.move(optimizer, (k.stack(made, 1) - x[:, 1:]).square().mean())

    return step


def rewards(k: Kit) -> Step:
    """Python's lists of what a game gave, and what is made of them."""
    layer, turn = k.nn.Linear(8, 4), [0]
    optimizer, seen = k.adam(layer), k.normal(32, 8)

    def step() -> float:
        turn[0] += 1
        given = [math.sin(turn[0] + i) for i in range(32)]
        gains = k.tensor(given)
        better = (gains - gains.mean()) / (gains.std() + 1e-5)
        likely = k.F.log_softmax(layer(seen), 1)[:, 0]
        return k.move(optimizer, -(likely * better).mean())

    return step


def replayed(k: Kit) -> Step:
    """What was seen is written to rows of a buffer, some of which are learned from; a target's
    weights follow."""
    layer, target = k.nn.Linear(8, 4), k.nn.Linear(8, 4)
    for param in k.parameters(target):
        param.requires_grad_(False)
    optimizer, buffer, turn = k.adam(layer), k.normal(64, 8), [0]
    rows = [k.normal(8) for _ in range(16)]

    def step() -> float:
        turn[0] += 1
        with k.no_grad():
            buffer[turn[0] % 64] = rows[turn[0] % 16]
        chosen = buffer[k.randperm(64)[:32]]
        loss = (layer(chosen) - target(chosen)).square().mean()
        out = k.move(optimizer, loss)
        pairs = zip(k.parameters(target), k.parameters(layer), strict=True)
        for theirs, mine in pairs:
            theirs.copy_(theirs * 0.9 + mine.detach() * 0.1)
        return out

    return step


def cached(k: Kit) -> Step:
    """A token of attention, whose keys and values go to their place in a cache."""
    to_query, to_key, to_value = k.normal(32, 32), k.normal(32, 32), k.normal(32, 32)
    keys, values, token, turn = k.normal(64, 32), k.normal(64, 32), k.normal(1, 32), [0]

    def step() -> float:
        at = turn[0] % 64
        turn[0] += 1
        with k.no_grad():
            keys[at : at + 1] = token @ to_key
            values[at : at + 1] = token @ to_value
            scores = token @ to_query @ keys.T
            return float((k.F.softmax(scores, 1) @ values).sum().item())

    return step


def unread(k: Kit) -> Step:
    """A recurrent state that is only read through what is made of it."""
    recurrent, given, state = k.normal(32, 32), k.normal(1, 32), [k.normal(1, 32)]

    def step() -> float:
        with k.no_grad():
            state[0] = (state[0] @ recurrent * 0.1 + given).tanh()
            return float((state[0] * state[0]).sum().item())

    return step


PROGRAMS: dict[str, Callable[[Kit], Step]] = {
    program.__name__: program
    for program in (
        *(gated, variational, mixture_density, coupling_flow, attention, speech),
        *(critic_with_penalty, policy, q_learning, mixed_up, by_hand, adversaries),
        *(denoising, held_numbers, recurrent_by_hand, rewards, replayed, cached, unread),
    )
}
