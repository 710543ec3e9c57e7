"""Gradients of decompositions, as expressions of tensors, so that they have gradients too.

Each takes (arguments, results, incoming gradients, *parameters) of a routine of `lapack`; A* is the
conjugate transpose. (Giles, "Collected matrix derivative results", 2008; Walter and Lehmann,
"Algorithmic differentiation of linear algebra functions", 2010; Townsend, "Differentiating the
singular value decomposition", 2016; Golub and Pereyra, 1973, for the pseudo-inverse.)
"""

from __future__ import annotations

from typing import Any

from tinygrad.base.errors import DTypeError

Given = list[Any]


def _sum(*terms: Any) -> Any:
    """The sum of those that are not None."""
    out = None
    for term in terms:
        if term is not None:
            out = term if out is None else out + term
    return out


def _diagonal(matrix: Any) -> Any:
    return matrix.diagonal(0, -2, -1)


def _same(like: Any) -> Any:
    """Where row and column are one, as many as the last axis has elements."""
    return like.eye(like.shape[-1], device=like.device).bool()


def _on_diagonal(vector: Any) -> Any:
    """(.., n) → (.., n, n)."""
    return _same(vector).where(vector.unsqueeze(-1), 0)


def _gaps(values: Any) -> Any:
    """values[j] - values[i] at (i, j); 1 on the diagonal, where nothing is divided by it."""
    return _same(values).where(1, values.unsqueeze(-2) - values.unsqueeze(-1))


def _off_diagonal(matrix: Any) -> Any:
    return _same(matrix).where(0, matrix)


def inv(given: Given, results: Given, incoming: Given) -> Given:
    """-X* G X*"""
    (x,), (g,) = results, incoming
    return [-(x.mH @ g @ x.mH)]


def solve(given: Given, results: Given, incoming: Given) -> Given:
    """B: the solution for A*; A: minus that times X*."""
    (a, _), (x,), (g,) = given, results, incoming
    of_b = a.mH.solve(g)
    return [-(of_b @ x.mH), of_b]


def triangular(given: Given, results: Given, incoming: Given, upper: bool, unit: bool) -> Given:
    """As `solve`; of A only what was read counts."""
    (a, _), (x,), (g,) = given, results, incoming
    of_b = a.mH.solve_triangular(g, upper=not upper, unitriangular=unit)
    of_a = -(of_b @ x.mH)
    of_a = of_a.triu(int(unit)) if upper else of_a.tril(-int(unit))
    return [of_a, of_b]


def det(given: Given, results: Given, incoming: Given) -> Given:
    """The matrix of cofactors, also where the determinant is 0."""
    (a,), (g,) = given, incoming
    return [g.unsqueeze(-1).unsqueeze(-1) * a._adjugate().mH]


def adjugate(given: Given, results: Given, incoming: Given) -> Given:
    """Of det(A) · A⁻¹; so of invertible matrices only."""
    (a,), (g,) = given, incoming
    x, d = a.inv(), a.det().unsqueeze(-1).unsqueeze(-1)
    of_d = (x.conj() * g).sum((-2, -1), keepdim=True)
    return [of_d * (d * x).mH - x.mH @ (d.conj() * g) @ x.mH]


def slogdet(given: Given, results: Given, incoming: Given) -> Given:
    """A⁻* times the logarithm's gradient, and how the sign turns if it is complex."""
    (a,), (sign, _), (of_sign, g) = given, results, incoming
    if of_sign is not None and sign.is_complex():
        g = _sum(g, (sign.conj() * of_sign).imag * 1j)
    return [None if g is None else g.unsqueeze(-1).unsqueeze(-1) * a.inv().mH]


def cholesky(given: Given, results: Given, incoming: Given) -> Given:
    """L⁻* Φ(L* G) L⁻¹, the same for both triangles."""
    (low,), (g,) = results, incoming
    inner = (low.mH @ g).tril()
    inner = inner - _on_diagonal(_diagonal(inner)) * 0.5
    left = low.mH.solve_triangular(inner, upper=True)
    both = low.mH.solve_triangular(left.mH, upper=True)  # (L⁻* Φ L⁻¹)*
    return [(both + both.mH) * 0.5]


def qr(given: Given, results: Given, incoming: Given, complete: bool) -> Given:
    """(G_Q + Q·sym(R G_R* - G_Q* Q)) R⁻*; columns beyond a square were made by Q* A."""
    (a,), (q, r), (of_q, of_r) = given, results, incoming
    rows, columns = a.shape[-2:]
    if complete and rows > columns:
        raise DTypeError(
            f"gradient: qr of {a.shape} with mode 'complete': the columns of Q beyond {columns} "
            "are not determined; legal is mode='reduced'"
        )
    of_q, of_r = _sum(of_q, q * 0), _sum(of_r, r * 0)
    beyond = None
    if columns > rows:
        right, of_right = a[..., rows:], of_r[..., rows:]
        beyond = q @ of_right
        of_q, r, of_r = of_q + right @ of_right.mH, r[..., :rows], of_r[..., :rows]
    inner = r @ of_r.mH - of_q.mH @ q
    low = inner.tril(-1)
    middle = _on_diagonal(_diagonal(inner).real)
    left = of_q + q @ (low + low.mH + middle)
    out = r.solve_triangular(left.mH, upper=True).mH
    return [out if beyond is None else out.cat(beyond, dim=-1)]


