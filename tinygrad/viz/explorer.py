"""`VIZ=1`: when a program ends, a page shows each graph that it computed, every rewrite on the way
to its kernels, and each kernel down to machine code.

While the program runs, only the graphs are kept. The stages of a graph are made when somebody looks
at them."""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path

from tinygrad.base.helpers import plural
from tinygrad.engine import plans
from tinygrad.engine.holders import Holder
from tinygrad.engine.profile import user_place
from tinygrad.engine.structure import structure_of
from tinygrad.uop.node import UOp
from tinygrad.viz.stages import Found, Json, name_of_kernel, stages_of_graph, stages_of_kernel

PORT = 8000


class Explorer:
    """Graphs, and the stages of each, made once."""

    def __init__(self) -> None:
        self.graphs: dict[UOp, None] = {}
        self._answers: dict[str, Json] = {}
        self._kernels: dict[int, list[Found]] = {}
        self._lock = threading.RLock()

    def add(self, sink: UOp) -> None:
        """Remembers a structure's graph."""
        self.graphs[sink] = None

    def answer(self, path: str) -> Json | None:
        """The data at `graphs`, `graph/2` or `graph/2/kernel/0`; None if there is none."""
        with self._lock:
            if path not in self._answers:
                made = self._make(path.split("/"))
                if made is None:
                    return None
                self._answers[path] = made
            return self._answers[path]

    def _make(self, words: list[str]) -> Json | None:
        numbers = [int(w) for w in words[1::2] if w.isdecimal()]
        graphs = list(self.graphs)
        if words == ["graphs"]:
            return {"graphs": [_title(sink) for sink in graphs]}
        if words[0] != "graph" or not numbers or numbers[0] >= len(graphs):
            return None
        if len(words) == 2:
            stages, self._kernels[numbers[0]] = stages_of_graph(graphs[numbers[0]])
            names = [name_of_kernel(found) for found in self._kernels[numbers[0]]]
            return {"stages": stages, "kernels": names}
        self.answer("/".join(words[:2]))
        kernels = self._kernels[numbers[0]]
        if words[2:3] != ["kernel"] or len(numbers) != 2 or numbers[1] >= len(kernels):
            return None
        name, stages = stages_of_kernel(kernels[numbers[1]])
        return {"name": name, "stages": stages}

    def everything(self) -> dict[str, Json]:
        """All answers, for a page that stands alone."""
        paths = ["graphs", *(f"graph/{i}" for i in range(len(self.graphs)))]
        for number in range(len(self.graphs)):
            self.answer(f"graph/{number}")
            paths += [f"graph/{number}/kernel/{k}" for k in range(len(self._kernels[number]))]
        return {path: answer for path in paths if (answer := self.answer(path)) is not None}


def explore(*tensors: Holder, path: str | Path) -> Path:
    """Writes a page (one file, which needs no server) with every stage of computing the tensors:
    the graph, the rules that fitted, the kernels and their recipes step by step, loops, linear
    program, source and machine code. Computes nothing. Returns the path; OSError if it can't be
    written.

    >>> import tempfile
    >>> page = explore(Tensor([1.0, 2.0]) + 1, path=tempfile.mktemp(".html"))
    >>> "<svg" in page.read_text()
    True
    """
    explorer = Explorer()
    explorer.add(structure_of([t.uop for t in tensors]).sink)
    data = json.dumps(explorer.everything()).replace("</", "<\\/")
    path = Path(path)
    path.write_text(_page().replace("/*DATA*/null", data), encoding="utf-8")
    return path


def serve(explorer: Explorer, port: int = PORT) -> ThreadingHTTPServer:
    """A server of the explorer's page for this machine alone; another port if that one is taken."""
    handler = _handler(explorer)
    try:
        return ThreadingHTTPServer(("127.0.0.1", port), handler)
    except OSError:
        return ThreadingHTTPServer(("127.0.0.1", 0), handler)


def explore_at_exit() -> Explorer:
    """From now on graphs are kept; when the program ends, their page is served until Ctrl-C."""
    explorer = Explorer()
    plans.listeners.append(explorer.add)
    atexit.register(_until_interrupted, explorer, os.getpid())
    return explorer


def _until_interrupted(explorer: Explorer, process: int) -> None:
    if not explorer.graphs or os.getpid() != process:
        return
    with serve(explorer) as server:
        host, port = server.server_address[:2]
        what = plural(len(explorer.graphs), "graph")
        print(f"VIZ: {what} at http://{host!s}:{port}/ until Ctrl-C", file=sys.stderr, flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print(file=sys.stderr)


def _title(sink: UOp) -> Json:
    places = [node.origin for node in reversed(sink.toposort()) if node.origin]
    shapes = ", ".join(str(tuple(root.shape)) for root in sink.src if root.has_shape)
    return {"place": user_place(places[0] if places else None), "results": shapes}


def _page() -> str:
    return files("tinygrad.viz").joinpath("explorer.html").read_text(encoding="utf-8")


def _handler(explorer: Explorer) -> Callable[..., BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.strip("/")
            if not path:
                return self._send(200, "text/html; charset=utf-8", _page())
            answer = explorer.answer(path)
            status = 404 if answer is None else 200
            return self._send(status, "application/json", json.dumps(answer))

        def _send(self, status: int, kind: str, text: str) -> None:
            data = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Nothing: the terminal is the program's."""

    return Handler
