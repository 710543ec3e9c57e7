"""Functions of SciPy that work with any array library take our tensors and give tensors."""

import os
import subprocess
import sys

SCRIPT = """
import warnings
warnings.simplefilter("ignore")
import numpy as np, scipy.cluster.vq, scipy.differentiate, scipy.integrate, scipy.ndimage
import scipy.optimize.elementwise, scipy.signal, scipy.special, scipy.stats
from tinygrad import Tensor
X = np.array([[1.0, 2.0, 4.0], [3.0, 5.0, 9.0]])
FUNCTIONS = {
    "expit": scipy.special.expit,
    "logsumexp": lambda x: scipy.special.logsumexp(x, axis=1),
    "softmax": lambda x: scipy.special.softmax(x, axis=1),
    "gammaln": scipy.special.gammaln,
    "zscore": lambda x: scipy.stats.zscore(x, axis=1),
    "skew": lambda x: scipy.stats.skew(x, axis=1),
    "kurtosis": lambda x: scipy.stats.kurtosis(x, axis=1),
    "gmean": lambda x: scipy.stats.gmean(x, axis=1),
    "sem": lambda x: scipy.stats.sem(x, axis=1),
    "entropy": lambda x: scipy.stats.entropy(x, axis=1),
    "pearsonr": lambda x: scipy.stats.pearsonr(x[0], x[1]).statistic,
    "ttest_1samp": lambda x: scipy.stats.ttest_1samp(x, 0.5, axis=1).statistic,
    "trapezoid": lambda x: scipy.integrate.trapezoid(x, axis=1),
    "cumulative_trapezoid": lambda x: scipy.integrate.cumulative_trapezoid(x, axis=1),
    "whiten": scipy.cluster.vq.whiten,
    "vq": lambda x: scipy.cluster.vq.vq(x, x)[0],
    "gaussian_filter": lambda x: scipy.ndimage.gaussian_filter(x, 1.0),
    "detrend": scipy.signal.detrend,
    "derivative": lambda x: scipy.differentiate.derivative(lambda v: v * v, x[0]).df,
}
for name, function in FUNCTIONS.items():
    ours, theirs = function(Tensor(X)), function(X)
    good = isinstance(ours, Tensor) and np.allclose(ours.numpy(), theirs, rtol=1e-4)
    print(name, "as NumPy" if good else f"gives {ours.tolist()}, NumPy {theirs.tolist()}")
"""


def test_functions_of_scipy_take_tensors():
    settings = {**os.environ, "SCIPY_ARRAY_API": "1"}
    run = [sys.executable, "-c", SCRIPT]
    out = subprocess.run(run, env=settings, capture_output=True, text=True, timeout=240)
    assert out.returncode == 0, out.stderr
    lines = out.stdout.splitlines()
    assert len(lines) == 19 and all(line.endswith(" as NumPy") for line in lines), out.stdout
