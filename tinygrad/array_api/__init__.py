"""The Python array API standard, version 2024.12: what programs that work with any array library
call. `x.__array_namespace__()` of a tensor is this module; its arrays are tensors.

A face: each function is a method of Tensor under the standard's name and arguments, or a few of
them. Source: https://data-apis.org/array-api/2024.12/.
"""

from __future__ import annotations

import math

from tinygrad.array_api import fft as fft
from tinygrad.array_api import linalg as linalg
from tinygrad.array_api.creation import *
from tinygrad.array_api.elementwise import *
from tinygrad.array_api.info import __array_namespace_info__ as __array_namespace_info__
from tinygrad.array_api.linalg import matmul as matmul
from tinygrad.array_api.linalg import matrix_transpose as matrix_transpose
from tinygrad.array_api.linalg import tensordot as tensordot
from tinygrad.array_api.linalg import vecdot as vecdot
from tinygrad.array_api.manipulation import *
from tinygrad.array_api.searching import *
from tinygrad.array_api.statistics import *
from tinygrad.array_api.types import *

__array_api_version__ = "2024.12"

e, pi, inf, nan = math.e, math.pi, math.inf, math.nan
newaxis = None
