"""A trained GPT learns another text by a few added numbers only.

Beside each linear layer's weight two thin matrices are learned whose product is added to it; the
weights themselves stay. (Hu and others, "LoRA: Low-Rank Adaptation", 2022.) Run train_gpt.py first.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from tqdm import trange
from train_gpt import batches, captured_step, read

from tinygrad import Tensor
from tinygrad.models.generate import generate
from tinygrad.models.gpt2 import GPT2, GPT2Config
from tinygrad.models.sampling import Sampler
from tinygrad.nn import Linear
from tinygrad.nn.optim import AdamW
from tinygrad.nn.state import (
    get_parameters,
    get_state_dict,
    load_state_dict,
    safe_load,
    safe_load_metadata,
    safe_save,
)


class Adapted:
    """A linear layer that stays, and what is learned beside it: `into` and `out`."""

    def __init__(self, linear, rank):
        features, inputs = linear.weight.shape
        self._linear = [linear]  # in a list: no parameter of this layer's
        self.into = Tensor.randn(rank, inputs) * inputs**-0.5
        self.out = Tensor.zeros(features, rank)

    def __call__(self, x):
        linear = self._linear[0]
        return linear(x) + x.linear(self.into.T).linear(self.out.T)


def main():
    """Adapts, and writes a text before and after."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--net", type=Path, default=Path("gpt.safetensors"))
    parser.add_argument("--files", default="docs/**/*.md", help="what to learn")
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("lora.safetensors"))
    args = parser.parse_args()
    if not args.net.exists():
        parser.error(f"no {args.net}: run examples/train_gpt.py first")
    about = safe_load_metadata(args.net)["__metadata__"]
    letters, sizes = json.loads(about["letters"]), json.loads(about["sizes"])
    net = GPT2(GPT2Config(len(letters), sizes["length"], sizes["dim"], sizes["layers"], 4))
    load_state_dict(net, safe_load(args.net))
    number = {letter: i for i, letter in enumerate(letters)}
    tokens = np.array([number[c] for c in read(args.files) if c in number], np.int32)
    prompt = [number[c] for c in "The " if c in number]

    most = min(80, sizes["length"] - len(prompt))

    def sample():
        (text,) = generate(net, [prompt], Sampler(temperature=0.7, seed=0), most)
        return "".join(letters[i] for i in prompt + text)

    print("before:", sample())
    for weight in get_parameters(net):
        weight.requires_grad_(False)
    adapters = {}
    for i, layer in enumerate(net.layers):
        for name, part in list(vars(layer).items()):
            if isinstance(part, Linear):
                adapters[f"layers.{i}.{name}"] = adapted = Adapted(part, args.rank)
                setattr(layer, name, adapted)
    few = [t for adapter in adapters.values() for t in (adapter.into, adapter.out)]
    total = sum(t.numel() for t in get_parameters(net))
    print(f"learning {sum(t.numel() for t in few):,} numbers beside {total:,}")
    step = captured_step(net, AdamW(few, lr=5e-3))
    pieces = batches(tokens, 16, sizes["length"] // 2)
    with Tensor.train():
        for _ in (bar := trange(args.steps)):
            bar.set_description(f"loss {step(Tensor(next(pieces)).realize()).item():.3f}")
    print("after: ", sample())
    safe_save(get_state_dict(adapters), args.out)
    print(f"what was learned is in {args.out}, {args.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
