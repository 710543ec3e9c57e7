"""The examples run, a few steps of each."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
GPT = ("train_gpt.py", "--steps", "3", "--layers", "1", "--dim", "32", "--length", "32")

ROWS = [
    (("distill.py", "--steps", "50"), "small, helped"),
    (("vae.py", "--steps", "50"), "vae.png"),
    pytest.param((*GPT,), "gpt_loss.png", marks=pytest.mark.slow),
    pytest.param(("gan.py", "--steps", "50"), "gan.png", marks=pytest.mark.slow),
    pytest.param(("beautiful_mnist.py", "--steps", "3"), "accuracy", marks=pytest.mark.slow),
    pytest.param(("reinforce.py", "--rounds", "2"), "the last tries", marks=pytest.mark.slow),
    pytest.param(
        ("quantise.py", "--dim", "128", "--layers", "1", "--tokens", "5"),
        "4 bits",
        marks=pytest.mark.slow,
    ),
]


def run(folder, *arguments):
    """What an example prints; its pictures go to `folder`."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / arguments[0], *arguments[1:]],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"SPEC": "0", "PYTHONPATH": str(EXAMPLES.parent)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout + done.stderr


@pytest.mark.parametrize(("arguments", "shows"), ROWS)
def test_example(arguments, shows, tmp_path):
    assert shows in run(tmp_path, *arguments)
    for picture in tmp_path.glob("*.png"):
        assert picture.stat().st_size > 1000


@pytest.mark.slow
def test_lora_learns_beside_a_trained_net(tmp_path):
    run(tmp_path, *GPT)
    assert "what was learned is in lora.safetensors" in run(tmp_path, "lora.py", "--steps", "3")


def test_semantic_search_finds_the_place_and_keeps_its_index(tmp_path):
    (tmp_path / "a.txt").write_text("The quick brown fox jumps over the lazy dog in the garden.\n")
    (tmp_path / "b.md").write_text("# Cooking\n\nBoil the pasta for nine minutes in some water.\n")
    question = "How long does one cook noodles?"
    for _ in range(2):
        first, *_ = run(tmp_path, "semantic_search.py", ".", question, "--most", "1").splitlines()
        assert "b.md:3" in first
    assert (tmp_path / ".search.npz").exists()


def test_nothing_to_read_is_said(tmp_path):
    with pytest.raises(AssertionError, match="on 0 letters of nowhere: too few"):
        run(tmp_path, "train_gpt.py", "--files", "nowhere")


def test_cifar_says_what_to_do_without_a_network(tmp_path):
    done = subprocess.run(
        [sys.executable, EXAMPLES / "cifar.py", "--steps", "1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9",
                          "TINYGRAD_CACHE": str(tmp_path), "PYTHONPATH": str(EXAMPLES.parent)},
    )  # fmt: skip
    assert done.returncode == 1 and "put the file at" in done.stderr
