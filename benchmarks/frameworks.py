"""The frameworks that are compared: one row each, and an environment of its own for each rival.

    python benchmarks/frameworks.py            installs what is missing
    python benchmarks/frameworks.py --list     says what is there

Environments lie in a cache folder outside the tree (BENCH_CACHE, else the user's cache folder) and
are made by `python -m venv` and pip. Nothing is installed into the project's own environment.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
OURS = "tinygrad"
BEAM = "tinygrad-beam"  # ours with the recipe search: compared only if asked for


@dataclass(frozen=True)
class Framework:
    """`module` has the cases; `packages` are installed with pip, the first one names the version;
    one of `compilers` must be on PATH, the first that is becomes CC."""

    name: str
    module: str
    environment: str  # name of its folder; frameworks may share one
    packages: tuple[str, ...]
    compilers: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    alone: Mapping[str, str] = field(default_factory=dict)  # settings for one thread
    avx2: Mapping[str, str] = field(default_factory=dict)  # settings that leave AVX-512 unused

    @property
    def package(self) -> str:
        return self.packages[0].partition("==")[0]

    @property
    def compiler(self) -> str | None:
        return next(filter(shutil.which, self.compilers), None)

    @property
    def python(self) -> Path:
        return environments() / self.environment / "bin" / "python"

    @property
    def rival(self) -> bool:
        return bool(self.environment)


NO_AVX512 = {"CPU_WITHOUT": "avx512 amx"}
TORCH_AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}
ONE_XLA_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

FRAMEWORKS: dict[str, Framework] = {
    row.name: row
    for row in (
        Framework(OURS, "cases_tinygrad", "", ("tinygrad",), avx2=NO_AVX512),
        Framework(
            "torch", "cases_torch", "torch-2.13.0", ("torch==2.13.0", "numpy"), avx2=TORCH_AVX2
        ),
        Framework(
            "torch-compile",
            "cases_torch",
            "torch-2.13.0",
            ("torch==2.13.0", "numpy"),
            settings={"COMPILE": "1"},
            avx2=TORCH_AVX2,
        ),
        Framework(
            "jax",
            "cases_jax",
            "jax-0.10.2",
            ("jax==0.10.2", "numpy"),
            settings={"JAX_PLATFORMS": "cpu", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"},
            alone={"XLA_FLAGS": ONE_XLA_THREAD},
            avx2={"XLA_FLAGS": f"{ONE_XLA_THREAD} --xla_cpu_max_isa=AVX2"},
        ),
        Framework(
            "tinygrad-0.14",
            "cases_tinygrad",
            "tinygrad-0.14.0",
            ("tinygrad==0.14.0", "numpy"),
            compilers=("clang-20", "clang-19", "clang-18", "clang-17", "clang-16", "clang"),
            settings={"DEV": "CPU"},
        ),
        Framework(BEAM, "cases_tinygrad", "", ("tinygrad",), settings={"BEAM": "2"}),
    )
}


def cache_folder() -> Path:
    """Where environments and unfinished runs lie."""
    given = os.environ.get("BENCH_CACHE")
    if given:
        return Path(given)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "tinygrad-bench"


def environments() -> Path:
    return cache_folder() / "environments"


def interpreter(framework: Framework) -> str:
    """The Python that runs it; ours is the one that runs this."""
    return str(framework.python) if framework.rival else sys.executable


def version(framework: Framework) -> str | None:
    """The installed version; None if it is not there."""
    if not framework.rival:
        sys.path.insert(0, str(HERE.parent))
        import tinygrad

        return tinygrad.__version__
    if not framework.python.exists():
        return None
    code = f"import importlib.metadata as m; print(m.version({framework.package!r}))"
    found = subprocess.run([framework.python, "-c", code], capture_output=True, text=True)
    return found.stdout.strip() or None


def prepare(framework: Framework) -> str | None:
    """Sees to it that a framework can run; the reason if it can't."""
    if version(framework) is None:
        print(f"installing {' '.join(framework.packages)} ...", flush=True)
        problem = _install(framework)
        if problem:
            return problem
    if framework.compilers and framework.compiler is None:
        return f"it needs {framework.compilers[-1]}: apt-get install {framework.compilers[-1]}"
    return None


def _install(framework: Framework) -> str | None:
    folder = framework.python.parent.parent
    commands = (
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [str(framework.python), "-m", "pip", "install", "--quiet", *framework.packages],
    )
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, env=_outside())
        if done.returncode:
            words = [line for line in done.stderr.splitlines() if "WARNING" not in line]
            return (words or ["pip failed"])[-1][:160]
    return None if version(framework) else "pip installed nothing"


def _outside() -> dict[str, str]:
    """The environment without what would bring our own package into a rival's, or keep our own
    from having bytecode, as theirs have since they were installed."""
    left_out = ("PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE")
    return {k: v for k, v in os.environ.items() if k not in left_out}


def surroundings(
    framework: Framework, threads: int, folder: Path, avx2: bool = False
) -> dict[str, str]:
    """Environment variables of a measurement, its caches in `folder`."""
    number = str(threads)
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CPU_COUNT", "THREADS")
    return {
        **_outside(),
        **({} if framework.rival else {"PYTHONPATH": str(HERE.parent)}),
        **dict.fromkeys(names, number),
        "TINYGRAD_CACHE": str(folder),
        "CACHEDB": str(folder / "cache.db"),
        "XDG_CACHE_HOME": str(folder),
        "TORCHINDUCTOR_CACHE_DIR": str(folder),
        "JAX_COMPILATION_CACHE_DIR": str(folder),
        **({"CC": framework.compiler} if framework.compiler else {}),
        **framework.settings,
        **(framework.alone if threads == 1 else {}),
        **(framework.avx2 if avx2 else {}),
    }


def chosen(names: Iterable[str]) -> tuple[Framework, ...]:
    """The rows of these names; an unknown one ends the program."""
    wanted = [name for name in names if name]
    unknown = [name for name in wanted if name not in FRAMEWORKS]
    if unknown:
        sys.exit(f"no framework {', '.join(unknown)}; there are {', '.join(FRAMEWORKS)}")
    return tuple(FRAMEWORKS[name] for name in wanted)


def main() -> None:
    parser = argparse.ArgumentParser(description="The environments of the rivals.")
    parser.add_argument("--list", action="store_true", help="install nothing")
    options = parser.parse_args()
    for framework in FRAMEWORKS.values():
        problem = None if options.list else prepare(framework)
        print(f"{framework.name:14s} {version(framework) or 'absent':14s} {problem or ''}")


if __name__ == "__main__":
    main()
