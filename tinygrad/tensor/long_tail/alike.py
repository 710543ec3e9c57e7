"""Tensors like another one, and questions about what a tensor is: PyTorch's programs spell these as
methods. And what such programs look for that isn't here, with what does the same."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.base.helpers import argfix, prod
from tinygrad.tensor.long_tail.resizing import Resizing
from tinygrad.tensor.shapes import axis_of


class Alike(Resizing):
    """Methods that take their shape, dtype or device from a tensor."""

    __slots__ = ()

    _instead: ClassVar[dict[str, str]] = {
        "as_strided": "unfold, or indexing",
        "astype": "cast(dtype)",
        "base": "view or detach: which tensors share memory is not asked for",
        "coalesce": "a dense tensor",
        "copy": "clone()",
        "crow_indices": "a dense tensor",
        "data_ptr": "data(), or NumPy's and DLPack's protocols",
        "flags": "nothing: elements are in order",
        "flat": "flatten()",
        "geqrf": "qr()",
        "grad_fn": "requires_grad",
        "is_cuda": "device",
        "is_sparse": "nothing: tensors are dense",
        "layout": "nothing: elements are in order",
        "map_": "methods, or function(gradient=..)",
        "apply_": "methods, or function(gradient=..)",
        "name": "nn.state.get_state_dict, for names of a model's tensors",
        "partition": "sort, or topk",
        "argpartition": "argsort, or topk",
        "pin_memory": "nothing: leave it out",
        "ptp": "max() - min()",
        "register_hook": "function(gradient=..), which is called with the gradient",
        "register_post_accumulate_grad_hook": "to look at grad after backward()",
        "resize": "pad, shrink or repeat",
        "resize_": "pad, shrink or repeat",
        "retains_grad": "grad: each tensor that wants one keeps it",
        "set_": "replace(x)",
        "share_memory_": "nothing: leave it out",
        "stft": "tinygrad.fft.stft(t, ..)",
        "istft": "tinygrad.fft.istft(t, ..)",
        "storage": "data()",
        "untyped_storage": "data()",
        "storage_offset": "nothing: a view is an expression",
        "stride": "nothing: elements are in order, as after contiguous()",
        "strides": "nothing: elements are in order, as after contiguous()",
        "tobytes": "data().tobytes()",
        "to_sparse": "a dense tensor",
        "to_dense": "nothing: tensors are dense",
        "tofile": "numpy().tofile(..), or nn.state.safe_save",
        "triangular_solve": "linalg.solve_triangular",
        "values": "the result itself: max, min and others give values alone",
        "as_strided_scatter": "slice_scatter, or t[..] = value",
        "type": "cast(dtype), or dtype",
        "cfloat": "cast(dtypes.complex64)",
        "cdouble": "cast(dtypes.complex64)",
        "get_device": "device",
        "is_cpu": "device",
        "is_pinned": "nothing: leave it out",
        "is_quantized": "dtype",
        "is_conj": "nothing: what is conjugated is computed",
        "conj_physical": "conj()",
        "resolve_conj": "nothing: leave it out",
        "resolve_neg": "nothing: leave it out",
        "itemsize": "element_size()",
        "hardshrink": "nn.functional.hardshrink(t)",
        "prelu": "nn.functional.prelu(t, weight)",
        "cholesky_inverse": "(t @ t.mT).inverse()",
        "lu_solve": "tinygrad.linalg.lu_solve",
        "orgqr": "tinygrad.linalg.householder_product",
        "pinverse": "pinv()",
        "narrow_copy": "narrow(..).clone()",
        "nonzero_static": "nonzero()",
        "split_with_sizes": "split(sizes)",
        "unsafe_chunk": "chunk(..)",
        "unsafe_split": "split(..)",
        "resize_as_": "pad, shrink or repeat",
        "random_": "randint(*t.shape, low=.., high=..)",
        "randint_like": "randint(*t.shape, low=.., high=..)",
        "new": "new_empty(..)",
        # functions of torch
        "as_tensor": "Tensor(data)",
        "asarray": "Tensor(data)",
        "from_numpy": "Tensor(array)",
        "frombuffer": "Tensor(bytes, dtype=..)",
        "segment_reduce": "scatter_reduce",
        "vmap": "methods, which broadcast and take batches",
        # SciPy's functions
        "j0": "bessel_j0()",
        "j1": "bessel_j1()",
        "y0": "bessel_y0()",
        "y1": "bessel_y1()",
        "k0": "modified_bessel_k0()",
        "k1": "modified_bessel_k1()",
        "k0e": "scaled_modified_bessel_k0()",
        "k1e": "scaled_modified_bessel_k1()",
        "xpu": 'to("CL")',
        "save": "nn.state.safe_save",
        "load": "nn.state.torch_load, or safe_load",
        "tensor": "Tensor(data)",
        "scalar_tensor": "Tensor(number)",
        "seed": "manual_seed(..)",
        "initial_seed": "manual_seed(..)",
        "compile": "TinyJit(function)",
        "cond": "tinygrad.linalg.cond, or where for a choice",
        "grid_sampler": "nn.functional.grid_sample(t, ..)",
        "chain_matmul": "linalg.multi_dot",
        "nuclear_norm": 'norm("nuc")',
        "frobenius_norm": "norm()",
        "lu_unpack": "lu()",
        "pca_lowrank": "svd() of t - t.mean(0)",
        "svd_lowrank": "svd()",
        "range": "arange(..)",
        "rsub": "x - t",
        "promote_types": "tinygrad.array_api.result_type",
        "result_type": "tinygrad.array_api.result_type",
        "can_cast": "tinygrad.array_api.can_cast",
        "use_deterministic_algorithms": "nothing: all are",
        **{
            f"{name}_window": f"tinygrad.fft.{name}_window(n)"
            for name in ("bartlett", "blackman", "hamming", "hann", "kaiser")
        },
        # NumPy's functions
        **{
            name: f"tinygrad.fft.{window}_window(n, periodic=False)"
            for name, window in (
                ("bartlett", "bartlett"),
                ("blackman", "blackman"),
                ("hamming", "hamming"),
                ("hanning", "hann"),
                ("kaiser", "kaiser"),
            )
        },
        "array": "Tensor(data)",
        "asanyarray": "Tensor(data)",
        "block": "cat of each row, then of the rows",
        "copyto": "assign(x)",
        "diag_indices": "arange(n), twice",
        "indices": "argmax and argmin, or meshgrid of arange of each size",
        "iscomplexobj": "is_complex()",
        "isrealobj": "not is_complex()",
        "histogram2d": "x.stack(y, dim=-1).histogramdd(bins)",
        "polymul": "convolve(other)",
        "real_if_close": "real",
        "unwrap": "numpy.unwrap",
        "append": "cat",
        "apply_along_axis": "methods with an axis",
        "array_equal": "equal(other)",
        "array_split": "tensor_split",
        "around": "round(decimals)",
        "average": "(t * weights).sum(axis) / weights.sum(axis)",
        "choose": "gather, or where",
        "compress": "index_select, or t[mask]",
        "broadcast_arrays": "broadcast_to, or meshgrid",
        "cbrt": "sign() * abs() ** (1 / 3)",
        "conjugate": "conj()",
        "cumulative_prod": "cumprod(dim)",
        "cumulative_sum": "cumsum(dim)",
        "degrees": "rad2deg()",
        "delete": "t[mask]",
        "digitize": "bucketize",
        "divmod": "t // x, t % x",
        "ediff1d": "diff()",
        "expand_dims": "unsqueeze(dim)",
        "dumps": "pickle.dumps(t)",
        "extract": "masked_select(mask)",
        "fabs": "abs()",
        "fill": "fill_(value)",
        "fill_diagonal": "fill_diagonal_(value)",
        "flatnonzero": "flatten().nonzero()",
        "identity": "eye(n)",
        "insert": "cat",
        "intersect1d": "t[t.isin(other)].unique()",
        "invert": "~t",
        "ix_": "t[i.unsqueeze(1), j]",
        "isreal": "imag.eq(0), of complex numbers",
        "lexsort": "argsort of each key, stably, the last key last",
        "matrix_transpose": "mT",
        "matvec": "t @ v",
        "vecmat": "v @ t",
        "nanargmax": "isnan().where(-inf, t).argmax()",
        "nanargmin": "isnan().where(inf, t).argmin()",
        "permute_dims": "permute(dims)",
        "piecewise": "where",
        "place": "t[mask] = values",
        "polyfit": "linalg.lstsq(linalg.vander(x), y)",
        "power": "pow(x)",
        "putmask": "t[mask] = values",
        "ravel_multi_index": "i * columns + j",
        "rollaxis": "movedim",
        "setdiff1d": "t[~t.isin(other)].unique()",
        "setxor1d": "unique(return_counts=True) of both, those that are there once",
        "union1d": "cat(other).unique()",
        "unstack": "unbind(dim)",
        "put_along_axis": "scatter",
        "radians": "deg2rad()",
        "rint": "round()",
        "take_along_axis": "gather, or take_along_dim",
        "tri": "ones(..).tril()",
    }
    """What is looked for: what does the same here. Said by the error of a missing attribute."""

    # ---- shapes and dtypes of others -------------------------------------------------------------

    def view_as(self, other: Self) -> Self:
        """The same elements in the shape of `other`.

        >>> Tensor([1, 2]).view_as(Tensor([[0], [0]])).tolist()
        [[1], [2]]
        """
        return self.reshape(*other.shape)

    reshape_as = view_as

    def type_as(self, other: Self) -> Self:
        """In the dtype of `other`.

        >>> Tensor([1.5]).type_as(Tensor([1])).tolist()
        [1]
        """
        return self.cast(other.dtype)

    def is_same_size(self, other: Self) -> bool:
        """Whether both have one shape.

        >>> Tensor([1]).is_same_size(Tensor([[1]]))
        False
        """
        return bool(self.shape == other.shape)

    def equal(self, other: Self) -> bool:
        """Whether both have one shape and the same elements; computes them.

        >>> Tensor([1, 2]).equal(Tensor([1, 2]))
        True
        """
        return self.is_same_size(other) and bool(self.eq(other).all().item())

    def sum_to_size(self, *size: Any) -> Self:
        """The sum over what was broadcast from `size`: the adjoint of expand.

        >>> Tensor([[1, 2], [3, 4]]).sum_to_size(1, 2).tolist()
        [[4, 6]]
        """
        goal = tuple(argfix(*size))
        lead = self.ndim - len(goal)
        pairs = zip(goal, self.shape[max(0, lead) :], strict=False)
        if lead < 0 or not all(g in (1, n) for g, n in pairs):
            raise ShapeError(f"sum_to_size: {self.shape} to {goal}; legal is what broadcasts to it")
        axes = [lead + i for i, g in enumerate(goal) if g == 1 != self.shape[lead + i]]
        return self.sum((*range(lead), *axes), keepdim=True).reshape(goal)

    # ---- new ones --------------------------------------------------------------------------------

    def new_full(self, size: Any, fill_value: Any, **more: Any) -> Self:
        """A tensor of one value, in this one's dtype and on its device.

        >>> Tensor([1.0]).new_full((2,), 3).tolist()
        [3.0, 3.0]
        """
        return self.full(argfix(size), fill_value, **self._likeness(more))

    def new_zeros(self, *size: Any, **more: Any) -> Self:
        """Zeros, in this one's dtype and on its device.

        >>> Tensor([1.0]).new_zeros(2).tolist()
        [0.0, 0.0]
        """
        return self.new_full(argfix(*size), 0, **more)

    def new_ones(self, *size: Any, **more: Any) -> Self:
        """Ones, in this one's dtype and on its device.

        >>> Tensor([1]).new_ones(1, 2).tolist()
        [[1, 1]]
        """
        return self.new_full(argfix(*size), 1, **more)

    def new_empty(self, *size: Any, **more: Any) -> Self:
        """A tensor of this one's dtype and device that holds anything.

        >>> Tensor([1.0]).new_empty(2, 3).shape
        (2, 3)
        """
        return self.empty(*argfix(*size), **self._likeness(more))

    def new_tensor(self, data: Any, **more: Any) -> Self:
        """A tensor of `data`, in this one's dtype and on its device.

        >>> Tensor([1.0]).new_tensor([2, 3]).tolist()
        [2.0, 3.0]
        """
        return self._real(data, **self._likeness(more))  # type: ignore[no-any-return]

    def _likeness(self, more: dict[str, Any]) -> dict[str, Any]:
        """This dtype and device, where nothing else is said."""
        said = {name: value for name, value in more.items() if value is not None}
        return {"dtype": self.dtype, "device": self.device, **said}

    # ---- what it is ------------------------------------------------------------------------------

    @property
    def is_leaf(self) -> bool:
        """Whether gradients end here: it was not computed from tensors that want one.

        >>> x = Tensor([1.0], requires_grad=True)
        >>> x.is_leaf, (x * 2).is_leaf
        (True, False)
        """
        return not (self._taped and self.requires_grad)

    def is_contiguous(self) -> bool:
        """True: to whoever reads them, elements are in order.

        >>> Tensor([[1, 2]]).T.is_contiguous()
        True
        """
        return True

    def is_nonzero(self) -> bool:
        """Whether its one element is not 0.

        >>> Tensor([2]).is_nonzero()
        True
        """
        if self.numel() != 1:
            raise ArgumentError(f"is_nonzero: {self.shape}; legal is one element")
        return bool(self.item())

    def is_signed(self) -> bool:
        """Whether its dtype holds negative numbers.

        >>> Tensor([1], dtype="uint8").is_signed()
        False
        """
        return not dtypes.is_unsigned(self.dtype) and self.dtype is not dtypes.bool

    def retain_grad(self) -> None:
        """Nothing: each tensor that wants a gradient keeps it.

        >>> (Tensor([1.0], requires_grad=True) * 2).retain_grad()
        """

    nelement = Resizing.numel

    def ndimension(self) -> int:
        """How many axes it has.

        >>> Tensor([[1]]).ndimension()
        2
        """
        return self.ndim

    # ---- elsewhere, in other kinds ---------------------------------------------------------------

    def cpu(self) -> Self:
        """On the CPU.

        >>> Tensor([1]).cpu().device
        'CPU'
        """
        return self._moved("CPU")

    def cuda(self) -> Self:
        """On CUDA. DeviceError where there is none.

        >>> Tensor([1]).cuda  # doctest: +ELLIPSIS
        <bound method ...>
        """
        return self._moved("CUDA")

    def byte(self) -> Self:
        """In uint8.

        >>> Tensor([1.5]).byte().tolist()
        [1]
        """
        return self.cast(dtypes.uint8)

    def char(self) -> Self:
        """In int8.

        >>> Tensor([-1.5]).char().tolist()
        [-1]
        """
        return self.cast(dtypes.int8)

    # ---- a few more of known kinds ---------------------------------------------------------------

    def positive(self) -> Self:
        """What this is, as another tensor.

        >>> Tensor([-1]).positive().tolist()
        [-1]
        """
        return +self

    def adjoint(self) -> Self:
        """The last two axes swapped, and complex numbers conjugated.

        >>> Tensor([[1, 2]]).adjoint().tolist()
        [[1], [2]]
        """
        return self.transpose(-2, -1).conj()

    def logaddexp2(self, other: Any) -> Self:
        """The logarithm, of base 2, of 2^this + 2^other.

        >>> Tensor([1.0]).logaddexp2(1.0).tolist()
        [2.0]
        """
        first: Self = self >= other
        high, low = first.where(self, other), first.where(other, self)
        same = high.eq(low) & high.isinf()
        return high + (1 + same.where(0, low - high).exp2()).log2()

    def diagflat(self, offset: int = 0) -> Self:
        """A matrix with all elements on diagonal number `offset`.

        >>> Tensor([[1, 2]]).diagflat().tolist()
        [[1, 0], [0, 2]]
        """
        return self.flatten().diag_embed(offset)

    def select_scatter(self, src: Self, dim: int, index: int) -> Self:
        """This with `src` in the place of slice `index` of axis `dim`.

        >>> Tensor([[1, 2], [3, 4]]).select_scatter(Tensor([0, 0]), 0, 1).tolist()
        [[1, 2], [0, 0]]
        """
        axis = axis_of(dim, self.ndim, "select_scatter")
        return self._with_part((*(slice(None),) * axis, index), src, "select_scatter")

    def slice_scatter(
        self,
        src: Self,
        dim: int = 0,
        start: int | None = None,
        end: int | None = None,
        step: int = 1,
    ) -> Self:
        """This with `src` in the place of a slice of axis `dim`.

        >>> Tensor([1, 2, 3]).slice_scatter(Tensor([0, 0]), 0, 1).tolist()
        [1, 0, 0]
        """
        axis = axis_of(dim, self.ndim, "slice_scatter")
        part = (*(slice(None),) * axis, slice(start, end, step))
        return self._with_part(part, src, "slice_scatter")

    def index_put(
        self, indices: tuple[Any, ...] | list[Any], values: Any, accumulate: bool = False
    ) -> Self:
        """This with `values` at the places that `indices`, a tuple of tensors, name; `accumulate`
        adds them.

        >>> Tensor([1, 2]).index_put((Tensor([1]),), Tensor([5])).tolist()
        [1, 5]
        """
        if not accumulate:
            return self._with_part(tuple(indices), values, "index_put")
        sizes = self.shape[: len(indices)]
        flat = self._flat_places(indices, sizes)
        rest = self.shape[len(indices) :]
        added = self._tensor(values).cast(self.dtype).expand(*flat.shape, *rest)
        rows = self.reshape(prod(sizes), -1)
        rows = rows.index_add(0, flat.flatten(), added.reshape(flat.numel(), -1))
        return rows.reshape(self.shape)

    def _flat_places(self, indices: Any, sizes: tuple[Any, ...]) -> Self:
        """The numbers of rows that these places on the first axes, of such sizes, name."""
        kinds = [getattr(index, "dtype", dtypes.bool) for index in indices]
        if not indices or len(indices) > self.ndim or dtypes.bool in kinds:
            raise ArgumentError(
                f"index_put: {len(indices)} indices of {self.shape}; legal to accumulate are "
                "tensors of ints, one an axis"
            )
        flat, *places = (
            (index < 0).where(index + size, index)
            for index, size in zip(indices, sizes, strict=True)
        )
        for place, size in zip(places, sizes[1:], strict=True):
            flat = flat * size + place
        return flat  # type: ignore[no-any-return]

    def _with_part(self, part: Any, value: Any, operation: str) -> Self:
        shape = self[part].shape
        if getattr(value, "shape", shape) != shape and operation != "index_put":
            raise ShapeError(f"{operation}: a value of {value.shape}; legal is {shape}")
        made = self.contiguous()
        made[part] = value
        return made
