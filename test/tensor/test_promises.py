"""`promises.py`, in a process of its own: that a step is done again without a graph depends on
what else is alive, and here that is nothing."""

import subprocess
import sys
from pathlib import Path

TEST = Path(__file__).parent.parent


def test_steps_are_done_again_and_mean_what_they_meant():
    command = [sys.executable, "-m", "pytest", "tensor/promises.py", "-q", "-n", "0"]
    ran = subprocess.run(
        [*command, "-p", "no:cacheprovider"], cwd=TEST, capture_output=True, text=True, timeout=600
    )
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
    assert int(ran.stdout.split(" passed")[0].split()[-1]) > 40
