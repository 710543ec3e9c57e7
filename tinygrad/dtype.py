"""A face, as programs import it: the element types of `base/dtype`."""

from tinygrad.base.dtype import (
    ConstType,
    DType,
    dtypes,
    least_upper_dtype,
    least_upper_float,
    sum_acc_dtype,
    to_dtype,
)

__all__ = [
    "ConstType",
    "DType",
    "dtypes",
    "least_upper_dtype",
    "least_upper_float",
    "sum_acc_dtype",
    "to_dtype",
]
