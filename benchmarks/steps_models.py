"""Small models of many kinds, each written once for both libraries: `steps.py` trains them.

A case takes a `Kit` and gives the model and its loss on a fixed batch.
"""

# ruff: noqa: D103  a case's name says what it is

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Case = tuple[Any, Callable[[], Any]]


@dataclass
class Kit:
    """A library: its layers, its functions, the base of its models, and how arrays get in. Both
    kits draw the same numbers."""

    nn: Any
    F: Any
    Module: Any
    tensor: Callable[[Any], Any]
    cat: Callable[[list[Any], int], Any]
    stack: Callable[[list[Any], int], Any]
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def normal(self, *shape: int) -> Any:
        """Normal numbers."""
        return self.tensor(self.random.standard_normal(shape, dtype=np.float32))

    def below(self, high: int, *shape: int) -> Any:
        """Whole numbers from 0 on."""
        return self.tensor(self.random.integers(0, high, shape))

    def model(self, forward: Callable[..., Any], **layers: Any) -> Any:
        """A model of these layers: what `forward` makes of them and of the inputs."""

        class Model(self.Module):  # type: ignore[name-defined]
            def __init__(self) -> None:
                super().__init__()
                for name, layer in layers.items():
                    setattr(self, name, layer)

            def forward(self, *inputs: Any) -> Any:
                return forward(self, *inputs)

        return Model()

    def chain(self, *steps: Any) -> Any:
        """Layers and plain functions, one after the other."""

        def forward(model: Any, x: Any) -> Any:
            for number, step in enumerate(steps):
                x = getattr(model, f"l{number}")(x) if f"l{number}" in layers else step(x)
            return x

        layers = {f"l{n}": s for n, s in enumerate(steps) if type(s).__name__ != "function"}
        return self.model(forward, **layers)

    def classes(self, model: Any, x: Any, count: int) -> Case:
        """A classifier of a batch."""
        wanted = self.below(count, x.shape[0])
        return model, lambda: self.F.cross_entropy(model(x), wanted)


def squares(model: Any, *inputs: Any) -> Case:
    return model, lambda: (model(*inputs) ** 2).mean()


def pixels(x: Any) -> Any:
    return x.mean((2, 3))


def flat(x: Any) -> Any:
    return x.flatten(1)


# ---- sequences -----------------------------------------------------------------------------------


def lstm(k: Kit) -> Case:
    rnn, out = k.nn.LSTM(64, 128, batch_first=True), k.nn.Linear(128, 10)
    model = k.model(lambda m, x: m.out(m.rnn(x)[0][:, -1]), rnn=rnn, out=out)
    return k.classes(model, k.normal(32, 64, 64), 10)


def gru(k: Kit) -> Case:
    rnn, out = k.nn.GRU(64, 128, batch_first=True), k.nn.Linear(128, 10)
    model = k.model(lambda m, x: m.out(m.rnn(x)[0][:, -1]), rnn=rnn, out=out)
    return k.classes(model, k.normal(32, 64, 64), 10)


def seq2seq_cells(k: Kit) -> Case:
    words, cell, out = k.nn.Embedding(1000, 64), k.nn.LSTMCell(64, 128), k.nn.Linear(128, 1000)
    model = k.model(lambda m: None, words=words, cell=cell, out=out)
    text, start = k.below(1000, 32, 12), k.normal(32, 128)

    def loss() -> Any:
        hidden = memory = start
        said = []
        for turn in range(11):
            hidden, memory = model.cell(model.words(text[:, turn]), (hidden, memory))
            said.append(model.out(hidden))
        return k.F.cross_entropy(k.stack(said, 1).reshape(352, 1000), text[:, 1:].reshape(352))

    return model, loss


def ctc(k: Kit) -> Case:
    model = k.chain(k.nn.Linear(40, 128), k.F.relu, k.nn.Linear(128, 29))
    sound, text = k.normal(16, 100, 40), k.below(28, 16, 20)
    lengths = [k.tensor(np.full(16, n)) for n in (100, 20)]
    wanted = text + 1

    def loss() -> Any:
        chances = k.F.log_softmax(model(sound).transpose(0, 1), -1)
        return k.F.ctc_loss(chances, wanted, *lengths)

    return model, loss


