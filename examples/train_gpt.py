"""A small GPT learns this project's own text, letter by letter, and writes some of it.

Draws the loss to gpt_loss.png and saves the net to gpt.safetensors (--out), where lora.py finds it.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from tqdm import trange

from tinygrad import Tensor, TinyJit
from tinygrad.models.generate import stream
from tinygrad.models.gpt2 import GPT2, GPT2Config
from tinygrad.models.sampling import Sampler
from tinygrad.nn.optim import AdamW
from tinygrad.nn.state import get_parameters, get_state_dict, safe_save

ROOT = Path(__file__).resolve().parent.parent


def read(pattern):
    """All files of the project that fit the pattern, as one text."""
    return "\n\n".join(path.read_text() for path in sorted(ROOT.glob(pattern)))


def letters_of(text):
    """The letters that occur, in order; a letter's token is its place."""
    return sorted(set(text))


def batches(tokens, count, length, seed=0):
    """Random pieces of the text, (count, length + 1), without end."""
    random = np.random.default_rng(seed)
    while True:
        starts = random.integers(0, len(tokens) - length - 1, count)
        yield np.stack([tokens[s : s + length + 1] for s in starts])


def captured_step(net, optimizer):
    """One captured step: pieces of text (batch, length + 1) → the loss."""

    @TinyJit
    def step(pieces):
        optimizer.zero_grad()
        scores = net(pieces[:, :-1])
        loss = scores.sparse_categorical_crossentropy(pieces[:, 1:]).backward()
        optimizer.step()
        return loss.realize()

    return step


def draw(losses, path):
    """The loss curve, as a picture."""
    from PIL import Image, ImageDraw  # an extra

    picture = Image.new("RGB", (640, 320), "white")
    most = max(losses)
    points = [
        (20 + 600 * i / max(len(losses) - 1, 1), 300 - 280 * loss / most)
        for i, loss in enumerate(losses)
    ]
    pen = ImageDraw.Draw(picture)
    pen.line([(20, 20), (20, 300), (620, 300)], "black")
    pen.line(points, "firebrick", 2)
    pen.text((30, 5), f"loss a step, from {losses[0]:.2f} to {losses[-1]:.2f}", "black")
    picture.save(path)


def main():
    """Trains, writes a text, saves the net."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=128, help="letters of a piece")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--files", default="tinygrad/**/*.py", help="what to read")
    parser.add_argument("--out", type=Path, default=Path("gpt.safetensors"))
    args = parser.parse_args()
    text = read(args.files)
    if args.steps < 1 or len(text) < args.length + 2:
        parser.error(f"{args.steps} steps on {len(text)} letters of {args.files}: too few")
    letters = letters_of(text)
    number = {letter: i for i, letter in enumerate(letters)}
    tokens = np.array([number[letter] for letter in text], np.int32)
    print(f"{len(text):,} letters, {len(letters)} different ones")
    Tensor.manual_seed(0)
    net = GPT2(GPT2Config(len(letters), 2 * args.length, args.dim, args.layers, 4))
    for weight in get_parameters(net):
        if weight.ndim == 2:  # small, as GPT-2 begins
            weight.replace((Tensor.randn(*weight.shape) * 0.02).requires_grad_())
    step = captured_step(net, AdamW(get_parameters(net), lr=2e-3, weight_decay=0.01))
    pieces, losses = batches(tokens, args.batch, args.length), []
    with Tensor.train():
        for _ in (bar := trange(args.steps)):
            losses.append(step(Tensor(next(pieces)).realize()).item())
            bar.set_description(f"loss {losses[-1]:.3f}")
    prompt = [number[letter] for letter in "def " if letter in number] or [0]
    for (token,) in stream(net, [prompt], Sampler(temperature=0.8, seed=0), args.length):
        print(letters[token], end="", flush=True)
    print()
    draw(losses, args.out.with_name("gpt_loss.png"))
    sizes = {"length": 2 * args.length, "dim": args.dim, "layers": args.layers}
    about = {"letters": json.dumps(letters), "sizes": json.dumps(sizes)}
    safe_save(get_state_dict(net), args.out, about)
    print(f"the net is in {args.out}, the loss in {args.out.with_name('gpt_loss.png')}")


if __name__ == "__main__":
    main()
