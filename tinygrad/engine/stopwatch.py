"""Times a kernel under recipes in a process of its own (`engine/trial`), so that a recipe which
crashes, hangs or computes something else costs a candidate and not the program."""

from __future__ import annotations

import atexit
import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from tinygrad.loops.recipe import Recipe, to_text
from tinygrad.uop.node import UOp
from tinygrad.uop.text import dump

STARTING = 60.0  # seconds for a process to start and run the reference recipe
CANDIDATE = 10.0  # seconds for a candidate: lowering, compiling, running
RACE_ROUNDS = 15
TRIAL = (sys.executable, "-m", "tinygrad.engine.trial")
FOREVER = float("inf")


class Child:
    """The process. It is started when first needed, and again after it was lost."""

    def __init__(self, command: tuple[str, ...] = TRIAL) -> None:
        self.command = command
        self.process: subprocess.Popen[str] | None = None
        self.inherited: subprocess.Popen[str] | None = None
        self.answers: queue.Queue[str] = queue.Queue()

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any] | None:
        """The answer; None if the process died or took too long and was ended."""
        if self.process is None:
            self._start()
        assert self.process is not None and self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            found: dict[str, Any] = json.loads(self.answers.get(timeout=seconds))
            return found
        except (OSError, ValueError, queue.Empty):
            self.stop()
            return None

    def stop(self) -> None:
        """Ends the process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            for pipe in (self.process.stdin, self.process.stdout):
                if pipe is not None:
                    try:
                        pipe.close()
                    except OSError:
                        continue
        self.process = None

    def forget(self) -> None:
        """What a forked process does: this one is its parent's, whose answers it took. It is kept,
        since who frees it waits for the parent's thread."""
        self.inherited, self.process = self.process, None

    def _start(self) -> None:
        package = str(Path(__file__).resolve().parents[2])
        paths = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
        quiet = {"BEAM": "0", "RECIPES": "", "DEBUG": "0", "VIZ": "0", "SPEC": "0"}
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **quiet, "CPU_COUNT": "1", "PYTHONPATH": paths},
        )
        self.answers = queue.Queue()
        threading.Thread(
            target=_forward, args=(self.process.stdout, self.answers), daemon=True
        ).start()


def _forward(lines: Any, answers: queue.Queue[str]) -> None:
    """Puts lines in a queue, which can be waited for with a timeout; an empty line at the end."""
    try:
        for line in lines:
            answers.put(line)
    except ValueError:  # closed meanwhile
        pass
    answers.put("")


_child = Child()
atexit.register(_child.stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_child.forget)


class Stopwatch:
    """One kernel on one device, compared with a reference recipe."""

    def __init__(self, ast: UOp, device: str, reference: Recipe) -> None:
        self.about = self.request(ast, device, reference)
        self.ready = False
        self.usable = self._prepare()

    @staticmethod
    def request(ast: UOp, device: str, reference: Recipe) -> dict[str, Any]:
        """The request that makes the process turn to a kernel."""
        return {"kernel": dump(ast), "device": device, "recipe": to_text(reference)}

    def seconds(self, recipe: Recipe, limit: float) -> float:
        """The kernel's time; infinity if it can't run or its result is wrong."""
        limit = limit if limit < FOREVER else 1e9
        found = self._ask({"recipe": to_text(recipe), "limit": limit}, CANDIDATE)
        return FOREVER if found is None else float(found.get("seconds", FOREVER))

    def ratio(self, recipe: Recipe) -> float:
        """The kernel's time over the reference's, measured in turn; infinity if it can't be
        determined."""
        request = {"race": to_text(recipe), "rounds": RACE_ROUNDS}
        found = self._ask(request, STARTING)
        return FOREVER if found is None else float(found.get("ratio", FOREVER))

    def _prepare(self) -> bool:
        found = _child.ask(self.about, STARTING)
        self.ready = found is not None and "problem" not in found
        return self.ready

    def _ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any] | None:
        if not self.ready and not self._prepare():
            return None
        found = _child.ask(request, seconds)
        self.ready = found is not None
        return found
