"""The annotations are complete for users: their program passes mypy --strict, and runs."""

import subprocess
import sys
from importlib import resources
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROGRAM = ROOT / "test" / "user_program.py"


def test_a_users_program_type_checks():
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", ROOT / "pyproject.toml"]
    run = subprocess.run([*command, PROGRAM], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr


OTHERS_NAMES = """
from tinygrad import Tensor, nn
from tinygrad.data import DataLoader
from tinygrad.nn import functional as F

x = Tensor([[1.0, 2.0]])
x.sum(dim=1, keepdims=True).clamp(min=0).to("CPU", non_blocking=True)
x.permute(dims=(1, 0)).std(unbiased=False)
Tensor.randint(0, 3, size=(2,)).cat(Tensor.zeros(size=(2,)), axis=0)
F.relu(F.softmax(input=x, axis=1), inplace=True)
nn.BatchNorm(num_features=2)(nn.Embedding(num_embeddings=3, embedding_dim=2)(Tensor([1])))
nn.optim.Adam([x], lr=0.1, fused=True)
DataLoader([1, 2], batch_size=2, pin_memory=True, prefetch_factor=3, timeout=0)
"""
WRONG = {
    "x.sum(foo=1)": '"foo"',
    'x.sum(dim="a")': '"dim" to "sum" of "Reduction" has incompatible type "str"',
    "x.max(dim=1)": '"dim"',  # which means something else in PyTorch
}


def test_others_names_of_arguments_type_check_with_the_plugin(tmp_path):
    (tmp_path / "mypy.ini").write_text("[mypy]\nplugins = tinygrad.mypy\nstrict = True\n")
    command = [sys.executable, "-m", "mypy", "--config-file", tmp_path / "mypy.ini", "-c"]
    code = OTHERS_NAMES + "\n".join(WRONG)
    run = subprocess.run([*command, code], cwd=ROOT, capture_output=True, text=True, timeout=300)
    errors = [line for line in run.stdout.splitlines() if ": error: " in line]
    assert len(errors) == len(WRONG), run.stdout + run.stderr
    for line, words in zip(errors, WRONG.values(), strict=True):
        assert words in line


def test_a_users_program_runs():
    run = subprocess.run([sys.executable, PROGRAM], cwd=ROOT, capture_output=True, text=True)
    assert run.stdout == "a user's program ran\n", run.stderr


def test_the_package_says_that_it_is_typed():
    assert resources.files("tinygrad").joinpath("py.typed").is_file()