def wavenet(k: Kit) -> Case:
    def block(dilation: int) -> Any:
        def forward(m: Any, x: Any) -> Any:
            return x[:, :, dilation:] + m.out(m.news(x).tanh() * m.gate(x).sigmoid())

        news, gate = (k.nn.Conv1d(32, 32, 2, dilation=dilation) for _ in range(2))
        return k.model(forward, news=news, gate=gate, out=k.nn.Conv1d(32, 32, 1))

    model = k.chain(*[block(2**n) for n in range(6)], k.nn.Conv1d(32, 64, 1))
    return squares(model, k.normal(4, 32, 1000))


def dilated_tcn(k: Kit) -> Case:
    def block(dilation: int) -> Any:
        def forward(m: Any, x: Any) -> Any:
            made = k.F.relu(m.conv(x)[:, :, : x.shape[2]])
            return x + m.norm(made.transpose(1, 2)).transpose(1, 2)

        conv = k.nn.Conv1d(64, 64, 3, dilation=dilation, padding=2 * dilation)
        return k.model(forward, conv=conv, norm=k.nn.LayerNorm(64))

    def last(x: Any) -> Any:
        return x[:, :, -1]

    model = k.chain(*[block(2**n) for n in range(5)], last, k.nn.Linear(64, 10))
    return k.classes(model, k.normal(16, 64, 200), 10)


def conv1d_audio(k: Kit) -> Case:
    def pool(x: Any) -> Any:
        return k.F.max_pool1d(k.F.relu(x), 4)

    model = k.chain(
        *(k.nn.Conv1d(1, 32, 80, stride=16), k.nn.BatchNorm1d(32), pool),
        *(k.nn.Conv1d(32, 64, 3), k.nn.BatchNorm1d(64), pool),
        *(k.nn.Conv1d(64, 64, 3), lambda x: x.mean(-1), k.nn.Linear(64, 35)),
    )
    return k.classes(model, k.normal(16, 1, 8000), 35)


# ---- attention -----------------------------------------------------------------------------------


def encoder_layer(k: Kit) -> Case:
    layer = k.nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
    return squares(layer, k.normal(8, 64, 128))


def decoder_layer(k: Kit) -> Case:
    layer = k.nn.TransformerDecoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
    return squares(layer, k.normal(8, 48, 128), k.normal(8, 64, 128))


def swiglu_rms_block(k: Kit) -> Case:
    def linear(inputs: int, outputs: int) -> Any:
        return k.nn.Linear(inputs, outputs, bias=False)

    def heads(x: Any) -> Any:
        return x.reshape(4, 128, 4, 32).transpose(1, 2)

    def forward(m: Any, x: Any) -> Any:
        seen = m.n1(x)
        q, key, v = heads(m.q(seen)), heads(m.k(seen)), heads(m.v(seen))
        mixed = k.F.scaled_dot_product_attention(q, key, v, is_causal=True)
        x = x + m.o(mixed.transpose(1, 2).reshape(4, 128, 128))
        seen = m.n2(x)
        return x + m.down(k.F.silu(m.gate(seen)) * m.up(seen))

    layers = {name: linear(128, 128) for name in "qkvo"}
    layers |= {"gate": linear(128, 344), "up": linear(128, 344), "down": linear(344, 128)}
    layers |= {"n1": k.nn.RMSNorm(128), "n2": k.nn.RMSNorm(128)}
    return squares(k.model(forward, **layers), k.normal(4, 128, 128))


def vision_transformer(k: Kit) -> Case:
    cut, out = k.nn.Conv2d(3, 192, 16, stride=16), k.nn.Linear(192, 10)
    layer = k.nn.TransformerEncoderLayer(
        192, 3, 768, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    )

    def tokens(x: Any) -> Any:
        return x.flatten(2).transpose(1, 2)

    model = k.chain(cut, tokens, layer, lambda x: x.mean(1), out)
    return k.classes(model, k.normal(4, 3, 224, 224), 10)


def mlp_mixer(k: Kit) -> Case:
    def block() -> Any:
        def forward(m: Any, x: Any) -> Any:
            x = x + m.t2(k.F.gelu(m.t1(m.n1(x).transpose(1, 2)))).transpose(1, 2)
            return x + m.c2(k.F.gelu(m.c1(m.n2(x))))

        sizes = {"t1": (64, 256), "t2": (256, 64), "c1": (128, 512), "c2": (512, 128)}
        layers = {name: k.nn.Linear(*size) for name, size in sizes.items()}
        return k.model(forward, **layers, n1=k.nn.LayerNorm(128), n2=k.nn.LayerNorm(128))

    return squares(k.chain(block(), block()), k.normal(8, 64, 128))


