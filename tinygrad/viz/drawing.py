"""A graph of nodes as a picture (SVG), with sources above and results below. Constants, loops and
devices are written as words inside the nodes that use them, so that the drawing shows the graph
which a person has in mind."""

from __future__ import annotations

from html import escape

from tinygrad.base.dtype import dtypes
from tinygrad.uop import GroupOp, Ops, UOp
from tinygrad.viz.formula import formula, plain

MOST_NODES = 400
"""Nodes that are drawn, the nearest to the result first: a person reads no more."""

LETTER = 7.2  # pixels of a letter of the font
LINE = 16
PADDING = 8
GAP_ACROSS, GAP_DOWN = 24, 46
SWEEPS = 6

COLORS = (
    (frozenset((Ops.BUFFER, Ops.PARAM, Ops.INDEX)), "#dbe7f5"),
    (frozenset((Ops.REDUCE, Ops.REDUCE_AXIS, Ops.RUNNING, Ops.FOLD, Ops.WMMA)), "#f8d9d5"),
    (GroupOp.Movement, "#ece6f4"),
    (frozenset((Ops.STAGE, Ops.CONTIGUOUS, Ops.COPY)), "#d9efe0"),
    (frozenset((Ops.STORE, Ops.SINK, Ops.ASSIGN, Ops.SCATTER)), "#fbeccb"),
)
OTHER_COLOR = "#f4f4f2"

_WORDS = frozenset((Ops.CONST, Ops.RANGE, Ops.DEFINE_VAR))
_NOTHING = frozenset((Ops.DEVICE, Ops.UNIQUE))


def svg(root: UOp) -> str:
    """The graph below `root`, as the text of an SVG element.

    >>> svg((Tensor([1.0, 2.0]) + 1).uop).startswith("<svg")
    True
    """
    nodes = _drawn(root)
    layers = _layers(nodes)
    labels = {node: _label(node) for node in nodes}
    widths = {n: 2 * PADDING + LETTER * max(map(len, label)) for n, label in labels.items()}
    _untangle(layers)
    places, width, height = _places(layers, widths, labels)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" font-family="monospace" font-size="12">'
    ]
    for node in nodes:
        for source in dict.fromkeys(s for s in node.src if s in places):
            lines.append(_edge(places[source], _height(labels[source]), places[node]))
    for node in nodes:
        lines += _box(node, places[node], widths[node], labels[node])
    if len(nodes) == MOST_NODES:
        lines.append(f'<text x="8" y="{height - 6:.0f}">the {MOST_NODES} nearest nodes</text>')
    return "\n".join([*lines, "</svg>"])


def _drawn(root: UOp) -> list[UOp]:
    """The nodes that get a box, sources first."""
    found, waiting = {root: None}, [root]
    while waiting and len(found) < MOST_NODES:
        following = []
        for node in waiting:
            for source in node.src:
                if not _is_word(source) and source not in found and len(found) < MOST_NODES:
                    found[source] = None
                    following.append(source)
        waiting = following
    return [node for node in root.toposort() if node in found]


def _is_word(node: UOp) -> bool:
    """Whether its users name it instead of pointing at it."""
    node = plain(node)
    if node.op in _WORDS or node.op in _NOTHING:
        return True
    return node.dtype is dtypes.index and node.op in GroupOp.Elementwise and not node.shape


def _label(node: UOp) -> list[str]:
    words = [formula(s) for s in node.src if _is_word(s) and s.op not in _NOTHING]
    argument = "" if node.arg is None else str(node.arg)
    head = " ".join(filter(None, (node.op.name, _short(argument))))
    kind = "" if node.dtype is dtypes.void else node.dtype.name
    shape = str(tuple(node.shape)) if node.has_shape and node.shape else ""
    rows = (head, _short(", ".join(words)), " ".join(filter(None, (kind, shape))))
    return [row for row in rows if row]


def _short(text: str, most: int = 36) -> str:
    return text if len(text) <= most else text[: most - 2] + ".."


