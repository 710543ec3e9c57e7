"""Weights of 8 and 4 bits: what they weigh, how much they err, how long a token takes.

A LLaMA with random weights of the size given (--dim, --layers), or one from a folder (--model).
"""

import argparse
import time
from pathlib import Path

import numpy as np
from tqdm import tqdm

from tinygrad import Tensor
from tinygrad.models.decoder import DecoderConfig
from tinygrad.models.generate import CacheSteps
from tinygrad.models.llama import Llama
from tinygrad.nn.quantised import QuantisedLinear, quantise
from tinygrad.nn.state import get_parameters


def layers_of(part):
    """All quantised layers in an object."""
    if isinstance(part, QuantisedLinear):
        return [part]
    parts = (
        part if isinstance(part, list) else vars(part).values() if hasattr(part, "__dict__") else []
    )
    return [layer for p in parts if not isinstance(p, Tensor) for layer in layers_of(p)]


def main():
    """Measures the same model in floats, 8 bits and 4 bits."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, help="folder of a LLaMA")
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=32, help="to make")
    args = parser.parse_args()

    def model():
        if args.model:
            return Llama.from_pretrained(args.model)
        Tensor.manual_seed(0)
        hidden = args.dim * 8 // 3 // 64 * 64
        config = DecoderConfig(4096, args.dim, args.layers, args.dim // 64, hidden)
        made = Llama(config)
        first, *others = get_parameters(made)
        first.realize(*others)
        return made

    prompt, exact, rows = list(range(1, 17)), None, []
    for bits in tqdm((32, 8, 4), "measuring"):
        net = model()
        size = sum(int(t.nbytes()) for t in get_parameters(net))
        if bits < 32:
            quantise(net, bits, which=lambda name: name != "head")
            size = sum(int(t.nbytes()) for t in get_parameters(net))
        steps = CacheSteps(net, 1, len(prompt) + args.tokens)
        scores = steps.prompts([prompt])
        exact = scores if exact is None else exact
        off = float(np.linalg.norm(scores - exact) / np.linalg.norm(exact))
        token = [int(scores.argmax())]
        for _ in range(3):  # captured and warm
            steps.tokens(token)
        begin = time.perf_counter()
        for _ in range(args.tokens - 3):
            steps.tokens(token)
        took = (time.perf_counter() - begin) / (args.tokens - 3)
        rows.append(f"{bits:4} bits  {size / 2**20:8.1f} MiB  {off:9.2%} off  {took * 1e3:7.2f} ms")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
