"""The discrete Fourier transform along one axis, as a graph: O(n log n) for every length.

Data lie as planes (2, n, columns): real parts, imaginary parts; what is not transformed is in the
columns. A length that is a product of small factors is worked through one factor r at a time
(Stockham's order, so nothing is reversed at the end):

    (2, r, m, done)   a product with the real matrix [[C, S], [-S, C]] of size 2r mixes axis r,
                      one large product of matrices however long the rest is;
                      each element is turned by its twiddle exp(-2πi·k·j / (r·m));
    (2, m, r, done)   the new digit goes behind those to come and before those that are done.

A length with a large prime factor becomes a convolution with a chirp, of a length without one.
(Stockham, 1966; Bluestein, 1970; Van Loan, Computational Frameworks for the FFT, 1992.) Tables are
made in float64 on the host and kept on the device. The inverse is the transform with the planes
exchanged before and after. Nothing here knows norms, axes or complex tensors.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygrad.base.dtype import DType
from tinygrad.engine.storage import numpy_dtype
from tinygrad.tensor import Tensor

RADIX = 16  # one step's largest factor: twice this many rows and columns fill a core's registers
DIRECT = 32  # up to here one product of matrices is less work than steps
PRIME = 181  # a larger prime factor costs more as a product of matrices than as a convolution
TABLES = 128  # of the most recent transforms

Array = NDArray[np.float64]


# ---- numbers -------------------------------------------------------------------------------------


def prime_factors(n: int) -> list[int]:
    """The prime factors of n, rising.

    >>> prime_factors(60)
    [2, 2, 3, 5]
    """
    found = []
    p = 2
    while p * p <= n:
        while n % p == 0:
            found.append(p)
            n //= p
        p += 1
    return [*found, n] if n > 1 else found


def radices(n: int) -> list[int]:
    """Factors of n of at most RADIX, as few and as equal as primes allow; larger primes alone.

    >>> radices(2**20), radices(1000), radices(34)
    ([16, 16, 16, 16, 16], [10, 10, 10], [17, 2])
    """
    primes = sorted(prime_factors(n), reverse=True)
    count = max(1, math.ceil(math.log(n, RADIX) - 1e-9))
    while True:
        groups = [1] * count
        for p in primes:
            least = groups.index(min(groups))
            groups[least] *= p
        if all(g <= RADIX or g in primes for g in groups):
            return sorted((g for g in groups if g > 1), reverse=True)
        count += 1


def smooth(n: int) -> int:
    """The least number from n on that is 1, 3, 5, 9 or 15 times a power of 2.

    >>> smooth(2017), smooth(65)
    (2048, 72)
    """
    return min(f << max(0, math.ceil(math.log2(n / f))) for f in (1, 3, 5, 9, 15))


# ---- tables --------------------------------------------------------------------------------------


def _unit(numerator: Any, n: int) -> tuple[Array, Array]:
    """cos and sin of 2π·numerator/n, of whole numbers, which are reduced first."""
    angle = (numerator % n) * (2 * math.pi / n)
    return np.cos(angle), np.sin(angle)


def _matrix(r: int, real: int) -> Array:
    """What transforms r numbers: planes to planes; of real numbers their one plane."""
    c, s = _unit(np.outer(np.arange(r), np.arange(r)), r)
    return np.concatenate([c, -s]) if real else np.block([[c, s], [-s, c]])


def _twiddles(r: int, m: int) -> Array:
    """exp(-2πi·k·j / (r·m)) as planes (2, r, m, 1)."""
    c, s = _unit(np.outer(np.arange(r), np.arange(m)), r * m)
    return np.stack([c, -s])[..., None]


def _roots(n: int, count: int) -> Array:
    """exp(-2πi·k / n) for k below `count`, as planes (2, count, 1)."""
    c, s = _unit(np.arange(count), n)
    return np.stack([c, -s])[..., None]


def _chirp(n: int) -> Array:
    """exp(-πi·k² / n) as planes (2, n, 1)."""
    c, s = _unit(np.arange(n) ** 2, 2 * n)
    return np.stack([c, -s])[..., None]


def _chirp_transformed(n: int, size: int) -> Array:
    """The transform of the chirp's conjugate around 0, over `size`: (2, size, 1)."""
    c, s = _unit(np.arange(n) ** 2, 2 * n)
    around = np.zeros(size, np.complex128)
    around[:n] = c + 1j * s
    around[size - n + 1 :] = around[1:n][::-1]
    found = np.fft.fft(around) / size
    return np.stack([found.real, found.imag])[..., None]


_MADE: dict[str, Callable[..., Array]] = {
    f.__name__: f for f in (_matrix, _twiddles, _roots, _chirp, _chirp_transformed)
}


@functools.lru_cache(TABLES)
def _table(name: str, sizes: tuple[int, ...], dtype: DType, device: str) -> Tensor:
    values = _MADE[name](*sizes).astype(numpy_dtype(dtype))
    return Tensor(values, device=device, requires_grad=False).realize()


