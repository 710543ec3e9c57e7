"""Steps that came before are done again without their graphs; here: and mean what they meant.

Each program runs three times: with promises, without, and with SPEC, which does all both ways. What
it returns must have the same bits.
"""

from __future__ import annotations

import gc
import itertools
import weakref

import numpy as np
import pytest
from together import together

from tinygrad import Context, Generator, GlobalCounters, Tensor, TinyJit, Variable, nn
from tinygrad.base.errors import ArgumentError, IndexCheckError, RuntimeCheckError, ShapeError
from tinygrad.tensor import again, backward, draws, template
from tinygrad.tensor.promise import DEEP

STEPS = 6
draw = np.random.default_rng(0)
X, Y = draw.standard_normal((STEPS, 8, 5), "float32"), draw.integers(0, 3, (STEPS, 8))
HIDDEN, OUT = draw.standard_normal((4, 5), "float32"), draw.standard_normal((3, 4), "float32")


class Net:
    def __init__(self):
        self.hidden, self.out = nn.Linear(5, 4), nn.Linear(4, 3)
        for layer, values in ((self.hidden, HIDDEN), (self.out, OUT)):
            layer.weight = Tensor(values).realize()
            layer.bias = Tensor(np.linspace(-1, 1, len(values), dtype="float32")).realize()

    def __call__(self, x):
        return self.out(self.hidden(x).relu())

    @property
    def parameters(self):
        return nn.state.get_parameters(self)


def batch(number):
    i = number % STEPS
    return Tensor(X[i]).realize(), Tensor(Y[i].astype("int32")).realize()


def loss_of(net, number, rows=8):
    x, y = batch(number)
    if rows < 8:
        x, y = Tensor(X[number % STEPS][:rows]).realize(), Tensor(Y[0][:rows].astype("int32"))
        y.realize()
    return net(x).sparse_categorical_crossentropy(y)


def weights(*nets):
    return [p.numpy() for net in nets for p in net.parameters]


def train(
    kind=nn.optim.SGD,
    before=None,
    between=None,
    after=None,
    steps=STEPS,
    make_loss=loss_of,
    **options,
):
    """A plain loop; `before`, `between` and `after` look on, and do what they like."""
    net, seen = Net(), []
    optimizer = kind(net.parameters, **{"lr": 0.1, **options})
    with Tensor.train():
        for number in range(steps):
            for do in (before,) if before else ():
                seen += do(net, optimizer, number) or []
            optimizer.zero_grad()
            loss = make_loss(net, number)
            for do in (between,) if between else ():
                seen += do(net, optimizer, number) or []
            loss.backward()
            optimizer.step()
            seen.append(loss.numpy())
            for do in (after,) if after else ():
                seen += do(net, optimizer, number, loss) or []
    return [*seen, *weights(net)]


# ---- programs ------------------------------------------------------------------------------------

PROGRAMS = []
BY_GRAPHS = []
"""Programs that need their graphs in each step."""


BY_OTHER_KERNELS = []
"""Programs in which what is written waits for its reader if there are graphs, and not if it is
promised: a product in one kernel with what it is made of is rounded otherwise."""


def program(run):
    PROGRAMS.append(run)
    return run


def by_other_kernels(run):
    BY_OTHER_KERNELS.append(run)
    return program(run)


def by_graphs(run):
    BY_GRAPHS.append(run)
    return program(run)


@program
def plain():
    return train()


@program
def adam():
    return train(nn.optim.Adam, lr=0.01)


@program
def decayed():
    return train(nn.optim.AdamW, lr=0.01, weight_decay=0.1)


@program
def other_optimizers():
    kinds = (nn.optim.RMSprop, nn.optim.NAdam, nn.optim.RAdam, nn.optim.LAMB, nn.optim.Lion)
    more = (nn.optim.LARS, nn.optim.Adagrad, nn.optim.Adadelta)
    return [each for kind in (*kinds, *more) for each in train(kind, lr=0.01)]


