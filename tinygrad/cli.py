"""`python -m tinygrad`: what this installation is, what it can use, and what it was told.

doctor        devices and why others are absent, cache, versions, processor, settings
settings      every setting, its default and what it does
cache clear   forgets compiled kernels and plans
generate      text by a model that was downloaded: python -m tinygrad generate FOLDER "Once upon"
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tinygrad.backends import ALIASES, DEVICES, default_device, why_absent
from tinygrad.backends.outside import offers, sources
from tinygrad.base.errors import TinygradError
from tinygrad.base.helpers import plural
from tinygrad.base.settings import DEVICE_NAMES, TABLE
from tinygrad.command import run_command
from tinygrad.engine.cache import DiskCache, default_folder
from tinygrad.engine.devices import Device
from tinygrad.engine.profile import describe_target
from tinygrad.models.auto import TEXTS, load_model
from tinygrad.models.chats import answer
from tinygrad.models.sampling import Sampler
from tinygrad.models.t5 import T5
from tinygrad.models.texts import write
from tinygrad.nn.quantised import quantise

PACKAGES = ("tinygrad", "numpy", "llvmlite", "ml_dtypes", "safetensors", "pyopencl")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; the exit code: 0 good, 1 what was asked can't be done, 2 not asked
    rightly, which shows what may be asked."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help(sys.stderr)
        return 2
    if options.command == "settings":
        print("\n".join(settings_lines()))
        return 0
    if options.command == "cache":
        print(clear_cache())
        return 0
    if options.command == "generate":
        return generate(options)
    return doctor()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tinygrad", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    commands.add_parser("doctor", help="what works on this machine, and why the rest does not")
    commands.add_parser("settings", help="the environment variables that are read")
    cache = commands.add_parser("cache", help="the folder of compiled kernels")
    cache.add_argument("action", choices=["clear"])
    _add_generate(commands.add_parser("generate", help="text by a model that was downloaded"))
    return parser


# ---- generate ------------------------------------------------------------------------------------


def _add_generate(parser: argparse.ArgumentParser) -> None:
    parser.description = generate.__doc__
    parser.add_argument("model", help="a folder with config.json, or a GGUF file")
    parser.add_argument("prompt", help="what the text begins with, or what a T5 answers")
    parser.add_argument("--chat", action="store_true", help="answer it by the model's template")
    parser.add_argument("--most", type=int, default=100, help="tokens")
    parser.add_argument("--bits", type=int, choices=[8, 4], help="of weights, in memory")
    for name in ("temperature", "top_p", "min_p", "repetition_penalty"):
        default = 0.0 if name == "temperature" else getattr(Sampler, name)
        option = "--" + name.replace("_", "-")
        parser.add_argument(option, type=float, default=default, help=f"default {default:g}")
    parser.add_argument("--top-k", type=int, default=0, help="default 0: all")
    parser.add_argument("--seed", type=int, help="of the draws")


def generate(options: argparse.Namespace) -> int:
    """Text by a model that was downloaded, as it is made. 1 if that can't be."""
    names = ("repetition_penalty", "temperature", "top_k", "top_p", "min_p", "seed")
    try:
        sampler = Sampler(**{name: getattr(options, name) for name in names})
        model = load_model(options.model, TEXTS)
        if options.bits:
            quantise(model, options.bits)
        if options.chat:
            said = [{"role": "user", "content": options.prompt}]
            pieces = answer(model, said, sampler, options.most)
        else:
            pieces = write(model, options.prompt, sampler, options.most)
            if not isinstance(model, T5):
                print(options.prompt, end="", flush=True)
        for piece in pieces:
            print(piece, end="", flush=True)
    except TinygradError as error:
        print(f"generate: {error}", file=sys.stderr)
        return 1
    print()
    return 0


# ---- doctor --------------------------------------------------------------------------------------


def doctor() -> int:
    """Prints what this installation is. 1 if the default device can't be used, else 0."""
    default, problem = _default()
    sections = {
        "versions": version_lines(),
        "devices": device_lines(),
        "default device": [default or "none", *_where_from()],
        "processor": processor_lines(),
        "cache": cache_lines(),
        "settings in the environment": environment_lines() or ["none"],
    }
    for title, lines in sections.items():
        print(title)
        for line in lines:
            print("  " + line)
    if problem is not None:
        which = f"device {default}" if default else "device"
        print(f"problem: the default {which} can't be used: {problem}")
    return 0 if problem is None else 1