# ---- images --------------------------------------------------------------------------------------


def unet(k: Kit) -> Case:
    def block(inputs: int, outputs: int) -> Any:
        conv = k.nn.Conv2d(inputs, outputs, 3, padding=1)
        return k.chain(conv, k.nn.GroupNorm(4, outputs), k.F.relu)

    def forward(m: Any, x: Any) -> Any:
        fine = m.a(x)
        middle = m.b(k.F.max_pool2d(fine, 2))
        coarse = m.c(k.F.max_pool2d(middle, 2))
        middle = m.d1(k.cat([m.u1(coarse), middle], 1))
        return m.out(m.d2(k.cat([m.u2(middle), fine], 1)))

    up = {"u1": k.nn.ConvTranspose2d(64, 32, 2, 2), "u2": k.nn.ConvTranspose2d(32, 16, 2, 2)}
    sizes = {"a": (1, 16), "b": (16, 32), "c": (32, 64), "d1": (64, 32), "d2": (32, 16)}
    blocks = {name: block(*size) for name, size in sizes.items()}
    model = k.model(forward, **up, **blocks, out=k.nn.Conv2d(16, 1, 1))
    return squares(model, k.normal(4, 1, 64, 64))


def generator(k: Kit) -> Case:
    def grow(inputs: int, outputs: int, *window: int) -> list[Any]:
        conv = k.nn.ConvTranspose2d(inputs, outputs, 4, *window)
        return [conv, k.nn.BatchNorm2d(outputs), k.F.relu]

    layers = [*grow(64, 128), *grow(128, 64, 2, 1), *grow(64, 32, 2, 1)]
    model = k.chain(*layers, k.nn.ConvTranspose2d(32, 3, 4, 2, 1), lambda x: x.tanh())
    return squares(model, k.normal(16, 64, 1, 1))


def discriminator(k: Kit) -> Case:
    def leaky(x: Any) -> Any:
        return k.F.leaky_relu(x, 0.2)

    model = k.chain(
        *(k.nn.Conv2d(3, 32, 4, 2, 1), leaky),
        *(k.nn.Conv2d(32, 64, 4, 2, 1), k.nn.BatchNorm2d(64), leaky),
        *(k.nn.Conv2d(64, 128, 4, 2, 1), k.nn.BatchNorm2d(128), leaky),
        k.nn.Conv2d(128, 1, 4),
    )
    x = k.normal(16, 3, 32, 32)
    return model, lambda: k.F.softplus(-model(x)).mean()


def mobilenet(k: Kit) -> Case:
    def block(inputs: int, wide: int, outputs: int, stride: int) -> list[Any]:
        deep = k.nn.Conv2d(wide, wide, 3, stride=stride, padding=1, groups=wide, bias=False)
        return [
            *(k.nn.Conv2d(inputs, wide, 1, bias=False), k.nn.BatchNorm2d(wide), k.F.relu6),
            *(deep, k.nn.BatchNorm2d(wide), k.F.relu6),
            *(k.nn.Conv2d(wide, outputs, 1, bias=False), k.nn.BatchNorm2d(outputs)),
        ]

    blocks = [*block(16, 96, 24, 2), *block(24, 144, 24, 1), *block(24, 144, 32, 2)]
    return squares(k.chain(*blocks), k.normal(8, 16, 56, 56))


def efficientnet(k: Kit) -> Case:
    def forward(m: Any, x: Any) -> Any:
        wide = k.F.silu(m.n1(m.widen(x)))
        deep = k.F.silu(m.n2(m.deep(wide)))
        gate = m.excite(k.F.silu(m.squeeze(deep.mean((2, 3), keepdim=True)))).sigmoid()
        return x + m.n3(m.narrow(deep * gate))

    model = k.model(
        forward,
        widen=k.nn.Conv2d(24, 144, 1, bias=False),
        deep=k.nn.Conv2d(144, 144, 5, padding=2, groups=144, bias=False),
        squeeze=k.nn.Conv2d(144, 6, 1),
        excite=k.nn.Conv2d(6, 144, 1),
        narrow=k.nn.Conv2d(144, 24, 1, bias=False),
        n1=k.nn.BatchNorm2d(144),
        n2=k.nn.BatchNorm2d(144),
        n3=k.nn.BatchNorm2d(24),
    )
    return squares(model, k.normal(4, 24, 28, 28))