@program
def a_long_recurrence():
    """More expressions that stand on each other than a recursion could follow."""
    w, seen = Tensor(X[0][0], requires_grad=True).realize(), []
    for number in range(3):
        x, state = Tensor(X[1][0] + number).realize(), Tensor(X[0][1]).realize()
        for _ in range(DEEP // 2 + 5):
            state = state * w + x
        w.grad = None
        state.square().mean().backward()
        seen.append(w.grad.numpy())
    return seen


@program
def averages_of_one_batch():
    net, (x, y) = Net(), batch(0)
    optimizer = nn.optim.Adam(net.parameters, lr=0.1)
    with Tensor.train():
        for _ in range(STEPS):
            optimizer.zero_grad()
            net(x).sparse_categorical_crossentropy(y).backward()
            optimizer.step()
    return weights(net)


@program
def the_last_loss_is_held_where_batches_are_one():
    """Its graph reads the same batch as the next step, which nothing follows from."""
    net, (x, y), loss, seen = Net(), batch(0), None, []
    optimizer = nn.optim.SGD(net.parameters, lr=0.1)
    with Tensor.train():
        for _ in range(STEPS):
            optimizer.zero_grad()
            new = net(x).sparse_categorical_crossentropy(y)
            new.backward()
            optimizer.step()
            seen += [new.numpy(), *([] if loss is None else [loss.numpy()])]
            loss = new
    return [*seen, *weights(net)]


@program
def what_is_computed_wants_a_gradient_later():
    x, w = Tensor(X[0]).realize(), Tensor(X[1], requires_grad=True).realize()
    seen = []
    for number in range(2 * STEPS):
        w.grad = None
        hidden = (x * 2).contiguous()
        loss = (hidden * w).sum()
        if number % 2:
            hidden.realize()
        _ = number % 3 and hidden._uop
        hidden.requires_grad_()
        loss.backward()
        seen += [hidden.grad.numpy(), w.grad.numpy()]
    return seen


@program
def what_was_computed_twice_wants_a_gradient():
    """Each loss is held, and with it the node of an equal value, which lies elsewhere."""
    x, w = Tensor(X[0]).realize(), Tensor(X[1], requires_grad=True).realize()
    losses, seen = [], []
    for _ in range(STEPS):
        hidden = (x * 2).contiguous()
        losses.append((hidden * w).sum())
        hidden.realize()
        hidden.requires_grad_()
        losses[-1].backward()
        seen += [hidden.grad.numpy(), w.grad.numpy()]
    return seen


@program
def views_of_data_that_is_written_then_are_held():
    """A loss was computed of such a view; its node is made when something else is written."""
    x, w, seen = Tensor(np.ones((4, 3), np.float32)), Tensor.ones(3, requires_grad=True), []
    x, optimizer = x.realize(), nn.optim.SGD([w], lr=0.25)
    with Tensor.train():
        for _ in range(STEPS):
            loss = (x.T[:, 1:] * w.reshape(3, 1)).exp().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with Tensor.no_grad():
                x.add_(1)[1:] -= w
                half = (x * 0.5).realize()
                half.assign(x * 0.25)
            seen += [(loss + half.sum()).numpy()]
    return [*seen, x.numpy(), w.numpy()]


@program
def momentum():
    return train(momentum=0.9, nesterov=True, weight_decay=0.01)


@program
def changing_rate():
    def set_rate(net, optimizer, number):
        optimizer.lr = 0.1 / (number + 1)

    return train(before=set_rate)


@program
def scheduled():
    holder = {}

    def follow(net, optimizer, number, loss):
        found = holder.setdefault(id(optimizer), None) or nn.optim.ExponentialLR(optimizer, 0.7)
        holder[id(optimizer)] = found
        found.step()

    return train(after=follow)


@program
def settings_of_the_optimizer_change():
    def change(net, optimizer, number):
        optimizer.weight_decay = 0.1 * (number % 2)

    return train(before=change, weight_decay=0.1)


@program
def what_an_optimizer_holds_is_replaced():
    def change(net, optimizer, number):
        if number == 2:
            optimizer.b[1] = Tensor.ones(4).contiguous().realize()
        if number == 3:
            optimizer.momentum = 0.5
        if number == 4:
            optimizer.params.reverse(), optimizer.b.reverse()
        if number == 5:
            optimizer.b, optimizer.maximize = [t.clone().realize() for t in optimizer.b], True

    return train(before=change, momentum=0.9)


@program
def the_loss_is_read_before_the_step():
    net, seen = Net(), []
    optimizer = nn.optim.SGD(net.parameters, lr=0.1)
    with Tensor.train():
        for number in range(2 * STEPS):
            optimizer.zero_grad()
            loss = loss_of(net, number)
            loss.backward()
            if number % 4 == 1:
                seen.append(np.float32(loss.item()))
            if number % 4 == 2:
                seen.append(net.out.bias.grad.numpy())
            if number % 4 == 3:
                net.hidden.bias.assign(net.hidden.bias.detach() * 0.5)
            optimizer.step()
    return [*seen, *weights(net)]


@program
def the_last_losses_are_held():
    held, seen = [], []

    def hold(net, optimizer, number, loss):
        held.append(loss)
        del held[: -(1 + number % 4)]
        seen.extend(each.numpy() for each in held)

    return [*train(after=hold, steps=3 * STEPS), *seen]


@program
def items():
    return train(after=lambda net, optimizer, number, loss: [np.float32(loss.item())])


@program
def decisions():
    def decide(net, optimizer, number, loss):
        if loss.item() > 1:
            with Tensor.no_grad():
                net.hidden.bias.assign(net.hidden.bias * 0.5)

    return train(after=decide)


@program
def losses_are_kept():
    kept = []
    made = train(after=lambda net, optimizer, number, loss: kept.append(loss))
    return [*made, *(loss.numpy() for loss in kept)]


@program
def what_reads_old_weights_is_kept():
    kept = []

    def keep(net, optimizer, number):
        x, _ = batch(number)
        kept.append(net.hidden(x).relu())  # nobody computes it before the weights change

    made = train(between=keep)
    return [*made, *(tensor.numpy() for tensor in kept)]


@program
def views_of_weights_are_kept():
    views = []

    def keep(net, optimizer, number):
        if not number:
            with Tensor.no_grad():
                views.append(net.hidden.weight.transpose())
        return [views[-1].numpy()]

    return train(before=keep)


@program
def weights_are_written():
    def write(net, optimizer, number):
        if number % 2:
            with Tensor.no_grad():
                net.out.weight.assign(net.out.weight * 0.5)
        if number == 3:
            with Tensor.no_grad():
                net.hidden.weight[1] = 0.25

    return train(before=write)


@program
def weights_are_written_between_forward_and_backward():
    def write(net, optimizer, number):
        with Tensor.no_grad():
            net.out.bias.assign(net.out.bias + 1)

    return train(between=write)


@program
def weights_are_replaced():
    def swap(net, optimizer, number):
        if number == 3:
            net.out.weight.replace(Tensor(OUT * 2).realize().requires_grad_())

    return train(before=swap)


@program
def gradients_are_set_by_hand():
    def give(net, optimizer, number):
        if number % 2:
            net.out.bias.grad = Tensor(np.full(3, 0.5, "float32"))

    return train(between=give)


@program
def gradients_are_read_and_scaled():
    def look(net, optimizer, number, loss):
        return [net.hidden.weight.grad.numpy(), (net.out.bias.grad * 2).numpy()]

    return train(after=look)


@program
def a_weight_is_frozen():
    def freeze(net, optimizer, number):
        net.hidden.bias.requires_grad_(number % 3 != 1)

    return train(before=freeze)


@program
def gradients_add_up():
    net = Net()
    optimizer = nn.optim.SGD(net.parameters, lr=0.1)
    seen = []
    with Tensor.train():
        for number in range(STEPS):
            if number % 2 == 0:
                optimizer.zero_grad()
            loss = loss_of(net, number)
            loss.backward()
            seen.append(loss.numpy())
            if number % 2:
                optimizer.step()
    return [*seen, *weights(net)]


@program
def two_losses_one_step():
    net = Net()
    optimizer = nn.optim.SGD(net.parameters, lr=0.1)
    with Tensor.train():
        for number in range(STEPS):
            optimizer.zero_grad()
            loss_of(net, number).backward()
            loss_of(net, number + 1).backward()
            optimizer.step()
    return weights(net)


@program
def shapes_alternate():
    net = Net()
    optimizer = nn.optim.Adam(net.parameters, lr=0.01)
    with Tensor.train():
        for number in range(2 * STEPS):
            optimizer.zero_grad()
            loss_of(net, number, rows=(8, 5)[number % 2]).backward()
            optimizer.step()
    return weights(net)


@program
def operators():
    net = Net()
    optimizer = nn.optim.SGD(net.parameters, lr=0.1)
    seen = []
    with Tensor.train():
        for number in range(STEPS):
            x, y = batch(number)
            optimizer.zero_grad()
            h = net.hidden(x)
            h = (h > 0).where(h, h * 0.1 - h.exp() / 3)
            out = net.out(h)
            loss = ((out - y.one_hot(3)) ** 2).mean() + 0.01 * (net.out.weight**2).sum().sqrt()
            loss.backward()
            optimizer.step()
            seen += [loss.numpy(), (out.argmax(1) == y).mean().numpy(), (y // 2 % 2 + 1).numpy()]
    return [*seen, *weights(net)]


@program
def activations_in_place():
    """What is promised takes the place of what was, so that nothing is written between steps."""
    net, seen, activation = Net(), [], nn.ReLU(inplace=True)
    optimizer = nn.optim.SGD(net.parameters, lr=0.1)
    with Tensor.train():
        for number in range(STEPS):
            x, y = batch(number)
            hidden = net.hidden(x)
            out = net.out(activation(hidden) + hidden)
            optimizer.zero_grad()
            nn.functional.elu(out, inplace=True)
            loss = out.sparse_categorical_crossentropy(y)
            loss.backward()
            optimizer.step()
            seen.append(loss.numpy())
    return [*seen, *weights(net)]


@program
def values_in_buffers_of_their_own():
    net, seen = Net(), []
    optimizer = nn.optim.SGD(net.parameters, lr=0.1)
    with Tensor.train():
        for number in range(STEPS):
            x, y = batch(number)
            hidden = net.hidden(x.contiguous()).relu().contiguous()
            turned = net.out(hidden.transpose().contiguous().transpose())
            loss = turned.sparse_categorical_crossentropy(y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += [loss.numpy(), hidden.numpy()]
            other = x.transpose().contiguous()
            other += 1
            seen += [x.numpy(), other.numpy()]
    return [*seen, *weights(net)]


@program
def steps_by_hand():
    """Expressions are written to storage without an optimizer, in several orders."""
    net, seen = Net(), []
    for p in net.parameters:
        p.requires_grad_()
    speeds = [Tensor(np.zeros(p.shape, "float32")).realize() for p in net.parameters]
    for speed in speeds:
        speed.requires_grad_(False)
    for number in range(3 * STEPS):
        loss = loss_of(net, number)
        for p in net.parameters:
            p.grad = None
        loss.backward()
        with Tensor.no_grad():
            for p, speed in zip(net.parameters, speeds, strict=True):
                if number % 3:
                    speed.assign(speed * 0.5 + p.grad)
                    p -= 0.1 * speed
                else:
                    p.assign(p - 0.1 * p.grad)
        if number % 4 == 3:
            seen.append(net.hidden.weight.numpy())
        elif number % 4:
            Tensor.realize(*net.parameters, *speeds[: number % 3])
        seen.append(loss.numpy())
    return [*seen, *weights(net), *[s.numpy() for s in speeds]]


@by_other_kernels
def steps_by_hand_that_nobody_computes():
    """Nobody asks for what is written: the next step begins with it."""
    net, seen, kept = Net(), [], []
    for p in net.parameters:
        p.requires_grad_()
    for number in range(3 * STEPS):
        for p in net.parameters:
            p.grad = None
        loss = loss_of(net, number)
        loss.backward()
        with Tensor.no_grad():
            for p in [p for p in net.parameters if p.grad is not None]:
                p -= (0.1 if number % 4 else 0.2) * p.grad
            if number % 6 == 2:
                seen.append(loss_of(net, number + 1).numpy())
        if number % 6 == 3:
            seen.append(net.out.bias.numpy())
        if number % 6 == 4:
            seen.append(net.out.weight.transpose().numpy())
        if number == 11:
            net.hidden.bias.requires_grad_(False)
        seen += [loss.numpy()] if number % 6 else []
        kept.append(loss)
    return [*seen, *weights(net), *[t.numpy() for t in kept]]


@by_other_kernels
def steps_by_hand_beside_a_captured_step():
    """Which gives nodes to all that is promised."""
    net, seen, speed = Net(), [], Tensor(np.ones(3, "float32")).realize()
    for p in net.parameters:
        p.requires_grad_()

    @TinyJit
    def slow_down():
        return speed.assign(speed * 0.5).realize()

    for number in range(3 * STEPS):
        for p in net.parameters:
            p.grad = None
        loss = loss_of(net, number)
        loss.backward()
        with Tensor.no_grad():
            for p in net.parameters:
                p -= 0.1 * p.grad
        if number in (3, 4, 9):
            seen.append(slow_down().numpy())
        seen.append(loss.numpy())
    return [*seen, *weights(net)]


@by_other_kernels
def gradients_by_targets():
    net, seen = Net(), []
    targets = [p.requires_grad_() for p in net.parameters]
    for number in range(2 * STEPS):
        loss = loss_of(net, number)
        wanted = targets[1:] if number % 5 == 4 else targets
        found = loss.gradient(*wanted)
        if number % 3 == 2:  # a derivative of derivatives
            twice = sum((g.square().sum() for g in found), loss).gradient(*wanted)
            seen += [g.numpy() for g in twice]
        if number % 4 == 3:
            loss.backward()
            seen += [(p.grad - 0.5).numpy() for p in targets if p.grad is not None]
            net.out.bias.grad = None
        seen += [np.int64(found[-1].requires_grad is None), loss.numpy(), found[0].numpy()]
        with Tensor.no_grad():
            for p, g in zip(wanted, found, strict=True):
                p.assign(p - 0.1 * g)
        if number == 6:
            net.out.bias.requires_grad = None
        if number == 7:
            net.out.bias.requires_grad = True
    return [*seen, *weights(net)]


@program
def gradients_are_kept_short():
    """A loss of derivatives, in which a bias stands, and its derivative is 0."""
    net, seen = Net(), []
    optimizer = nn.optim.SGD(net.parameters, lr=0.1)
    with Tensor.train():
        for number in range(2 * STEPS):
            start = batch(number)[0].detach()
            start.requires_grad = True
            slope = net(start).sum().gradient(start)[0]
            optimizer.zero_grad()
            loss = (slope.square().sum(1).sqrt() - 1).square().mean()
            loss.backward()
            if number % 3 == 1:
                with Tensor.no_grad():
                    net.hidden.bias.grad += 0.5
            optimizer.step()
            seen += [loss.numpy(), net.hidden.bias.grad.numpy(), net.out.weight.grad.numpy()]
    return [*seen, *weights(net)]


@program
def starts_are_replaced_before_their_gradients():
    """`replace` makes a start stand for something else, which may be in the same graph."""
    x, seen = Tensor(X[0]).realize(), []
    for number in range(2 * STEPS):
        w = Tensor(X[1], requires_grad=True).realize()
        loss = (w * x).softmax(-1).square().sum()
        if number % 3 == 1:
            w.replace(x)
            w.requires_grad = True
        if number % 2:
            loss.backward()
            seen.append(w.grad.numpy())
        else:
            seen.append(loss.gradient(w)[0].numpy())
    return seen


@program
def a_generator_and_a_critic():
    """The critic's loss doesn't go on to the generator, the generator's goes to both."""
    Tensor.manual_seed(7)
    makes, critic, seen = nn.Linear(2, 5), Net(), []
    steps = [
        nn.optim.Adam(ps, lr=0.1) for ps in (nn.state.get_parameters(makes), critic.parameters)
    ]
    with Tensor.train():
        for number in range(2 * STEPS):
            x, _ = batch(number)
            made = makes(Tensor.randn(8, 2)).tanh()
            for optimizer in steps:
                optimizer.zero_grad()
            shown = made if number == 5 else made.detach()
            judged = (critic(x) - critic(shown)).square().mean()
            judged.backward()
            seen += [np.int64(p.grad is None) for p in steps[0].params]
            steps[1].step()
            steps[1].zero_grad()
            fooled = critic(made).square().mean()
            fooled.backward()
            steps[0].step()
            seen += [judged.numpy(), fooled.numpy()]
    return [*seen, *weights(critic), makes.weight.numpy()]


@program
def groups_of_optimizers():
    net, seen = Net(), []
    parts = [nn.state.get_parameters(layer) for layer in (net.hidden, net.out)]
    both = nn.optim.OptimizerGroup(nn.optim.SGD(parts[0], 0.1), nn.optim.Adam(parts[1], 0.01))
    with Tensor.train():
        for number in range(2 * STEPS):
            both.zero_grad()
            loss = loss_of(net, number)
            loss.backward()
            if number % 4 == 3:
                net.out.bias.grad = None
            both[0].lr = 0.1 / (number + 1)
            both.param_groups[1]["weight_decay"] = 0.1 * (number > 6)
            both.step()
            seen.append(loss.numpy())
    return [*seen, *weights(net)]


@program
def losses_are_scaled():
    """By a factor that grows, and shrinks where a gradient is infinite; gradients may be cut."""
    net, seen = Net(), []
    optimizer, scaler = nn.optim.SGD(net.parameters, 0.1), nn.optim.GradScaler(8.0, 2.0, 0.5, 3)
    with Tensor.train():
        for number in range(3 * STEPS):
            optimizer.zero_grad()
            loss = loss_of(net, number)
            if number % 7 == 6:
                loss = loss * float("inf")
            scaler.scale(loss).backward()
            if number % 3 == 1:
                scaler.unscale_(optimizer)
                seen.append(nn.optim.clip_grad_norm_(net.parameters, 0.5).numpy())
            if number == 10:
                scaler.growth_interval = 2
            scaler.step(optimizer)
            seen += [loss.numpy(), net.out.bias.grad.numpy(), scaler.factor.numpy()]
    return [*seen, *weights(net), scaler.good_steps.numpy()]


@program
def a_sequence_of_one_layer():
    """Its last state is one tensor, which is written to."""
    Tensor.manual_seed(4)
    net, seen = nn.LSTM(5, 4), []
    optimizer = nn.optim.SGD(nn.state.get_parameters(net), lr=0.1)
    with Tensor.train():
        for number in range(STEPS):
            outputs, (hidden, cell) = net(batch(number)[0].unsqueeze(1))
            optimizer.zero_grad()
            loss = (hidden * cell).square().sum() + outputs.mean()
            loss.backward()
            optimizer.step()
            last = hidden.detach()
            if number % 2:
                last += 1
            seen += [loss.numpy(), hidden.numpy(), outputs.numpy(), cell.numpy()]
    return [*seen, *[p.numpy() for p in optimizer.params]]


@program
def averages_follow():
    holder = {}

    def follow(net, optimizer, number, loss):
        average = holder.get(id(optimizer)) or nn.optim.EMA(net, 0.9)
        holder[id(optimizer)] = average
        average.update()
        return [average.averages[0].numpy()] if number % 3 == 2 else []

    made = train(after=follow)
    (average,) = holder.values()
    return [*made, *[t.numpy() for t in average.averages]]


def normed(reads=False):
    net, norm, seen = Net(), nn.BatchNorm(4), []
    parameters = [*net.parameters, *nn.state.get_parameters(norm)]
    optimizer = nn.optim.SGD(parameters, lr=0.1)
    with Tensor.train():
        for number in range(STEPS):
            x, y = batch(number)
            optimizer.zero_grad()
            out = net.out(norm(net.hidden(x)).relu())
            before = norm.running_var * 2 + norm.num_batches_tracked
            if reads:
                seen.append([norm.running_mean, norm.num_batches_tracked][number % 2].numpy())
            loss = out.sparse_categorical_crossentropy(y)
            loss.backward()
            optimizer.step()
            seen += [before.numpy(), loss.numpy()]
            with Tensor.train(False):
                seen.append(norm(net.hidden(x)).numpy())
    return [*seen, *[p.numpy() for p in parameters]]


@program
def averages_of_batches():
    return normed()


@by_other_kernels
def averages_of_batches_are_read():
    return normed(reads=True)


@program
def writes_wait():
    """What was written is read, seen by views, written over and forgotten before it is there."""
    draw, seen = np.random.default_rng(5), []
    x = Tensor(X[1], requires_grad=False).realize()
    for _ in range(30):
        a, b = (Tensor(X[0] * k, requires_grad=False).realize() for k in (1, 2))
        alive = []
        for _ in range(8):
            t, other = (a, b)[:: draw.choice((1, -1))]
            match int(draw.integers(12)):
                case 0 | 1:
                    t.assign(other.relu() + x)
                case 2 | 3:
                    t += 1
                case 4:
                    t.assign(t * other - x)
                case 5:
                    alive.append(t.reshape(-1) if draw.integers(2) else t.detach())
                case 6:
                    alive.append(t.softmax(-1) + other)
                case 7:
                    t[1] = 0.5
                case 8:
                    t.assign(alive[-1].reshape(t.shape)) if alive else t.realize()
                case 9:
                    alive.append(t.flip(0) * 2)
                case 10:
                    Tensor.realize(t, *alive[-1:])
                case _:
                    seen.append(t.numpy())
            if len(alive) > 3:
                del alive[draw.integers(3)]
        seen += [a.numpy(), *[t.numpy() for t in alive], b.numpy()]
    return seen


@program
def batches_are_boxes_of_storage():
    net, seen = Net(), []
    optimizer = nn.optim.SGD(net.parameters, lr=0.1)
    x, y = Tensor(X.reshape(-1, 5)).realize(), Tensor(Y.reshape(-1).astype("int32")).realize()
    with Tensor.train():
        for number in range(3 * STEPS):
            begin = number * 5 % 40
            optimizer.zero_grad()
            rows = x[begin : begin + 8]
            if number % 5 == 3:
                seen.append((rows + x[:8]).sum().numpy())  # two boxes, which may be one
            loss = net(rows).sparse_categorical_crossentropy(y[begin : begin + 8])
            loss.backward()
            optimizer.step()
            seen += [loss.numpy(), rows[1:3, 2:].exp().numpy()]
            if number == 7:
                x[begin] = 0.25
    return [*seen, *weights(net)]


@program
def storage_is_seen_twice():
    """Several views of one batch, and of one weight, are what one loss stands on."""
    Tensor.manual_seed(5)
    net, cell, seen = Net(), nn.LSTMCell(5, 4), []
    parameters = [*net.parameters, *nn.state.get_parameters(cell)]
    optimizer = nn.optim.SGD(parameters, lr=0.1)
    x, y = Tensor(X[0].reshape(4, 10)).realize(), Tensor(Y[0][:4].astype("int32")).realize()
    with Tensor.train():
        for _ in range(STEPS):
            optimizer.zero_grad()
            state = None
            for part in (x[:, :5], x[:, 5:]):
                state = cell(part + part.linear(net.hidden.weight.T).sum(), state)
            loss = net.out(state[0]).sparse_categorical_crossentropy(y)
            del state
            loss.backward()
            optimizer.step()
            grads = net.hidden.weight.grad, cell.weight_ih.grad, cell.bias_hh.grad
            seen += [loss.numpy(), *[grad.numpy() for grad in grads]]
    return [*seen, *[p.numpy() for p in parameters]]


@program
def weights_are_seen_in_other_shapes():
    net, seen = Net(), []
    optimizer = nn.optim.SGD(net.parameters, lr=0.1)
    with Tensor.train():
        for number in range(STEPS):
            x, y = batch(number)
            optimizer.zero_grad()
            hidden = x.reshape(2, 4, 5).flatten(0, 1).dot(net.hidden.weight.T)
            out = hidden.relu().linear(net.out.weight.transpose(), net.out.bias)
            loss = out.sparse_categorical_crossentropy(y) + net.out.weight[1:].square().sum()
            loss.backward()
            optimizer.step()
            seen += [loss.numpy(), net.out.weight.detach().exp().numpy()]
    return [*seen, *weights(net)]


@program
def layers_of_many_kinds():
    Tensor.manual_seed(3)
    table, out = nn.Embedding(6, 4), nn.Linear(4, 3)
    parameters = [p for layer in (table, out) for p in nn.state.get_parameters(layer)]
    optimizer = nn.optim.Adam(parameters, lr=0.1)
    names = Tensor((Y[:, :, None] + np.arange(3)).astype("int32")).realize()
    seen = []
    with Tensor.train():
        for number in range(STEPS):
            chosen = Tensor([number, (number + 2) % STEPS]).realize()
            words = table(names[chosen].flatten(0, 1))  # (16, 3, 4)
            state = Tensor.zeros(16, 4)
            for i in range(3):
                state = (words[:, i] + state * 0.5).tanh()
            q, k = words.reshape(16, 3, 2, 2).transpose(1, 2).unbind(1)
            v = q.stack(k, dim=1)
            q, k = q.unsqueeze(1).tanh(), k.unsqueeze(1).repeat(1, 2, 1, 1)
            mixed = q.expand(16, 2, 3, 2).scaled_dot_product_attention(k, v, is_causal=True)
            mixed = mixed.transpose(1, 2).reshape(16, 3, 4).mean(1)
            loss = out(state + mixed).sparse_categorical_crossentropy(batch(number)[1].repeat(2))
            optimizer.zero_grad()
            loss.backward()
            seen.append(nn.optim.clip_grad_norm_(parameters, 0.5).numpy())
            optimizer.step()
            seen.append(loss.numpy())
    return [*seen, *[p.numpy() for p in parameters]]


def moved(draw, t):
    """A view of a matrix, or a copy that takes its elements in another order."""
    rows, columns = t.shape
    flat = rows * columns
    return (
        lambda: t.transpose(),
        lambda: t.reshape(columns, rows),
        lambda: t.flatten().reshape(rows, columns),
        lambda: t.transpose().reshape(rows, columns),
        lambda: t.flip(0),
        lambda: t[1:],
        lambda: t.reshape(1, flat).expand(2, flat),
        lambda: t.squeeze(),
        lambda: t.shrink(((0, rows), (0, columns - 1))),
        lambda: t.chunk(2, dim=1)[-1],
        lambda: t[:, 1:] if columns > 2 else t.detach(),
    )[draw.integers(11)]()


def with_views(draw, wants):
    """Expressions, views of them, and writes to any, in any order."""
    start = Tensor(X[0], requires_grad=wants).realize()
    alive, seen = [start.relu()], []
    for _ in range(14):
        t = alive[draw.integers(len(alive))]
        if t.ndim != 2 or min(t.shape) < 2:
            t = alive[0]
        match int(draw.integers(9)):
            case 0 | 1 | 2 | 3:
                alive.append(moved(draw, t))
            case 4:
                alive.append(t.softmax(-1) * 3 - 1)
            case 5:
                t.realize()
            case 6 if not wants:
                t[0] = 0.5
            case 7 if not wants:
                t += 1
            case 8:
                alive.append(t.relu().transpose())
            case _:
                seen.append(t.numpy())
        if len(alive) > 6:
            del alive[draw.integers(1, 6)]
    if wants:
        sum((t.sum() for t in alive), start.sum()).backward()
        seen += [start.grad.numpy()]
    return [*seen, *[t.numpy() for t in alive]]


@program
def views_are_read_and_written():
    draw = np.random.default_rng(7)
    return [each for number in range(24) for each in with_views(draw, bool(number % 2))]


@program
def starts_that_are_views():
    """What gradients go to looks the same however it is a view of storage."""
    whole, x = Tensor(X[0][:5]).realize(), Tensor(X[1][:5]).realize()
    seen = []
    for view in (whole, whole.transpose(), whole.flip(0), whole.transpose().flip(0)):
        for _ in range(2):
            start = view.detach()
            start.requires_grad = True
            made = start.matmul(x).softmax(-1)
            seen.append(made.numpy())
            (made * made).sum().backward()
            seen.append(start.grad.numpy())
    return seen


@program
def gradients_that_repeat():
    """Sums spread, slices padded: copies yet to be made, which somebody keeps, shows and writes."""
    seen = []
    for number in range(4 * STEPS):
        x = Tensor(X[number % STEPS]).realize()
        x.requires_grad = True
        w = Tensor(HIDDEN[0]).realize()
        inner = x.tanh()
        part = inner[1:3] if number % 2 else inner.sum(0, keepdim=True)
        (part * w.exp()).sum().backward()
        kept = inner.grad.flip(0) if number % 5 else inner.grad
        with Tensor.no_grad():
            try:
                match number % 6:
                    case 0:
                        inner.grad[1] = 3
                    case 1:
                        inner.grad += x.grad
                    case 2:
                        kept[2] += 1
                    case 3:
                        inner.grad.realize()
                        kept *= 2
                    case 4:
                        inner.sum().backward()
            except ArgumentError:  # elements of a view are one: refused in any way
                seen.append(np.int64(number))
        seen += [t.numpy() for t in (kept, inner.grad, x.grad, part)]
    return seen


@program
def what_is_logged():
    """The loss, and what else people look at in each step."""
    net, seen = Net(), []
    optimizer = nn.optim.Adam(net.parameters, lr=0.1)
    with Tensor.train():
        for number in range(STEPS):
            x, y = batch(number)
            optimizer.zero_grad()
            out = net(x)
            loss, right = out.sparse_categorical_crossentropy(y), (out.argmax(1) == y).mean()
            chances, above = out.softmax(), out > 0
            loss = loss + above.where(out, 0).mean()
            loss.backward()
            optimizer.step()
            seen += [t.numpy() for t in (loss, right, chances, above)]
    return [*seen, *weights(net)]


@program
def what_is_beside_a_loss():
    """What a loss is made of, or shares the start of, in other methods: some in its graph."""
    net, seen = Net(), []
    optimizer = nn.optim.SGD(net.parameters, lr=0.1)
    for number in range(2 * STEPS):
        x, y = batch(number)
        out = net(x)
        right = (out.argmax(1) == y).float().mean()
        chances, logs = out.softmax(), out.log_softmax()
        halves = net.hidden(x).chunk(2, dim=1)
        loss = out.sparse_categorical_crossentropy(y)
        if number % 3 == 0:
            loss = loss + halves[number % 2].square().mean()
        elif number % 3 == 1:
            loss = loss + (logs * chances).sum()
        if number % 4 < 2:
            halves = ()
        del logs
        optimizer.zero_grad()
        with Tensor.train():
            loss.backward()
            optimizer.step()
        beside = [t for t in (out, right) if t.grad is not None]
        seen += [t.grad.numpy() for t in beside] + [right.numpy(), loss.numpy()]
        seen += [np.int64(len(beside))]
        for half in halves:
            seen += [half.numpy(), np.int64(half.grad is None)]
    return [*seen, *weights(net)]


@program
def one_output_of_two_is_kept():
    seen = []
    for number in range(2 * STEPS):
        x = Tensor(X[number % STEPS], requires_grad=True).realize()
        spread, middle = x.tanh().std_mean(0)
        loss = (spread * middle.exp()).sum()
        kept = spread if number % 2 else middle
        del spread, middle
        loss.backward()
        seen += [kept.grad.numpy(), x.grad.numpy()]
    return seen


@program
def sequences():
    Tensor.manual_seed(4)
    kinds = (nn.RNN, nn.LSTM)
    nets = [kind(5, 4, num_layers=2, dropout=0.3, bidirectional=True) for kind in kinds]
    seen = []
    for net in nets:
        parameters = nn.state.get_parameters(net)
        optimizer = nn.optim.Adam(parameters, lr=0.1)
        with Tensor.train():
            for number in range(STEPS):
                x, _ = batch(number)
                optimizer.zero_grad()
                outputs, last = net(x.unsqueeze(1))
                last = last[0] if isinstance(last, tuple) else last
                loss = (outputs[-1] * last[0, :, :1]).square().sum()
                loss.backward()
                optimizer.step()
                seen.append(loss.numpy())
        seen += [p.numpy() for p in parameters]
    return seen


@program
def dropped_out():
    Tensor.manual_seed(1)
    net = Net()
    optimizer = nn.optim.Adam(net.parameters, lr=0.1)
    with Tensor.train():
        for number in range(STEPS):
            x, y = batch(number)
            optimizer.zero_grad()
            hidden = net.hidden(x.dropout(0.2)).relu().dropout()
            net.out(hidden).sparse_categorical_crossentropy(y).backward()
            optimizer.step()
    return weights(net)


@program
def numbers_are_drawn():
    """By layers, as noise that gradients go through, as labels, and as what decides."""
    Tensor.manual_seed(5)

    def draw(net, optimizer, number):
        x, _ = batch(number)
        loss = net(x.dropout(0.4) + 0.1 * Tensor.randn(8, 5)).dropout()
        loss = loss.sparse_categorical_crossentropy(Tensor.randint(8, high=3))
        loss.backward()
        few = x.sigmoid().bernoulli() * x.sigmoid().multinomial(5, replacement=True)
        return [few.numpy()]

    return train(between=draw)


@program
def numbers_are_drawn_anew():
    """From the same place twice in a step, from elsewhere in the next, by several streams."""
    mine, seen = Generator(3), []
    for number in range(2 * STEPS):
        Tensor.manual_seed(number // 3)
        x = batch(number)[0].dropout(0.3) if number % 2 else batch(number)[0]
        with Tensor.train():
            first = x.dropout()
            Tensor.manual_seed(number % 2 + number // 3)
            second = x.dropout()
            third = x.dropout(generator=mine if number % 3 else Generator(number))
        seen.append((first.softmax(-1) - second + third).numpy())
    return seen


@by_other_kernels
def actions_are_drawn():
    """By a policy, under no_grad; their log chances, by einsum, are learned from. (The gradient of
    `chosen` reads no weight, so by graphs it isn't computed; it is promised beside some that do.)
    """
    Tensor.manual_seed(6)
    net, seen = Net(), []
    optimizer = nn.optim.SGD(net.parameters, lr=0.1)
    with Tensor.train():
        for number in range(STEPS):
            x, _ = batch(number)
            with Tensor.no_grad():
                chances = net(x).softmax()
                if number == 3:
                    chances = chances * 0 - 1
                actions = chances.multinomial()
            optimizer.zero_grad()
            if number == 3:
                with pytest.raises(RuntimeCheckError, match="negative"):
                    actions.numpy()
                continue
            chosen = net(x).log_softmax().gather(1, actions)
            loss = -Tensor.einsum("ij,ik->", chosen, x)
            loss.backward()
            optimizer.step()
            seen += [actions.numpy(), loss.numpy()]
    return [*seen, *weights(net)]


@program
def what_was_drawn_is_kept():
    """Until the weights have changed; in memory; as what wants a gradient."""
    Tensor.manual_seed(2)
    kept, noise = [], Tensor.randn(8, 5).realize()

    def keep(net, optimizer, number):
        drawn, start = Tensor.rand(8, 4), Tensor.uniform(8, 5, requires_grad=True)
        x = (start + noise).matmul(net.hidden.weight.transpose())
        (x * drawn).sum().backward()
        kept.append(x - drawn)
        kept.append(start.grad)
        noise.assign(noise + Tensor.rand(8, 5))

    made = train(between=keep)
    return [*made, noise.numpy(), *(tensor.numpy() for tensor in kept)]


@by_graphs
def starts_whose_place_is_a_variable():
    whole, seen = Tensor(X[0]).realize(), []
    for begin in range(4):
        place = Variable("place", 0, 5).bind(begin)
        start = whole.shrink(((place, place + 2), (0, 5))).detach()
        start.requires_grad = True
        (start.matmul(whole[:5]).softmax(-1) ** 2).sum().backward()
        seen.append(start.grad.numpy())
    return seen


@program
def boxes_of_a_constant_beside_those_of_storage():
    whole, seen = Tensor(X[0]).realize(), []
    for begin in range(6):
        number = Tensor(3.0).expand(8, 5)[1:3]
        seen.append((number * whole[begin : begin + 2]).softmax(-1).numpy())
    return seen


@program
def settings_of_numbers():
    """Numbers that are equal and not the same; divisors whose bounds matter."""
    x, y = batch(0)
    seen = []
    for _ in range(3):
        for number in (0.0, -0.0, 1, True, 1.0, float("nan")):
            seen += [(x * number).numpy(), (y * number).numpy(), (x + number * x).numpy()]
        for classes in (4, 3):
            picked = y.one_hot(classes)
            seen += [(y // (picked + 1).max()).numpy(), (7 % (picked.sum(1) * 2)).numpy()]
    return seen


@program
def models_alternate():
    first, second = Net(), Net()
    optimizers = [nn.optim.SGD(first.parameters, lr=0.1), nn.optim.Adam(second.parameters, lr=0.01)]
    with Tensor.train():
        for number in range(STEPS):
            for net, optimizer in zip((first, second), optimizers, strict=True):
                optimizer.zero_grad()
                loss_of(net, number).backward()
                optimizer.step()
    return weights(first, second)


@program
def losses_of_two_models_wait():
    first, second = Net(), Net()
    optimizers = [nn.optim.SGD(net.parameters, lr=0.1) for net in (first, second)]
    seen = []
    with Tensor.train():
        for number in range(STEPS):
            for optimizer in optimizers:
                optimizer.zero_grad()
            losses = [loss_of(net, number) for net in (first, second)]
            for loss in losses:
                loss.backward()
            for optimizer in optimizers[:: 1 if number % 2 else -1]:
                optimizer.step()
            seen += [loss.numpy() for loss in losses]
    return [*seen, *weights(first, second)]


@program
def evaluated_between():
    def evaluate(net, optimizer, number, loss):
        with Tensor.no_grad(), Tensor.train(False):
            return [loss_of(net, number).numpy(), net(batch(number)[0]).argmax(1).numpy()]

    return train(after=evaluate)


@program
def masks_are_counted_anew():
    def loss(net, number):
        x, y = batch(number)
        causal = Tensor.arange(5).reshape(5, 1) >= Tensor.arange(5)
        spread = (x + Tensor.linspace(0, 1, 5)).dot(causal.where(1.0, 0.5) + Tensor.eye(5))
        first = Tensor.arange(3) < 2 + number % 2
        return (net(spread).log_softmax(-1) * first).square().mean() + y[Tensor.arange(2)].sum()

    return train(make_loss=loss, after=lambda *_: [Tensor.arange(4).numpy()])


def on_hidden(make):
    """Steps of a net whose hidden values are made something of."""

    def loss(net, number):
        x, y = batch(number)
        hidden = net.hidden(x).sigmoid()
        return make(hidden) + net.out(hidden).sparse_categorical_crossentropy(y)

    return train(make_loss=loss)


@program
def values_are_padded():
    def make(hidden):
        padded = hidden.pad((1, 2))
        rows = padded.reshape(7, 8)
        again_ = rows.T.reshape(8, 7)[:, 1:].pad((0, 0, 2, 0))
        return (rows * rows).sum() + again_.square().mean() + padded[2:].max()

    return on_hidden(make)


@program
def values_are_repeated():
    def make(hidden):
        made = [hidden.repeat(1, 2), hidden.repeat_interleave(2, 1)]
        made.append(hidden.reshape(1, 1, 8, 4).interpolate((16, 8), mode="nearest"))
        sums = [(each + each.relu()).square().sum() for each in made]
        return Tensor.stack(*sums).mean()

    return on_hidden(make)


@program
def values_are_sorted():
    return on_hidden(lambda hidden: (hidden.sort(1)[0] * hidden.argsort(0)).mean())


def matrix_of(hidden):
    return hidden.T @ hidden + Tensor.eye(hidden.shape[1])


@program
def determinants_and_numbers_of_numpy():
    return on_hidden(lambda hidden: matrix_of(hidden).slogdet()[1] * np.log(2.0))


@program
def all_pairs_of_rows():
    def loss(hidden):
        return nn.functional.cosine_similarity(hidden[:, None], hidden[None], dim=-1).mean()

    return on_hidden(loss)


@program
def copies_of_values_are_written():
    x, seen = Tensor(X[0]).realize(), []
    for number in range(STEPS):
        value = x.relu()
        padded, twice = value.pad((1, 1)), value.repeat(2, 1)
        row, part = padded.reshape(56), twice.reshape(2, 40)
        if number % 3:
            (padded if number % 2 else twice).realize()
        if number % 4 == 1:
            value.realize()
        row[3] = 7
        part[1, 2] = 8
        value += 1
        seen += [each.numpy() for each in (value, padded, twice, row, part)]
    return seen


def with_a_view(make):
    """A loop that holds a view of a weight, and uses it in every other step."""
    held, seen = [], []

    def loss(net, number):
        if not held:
            held.append(make(net))
        x, y = batch(number)
        logits = net(x)
        if number != 3:
            logits = logits + held[0].square().mean()
        return logits.sparse_categorical_crossentropy(y)

    def after(net, optimizer, number, loss):
        seen.append(np.zeros(1) if held[0].grad is None else held[0].grad.numpy())
        seen.append(held[0].numpy())
        held[0].grad = None

    return [*train(make_loss=loss, after=after), *seen]


@program
def rows_of_a_weight_are_held():
    return with_a_view(lambda net: net.hidden.weight[1:3])


@program
def a_transposed_weight_is_held():  # whose gradient is, transposed, the weight's
    return with_a_view(lambda net: net.hidden.weight.T)


@program
def a_flat_weight_is_held():
    return with_a_view(lambda net: net.out.weight.flatten())


@program
def probabilities_are_surprised():
    def surprise(net, number):
        x, _ = batch(number)
        chances = net(x).sigmoid()
        told = Tensor((X[number % STEPS][:, :3] > 0).astype("float32")).realize()
        return nn.functional.binary_cross_entropy(chances, told)

    return train(make_loss=surprise)


@program
def pictures_are_resized():
    def resized(net, number):
        x, _ = batch(number)
        picture = net(x).reshape(1, 1, 8, 3)
        return sum(
            picture.interpolate((11, 7), mode=mode).square().mean() for mode in ("linear", "cubic")
        )

    return train(make_loss=resized)


@program
def labels_are_lists():
    def told(net, number):
        x, _ = batch(number)
        labels = Tensor(Y[number % STEPS].tolist())
        rows = net(x)[Tensor([number % 8, 1])]
        return net(x).sparse_categorical_crossentropy(labels) + rows.square().mean()

    return train(make_loss=told)


@program
def rewards_are_lists():
    """Of floats, alone and beside other tensors, whole, in parts, and more than once."""

    def told(net, number):
        x, _ = batch(number)
        rewards = Tensor([[(number + i) / 7.0] for i in range(8)])
        advantage = (rewards - rewards.mean()) / (rewards.std() + 1e-5)
        likely = net(x).log_softmax()
        of_some = likely[2:5] * rewards[2:5] + Tensor([0.5, number / 3, 2.0])
        return -(likely * advantage).mean() + of_some.square().mean() * rewards.reshape(2, 4).max()

    return train(make_loss=told)


@program
@Tensor.train()
def lists_are_written_and_differentiated():
    net, seen = Net(), []
    optimizer = nn.optim.SGD(net.parameters, 0.1)
    for number in range(STEPS):
        x, _ = batch(number)
        scale, shift = Tensor([1.0, number / 5, 2.0]), Tensor([number / 9.0], requires_grad=True)
        optimizer.zero_grad()
        loss = (net(x) * scale + shift).square().mean()
        seen += [each.numpy() for each in loss.gradient(scale, shift)] if number % 2 else []
        loss.backward()
        optimizer.step()
        before = (scale * 2).sum()
        if number % 3:
            scale.assign(scale * 3)
        seen += [each.numpy() for each in (loss, before, scale, shift.grad)]
    return [*seen, *weights(net)]


@program
def parts_are_written():
    """Of what is stored: rows, by numbers, masks and places, as a buffer of what was seen is."""
    net, seen = Net(), []
    optimizer = nn.optim.SGD(net.parameters, 0.1)
    buffer = Tensor.zeros(STEPS, 5).contiguous().realize()
    counts, last = Tensor([0] * 4).realize(), Tensor.zeros(2, 3).contiguous().realize()
    with Tensor.train():
        for number in range(2 * STEPS):
            x, _ = batch(number)
            waits = buffer.sum() if number % 4 == 2 else None
            buffer[number % STEPS] = X[number % STEPS][0]
            buffer[(number * 5) % STEPS, 1:3] = number / 7
            counts[number % 4] += 1
            shown = buffer[1:3]
            optimizer.zero_grad()
            loss = net(Tensor.cat(buffer, x)).square().mean() * counts.max()
            loss.backward()
            optimizer.step()
            with Tensor.no_grad():
                last[number % 2] = net(x).mean(0)
                net.hidden.weight[:, number % 5] = 0.1
                buffer[buffer > 1] = 0.75
                last[Tensor([number % 2])] *= 2
            seen += [each.numpy() for each in (loss, shown, last, counts)]
            seen += [waits.numpy()] if waits is not None else []
    return [*seen, buffer.numpy(), *weights(net)]


@by_other_kernels
@Tensor.train()
def targets_that_say_nothing_follow():
    """They are written without `no_grad`, and so is a mean of what a batch gave."""
    net, target, seen = Net(), Net(), []
    mean = Tensor([0.0, 0.0, 0.0]).realize()
    optimizer = nn.optim.Adam(net.parameters, 0.1)
    for number in range(STEPS):
        x, _ = batch(number)
        there = target(x)
        loss = (net(x) - there.detach()).square().mean() + (there * mean).mean() * 0.1
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean.assign(mean * 0.9 + loss.detach() * there.mean(0) * 0.1)
        for theirs, mine in zip(target.parameters, net.parameters, strict=True):
            theirs.assign(theirs * 0.8 + mine.detach() * 0.2)
        if number == 3:
            seen += [each.numpy() for each in (mean * mean).sum().gradient(mean)]
        seen += [loss.numpy(), mean.numpy()]
    return [*seen, *weights(net, target)]


@program
def copies_of_values_are_computed_together():
    x, seen = Tensor(X[0]).realize(), []
    for number in range(STEPS):
        value = x.relu()
        made = [value.pad((1, 1)), value.repeat(2, 1), value.expand(2, 8, 5), value.T.reshape(8, 5)]
        made += [made[0].reshape(56), made[1] + 1, made[0][2:], value]
        Tensor.realize(*made[number % 3 :: 2 + number % 2])
        seen += [each.numpy() for each in made]
        seen.append(x.relu().repeat(1, 3).numpy())
    return seen


@program
def counts_are_written_and_want_gradients():
    seen, held = [], []
    for number in range(STEPS):
        count, other = Tensor.arange(5.0), Tensor.arange(5.0)
        held.append((Tensor.arange(5.0) * 2).realize())
        if number % 2:
            count.realize()
        count += 1
        wanted = Tensor.arange(5.0, requires_grad=True)
        ((count + other) * wanted * Tensor.arange(4, -1, -1)).sum().backward()
        seen += [count.numpy(), other.numpy(), wanted.grad.numpy()]
    return [*seen, *[each.numpy() for each in held]]


@program
def an_error_in_the_middle():
    def fail(net, optimizer, number):
        with pytest.raises(ShapeError):
            net(Tensor(np.zeros((2, 7), "float32")).realize())
        with pytest.raises(ArgumentError):
            optimizer.step()

    def fail_first(net, optimizer, number):
        optimizer.zero_grad()
        fail(net, optimizer, number)

    return train(before=fail_first)


@program
def an_interrupt_in_the_middle():
    net = Net()
    optimizer = nn.optim.SGD(net.parameters, lr=0.1)
    with Tensor.train():
        for number in range(2 * STEPS):
            try:
                optimizer.zero_grad()
                loss = loss_of(net, number)
                if number % 3 == 1:
                    raise KeyboardInterrupt
                loss.backward()
                if number % 3 == 2:
                    raise KeyboardInterrupt
                optimizer.step()
            except KeyboardInterrupt:
                pass
    return weights(net)


@program
@Tensor.train()
def parts_of_a_value_live():
    """As in a step that stands in the loop itself: its parts live when the parameters change."""
    net, seen = Net(), []
    optimizer = nn.optim.SGD(net.parameters, lr=0.1)
    for number in range(STEPS):
        hidden = net.hidden(batch(number)[0])
        one, two = hidden.chunk(2, 1)
        a, b, c, d = hidden.relu().split(1, 1)  # nobody has the whole
        mixed = (one * two.sigmoid()).cat(a - b, (c * d)[:, :], dim=1)
        loss = net.out(mixed).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += [loss.numpy(), one.numpy(), two.grad.numpy(), d.numpy()]
    two.grad[0] = 3  # what else was computed doesn't see this; what `two` is a part of sees that
    two[0] = 5
    seen += [hidden.numpy(), two.grad.numpy(), hidden.grad.numpy(), one.grad.numpy()]
    return [*seen, *weights(net)]


@program
@Tensor.train()
def two_values_have_one_gradient():
    net, seen = Net(), []
    optimizer = nn.optim.SGD(net.parameters, lr=0.1)
    for number in range(2 * STEPS):
        one = net.hidden(batch(number)[0]).exp()
        two = one + 1
        three = two + 1
        loss = net.out(three).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        slopes = [each.grad for each in (one, two, three)]
        if number >= STEPS:
            seen += [each.numpy() for each in slopes[: number % 4]]
            slopes[number % 3][0] = 7
            slopes[(number + 1) % 3] += 1
        seen += [loss.numpy(), *[each.numpy() for each in slopes]]
    return [*seen, *weights(net)]


@program
def gradients_of_one_number_are_clipped():
    """Its norm is a sum of one term: the term, but a tensor of its own."""

    def clip(net, optimizer, number):
        bias = optimizer.params[-1]
        total = nn.utils.clip_grad_norm_(optimizer.params, 0.1)
        return [total.numpy(), bias.grad.numpy()] if number % 3 == 2 else []

    net, seen = Net(), []
    scale = Tensor([2.0], requires_grad=True).realize()
    optimizer = nn.optim.SGD([*net.parameters, scale], lr=0.1)
    with Tensor.train():
        for number in range(STEPS):
            optimizer.zero_grad()
            loss = (loss_of(net, number) * scale).sum()
            loss.backward()
            seen += clip(net, optimizer, number)
            optimizer.step()
            seen.append(loss.numpy())
    return [*seen, scale.numpy(), *weights(net)]


@program
def a_sum_of_one_is_a_tensor_of_its_own():
    x, seen = Tensor(X[0]).realize(), []
    for number in range(STEPS):
        one = (x[:1, :1] + number).exp()
        total = one.sum()
        if number % 2:
            one.realize(total)
        total += 1
        one *= 2
        seen += [one.numpy(), total.numpy()]
    return seen


@program
def uncomputed_values_are_held():
    """What a loop made before its first step and never reads: it is no part of what steps store."""
    seen = []
    steps, scaled = Tensor.linspace(0, 1, 3), Tensor(X[0]) / 255
    noise = Tensor.randn(8, 3, generator=Generator(1))
    lower, where = Tensor.ones(3, 3).tril(), Tensor(Y[0]) > 0

    def make_loss(net, number):
        made = net(scaled) + noise - steps
        return where.unsqueeze(1).where(made @ lower, 0).square().mean()

    def change(net, optimizer, number, loss):
        if number == STEPS - 2:
            steps.assign(steps * 2)
            where[0] = True
        seen.append((steps + 1).numpy())

    return [*train(make_loss=make_loss, after=change), *seen, noise.numpy(), scaled.numpy()]


@program
@Tensor.train()
def a_gradient_penalty():
    net, seen = Net(), []
    optimizer = nn.optim.Adam(net.parameters, lr=0.01)
    for number in range(STEPS):
        x, _ = batch(number)
        between = x * 0.25 + batch(number + 1)[0] * 0.75
        between.requires_grad = True
        slope = net.out(net.hidden(between).tanh()).sum().gradient(between)[0]
        penalty = (slope.square().sum(1).sqrt() - 1).square().mean()
        optimizer.zero_grad()
        (net(x).mean() + penalty).backward()
        optimizer.step()
        seen += [penalty.numpy(), between.grad.numpy()]
    return [*seen, *weights(net)]


@program
@Tensor.train()
def labels_are_aligned():
    net, seen = Net(), []
    optimizer = nn.optim.SGD(net.parameters, lr=0.1)
    labels = Tensor(np.array([[1, 2], [2, 1]], "int32")).realize()
    turns, counts = Tensor([4, 3]).realize(), Tensor([2, 1]).realize()
    for number in range(STEPS):
        said = net(batch(number)[0]).reshape(4, 2, 3).log_softmax(-1)
        loss = nn.functional.ctc_loss(said, labels, turns, counts)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen.append(loss.numpy())
    return [*seen, *weights(net)]


@program
@Tensor.train()
def weights_of_losses_change():
    """Some are constants of other expressions, too, or equal to each other, or special."""
    net, seen = Net(), []
    optimizer = nn.optim.SGD(net.parameters, lr=0.1)
    shares = [0.3, 0.5, 0.25, 0.5, 1.0, 0.0, -0.7, 2.0, 1e-3, 0.125, 0.3, 1 / 3]
    for number, share in enumerate(shares):
        (x, _), (other, _) = batch(number), batch(number + 1)
        mixed = share * x + (1 - share) * other
        out = net(mixed) * 0.5
        first, second = out.square().mean(), (out / (share + 0.5) - share).abs().mean()
        loss = first * share + (1 - share) * second + number * 0.125
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += [loss.numpy(), (share - first).numpy(), (share / (second + 1)).numpy()]
    return [*seen, *weights(net)]


@program
def a_gradient_is_a_number_that_changes():
    w, seen = Tensor(X[0], requires_grad=True).realize(), []
    for number in range(2 * STEPS):
        w.grad = None
        (w.sum() * (number + 0.75)).backward()
        seen.append(w.grad.numpy())
        w.grad = None
        (w * (number / 7 + 0.1)).sum().backward()
        seen.append(w.grad.numpy())
    return seen


@program
def numbers_change_in_narrow_and_whole_tensors():
    x, seen = Tensor(X[0]).realize(), []
    whole, half = Tensor(Y[0].astype("int32")).realize(), Tensor(X[0]).half().realize()
    for number in range(2 * STEPS):
        by = number / 3 + 0.1
        seen += [(whole * by).numpy(), (half * by + by).numpy(), (x - number).numpy()]
        seen += [(by / x).numpy(), (x.cast("double") / by).numpy(), (whole + number).numpy()]
        seen += [(x.bfloat16() * by).float().numpy(), ((half * 1e3) * by).numpy()]
        with np.errstate(all="ignore"):
            seen += [(x * special).numpy() for special in (float("inf"), float("nan"), -0.0)]
    return seen


@program
@Tensor.train()
def steps_by_hand_at_rates_that_change():
    net = Net()
    for each in net.parameters:
        each.requires_grad = True
    for number in range(2 * STEPS):
        for each in net.parameters:
            each.grad = None
        loss_of(net, number).backward()
        rate = 0.1 / (number + 1)
        with Tensor.no_grad():
            for each in net.parameters:
                each.assign(each - rate * each.grad)
    return weights(net)


@program
@Tensor.train()
def a_rate_is_written_as_a_tensor():
    net, seen = Net(), []
    optimizer = nn.optim.Adam(net.parameters, lr=0.01)
    for number in range(STEPS):
        optimizer.lr.assign(Tensor([0.1 / (number + 1)]))
        before = optimizer.lr * 2 if number == 3 else None
        if number == 4:
            optimizer.lr.assign(Tensor(np.array([[0.5]], "float32")).reshape(1))
        optimizer.zero_grad()
        loss = loss_of(net, number)
        loss.backward()
        optimizer.step()
        optimizer.lr.assign([0.25])
        seen += [loss.numpy(), *([] if before is None else [before.numpy()]), optimizer.lr.numpy()]
    return [*seen, *weights(net)]


@program
@Tensor.train()
def a_scaled_loss_is_held():
    """Its gradient is the scale, which the next change overwrites."""
    net, seen = Net(), []
    optimizer, scaler = nn.optim.SGD(net.parameters, lr=0.1), nn.optim.GradScaler(8.0)
    for number in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(net, number)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        seen += [loss.numpy(), loss.grad.numpy()]
    return [*seen, *weights(net)]


@program
def collected_in_the_middle():
    return train(between=lambda *_: gc.collect() and None, after=lambda *_: gc.collect() and None)


@program
def a_second_step_of_one_gradient():
    def again_(net, optimizer, number, loss):
        optimizer.step()

    return train(after=again_)


@program
def settings_change():
    net = Net()
    optimizer = nn.optim.SGD(net.parameters, lr=0.1)
    for number in range(STEPS):
        with Context(TRAINING=1, NOOPT=number % 2, TRACEMETA=number % 2, DEBUG=0):
            optimizer.zero_grad()
            loss_of(net, number).backward()
            optimizer.step()
    return weights(net)


@by_graphs
def inputs_are_written_before_what_read_them_is_computed():
    x, seen = Tensor(X[0]).realize(), []
    for number in range(STEPS):
        made = x.relu().softmax(-1)
        small = x.relu()
        x.assign(Tensor(X[number]))
        seen += [small, made]
    return [tensor.numpy() for tensor in seen]


@program
def what_is_made_of_weights_stays_where_a_step_is_new():
    """What stands on the inputs grows from step to step, so that there is a new one each time."""
    net, (x, y), kept = Net(), batch(0), []
    optimizer = nn.optim.SGD(net.parameters, lr=0.1)
    with Tensor.train():
        for number in range(STEPS):
            optimizer.zero_grad()
            net(x).sparse_categorical_crossentropy(y).backward()
            kept += [net.out.weight.softmax(-1), *[x.relu() for _ in range(number % 4)]]
            optimizer.step()
    return [*weights(net), *[tensor.numpy() for tensor in kept]]


@program
def results_are_written():
    x, seen = Tensor(X[0], requires_grad=False).realize(), []
    for _ in range(STEPS):
        made, other = x.relu(), x.relu()
        made.realize()
        later = made.relu()
        made += 1
        other[0] = 5
        seen += [made.numpy(), other.numpy(), later.numpy()]
    return seen


@program
def what_says_nothing_of_gradients_is_computed():
    x, seen = Tensor(X[0]).realize(), []
    for _ in range(STEPS):
        made = x.relu().realize()
        loss = (made.softmax(-1) * x).sum()
        seen.append(loss.numpy())
        for target in (made, x):
            try:
                seen.append(loss.gradient(target)[0].numpy())
            except ArgumentError as error:
                assert "made that was computed since" in str(error)
                seen.append(np.zeros(1))
    assert not any(each.any() for each in seen[1::3] + seen[2::3])
    return seen


def outcome(ask):
    """What is given, or which error there is."""
    try:
        return np.stack([np.asarray(each.numpy(), "float64").sum() for each in ask()])
    except ArgumentError as error:
        return np.float64(["made that was computed since" in str(error)] * 7)


def of_what_says_nothing(first_is_computed, is_looked_at, first_is_computed_later, second_is_held):
    x = Tensor(X[0]).realize()
    first = x.relu()
    if first_is_computed:
        first.realize()
    second = first.softmax(-1)
    if is_looked_at:
        _ = first.uop
    second.realize()
    if first_is_computed_later:
        first.realize()
    third = second.softmax(-1).realize()
    targets = [x, first, third, *([second] if second_is_held else [])]
    del second
    loss = (third * third).sum()
    seen = [outcome(lambda each=each: loss.gradient(each)) for each in targets]
    return [*seen, outcome(lambda: [t.grad for t in targets if loss.backward() and t.has_gradient])]


@program
def gradients_go_to_what_says_nothing_or_are_errors():
    cases = itertools.product((False, True), repeat=4)
    return [each for case in cases for _ in range(3) for each in of_what_says_nothing(*case)]


@program
def what_says_nothing_is_made_of_itself():
    x, seen = Tensor(X[0]).realize(), []
    for _ in range(3 * STEPS):
        x = x.softmax(-1).realize()
        seen += [x.numpy(), (x * x).sum().gradient(x)[0].numpy()]
    return seen


@program
def captured_steps_between():
    x = Tensor(X[0], requires_grad=True).realize()
    w = Tensor(HIDDEN.T.copy()).realize()

    @TinyJit
    def step(x):
        w.assign(w * 0.5)
        return (x + w.sum()).realize()

    seen = []
    for number in range(STEPS):
        waiting = x.dot(w).relu()
        seen += [step(Tensor(X[number]).realize()).numpy(), waiting.numpy()]
        seen.append(x.dot(w).relu().numpy())
    return seen


@program
def captured_and_plain_steps_of_one_model():
    net = Net()
    optimizer = nn.optim.SGD(net.parameters, lr=0.1)

    @TinyJit
    def step(x, y):
        optimizer.zero_grad()
        loss = net(x).sparse_categorical_crossentropy(y)
        loss.backward()
        optimizer.step()
        return loss.realize()

    with Tensor.train():
        for number in range(3 * STEPS):
            if number % 4:
                step(*batch(number))
            else:
                optimizer.zero_grad()
                loss_of(net, number).backward()
                optimizer.step()
    return weights(net)


@program
def lent_memory():
    net = Net()
    optimizer = nn.optim.SGD(net.parameters, lr=0.1)
    seen = []
    with Tensor.train():
        for number in range(STEPS):
            if number == 3:
                shown = np.from_dlpack(net.out.bias.detach())
            optimizer.zero_grad()
            loss_of(net, number).backward()
            optimizer.step()
    return [*seen, *weights(net), shown.copy()]


@program
def parts_that_were_read_alone_are_written():
    whole, seen = Tensor(X[0]).realize(), []

    def row():
        return whole[1::2][0]

    for number in range(4):
        before = row()
        seen.append(before.numpy())  # which is stored in a second place
        after = row()
        if number % 2:
            after += after
        else:
            after[1:] = 3
        seen += [after.numpy(), before.numpy(), whole.numpy()]
    return seen


@pytest.fixture(scope="module", autouse=True)
def others_are_old():
    """What tests of other files left is not looked at in each collection: it may be millions of
    objects, and then that took two thirds of these tests' time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def ways(monkeypatch):
    """Runs a program, and says how often it did again what was done before. The program meets its
    methods for the first time, whatever tests came before."""
    gc.collect()
    template._remembered.cache_clear()
    count = [0]
    do = again._Asked.do

    def counted(asked, *known):
        count[0] += 1
        do(asked, *known)

    monkeypatch.setattr(again._Asked, "do", counted)

    def run(program, spec=False, graphs=False):
        count[0] = 0
        with monkeypatch.context() as patch:
            for module in (again, backward, draws, template):
                patch.setattr(module, "SPEC", spec)
                if graphs:
                    patch.setattr(module, "capturing", lambda: True)
            return program(), count[0]

    return run


@pytest.mark.usefixtures("others_are_old")
@pytest.mark.parametrize("run", PROGRAMS, ids=lambda run: run.__name__)
def test_what_is_done_again_means_what_it_meant(ways, run):
    slow, _ = ways(run, graphs=True)
    quick, _ = ways(run)
    checked, done = ways(run, spec=True)
    assert (done == 0) is (run in BY_GRAPHS)
    for found in (quick, checked):
        assert len(found) == len(slow)
        for mine, theirs in zip(found, slow, strict=True):
            if run in BY_OTHER_KERNELS:
                np.testing.assert_allclose(mine, theirs, 1e-4, 1e-6)
            else:
                np.testing.assert_array_equal(mine, theirs)


def test_ones_that_a_gradient_is_are_no_other_ones(ways):
    def run():
        x = Tensor(X[0]).realize()
        ones = x.sum().gradient(x)[0]
        return [(ones * 3 + 1).sum().gradient(ones)[0].numpy()]

    for graphs in (True, False):
        np.testing.assert_array_equal(ways(run, graphs=graphs)[0][0], np.full_like(X[0], 3))


READS = {
    "whole": lambda x: x.relu(),
    "one": lambda x: x.sum(),
    "exchanged": lambda x: x.exp().T,
    "repeated": lambda x: x.sum(1, keepdim=True).expand(8, 5),
    "padded": lambda x: x.exp().pad((1, 2)),
    "narrow": lambda x: x.exp().cast("bfloat16"),
}


@pytest.mark.parametrize("make", READS.values(), ids=READS)
def test_reading_a_result_makes_no_node_of_it(ways, make):
    x = Tensor(X[0]).realize()
    right = ways(lambda: make(x).numpy(), graphs=True)[0]

    def run():
        made = make(x)
        np.testing.assert_array_equal(made.numpy(), right)
        np.testing.assert_array_equal(made.tolist(), right.tolist())
        return made

    for spec in (False, True, False):
        made = ways(run, spec=spec)[0]
    assert made._source.expression.nodes is None
    before = made.numpy()
    made += 1  # who writes asks where it is
    np.testing.assert_array_equal(made.numpy(), before + 1)
    np.testing.assert_array_equal(make(x).numpy(), right)


def test_nothing_is_computed_of_no_elements(ways):
    x = Tensor(np.zeros((0, 3), "float32")).realize()
    for _ in range(3):
        assert ways(lambda: x.relu().numpy())[0].shape == (0, 3)
        assert ways(lambda: x.relu().softmax(-1).realize().tolist())[0] == []


@pytest.mark.parametrize(
    "run",
    [
        *(plain, averages_of_one_batch, dropped_out, what_is_logged),
        *(the_last_loss_is_held_where_batches_are_one, changing_rate),
    ],
    ids=lambda run: run.__name__,
)
def test_from_the_second_step_on_no_graph_is_made(ways, run):
    for known in (again._known, backward._known):
        known.clear()
    assert ways(run)[1] == STEPS - 1
    assert ways(run)[1] == STEPS


LOOPS = [steps_by_hand_that_nobody_computes, gradients_by_targets, a_generator_and_a_critic]
LOOPS += [groups_of_optimizers, losses_are_scaled, a_sequence_of_one_layer, scheduled]
LOOPS += [
    actions_are_drawn,
    averages_follow,
    two_losses_one_step,
    gradients_add_up,
    evaluated_between,
    masks_are_counted_anew,
    values_are_padded,
    values_are_repeated,
    values_are_sorted,
    determinants_and_numbers_of_numpy,
    all_pairs_of_rows,
    probabilities_are_surprised,
    pictures_are_resized,
    labels_are_lists,
    rows_of_a_weight_are_held,
    a_flat_weight_is_held,
    a_transposed_weight_is_held,
    parts_of_a_value_live,
    two_values_have_one_gradient,
    gradients_of_one_number_are_clipped,
    uncomputed_values_are_held,
    a_gradient_penalty,
    labels_are_aligned,
    a_rate_is_written_as_a_tensor,
    a_scaled_loss_is_held,
]


@pytest.mark.parametrize("run", LOOPS, ids=lambda run: run.__name__)
def test_a_loop_that_ran_before_hardly_takes_the_long_way(ways, monkeypatch, run):
    asked = [0]

    def counted(*given):
        asked[0] += 1
        ask(*given)

    for _ in range(3):
        ways(run)
    ask = again._ask
    monkeypatch.setattr(again, "_ask", counted)
    _, done = ways(run)
    assert asked[0] - done <= 2  # the first, and where something changes


@pytest.mark.parametrize(
    "run", [plain, what_is_logged, actions_are_drawn], ids=lambda r: r.__name__
)
def test_what_others_computed_decides_nothing(ways, run):
    """Counts, these as other integers, and numbers made of constants: those of means."""
    counts = [Tensor.arange(n, dtype=kind) for n in (3, 5, 8) for kind in ("int", "float")]
    longs = [Tensor.arange(n).reshape(1, n).expand(8, n).cast("long") for n in (3, 5)]
    starts = [Tensor.zeros(*shape).realize() for shape in ((8,), (8, 3), (8, 5))]
    means = [start.mean().gradient(start)[0] for start in starts]
    nodes = [t._uop for t in (*counts, *longs, *means)]
    Tensor.realize(*counts, *longs, *means)
    for known in (again._known, backward._known):
        known.clear()
    template._remembered.cache_clear()
    ways(run)
    assert ways(run)[1] >= STEPS
    assert counts[0].tolist() == longs[0][3].tolist() == [0, 1, 2]
    assert all(node.known is not None for node in nodes)
    np.testing.assert_allclose(means[1].numpy(), 1 / 24, 1e-6)


def test_known_steps_keep_no_storage_alive(ways):
    def used():
        gc.collect()
        return GlobalCounters.mem_used

    ways(plain)
    before = used()
    for run in (plain, adam, losses_are_kept, models_alternate):
        ways(run)
    ways(plain)
    assert used() <= before + again.MOST_KEPT
    kept = weakref.ref(batch(0)[0].uop.base.storage)
    gc.collect()
    assert kept() is None


def test_what_is_known_is_bounded(ways, monkeypatch):
    monkeypatch.setattr(again._known, "most", 3)
    monkeypatch.setattr(backward._known, "most", 3)
    again._known.clear()
    backward._known.clear()
    ways(shapes_alternate)
    ways(models_alternate)
    assert len(again._known) <= 3
    assert len(backward._known) <= 3


def test_threads_train_at_the_same_time(ways):
    right = ways(momentum, graphs=True)[0]
    found = []
    with Tensor.train():  # a mode of all threads: none may leave it before the others
        ways(lambda: found.extend(together(momentum, momentum, momentum)))
    for made in found:
        for mine, theirs in zip(made, right, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_an_old_graph_is_not_followed_to_overwritten_weights(ways):
    def follow(net, optimizer, number, loss):
        optimizer.zero_grad()
        with pytest.raises(ArgumentError, match="reads a version of a buffer"):
            loss.backward()
            net.hidden.weight.grad.realize()

    for graphs in (True, False):
        ways(lambda: train(after=follow), graphs=graphs)


def test_a_failed_check_names_the_line_of_its_own_step(ways):
    def run():
        x, heard = Tensor(X[0]).realize(), []
        for classes in 3 * [[0] * 8, [9] * 8]:
            y = Tensor(classes).realize()
            for line in (0, 1):
                try:
                    if line:
                        x.sparse_categorical_crossentropy(y).item()
                    else:
                        x.sparse_categorical_crossentropy(y).item()
                except IndexCheckError as error:
                    heard.append(str(error))
        return heard

    assert ways(run)[0] == ways(run)[0] == ways(run, graphs=True)[0]
    assert len(set(ways(run)[0])) == 2


def test_a_failed_check_names_its_own_line_while_another_result_is_held():
    x, held, heard = Tensor(X[0]).realize(), [], []
    for classes in 3 * [[0] * 8, [9] * 8]:
        for make in (
            lambda y: x.sparse_categorical_crossentropy(y),
            lambda y: x.sparse_categorical_crossentropy(y),
        ):
            held.append(make(Tensor(classes).realize()))
            _ = held[-1]._uop
            try:
                held[-1].item()
            except IndexCheckError as error:
                heard.append(str(error)[str(error).index("(made") :])
    assert heard[:2] == heard[2:4] == heard[4:]
    assert len(set(heard)) == 2


def test_a_step_by_hand_makes_its_speed_once(monkeypatch):
    """In one kernel: the parameter stands on what is written."""
    monkeypatch.setattr(again, "SPEC", False)  # which would do it twice
    param, speed, grad = (Tensor(np.ones((64, 8), "float32")).realize() for _ in range(3))
    for _ in range(3):
        speed.assign(speed * 0.5 + grad)
        param.assign(param - 0.1 * speed)
        GlobalCounters.reset()
        Tensor.realize(param, speed)
        assert GlobalCounters.kernel_count == 1
    np.testing.assert_allclose(param.numpy()[0, 0], 1 - 0.1 * (1.5 + 1.75 + 1.875), 1e-6)


WRITES = {
    "a write that reads one that reads another": "s += a; put(a, s * 2); b += a; seen = a",
    "two chains": "s += a; put(a, s * 2); b += a; c *= b; s -= c; seen = a",
    "of what a result waits for": "s += a; put(a, s + 1); b -= a; d = b * c; b += 1; seen = a",
}


@pytest.mark.parametrize("program", WRITES.values(), ids=WRITES)
def test_no_write_is_lost_however_often_the_same_is_done(program, monkeypatch):
    """What is asked for needs some of the writes; the plan that is remembered does all."""

    def run(make, put, values):
        names = {name: make(10**n + np.arange(3)) for n, name in enumerate("sabcd")}
        names["put"] = put
        exec(program, names)
        return [values(names[name]) for name in ("seen", *"bascd")]

    monkeypatch.setattr(again, "SPEC", False)  # else each is done by a graph, too
    expected = run(np.array, np.copyto, np.ndarray.tolist)
    for _ in range(3):
        made = run(lambda data: Tensor(data).realize(), Tensor.assign, Tensor.tolist)
        assert made == expected