def version_lines() -> list[str]:
    """Python, the system, and each package that is used where it is there."""
    lines = [f"{'python':12s} {platform.python_version()} on {platform.platform()}"]
    for name in PACKAGES:
        try:
            found = version(name)
        except PackageNotFoundError:
            found = "not installed"
        lines.append(f"{name:12s} {found}")
    return [*lines, f"{'LLVM':12s} {llvm_version()}"]


def llvm_version() -> str:
    """The version of the LLVM inside llvmlite."""
    try:
        import llvmlite.binding as llvm
    except (ImportError, OSError) as error:
        return f"none: {error}"
    return ".".join(map(str, llvm.llvm_version_info))


def device_lines() -> Iterator[str]:
    """Each device: what it is, or why it can't be used."""
    for name in DEVICES:
        problem = why_absent(name)
        if problem is None:
            yield describe_target(name, Device[name].target)
        else:
            yield f"{name}: absent: {problem}"
    for name, points in offers().items():
        problem = why_absent(name)
        if name in DEVICES or name in ALIASES:
            yield f"{name} of {sources(points)}: ignored: the name is one of ours"
        elif problem is None:
            described = describe_target(name, Device[name].target)
            yield f"{described}, from {sources(points)}"
        else:
            yield f"{name}: absent: {problem}"


def processor_lines() -> list[str]:
    """What the code generator knows of this processor."""
    problem = why_absent("CPU")
    if problem is not None:
        return [problem]
    target = Device["CPU"].target
    features = [word[1:] for word in target.features.split(",") if word.startswith("+")]
    return [
        f"{target.cpu} ({target.triple}), {plural(target.cores, 'thread')}",
        f"vectors of {target.vector} bytes, {target.registers} registers, "
        f"{plural(target.fma_ports, 'multiply-add')} and {plural(target.load_ports, 'load')} "
        "a cycle",
        f"caches {target.cache_l1 >> 10}, {target.cache_l2 >> 10} and {target.cache_l3 >> 10} KiB, "
        f"lines of {target.cache_line} bytes",
        "features " + " ".join(features),
    ]


def cache_lines() -> list[str]:
    """Where compiled kernels are kept, and whether that works."""
    folder = default_folder()
    if folder is None:
        return ["in memory only (CACHELEVEL=0, or no home)"]
    sizes = [size for _, size, _ in DiskCache(folder).entries()]
    state = "writable" if _writable(folder) else "not writable: kernels are kept in memory only"
    return [str(folder), f"{plural(len(sizes), 'file')}, {sum(sizes) / 2**20:.1f} MiB, {state}"]


def _writable(folder: Path) -> bool:
    """Whether entries can be written; a folder that is not there is made when it is needed."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def environment_lines() -> list[str]:
    """The settings that the environment gives, and what they do."""
    lines = []
    for row in TABLE:
        if row.name in os.environ:
            effect = row.meaning if row.effect else f"accepted, no effect: {row.meaning}"
            lines.append(f"{row.name}={os.environ[row.name]}  ({effect})")
    lines += [f"{name}=1  (chooses the device)" for name in DEVICE_NAMES if _asks(name)]
    return lines


def _asks(name: str) -> bool:
    return os.environ.get(name, "0") == "1"


def _default() -> tuple[str | None, str | None]:
    """The default device, and why it can't be used."""
    try:
        name = default_device()
    except TinygradError as error:
        return None, str(error)
    return name, why_absent(name)


def _where_from() -> list[str]:
    """Which variable chose the default device."""
    for name in ("DEV", "BACKEND"):
        if os.environ.get(name):
            return [f"from {name}={os.environ[name]}"]
    return [f"from {name}=1" for name in DEVICE_NAMES if _asks(name)][:1] or [
        "nothing set: the CPU"
    ]


# ---- settings and cache --------------------------------------------------------------------------


def settings_lines() -> Iterator[str]:
    """The table of settings."""
    width = max(len(row.name) for row in TABLE)
    defaults = {row.name: str(row.default) or '""' for row in TABLE}
    wide = max(map(len, defaults.values()))
    for row in TABLE:
        note = "" if row.effect else "accepted, no effect: "
        yield f"{row.name:{width}s}  {defaults[row.name]:{wide}s}  {note}{row.meaning}"


def clear_cache() -> str:
    """Forgets all compiled kernels and plans; says how many."""
    folder = default_folder()
    if folder is None:
        return "there is no cache folder"
    cache = DiskCache(folder)
    before = len(cache.entries())
    cache.clear()
    return f"removed {before} files from {folder}"


if __name__ == "__main__":
    sys.exit(run_command(main))