# ---- where things stand --------------------------------------------------------------------------


def _layers(nodes: list[UOp]) -> list[list[UOp]]:
    """Each node below all its sources, and no further from its first user than it must be."""
    depth: dict[UOp, int] = {}
    for node in nodes:
        depth[node] = 1 + max((depth[s] for s in node.src if s in depth), default=-1)
    nearest: dict[UOp, int] = {}
    for node in reversed(nodes):
        depth[node] = max(depth[node], nearest.get(node, 0) - 1)
        for source in node.src:
            if source in depth:
                nearest[source] = min(nearest.get(source, depth[node]), depth[node])
    layers: list[list[UOp]] = [[] for _ in range(1 + max(depth.values()))]
    for node in nodes:
        layers[depth[node]].append(node)
    return [layer for layer in layers if layer]


def _untangle(layers: list[list[UOp]]) -> None:
    """Orders each layer by the positions of its neighbours, down and up again, so that fewer lines
    cross."""
    users: dict[UOp, list[UOp]] = {}
    drawn = {node for layer in layers for node in layer}
    for node in drawn:
        for source in node.src:
            users.setdefault(source, []).append(node)
    for sweep in range(SWEEPS):
        downwards = sweep % 2 == 0
        at = {n: i / len(layer) for layer in layers for i, n in enumerate(layer)}
        for layer in layers if downwards else reversed(layers):

            def middle(node: UOp, downwards: bool = downwards, at: dict[UOp, float] = at) -> float:
                near = node.src if downwards else users.get(node, ())
                found = [at[n] for n in near if n in drawn]
                return sum(found) / len(found) if found else at[node]

            layer.sort(key=middle)
            at.update((n, i / len(layer)) for i, n in enumerate(layer))


def _places(
    layers: list[list[UOp]], widths: dict[UOp, float], labels: dict[UOp, list[str]]
) -> tuple[dict[UOp, tuple[float, float]], float, float]:
    """The middle of each node's upper edge; the picture's width and height."""
    rows = [sum(widths[n] for n in layer) + GAP_ACROSS * (len(layer) - 1) for layer in layers]
    width = max(rows) + 2 * PADDING
    places: dict[UOp, tuple[float, float]] = {}
    y: float = PADDING
    for layer, row in zip(layers, rows, strict=True):
        x = (width - row) / 2
        for node in layer:
            places[node] = (x + widths[node] / 2, y)
            x += widths[node] + GAP_ACROSS
        y += max(_height(labels[n]) for n in layer) + GAP_DOWN
    return places, width, y - GAP_DOWN + 3 * PADDING


def _height(label: list[str]) -> float:
    return LINE * len(label) + PADDING


# ---- shapes --------------------------------------------------------------------------------------


def _edge(above: tuple[float, float], height: float, below: tuple[float, float]) -> str:
    (x0, y0), (x1, y1) = (above[0], above[1] + height), below
    half = (y0 + y1) / 2
    curve = f"M{x0:.0f},{y0:.0f} C{x0:.0f},{half:.0f} {x1:.0f},{half:.0f} {x1:.0f},{y1:.0f}"
    return f'<path d="{curve}" fill="none" stroke="#9aa5b1"/>'


def _box(node: UOp, at: tuple[float, float], width: float, label: list[str]) -> list[str]:
    x, y = at
    color = next((c for ops, c in COLORS if node.op in ops), OTHER_COLOR)
    return [
        f"<g><title>{escape(node.origin or node.op.name)}</title>",
        f'<rect x="{x - width / 2:.0f}" y="{y:.0f}" width="{width:.0f}" '
        f'height="{_height(label):.0f}" rx="5" fill="{color}" stroke="#66727f"/>',
        *(
            f'<text x="{x:.0f}" y="{y + LINE * (i + 1):.0f}" text-anchor="middle" '
            f'font-weight="{"normal" if i else "bold"}">{escape(row)}</text>'
            for i, row in enumerate(label)
        ),
        "</g>",
    ]
