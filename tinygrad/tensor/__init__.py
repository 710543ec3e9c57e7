"""Floor 7: the face. `Tensor` and what it is made of, one idea a file.

The methods stand on a staircase: each file has a class that derives from the one before it, so a
method is made of those below, and `Tensor` is the top. What a Tensor is takes these steps:

    core            a node of the graph, its gradient, the family of views that it belongs to
                    (what a node is a view of: roots; which line made it: origin)
    creation        tensors out of nothing, of numbers and of arrays
    conversion      other dtypes, copies, where gradients end
    movement        shapes, order, boxes (einops' formulas: formulas)
    pieces          what is padded, cut into parts, joined, repeated; windows, diagonals
    elementwise     operators, promotion and broadcasting, comparison, bits, rounding
    functions       exp, log, sin and their families; activations
    reduction       sums, extremes, their positions, softmax
    linalg          matrix products, einsum, triangles
    indexing        t[...], gather, scatter
    conv            windows: convolution and pooling
    order           running reductions, sorting (by numbers: ranking)
    random          distributions (streams of random bits: generator)
    learning        losses, normalizations, attention
    pairs           real and imaginary parts
    autograd        backward, gradient, no_grad (modes of a `with`: modes)
    writing         t[...] = value, assign, copy_ (add_ and others: long_tail/in_place)
    interop         NumPy, pickle, copy, notebooks (memory handed over: dlpack)
    long_tail/      a folder: what else NumPy and PyTorch have, made of all these
    tensor          Tensor itself: computing, devices, reading

Beside it: `complex/` (tensors of pairs of floats), `shapes` (axes, and shapes that broadcast),
`spellings` (other libraries' names for arguments), `arguments` (what is said of wrong ones),
`scan` (loops of tensors).

A step like the one before makes no graph (docs/notes/plain_steps.md, whose first table follows one
through these files; docs/guide/words.md says what others call the same: abstract values, traces,
lazy handles). In the order in which they stand on each other:

    looks           how a tensor looks: all that a method's result may depend on
    version         storage as it is now; values that change from step to step
    promise         what a tensor has in place of a node, until somebody asks for that
    sources         what an expression of a tensor stands on: its promise, or a version
    backlog         what a program puts off again and again, which is computed on the way
    template        what a method made of tensors that look so, made again for others
    varying, draws  floats that change, and random numbers, as promises
    lines           what a step computes of such promises, in place of a graph
    again           the plan that was run for such lines, found and run again
    backward        gradients as promises
    past            what a computed value was made of, for gradients that come too late
"""

from tinygrad.tensor.complex import Complex
from tinygrad.tensor.generator import Generator
from tinygrad.tensor.tensor import Tensor

__all__ = ["Complex", "Generator", "Tensor"]
