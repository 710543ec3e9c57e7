"""The long tail: methods that a Tensor has and that nothing below needs. The upper part of the
staircase of `tensor/`, between what a Tensor is (`interop` and down) and `Tensor` itself.

Each file has a class that derives from the one before it, made of the methods of those below:

    decomposition   det, inv, svd, .. (on the host: lapack; their gradients: matrix_gradients)
    hashing         Keccak
    elementary      more of one element in, one out; the parts of a float
    gamma           functions that integrals define: erf, gelu, lgamma
    special         the normal distribution's, entropy, by torch.special's names
    bessel          Bessel's and Airy's functions
    incomplete      the incomplete gamma functions, Hurwitz's zeta function
    orthogonal      Chebyshev's, Hermite's, Laguerre's, Legendre's polynomials
    joining         side by side and apart, turned, each with each
    parts           elements by number: index_select, index_add, repeat_interleave, ..
    products        sums over products by their names; lengths
    statistics      medians, quantiles, differences, covariance
    sets            searchsorted, histograms, unique
    counts          random counts: Poisson's and binomial
    resizing        interpolation
    alike           shapes, dtypes and devices of other tensors; hints for what isn't there
    in_place        methods that end in _
"""