def convnext(k: Kit) -> Case:
    def forward(m: Any, x: Any) -> Any:
        seen = m.norm(m.deep(x).permute(0, 2, 3, 1))
        return x + m.down(k.F.gelu(m.up(seen))).permute(0, 3, 1, 2)

    deep, norm = k.nn.Conv2d(64, 64, 7, padding=3, groups=64), k.nn.LayerNorm(64)
    up, down = k.nn.Linear(64, 256), k.nn.Linear(256, 64)
    return squares(
        k.model(forward, deep=deep, norm=norm, up=up, down=down), k.normal(4, 64, 28, 28)
    )


def densenet(k: Kit) -> Case:
    def block(inputs: int) -> Any:
        def forward(m: Any, x: Any) -> Any:
            return k.cat([x, m.conv(k.F.relu(m.norm(x)))], 1)

        conv = k.nn.Conv2d(inputs, 16, 3, padding=1, bias=False)
        return k.model(forward, conv=conv, norm=k.nn.BatchNorm2d(inputs))

    blocks = [block(24 + 16 * n) for n in range(4)]
    return k.classes(k.chain(*blocks, pixels, k.nn.Linear(88, 10)), k.normal(8, 24, 28, 28), 10)


def diffusion_block(k: Kit) -> Case:
    def forward(m: Any, x: Any, time: Any) -> Any:
        seen = m.c1(k.F.silu(m.n1(x))) + m.time(k.F.silu(time)).reshape(4, 64, 1, 1)
        return x + m.c2(k.F.silu(m.n2(seen)))

    norms = {name: k.nn.GroupNorm(8, 64) for name in ("n1", "n2")}
    convs = {name: k.nn.Conv2d(64, 64, 3, padding=1) for name in ("c1", "c2")}
    model = k.model(forward, **norms, **convs, time=k.nn.Linear(128, 64))
    return squares(model, k.normal(4, 64, 32, 32), k.normal(4, 128))


def style_transfer(k: Kit) -> Case:
    def normed(layer: Any, channels: int) -> list[Any]:
        return [layer, k.nn.InstanceNorm2d(channels, affine=True), k.F.relu]

    model = k.chain(
        *normed(k.nn.Conv2d(3, 16, 9, padding=4), 16),
        *normed(k.nn.Conv2d(16, 32, 3, stride=2, padding=1), 32),
        *normed(k.nn.ConvTranspose2d(32, 16, 3, 2, 1, output_padding=1), 16),
        k.nn.Conv2d(16, 3, 9, padding=4),
    )
    return squares(model, k.normal(2, 3, 64, 64))


def triplets(k: Kit) -> Case:
    model = k.chain(
        *(k.nn.Conv2d(3, 32, 3, stride=2), k.F.relu, k.nn.Conv2d(32, 64, 3, stride=2), k.F.relu),
        *(flat, k.nn.Linear(64 * 7 * 7, 64)),
    )
    images = [k.normal(16, 3, 32, 32) for _ in range(3)]
    return model, lambda: k.F.triplet_margin_loss(*map(model, images))


def alexnet(k: Kit) -> Case:
    def pool(x: Any) -> Any:
        return k.F.max_pool2d(k.F.relu(x), 3, 2)

    model = k.chain(
        *(k.nn.Conv2d(3, 32, 11, stride=4, padding=2), pool),
        *(k.nn.Conv2d(32, 64, 5, padding=2), pool),
        *(flat, k.nn.Linear(64 * 7 * 7, 256), k.F.relu, k.nn.Linear(256, 10)),
    )
    return k.classes(model, k.normal(8, 3, 128, 128), 10)


# ---- other data ----------------------------------------------------------------------------------