def table(like: Tensor, name: str, *sizes: int) -> Tensor:
    """A table of this dtype where `like` is, computed once."""
    return _table(name, sizes, like.dtype, like.device)


# ---- the transform -------------------------------------------------------------------------------


def times(x: Tensor, y: Tensor) -> Tensor:
    """The product of complex numbers in planes."""
    a, b, c, d = x[0], x[1], y[0], y[1]
    return Tensor.stack(a * c - b * d, a * d + b * c, dim=0)


def exchanged(planes: Tensor) -> Tensor:
    """Imaginary parts first: transformed so, and exchanged again, it is the inverse transform."""
    return planes.flip(0)


def transform(planes: Tensor) -> Tensor:
    """Σ_j x[j]·exp(-2πi·j·k/n), for each column: (2, n, columns) → (2, n, columns). Of real numbers
    (1, n, columns)."""
    count, n, columns = planes.shape
    if n == 1:
        return planes if count == 2 else planes.pad(((0, 1), None, None))
    if max(prime_factors(n)) > PRIME:
        return _by_chirp(planes)
    steps = [n] if n <= DIRECT else radices(n)
    m, done = n, columns
    for i, r in enumerate(steps):
        m //= r
        matrix = table(planes, "_matrix", r, int(count == 1))
        mixed = matrix @ planes.reshape(count * r, m * done)
        planes, count = mixed.reshape(2, r, m, done), 2
        if i + 1 == len(steps):
            break
        planes = times(planes.contiguous(), table(planes, "_twiddles", r, m))
        if done < RADIX:  # else whole rows move, and turning them on the way costs nothing
            planes = planes.contiguous()
        planes = planes.permute(0, 2, 1, 3).contiguous()
        done *= r
    return planes.reshape(2, n, columns)


def _by_chirp(planes: Tensor) -> Tensor:
    """j·k = (j² + k² - (k - j)²)/2: a convolution with a chirp, which a transform of a length
    without large primes does."""
    count, n, _ = planes.shape
    size = smooth(2 * n - 1)
    chirp = table(planes, "_chirp", n)
    x = times(planes, chirp) if count == 2 else planes * chirp
    spectrum = transform(x.pad((None, (0, size - n), None)))
    product = times(spectrum, table(planes, "_chirp_transformed", n, size))
    back = exchanged(transform(exchanged(product)))
    return times(back[:, :n], chirp)


def transform_real(x: Tensor) -> Tensor:
    """The first n//2 + 1 results of real numbers: (n, columns) → (2, n//2 + 1, columns). Of an even
    length the numbers are taken as complex ones of half the length, whose transform is that of the
    even and of the odd ones."""
    n, columns = x.shape
    half = n // 2
    if n % 2 or n <= DIRECT:
        return transform(x.unsqueeze(0))[:, : half + 1]
    z = transform(x.reshape(half, 2, columns).permute(1, 0, 2).contiguous()).contiguous()
    z = z.cat(z[:, :1], dim=1)  # (2, half + 1, columns)
    back = z.flip(1)
    a, b, c, d = z[0], z[1], back[0], back[1]
    even = Tensor.stack(a + c, b - d, dim=0) * 0.5
    odd = Tensor.stack(b + d, c - a, dim=0) * 0.5
    return even + times(odd, table(x, "_roots", n, half + 1))


def inverse_real(planes: Tensor, n: int) -> Tensor:
    """n times the real numbers whose first n//2 + 1 results these are: (n, columns). Imaginary
    parts that real numbers can't have don't count."""
    half = n // 2
    columns = planes.shape[2]
    real = planes[0]
    k = Tensor.arange(half + 1, device=planes.device).unsqueeze(-1)
    silent = (k == 0) | (k == half) if n % 2 == 0 else k == 0
    imag = silent.where(0, planes[1])
    if n % 2 or n <= DIRECT:
        after = slice(1, half + 1) if n % 2 else slice(1, half)
        whole = Tensor.stack(
            real.cat(real[after].flip(0), dim=0), imag.cat(-imag[after].flip(0), dim=0), dim=0
        )
        return exchanged(transform(exchanged(whole)))[0]
    z = Tensor.stack(real, imag, dim=0)
    back = z.flip(1)
    a, b, c, d = (part[:half] for part in (z[0], z[1], back[0], back[1]))
    even, odd = Tensor.stack(a + c, b - d, dim=0), Tensor.stack(a - c, b + d, dim=0)
    roots = table(planes, "_roots", n, half)
    turn = Tensor.stack(roots[0], -roots[1], dim=0)
    odd = times(odd, turn)
    mixed = Tensor.stack(even[0] - odd[1], even[1] + odd[0], dim=0)  # even + i·odd
    out = exchanged(transform(exchanged(mixed).contiguous()))  # (2, half, columns)
    return out.permute(1, 0, 2).reshape(n, columns)
