"""Methods that end in `_`: what those without it give, written into the tensor itself; random
numbers; and views that take their tensor's place. How a write is done says `tensor/writing`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self

from tinygrad.base.dtype import dtypes, least_upper_dtype
from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.engine.turns import keeping, turns
from tinygrad.tensor.arguments import check_above, check_number_from
from tinygrad.tensor.generator import Generator
from tinygrad.tensor.long_tail.alike import Alike
from tinygrad.tensor.random import check_ends


class InPlaceOf:
    """A row of a class that becomes a method: called `name_` (or `__iname__`), it writes what the
    method `name` returns into the tensor itself. The words are an example: a tensor, arguments if
    there are some, and the result."""

    __call__: Callable[..., Any]  # for type checkers: it is a method by the time of a call

    def __init__(self, tensor: str = "", *words: str) -> None:
        self.tensor, self.words = tensor, words
        self.methods: list[Callable[..., Any]] = []

    def __set_name__(self, cls: type, name: str) -> None:
        if not self.methods:  # a second name is another name of the same method
            self.methods.append(self._method(name))
        setattr(cls, name, self.methods[0])

    def _method(self, name: str) -> Callable[..., Any]:
        operation = f"__{name[3:]}" if name.startswith("__i") else name.removesuffix("_")

        def method(tensor: InPlace, *args: Any, **kwargs: Any) -> InPlace:
            with turns.together(), keeping.now:  # no other thread writes between look and write
                return tensor._in_place(operation, getattr(tensor, operation)(*args, **kwargs))

        method.__name__, method.__qualname__ = name, f"InPlace.{name}"
        method.__doc__ = f"`{operation}` in place: this holds its result, and so do views of this."
        if self.words:
            *arguments, result = self.words
            shown = f">>> Tensor({self.tensor}).{name}({''.join(arguments)}).tolist()"
            method.__doc__ += f"\n\n        {shown}\n        {result}\n        "
        return method


class InPlace(Alike):
    """`t.sin_()` and the like. What is written is seen by views, see `assign`."""

    __slots__ = ()

    add_ = InPlaceOf("[1, 2]", "3", "[4, 5]")
    sub_ = InPlaceOf("[4, 5]", "3", "[1, 2]")
    mul_ = InPlaceOf("[1, 2]", "3", "[3, 6]")
    div_ = InPlaceOf("[1.0, 3.0]", "2", "[0.5, 1.5]")
    pow_ = InPlaceOf("[2, 3]", "2", "[4, 9]")
    maximum_ = InPlaceOf("[1, 5]", "3", "[3, 5]")
    minimum_ = InPlaceOf("[1, 5]", "3", "[1, 3]")
    lerp_ = InPlaceOf("[0.0]", "Tensor([4.0]), 0.5", "[2.0]")
    clamp_ = InPlaceOf("[1, 5]", "2, 4", "[2, 4]")
    clip_ = InPlaceOf("[1, 5]", "2, 4", "[2, 4]")
    neg_ = InPlaceOf("[1, -2]", "[-1, 2]")
    abs_ = InPlaceOf("[1, -2]", "[1, 2]")
    exp_ = InPlaceOf("[0.0]", "[1.0]")
    log_ = InPlaceOf("[1.0]", "[0.0]")
    sqrt_ = InPlaceOf("[4.0]", "[2.0]")
    rsqrt_ = InPlaceOf("[4.0]", "[0.5]")
    square_ = InPlaceOf("[3, -2]", "[9, 4]")
    reciprocal_ = InPlaceOf("[4.0]", "[0.25]")
    floor_ = InPlaceOf("[1.5]", "[1.0]")
    ceil_ = InPlaceOf("[1.5]", "[2.0]")
    round_ = InPlaceOf("[1.6]", "[2.0]")
    trunc_ = InPlaceOf("[-1.6]", "[-1.0]")
    sign_ = InPlaceOf("[-3, 4]", "[-1, 1]")
    sigmoid_ = InPlaceOf("[0.0]", "[0.5]")
    tanh_ = InPlaceOf("[0.0]", "[0.0]")
    relu_ = InPlaceOf("[-1, 2]", "[0, 2]")
    masked_fill_ = InPlaceOf("[1, 2]", "Tensor([True, False]), 9", "[9, 2]")
    scatter_ = InPlaceOf("[0, 0]", "0, Tensor([1]), 5", "[0, 5]")
    scatter_reduce_ = InPlaceOf("[1, 1]", '0, Tensor([0]), Tensor([5]), "sum"', "[6, 1]")
    tril_ = InPlaceOf("[[1, 2], [3, 4]]", "[[1, 0], [3, 4]]")
    triu_ = InPlaceOf("[[1, 2], [3, 4]]", "[[1, 2], [0, 4]]")
    logical_not_ = InPlaceOf("[True]", "[False]")

    __iadd__, __isub__, __imul__ = InPlaceOf(), InPlaceOf(), InPlaceOf()
    __itruediv__, __ifloordiv__ = InPlaceOf(), InPlaceOf()
    __imod__, __ipow__, __imatmul__ = InPlaceOf(), InPlaceOf(), InPlaceOf()
    __iand__, __ior__, __ixor__ = InPlaceOf(), InPlaceOf(), InPlaceOf()
    __ilshift__, __irshift__ = InPlaceOf(), InPlaceOf()

    cos_ = InPlaceOf("[0.0]", "[1.0]")
    sin_ = InPlaceOf("[0.0]", "[0.0]")
    tan_ = InPlaceOf("[0.0]", "[0.0]")
    sinh_ = InPlaceOf("[0.0]", "[0.0]")
    cosh_ = InPlaceOf("[0.0]", "[1.0]")
    asin_ = InPlaceOf("[0.0]", "[0.0]")
    atan_ = InPlaceOf("[0.0]", "[0.0]")
    asinh_ = InPlaceOf("[0.0]", "[0.0]")
    acosh_ = InPlaceOf("[1.0]", "[0.0]")
    atanh_ = InPlaceOf("[0.0]", "[0.0]")
    acos_ = InPlaceOf("[1.0]", "[0.0]")
    erf_ = InPlaceOf("[0.0]", "[0.0]")
    erfc_ = InPlaceOf("[0.0]", "[1.0]")
    erfinv_ = InPlaceOf("[0.0]", "[0.0]")
    expm1_ = InPlaceOf("[0.0]", "[0.0]")
    exp2_ = InPlaceOf("[3.0]", "[8.0]")
    log2_ = InPlaceOf("[8.0]", "[3.0]")
    log10_ = InPlaceOf("[1.0]", "[0.0]")
    log1p_ = InPlaceOf("[0.0]", "[0.0]")
    lgamma_ = InPlaceOf("[1.0]", "[0.0]")
    sinc_ = InPlaceOf("[0.0]", "[1.0]")
    rad2deg_ = InPlaceOf("[0.0]", "[0.0]")
    deg2rad_ = InPlaceOf("[0.0]", "[0.0]")
    digamma_ = InPlaceOf("[float('inf')]", "[inf]")
    polygamma_ = InPlaceOf("[float('inf')]", "1", "[0.0]")
    mvlgamma_ = InPlaceOf("[1.0]", "1", "[0.0]")
    igamma_ = InPlaceOf("[1.0]", "0.0", "[0.0]")
    igammac_ = InPlaceOf("[1.0]", "0.0", "[1.0]")
    i0_ = InPlaceOf("[0.0]", "[1.0]")
    logit_ = InPlaceOf("[0.5]", "[0.0]")
    frac_ = InPlaceOf("[1.5]", "[0.5]")
    fix_ = InPlaceOf("[-1.5]", "[-1.0]")
    sgn_ = InPlaceOf("[-3, 4]", "[-1, 1]")
    absolute_ = InPlaceOf("[-3]", "[3]")
    negative_ = InPlaceOf("[3]", "[-3]")
    bitwise_not_ = InPlaceOf("[1]", "[-2]")
    nan_to_num_ = InPlaceOf("[float('nan')]", "[0.0]")
    subtract_ = InPlaceOf("[6.0]", "Tensor([4.0])", "[2.0]")
    multiply_ = InPlaceOf("[6.0]", "Tensor([4.0])", "[24.0]")
    divide_ = InPlaceOf("[6.0]", "Tensor([4.0])", "[1.5]")
    true_divide_ = InPlaceOf("[6.0]", "Tensor([4.0])", "[1.5]")
    floor_divide_ = InPlaceOf("[6.0]", "Tensor([4.0])", "[1.0]")
    remainder_ = InPlaceOf("[6.0]", "Tensor([4.0])", "[2.0]")
    fmod_ = InPlaceOf("[6.0]", "Tensor([4.0])", "[2.0]")
    hypot_ = InPlaceOf("[3.0]", "Tensor([4.0])", "[5.0]")
    atan2_ = InPlaceOf("[0.0]", "Tensor([1.0])", "[0.0]")
    copysign_ = InPlaceOf("[6.0]", "Tensor([4.0])", "[6.0]")
    heaviside_ = InPlaceOf("[6.0]", "Tensor([4.0])", "[1.0]")
    xlogy_ = InPlaceOf("[6.0]", "Tensor([1.0])", "[0.0]")
    logical_and_ = InPlaceOf("[6.0]", "Tensor([4.0])", "[1.0]")
    logical_or_ = InPlaceOf("[6.0]", "Tensor([4.0])", "[1.0]")
    logical_xor_ = InPlaceOf("[6.0]", "Tensor([4.0])", "[0.0]")
    bitwise_and_ = InPlaceOf("[6]", "Tensor([4])", "[4]")
    bitwise_or_ = InPlaceOf("[6]", "Tensor([4])", "[6]")
    bitwise_xor_ = InPlaceOf("[6]", "Tensor([4])", "[2]")
    eq_ = InPlaceOf("[6.0]", "Tensor([4.0])", "[0.0]")
    ne_ = InPlaceOf("[6.0]", "Tensor([4.0])", "[1.0]")
    lt_ = InPlaceOf("[6.0]", "Tensor([4.0])", "[0.0]")
    le_ = InPlaceOf("[6.0]", "Tensor([4.0])", "[0.0]")
    gt_ = InPlaceOf("[6.0]", "Tensor([4.0])", "[1.0]")
    ge_ = InPlaceOf("[6.0]", "Tensor([4.0])", "[1.0]")
    gcd_ = InPlaceOf("[6]", "Tensor([4])", "[2]")
    lcm_ = InPlaceOf("[6]", "Tensor([4])", "[12]")
    ldexp_ = InPlaceOf("[6.0]", "Tensor([1])", "[12.0]")
    nextafter_ = InPlaceOf("[0.0]", "Tensor([0.0])", "[0.0]")
    arctan2_ = InPlaceOf("[0.0]", "Tensor([1.0])", "[0.0]")
    clamp_min_ = InPlaceOf("[1, 5]", "3", "[3, 5]")
    clamp_max_ = InPlaceOf("[1, 5]", "3", "[1, 3]")
    cumsum_ = InPlaceOf("[1, 2, 3]", "0", "[1, 3, 6]")
    cumprod_ = InPlaceOf("[1, 2, 3]", "0", "[1, 2, 6]")
    addcmul_ = InPlaceOf("[1.0]", "Tensor([2.0]), Tensor([3.0])", "[7.0]")
    addcdiv_ = InPlaceOf("[1.0]", "Tensor([2.0]), Tensor([4.0])", "[1.5]")
    addmm_ = InPlaceOf("[[1.0]]", "Tensor([[2.0]]), Tensor([[3.0]])", "[[7.0]]")
    addbmm_ = InPlaceOf("[[1]]", "Tensor([[[2]]]), Tensor([[[3]]])", "[[7]]")
    addmv_ = InPlaceOf("[1.0]", "Tensor([[2.0]]), Tensor([3.0])", "[7.0]")
    addr_ = InPlaceOf("[[1.0]]", "Tensor([2.0]), Tensor([3.0])", "[[7.0]]")
    bitwise_left_shift_ = InPlaceOf("[3]", "1", "[6]")
    bitwise_right_shift_ = InPlaceOf("[6]", "1", "[3]")
    put_ = InPlaceOf("[1, 2]", "Tensor([1]), Tensor([5])", "[1, 5]")
    index_reduce_ = InPlaceOf("[1, 2]", "0, Tensor([1]), Tensor([5]), 'prod'", "[1, 10]")
    index_add_ = InPlaceOf("[1, 2]", "0, Tensor([1]), Tensor([5])", "[1, 7]")
    index_copy_ = InPlaceOf("[1, 2]", "0, Tensor([1]), Tensor([5])", "[1, 5]")
    index_fill_ = InPlaceOf("[1, 2]", "0, Tensor([1]), 5", "[1, 5]")
    scatter_add_ = InPlaceOf("[1, 2]", "0, Tensor([1]), Tensor([5])", "[1, 7]")
    masked_scatter_ = InPlaceOf("[1, 2]", "Tensor([True, False]), Tensor([5])", "[5, 2]")
    renorm_ = InPlaceOf("[[3.0, 4.0]]", "2, 0, 1.0", "[[0.6000000238418579, 0.800000011920929]]")
    baddbmm_ = InPlaceOf("[[[1]]]", "Tensor([[[2]]]), Tensor([[[3]]])", "[[[7]]]")
    index_put_ = InPlaceOf("[1, 2]", "(Tensor([1]),), Tensor([5])", "[1, 5]")

    arccos_, arcsin_, arctan_ = acos_, asin_, atan_
    arccosh_, arcsinh_, arctanh_ = acosh_, asinh_, atanh_
    not_equal_, less_, less_equal_, greater_, greater_equal_ = ne_, lt_, le_, gt_, ge_

    def fill_diagonal_(self, fill_value: Any) -> Self:
        """One value on the diagonal of a matrix, in place.

        >>> Tensor([[1, 2], [3, 4]]).fill_diagonal_(0).tolist()
        [[0, 2], [3, 0]]
        """
        if self.ndim != 2:
            raise ShapeError(f"fill_diagonal_: {self.shape}; legal are two axes")
        at = type(self).arange(min(self.shape), device=self.device)
        self[at, at] = fill_value
        return self

    # ---- random numbers --------------------------------------------------------------------------

    def normal_(self, mean: float = 0, std: float = 1, generator: Generator | None = None) -> Self:
        """Normally distributed numbers, in place.

        >>> Tensor.zeros(2, 3).normal_(0, 0.02).shape
        (2, 3)
        """
        check_number_from("normal_", "std", std, 0)
        return self._filled_with("normal_", "normal", generator, mean=mean, std=std)

    def uniform_(self, a: float = 0, b: float = 1, generator: Generator | None = None) -> Self:
        """Numbers from `a` to `b`, in place.

        >>> Tensor.zeros(2, 3).uniform_(-0.5, 0.5).shape
        (2, 3)
        """
        check_ends("uniform_", a, b, self.dtype)
        return self._filled_with("uniform_", "uniform", generator, low=a, high=b)

    def bernoulli_(self, p: Any = 0.5, generator: Generator | None = None) -> Self:
        """1 with chance `p`, else 0, in place.

        >>> Tensor([3.0, 4.0]).bernoulli_(1.0).tolist()
        [1.0, 1.0]
        """
        chances = self._tensor(p).float().expand(*self.shape)
        return self._in_place("copy", chances.bernoulli(generator=generator))

    def exponential_(self, lambd: float = 1, generator: Generator | None = None) -> Self:
        """Exponentially distributed numbers of mean 1 / `lambd`, in place.

        >>> Tensor.zeros(2, 3).exponential_().shape
        (2, 3)
        """
        if not lambd > 0:
            raise ArgumentError(f"exponential_: lambd={lambd}; legal are numbers above 0")
        more = {"device": self.device, "generator": generator, "dtype": dtypes.float32}
        return self._in_place("copy", (1 - self.rand(*self.shape, **more)).log() / -lambd)

    def log_normal_(
        self, mean: float = 1, std: float = 2, generator: Generator | None = None
    ) -> Self:
        """e to the power of normally distributed numbers, in place.

        >>> Tensor.zeros(2, 3).log_normal_().shape
        (2, 3)
        """
        made: Self = self.normal_(mean, std, generator).exp_()
        return made

    def cauchy_(
        self, median: float = 0, sigma: float = 1, generator: Generator | None = None
    ) -> Self:
        """Numbers of Cauchy's distribution around `median`, half of them within `sigma`, in place.

        >>> Tensor.zeros(2, 3).cauchy_().shape
        (2, 3)
        """
        check_above("cauchy_", "sigma", sigma)
        turns = self._filled_with("cauchy_", "uniform", generator, low=-0.5, high=0.5)
        return self._in_place("copy", (turns * math.pi).tan() * sigma + median)

    def geometric_(self, p: float, generator: Generator | None = None) -> Self:
        """How many trials of chance `p` it takes until one succeeds, from 1 on, in place.

        >>> Tensor([3.0, 4.0]).geometric_(1.0).tolist()
        [1.0, 1.0]
        """
        check_above("geometric_", "p", p)
        check_number_from("geometric_", "p", p, 0, 1)
        more = {"device": self.device, "generator": generator, "dtype": dtypes.float32}
        trials = (1 - self.rand(*self.shape, **more)).log() / (
            math.log1p(-p) if p < 1 else -math.inf
        )
        return self._in_place("copy", trials.ceil().maximum(1).cast(self.dtype))

    def _filled_with(
        self, who: str, kind: str, generator: Generator | None, **options: Any
    ) -> Self:
        if not dtypes.is_float(self.dtype):
            raise ArgumentError(f"{who}: of {self.dtype!r}; legal are floats")
        wide = least_upper_dtype(self.dtype, dtypes.float32)
        more = {"device": self.device, "generator": generator, "dtype": wide, **options}
        return self._in_place("copy", getattr(self, kind)(*self.shape, **more))

    # ---- views in their tensor's place -----------------------------------------------------------

    def squeeze_(self, dim: Any = None) -> Self:
        """`squeeze` in place: this has the other shape from now on.

        >>> Tensor([[1, 2]]).squeeze_().shape
        (2,)
        """
        return self._taken(self.squeeze(dim))

    def unsqueeze_(self, dim: int) -> Self:
        """`unsqueeze` in place: this has the other shape from now on.

        >>> Tensor([1, 2]).unsqueeze_(0).shape
        (1, 2)
        """
        return self._taken(self.unsqueeze(dim))

    def transpose_(self, dim0: int = 1, dim1: int = 0) -> Self:
        """`transpose` in place: this has the other shape from now on.

        >>> Tensor([[1, 2]]).transpose_(0, 1).shape
        (2, 1)
        """
        return self._taken(self.transpose(dim0, dim1))

    swapaxes_ = swapdims_ = transpose_

    def t_(self) -> Self:
        """`t` in place: this has the other shape from now on.

        >>> Tensor([[1, 2]]).t_().shape
        (2, 1)
        """
        return self._taken(self.t())

    def detach_(self) -> Self:
        """`detach` in place: no gradient passes from now on.

        >>> (Tensor([1.0], requires_grad=True) * 2).detach_().requires_grad
        False
        """
        self._become(self.detach())
        self.requires_grad = False
        return self

    def _taken(self, view: Self) -> Self:
        """This, which is `view` from now on."""
        if self.requires_grad and not self._taped:
            raise ArgumentError(
                f"{self.shape} in place to {view.shape}: it wants a gradient and was not computed; "
                "legal is a view, or .data"
            )
        self._become(view)
        return self
