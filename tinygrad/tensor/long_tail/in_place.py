"""Methods that end in `_`: what those of the long tail give, written into the tensor itself; random
numbers; and views that take their tensor's place."""

from __future__ import annotations

import math
from typing import Any, Self

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.tensor.arguments import check_above, check_number_from
from tinygrad.tensor.generator import Generator
from tinygrad.tensor.long_tail.alike import Alike
from tinygrad.tensor.writing import InPlaceOf


class InPlace(Alike):
    """`t.sin_()` and the like. What is written is seen by views, see `assign`."""

    __slots__ = ()

    cos_ = InPlaceOf("Tensor([0.0]).cos_().tolist()", "[1.0]")
    sin_ = InPlaceOf("Tensor([0.0]).sin_().tolist()", "[0.0]")
    tan_ = InPlaceOf("Tensor([0.0]).tan_().tolist()", "[0.0]")
    sinh_ = InPlaceOf("Tensor([0.0]).sinh_().tolist()", "[0.0]")
    cosh_ = InPlaceOf("Tensor([0.0]).cosh_().tolist()", "[1.0]")
    asin_ = InPlaceOf("Tensor([0.0]).asin_().tolist()", "[0.0]")
    atan_ = InPlaceOf("Tensor([0.0]).atan_().tolist()", "[0.0]")
    asinh_ = InPlaceOf("Tensor([0.0]).asinh_().tolist()", "[0.0]")
    acosh_ = InPlaceOf("Tensor([1.0]).acosh_().tolist()", "[0.0]")
    atanh_ = InPlaceOf("Tensor([0.0]).atanh_().tolist()", "[0.0]")
    acos_ = InPlaceOf("Tensor([1.0]).acos_().tolist()", "[0.0]")
    erf_ = InPlaceOf("Tensor([0.0]).erf_().tolist()", "[0.0]")
    erfc_ = InPlaceOf("Tensor([0.0]).erfc_().tolist()", "[1.0]")
    erfinv_ = InPlaceOf("Tensor([0.0]).erfinv_().tolist()", "[0.0]")
    expm1_ = InPlaceOf("Tensor([0.0]).expm1_().tolist()", "[0.0]")
    exp2_ = InPlaceOf("Tensor([3.0]).exp2_().tolist()", "[8.0]")
    log2_ = InPlaceOf("Tensor([8.0]).log2_().tolist()", "[3.0]")
    log10_ = InPlaceOf("Tensor([1.0]).log10_().tolist()", "[0.0]")
    log1p_ = InPlaceOf("Tensor([0.0]).log1p_().tolist()", "[0.0]")
    lgamma_ = InPlaceOf("Tensor([1.0]).lgamma_().tolist()", "[0.0]")
    sinc_ = InPlaceOf("Tensor([0.0]).sinc_().tolist()", "[1.0]")
    rad2deg_ = InPlaceOf("Tensor([0.0]).rad2deg_().tolist()", "[0.0]")
    deg2rad_ = InPlaceOf("Tensor([0.0]).deg2rad_().tolist()", "[0.0]")
    digamma_ = InPlaceOf("Tensor([5.0]).digamma_().shape", "(1,)")
    polygamma_ = InPlaceOf("Tensor([5.0]).polygamma_(1).shape", "(1,)")
    mvlgamma_ = InPlaceOf("Tensor([1.0]).mvlgamma_(1).tolist()", "[0.0]")
    igamma_ = InPlaceOf("Tensor([1.0]).igamma_(0.0).tolist()", "[0.0]")
    igammac_ = InPlaceOf("Tensor([1.0]).igammac_(0.0).tolist()", "[1.0]")
    i0_ = InPlaceOf("Tensor([0.0]).i0_().tolist()", "[1.0]")
    logit_ = InPlaceOf("Tensor([0.5]).logit_().tolist()", "[0.0]")
    frac_ = InPlaceOf("Tensor([1.5]).frac_().tolist()", "[0.5]")
    fix_ = InPlaceOf("Tensor([-1.5]).fix_().tolist()", "[-1.0]")
    sgn_ = InPlaceOf("Tensor([-3, 4]).sgn_().tolist()", "[-1, 1]")
    absolute_ = InPlaceOf("Tensor([-3]).absolute_().tolist()", "[3]")
    negative_ = InPlaceOf("Tensor([3]).negative_().tolist()", "[-3]")
    bitwise_not_ = InPlaceOf("Tensor([1]).bitwise_not_().tolist()", "[-2]")
    nan_to_num_ = InPlaceOf("Tensor([float('nan')]).nan_to_num_().tolist()", "[0.0]")
    subtract_ = InPlaceOf("Tensor([6.0]).subtract_(Tensor([4.0])).tolist()", "[2.0]")
    multiply_ = InPlaceOf("Tensor([6.0]).multiply_(Tensor([4.0])).tolist()", "[24.0]")
    divide_ = InPlaceOf("Tensor([6.0]).divide_(Tensor([4.0])).tolist()", "[1.5]")
    true_divide_ = InPlaceOf("Tensor([6.0]).true_divide_(Tensor([4.0])).tolist()", "[1.5]")
    floor_divide_ = InPlaceOf("Tensor([6.0]).floor_divide_(Tensor([4.0])).tolist()", "[1.0]")
    remainder_ = InPlaceOf("Tensor([6.0]).remainder_(Tensor([4.0])).tolist()", "[2.0]")
    fmod_ = InPlaceOf("Tensor([6.0]).fmod_(Tensor([4.0])).tolist()", "[2.0]")
    hypot_ = InPlaceOf("Tensor([3.0]).hypot_(Tensor([4.0])).tolist()", "[5.0]")
    atan2_ = InPlaceOf("Tensor([0.0]).atan2_(Tensor([1.0])).tolist()", "[0.0]")
    copysign_ = InPlaceOf("Tensor([6.0]).copysign_(Tensor([4.0])).tolist()", "[6.0]")
    heaviside_ = InPlaceOf("Tensor([6.0]).heaviside_(Tensor([4.0])).tolist()", "[1.0]")
    xlogy_ = InPlaceOf("Tensor([6.0]).xlogy_(Tensor([1.0])).tolist()", "[0.0]")
    logical_and_ = InPlaceOf("Tensor([6.0]).logical_and_(Tensor([4.0])).tolist()", "[True]")
    logical_or_ = InPlaceOf("Tensor([6.0]).logical_or_(Tensor([4.0])).tolist()", "[True]")
    logical_xor_ = InPlaceOf("Tensor([6.0]).logical_xor_(Tensor([4.0])).tolist()", "[False]")
    bitwise_and_ = InPlaceOf("Tensor([6]).bitwise_and_(Tensor([4])).tolist()", "[4]")
    bitwise_or_ = InPlaceOf("Tensor([6]).bitwise_or_(Tensor([4])).tolist()", "[6]")
    bitwise_xor_ = InPlaceOf("Tensor([6]).bitwise_xor_(Tensor([4])).tolist()", "[2]")
    eq_ = InPlaceOf("Tensor([6.0]).eq_(Tensor([4.0])).tolist()", "[False]")
    ne_ = InPlaceOf("Tensor([6.0]).ne_(Tensor([4.0])).tolist()", "[True]")
    lt_ = InPlaceOf("Tensor([6.0]).lt_(Tensor([4.0])).tolist()", "[False]")
    le_ = InPlaceOf("Tensor([6.0]).le_(Tensor([4.0])).tolist()", "[False]")
    gt_ = InPlaceOf("Tensor([6.0]).gt_(Tensor([4.0])).tolist()", "[True]")
    ge_ = InPlaceOf("Tensor([6.0]).ge_(Tensor([4.0])).tolist()", "[True]")
    gcd_ = InPlaceOf("Tensor([6]).gcd_(Tensor([4])).tolist()", "[2]")
    lcm_ = InPlaceOf("Tensor([6]).lcm_(Tensor([4])).tolist()", "[12]")
    ldexp_ = InPlaceOf("Tensor([6.0]).ldexp_(Tensor([1])).tolist()", "[12.0]")
    nextafter_ = InPlaceOf("Tensor([0.0]).nextafter_(Tensor([0.0])).tolist()", "[0.0]")
    arctan2_ = InPlaceOf("Tensor([0.0]).arctan2_(Tensor([1.0])).tolist()", "[0.0]")
    clamp_min_ = InPlaceOf("Tensor([1, 5]).clamp_min_(3).tolist()", "[3, 5]")
    clamp_max_ = InPlaceOf("Tensor([1, 5]).clamp_max_(3).tolist()", "[1, 3]")
    cumsum_ = InPlaceOf("Tensor([1, 2, 3]).cumsum_(0).tolist()", "[1, 3, 6]")
    cumprod_ = InPlaceOf("Tensor([1, 2, 3]).cumprod_(0).tolist()", "[1, 2, 6]")
    addcmul_ = InPlaceOf("Tensor([1.0]).addcmul_(Tensor([2.0]), Tensor([3.0])).tolist()", "[7.0]")
    addcdiv_ = InPlaceOf("Tensor([1.0]).addcdiv_(Tensor([2.0]), Tensor([4.0])).tolist()", "[1.5]")
    addmm_ = InPlaceOf(
        "Tensor([[1.0]]).addmm_(Tensor([[2.0]]), Tensor([[3.0]])).tolist()", "[[7.0]]"
    )
    addbmm_ = InPlaceOf("Tensor([[1]]).addbmm_(Tensor([[[2]]]), Tensor([[[3]]])).tolist()", "[[7]]")
    addmv_ = InPlaceOf("Tensor([1.0]).addmv_(Tensor([[2.0]]), Tensor([3.0])).tolist()", "[7.0]")
    addr_ = InPlaceOf("Tensor([[1.0]]).addr_(Tensor([2.0]), Tensor([3.0])).tolist()", "[[7.0]]")
    bitwise_left_shift_ = InPlaceOf("Tensor([3]).bitwise_left_shift_(1).tolist()", "[6]")
    bitwise_right_shift_ = InPlaceOf("Tensor([6]).bitwise_right_shift_(1).tolist()", "[3]")
    put_ = InPlaceOf("Tensor([1, 2]).put_(Tensor([1]), Tensor([5])).tolist()", "[1, 5]")
    index_reduce_ = InPlaceOf(
        "Tensor([1, 2]).index_reduce_(0, Tensor([1]), Tensor([5]), 'prod').tolist()", "[1, 10]"
    )
    index_add_ = InPlaceOf(
        "Tensor([1, 2]).index_add_(0, Tensor([1]), Tensor([5])).tolist()", "[1, 7]"
    )
    index_copy_ = InPlaceOf(
        "Tensor([1, 2]).index_copy_(0, Tensor([1]), Tensor([5])).tolist()", "[1, 5]"
    )
    index_fill_ = InPlaceOf("Tensor([1, 2]).index_fill_(0, Tensor([1]), 5).tolist()", "[1, 5]")
    scatter_add_ = InPlaceOf(
        "Tensor([1, 2]).scatter_add_(0, Tensor([1]), Tensor([5])).tolist()", "[1, 7]"
    )
    masked_scatter_ = InPlaceOf(
        "Tensor([1, 2]).masked_scatter_(Tensor([True, False]), Tensor([5])).tolist()", "[5, 2]"
    )
    renorm_ = InPlaceOf(
        "Tensor([[3.0, 4.0]]).renorm_(2, 0, 1.0).tolist()",
        "[[0.6000000238418579, 0.800000011920929]]",
    )
    baddbmm_ = InPlaceOf(
        "Tensor([[[1]]]).baddbmm_(Tensor([[[2]]]), Tensor([[[3]]])).tolist()", "[[[7]]]"
    )
    index_put_ = InPlaceOf(
        "Tensor([1, 2]).index_put_((Tensor([1]),), Tensor([5])).tolist()", "[1, 5]"
    )

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
        if not a <= b:
            raise ArgumentError(f"uniform_: from {a} to {b}; legal is no more than the end")
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
        more = {"device": self.device, "generator": generator, **options}
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