def autoencoder(k: Kit) -> Case:
    sizes = {
        "a": (784, 400),
        "mean": (400, 20),
        "spread": (400, 20),
        "b": (20, 400),
        "c": (400, 784),
    }
    layers = {name: k.nn.Linear(*size) for name, size in sizes.items()}
    model = k.model(lambda m: None, **layers)
    x, noise = k.tensor(k.random.random((128, 784), dtype=np.float32)), k.normal(128, 20)

    def loss() -> Any:
        seen = k.F.relu(model.a(x))
        mean, spread = model.mean(seen), model.spread(seen)
        drawn = mean + noise * (0.5 * spread).exp()
        made = model.c(k.F.relu(model.b(drawn))).sigmoid()
        apart = (1 + spread - mean * mean - spread.exp()).sum(-1).mean()
        return k.F.binary_cross_entropy(made, x) * 784 - 0.5 * apart

    return model, loss


def point_cloud(k: Kit) -> Case:
    layers = [k.nn.Conv1d(3, 64, 1), k.nn.BatchNorm1d(64), k.F.relu]
    layers += [k.nn.Conv1d(64, 128, 1), k.nn.BatchNorm1d(128), k.F.relu, k.nn.Conv1d(128, 256, 1)]
    model = k.chain(*layers, lambda x: k.F.adaptive_max_pool1d(x, 1), flat, k.nn.Linear(256, 10))
    return k.classes(model, k.normal(16, 3, 512), 10)


def radiance_field(k: Kit) -> Case:
    def forward(m: Any, x: Any) -> Any:
        waves = [f for n in range(10) for f in ((x * 2.0**n).sin(), (x * 2.0**n).cos())]
        seen = k.cat([x, *waves], -1)
        deep = k.F.relu(m.b(k.F.relu(m.a(seen))))
        return m.d(k.F.relu(m.c(k.cat([deep, seen], -1))))

    sizes = {"a": (63, 128), "b": (128, 128), "c": (191, 128), "d": (128, 4)}
    layers = {name: k.nn.Linear(*size) for name, size in sizes.items()}
    return squares(k.model(forward, **layers), k.normal(4096, 3))


def word_vectors(k: Kit) -> Case:
    inner, outer = k.nn.Embedding(10000, 100), k.nn.Embedding(10000, 100)
    model = k.model(lambda m: None, inner=inner, outer=outer)
    centre, near, other = k.below(10000, 256), k.below(10000, 256), k.below(10000, 256, 5)

    def loss() -> Any:
        word = model.inner(centre)
        likely = (word * model.outer(near)).sum(-1)
        unlikely = (model.outer(other) * word.reshape(256, 1, 100)).sum(-1)
        return -k.F.logsigmoid(likely).mean() - k.F.logsigmoid(-unlikely).mean()

    return model, loss


def contrastive(k: Kit) -> Case:
    model = k.model(lambda m: None, a=k.nn.Linear(256, 128), b=k.nn.Linear(192, 128))
    x, y, same = k.normal(128, 256), k.normal(128, 192), k.tensor(np.arange(128))

    def loss() -> Any:
        left, right = (k.F.normalize(z, dim=-1) for z in (model.a(x), model.b(y)))
        scores = left @ right.transpose(0, 1) / 0.07
        pairs = (scores, scores.transpose(0, 1))
        return sum(k.F.cross_entropy(each, same) for each in pairs) / 2

    return model, loss


def mixture_of_experts(k: Kit) -> Case:
    def forward(m: Any, x: Any) -> Any:
        made = k.F.relu(m.a(x).reshape(256, 4, 256)) * m.gate(x).softmax(-1).reshape(256, 4, 1)
        return m.b(made.reshape(256, 1024))

    a, b, gate = k.nn.Linear(64, 1024), k.nn.Linear(1024, 64), k.nn.Linear(64, 4)
    return squares(k.model(forward, a=a, b=b, gate=gate), k.normal(256, 64))


CASES = {
    case.__name__: case
    for case in (
        *(lstm, gru, seq2seq_cells, ctc, wavenet, dilated_tcn, conv1d_audio),
        *(encoder_layer, decoder_layer, swiglu_rms_block, vision_transformer, mlp_mixer),
        *(unet, generator, discriminator, mobilenet, efficientnet, convnext, densenet),
        *(diffusion_block, style_transfer, triplets, alexnet),
        *(autoencoder, point_cloud, radiance_field, word_vectors, contrastive, mixture_of_experts),
    )
}