def svd(given: Given, results: Given, incoming: Given, full: bool) -> Given:
    """(Townsend 2016.) Finite only if the singular values differ, where U or V count."""
    (a,), (u, s, v), (of_u, of_s, of_v) = given, results, incoming
    rows, columns = a.shape[-2:]
    n = s.shape[-1]
    u, v = u[..., :n], v[..., :n, :]
    of_u = None if of_u is None else of_u[..., :n]
    of_v = None if of_v is None else of_v[..., :n, :]
    row, column = s.unsqueeze(-2), s.unsqueeze(-1)
    core = None if of_s is None else _on_diagonal(of_s)
    outside = None
    squares = _gaps(s * s)
    if of_u is not None:
        inner = u.mH @ of_u
        core = _sum(core, (inner - inner.mH) / squares * row)
        if a.is_complex():
            core = core + _on_diagonal(_diagonal(inner).imag / s) * 1j
        if rows > n:
            outside = ((of_u - u @ inner) / row) @ v
    if of_v is not None:
        inner = v @ of_v.mH
        core = _sum(core, column * ((inner - inner.mH) / squares))
        if columns > n:
            outside = _sum(outside, u @ ((of_v - inner.mH @ v) / column))
    return [_sum(u @ core @ v, outside)]


def eigh(given: Given, results: Given, incoming: Given, upper: bool) -> Given:
    """V (diag(G_w) + herm(V* G_V / gaps)) V*: Hermitian, as one triangle says what the other is."""
    (w, v), (of_w, of_v) = results, incoming
    core = None if of_w is None else _on_diagonal(of_w)
    if of_v is not None:
        half = _off_diagonal(v.mH @ of_v / _gaps(w)) / 2
        core = _sum(core, half + half.mH)
    return [v @ core @ v.mH]


def eig(given: Given, results: Given, incoming: Given) -> Given:
    """V⁻* (diag(G_w) + (V* G_V - V* V·re diag(V* G_V)) / gaps*) V*; vectors have norm 1."""
    (w, v), (of_w, of_v) = results, incoming
    core = None if of_w is None else _on_diagonal(of_w)
    if of_v is not None:
        inner = v.mH @ of_v
        inner = inner - (v.mH @ v) * _diagonal(inner).real.unsqueeze(-2)
        core = _sum(core, _off_diagonal(inner / _gaps(w).conj()))
    return [v.mH.solve(core @ v.mH)]


def lu(given: Given, results: Given, incoming: Given) -> Given:
    """Of the square part P L⁻* (tril(L* G_L) + triu(G_U U*)) U⁻*; the rest is a product."""
    (order, low, up, _), (_, of_low, of_up, _) = results, incoming
    of_low, of_up = _sum(of_low, low * 0), _sum(of_up, up * 0)
    n = min(low.shape[-2], up.shape[-1])
    below = beside = None
    if low.shape[-2] > n:  # L2 = A2 U⁻¹
        square, rest = up, of_low[..., n:, :]
        below = square.solve_triangular(rest.mH, upper=True).mH
        of_up = of_up - (low[..., n:, :].mH @ below).triu()
        low, of_low = low[..., :n, :], of_low[..., :n, :]
    if up.shape[-1] > n:  # U2 = L⁻¹ A2
        square, rest = low, of_up[..., n:]
        beside = square.mH.solve_triangular(rest, upper=True, unitriangular=True)
        of_low = of_low - (beside @ up[..., n:].mH).tril(-1)
        up, of_up = up[..., :n], of_up[..., :n]
    core = (low.mH @ of_low).tril(-1) + (of_up @ up.mH).triu()
    left = low.mH.solve_triangular(core, upper=True, unitriangular=True)
    out = up.solve_triangular(left.mH, upper=True).mH
    out = out if below is None else out.cat(below, dim=-2)
    out = out if beside is None else out.cat(beside, dim=-1)
    return [order._rows_of_order().cast(out.dtype) @ out]


def matrix_exp(given: Given, results: Given, incoming: Given) -> Given:
    """The corner of the exponential of [[A*, G], [0, A*]]. (Mathias, 1996.)"""
    (a,), (g,) = given, incoming
    n = a.shape[-1]
    top = a.mH.cat(g, dim=-1)
    bottom = (a * 0).cat(a.mH, dim=-1)
    return [top.cat(bottom, dim=-2).matrix_exp()[..., :n, n:]]


def pinv(given: Given, results: Given, incoming: Given, *_: Any) -> Given:
    """-P* G P* + (1 - A P) G* P P* + P* P G* (1 - P A), where the rank is constant."""
    (a, _), (p,), (g,) = given, results, incoming
    first, last = g.mH @ (p @ p.mH), (p.mH @ p) @ g.mH
    return [first - a @ (p @ first) + last - (last @ p) @ a - p.mH @ g @ p.mH, None]
