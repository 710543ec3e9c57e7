"""Losses, with PyTorch's names and meaning: as functions first, then as objects.

A loss is one number for each element or sample; `reduction` combines these: "mean", "sum" or
"none".
"""

from __future__ import annotations

import math
import warnings

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.nn.function import function
from tinygrad.nn.held import held
from tinygrad.tensor import Tensor
from tinygrad.tensor.arguments import check_above, check_number_from
from tinygrad.tensor.learning import reduced
from tinygrad.tensor.modes import recording
from tinygrad.tensor.scan import scan
from tinygrad.tensor.template import expression

FLOOR = -1e30
"""What stands for the log of 0 where a gradient goes through: -inf would make it NaN."""


# ---- distances of numbers ------------------------------------------------------------------------


def l1_loss(
    x: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None
) -> Tensor:
    """|x - target|, times `weight`, by whose sum a mean divides.

    >>> l1_loss(Tensor([1.0, 4.0]), Tensor([0.0, 1.0])).item()
    2.0
    """
    _warn_unless_alike("l1_loss", x, target)
    return _shared_out("l1_loss", x, (x - target).abs(), weight, reduction)


def mse_loss(
    x: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None
) -> Tensor:
    """(x - target)², times `weight`, by whose sum a mean divides.

    >>> mse_loss(Tensor([1.0, 4.0]), Tensor([0.0, 1.0])).item()
    5.0
    """
    _warn_unless_alike("mse_loss", x, target)
    return _shared_out("mse_loss", x, (x - target).square(), weight, reduction)


def _shared_out(who: str, x: Tensor, loss: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    if weight is None:
        return reduced(loss, reduction)
    _check_alike(f"{who}: weight", x, weight)
    loss = loss * weight
    return loss.sum() / weight.sum() if reduction == "mean" else reduced(loss, reduction)


def huber_loss(
    x: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """d²/2 where the distance d is below delta, delta·(d - delta/2) beyond; times `weight`, if
    there is one, which doesn't count in a mean. (Huber, 1964.)

    >>> huber_loss(Tensor([1.0, 4.0]), Tensor([0.0, 1.0])).item()
    1.5
    """
    check_above("huber_loss", "delta", delta)
    _warn_unless_alike("huber_loss", x, target)
    apart = x - target
    away = apart.abs()
    loss = (away < delta).where(apart.square() / 2, delta * (away - delta / 2))
    if weight is not None:
        _check_alike("huber_loss: weight", x, weight)
        loss = loss * weight
    return reduced(loss, reduction)


def smooth_l1_loss(x: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """`huber_loss` over beta: d²/(2·beta) below beta, d - beta/2 beyond; |d| for beta 0.

    >>> smooth_l1_loss(Tensor([1.0, 4.0]), Tensor([0.0, 1.0])).item()
    1.5
    """
    if beta == 0:
        return l1_loss(x, target, reduction)
    return huber_loss(x, target, reduction, beta) / beta


# ---- of probabilities ----------------------------------------------------------------------------


def binary_cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """-y·log p - (1 - y)·log(1 - p) for probabilities p; a log is at least -100. A p or y outside
    0 to 1 is an error at the next read.

    >>> round(binary_cross_entropy(Tensor([0.5]), Tensor([1.0])).item(), 4)
    0.6931
    """
    _check_alike("binary_cross_entropy", x, target)
    loss = _surprise(_chance(x, "probability"), _chance(target, "target"))
    return reduced(_weighed("binary_cross_entropy", loss, weight), reduction)


def _chance(given: Tensor, kind: str) -> Tensor:
    """With a CHECK that all are from 0 to 1, which NaN isn't."""
    fits = (given >= 0) & (given <= 1)
    return _told(given, fits, f"binary_cross_entropy: a {kind} outside 0 to 1")


def _surprise_slopes(grad_out: Tensor, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """A certain x has a steep slope, but a finite one: what made it certain has a slope of 0."""
    yes, no = _log_chances(x)
    return grad_out * (x - target) / (x * (1 - x)).maximum(1e-12), grad_out * (no - yes)


@expression
@function(gradient=_surprise_slopes)
def _surprise(x: Tensor, target: Tensor) -> Tensor:
    yes, no = _log_chances(x)
    return -(target * yes + (1 - target) * no)


def _log_chances(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.log().maximum(-100), (1 - x).log().maximum(-100)


def binary_cross_entropy_with_logits(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """`binary_cross_entropy` of sigmoid(x), without overflow; `pos_weight` multiplies y.

    >>> round(binary_cross_entropy_with_logits(Tensor([0.0]), Tensor([1.0])).item(), 4)
    0.6931
    """
    _check_alike("binary_cross_entropy_with_logits", x, target)
    loss = x.binary_crossentropy_logits(target, "none", pos_weight)
    _check_alike("binary_cross_entropy_with_logits", x, loss)  # of what `pos_weight` made of it
    return reduced(_weighed("binary_cross_entropy_with_logits", loss, weight), reduction)


def _weighed(who: str, loss: Tensor, weight: Tensor | None) -> Tensor:
    if weight is None:
        return loss
    weighed = loss * weight
    _check_alike(who, loss, weighed)
    return weighed


def _warn_unless_alike(who: str, x: Tensor, target: Tensor) -> None:
    """Rows combined with a column make a square of losses, which is seldom intended."""
    if x.shape != target.shape:
        text = f"{who}: x {x.shape} and target {target.shape} broadcast; legal, and seldom meant"
        warnings.warn(text, UserWarning, stacklevel=4)


def _check_axes_alike(who: str, *tensors: Tensor) -> None:
    if len({tensor.ndim for tensor in tensors}) > 1:
        shapes = " and ".join(str(tensor.shape) for tensor in tensors)
        raise ShapeError(f"{who}: shapes {shapes}; legal are as many axes")


def _check_alike(who: str, x: Tensor, target: Tensor) -> None:
    if x.shape != target.shape:
        raise ShapeError(f"{who}: x {x.shape}, target {target.shape}; legal is one shape")


def cross_entropy(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Minus the log of the softmax at the class that `target` names.

    Args:
        x: logits, (N, classes, *any), or (classes,).
        target: class numbers (N, *any), or probabilities in the shape of x.
        weight: how much each class counts, (classes,). A mean divides by the sum of them.
        ignore_index: this class number doesn't count.
        reduction: "mean", "sum" or "none".
        label_smoothing: this much of each target is spread over all classes.

    >>> x = Tensor([[2.0, 0.0], [0.0, 2.0], [0.0, 0.0]])
    >>> round(cross_entropy(x, Tensor([0, 1, -100])).item(), 4)
    0.1269
    """
    check_number_from("cross_entropy", "label_smoothing", label_smoothing, 0, 1)
    logs = x.log_softmax(_class_axis(x))
    if target.shape == x.shape and dtypes.is_float(target.dtype):
        if ignore_index >= 0:
            raise ArgumentError(
                f"cross_entropy: ignore_index={ignore_index} beside probabilities {target.shape}; "
                "legal is with class numbers"
            )
        return _soft_cross_entropy(logs, target, weight, reduction, label_smoothing)
    hard = nll_loss(logs, target, weight, ignore_index, "none")
    total, share = hard, _shares(logs, target, weight, ignore_index)
    if label_smoothing:
        spread = -(logs if weight is None else logs * logs._along(_class_axis(logs), weight))
        spread = target.ne(ignore_index).where(spread.sum(_class_axis(x)), 0)
        classes = x.shape[_class_axis(x)]
        total = hard * (1 - label_smoothing) + spread * (label_smoothing / max(classes, 1))
    return total._shared_out(share) if reduction == "mean" else reduced(total, reduction)


def _soft_cross_entropy(
    logs: Tensor, target: Tensor, weight: Tensor | None, reduction: str, smoothing: float
) -> Tensor:
    axis = _class_axis(logs)
    if weight is not None and weight.shape != logs.shape[axis : axis + 1]:
        raise ShapeError(f"cross_entropy: weight {weight.shape}; legal is ({logs.shape[axis]},)")
    goal = target * (1 - smoothing) + smoothing / max(logs.shape[axis], 1)
    each = logs if weight is None else logs * logs._along(_class_axis(logs), weight)
    loss: Tensor = -(each * goal).sum(axis)
    return reduced(loss, reduction)


def nll_loss(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Minus x at the class that `target` names; x is (N, classes, *any) or (classes,).

    Shapes and options as for `cross_entropy`, which takes logits instead of logs.

    >>> nll_loss(Tensor([[-1.0, -2.0]]), Tensor([1])).item()
    2.0
    """
    axis = _class_axis(x)
    if target.shape != (*x.shape[:axis], *x.shape[axis + 1 :]):
        raise ShapeError(
            f"loss: x has shape {x.shape} and target {target.shape}; legal is the shape of x "
            f"without axis {axis}, or for cross_entropy floats in the shape of x"
        )
    return x.nll_loss(target, weight, ignore_index, reduction)


def _class_axis(x: Tensor) -> int:
    return 0 if x.ndim == 1 else 1


def _shares(x: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int) -> Tensor:
    """How much each target counts."""
    counts = target.ne(ignore_index)
    return (
        counts.cast(x.dtype) if weight is None else counts.where(weight[counts.where(target, 0)], 0)
    )


def kl_div(x: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """target·(log target - x): how far x, logs of probabilities, is from the target.

    `reduction` "batchmean" is the sum over the size of axis 0: the mean of the divergences.
    (Kullback and Leibler, 1951.)

    >>> kl_div(Tensor([[0.0]]), Tensor([[1.0]])).item()
    0.0
    """
    loss: Tensor
    if log_target:
        loss = target.exp() * (target - x)
    else:
        logs = target.eq(0).where(1, target).log()  # 0·log 0 is 0
        loss = target * logs - target * x
    if reduction == "batchmean" and x.ndim:
        mean: Tensor = reduced(loss, "sum") / x.shape[0]
        return mean
    return reduced(loss, reduction)


def gaussian_nll_loss(
    x: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """Minus the log-likelihood of the target under a normal distribution of mean x and variance
    `var`, eps at least, of one shape with x, or without its last axis; `full` says with the
    constant. (Nix and Weigend, 1994.)

    >>> gaussian_nll_loss(Tensor([1.0]), Tensor([3.0]), Tensor([4.0])).numpy().round(4)
    np.float32(1.1931)
    """
    spread = var if isinstance(var, Tensor) else x.full_like(var)
    spread = _told(spread, (spread < 0).logical_not(), "gaussian_nll_loss: a var below 0")
    if spread.ndim < x.ndim:
        if spread.shape != x.shape[:-1]:
            raise ShapeError(
                f"gaussian_nll_loss: var {spread.shape}; legal are {x.shape} and {x.shape[:-1]}"
            )
        spread = spread.unsqueeze(-1)
    least = spread + (spread.maximum(eps) - spread).detach()  # a gradient passes below eps, too
    loss = 0.5 * (least.log() + (x - target).square() / least)
    return reduced(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


def poisson_nll_loss(
    x: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:
    """Minus the log-likelihood of counts under a Poisson distribution whose rate is e**x, or x
    itself; `full` says with Stirling's approximation of log(target!).

    >>> poisson_nll_loss(Tensor([0.0]), Tensor([3.0])).item()
    1.0
    """
    loss = x.exp() - target * x if log_input else x - target * (x + eps).log()
    if full:
        count = (target > 1).where(target, 1.0)
        loss = loss + (count > 1).where(
            count * count.log() - count + 0.5 * (2 * math.pi * count).log(), 0.0
        )
    return reduced(loss, reduction)


def soft_margin_loss(x: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """log(1 + e**(-target·x)), of targets 1 and -1.

    >>> soft_margin_loss(Tensor([0.0]), Tensor([1.0])).numpy().round(4)
    np.float32(0.6931)
    """
    _check_alike("soft_margin_loss", x, target)
    return reduced((-(target * x)).softplus(), reduction)


def multilabel_soft_margin_loss(
    x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """The mean over the classes, the last axis, of the binary cross-entropy of logits x.

    >>> multilabel_soft_margin_loss(Tensor([[0.0, 0.0]]), Tensor([[1.0, 0.0]])).numpy().round(4)
    np.float32(0.6931)
    """
    loss = binary_cross_entropy_with_logits(x, target, weight, reduction="none")
    return reduced(loss.mean(-1), reduction)


# ---- of vectors ----------------------------------------------------------------------------------


def cosine_similarity(x: Tensor, y: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """x·y / (|x|·|y|) along `dim` of what both broadcast to; a length counts eps at least.

    >>> cosine_similarity(Tensor([[1.0, 0.0]]), Tensor([[0.0, 2.0]])).tolist()
    [0.0]
    """
    check_number_from("cosine_similarity", "eps", eps, 0)
    x, y = Tensor.broadcast_tensors(x, y)
    lengths = [t.norm(2, dim).maximum(eps) for t in (x, y)]
    return (x * y).sum(dim) / (lengths[0] * lengths[1])


def pairwise_distance(
    x: Tensor, y: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """The p-norm of x - y + eps along the last axis.

    >>> round(pairwise_distance(Tensor([[3.0, 0.0]]), Tensor([[0.0, 4.0]])).item(), 3)
    5.0
    """
    if p == 0:
        raise ArgumentError("pairwise_distance: p 0; legal is any other number")
    away = (x - y + eps).abs()
    if p == float("inf"):
        return away.max(-1, keepdim=keepdim)
    return away.pow(p).sum(-1, keepdim=keepdim).pow(1 / p)


def cosine_embedding_loss(
    x: Tensor, y: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """1 - cos for pairs that should be alike (target 1), cos above `margin` for others (-1);
    0 for other targets.

    >>> x = Tensor([[1.0, 0.0]])
    >>> cosine_embedding_loss(x, x, Tensor([-1])).item()
    1.0
    """
    _check_axes_alike("cosine_embedding_loss", x, y, target.unsqueeze(-1))
    cos = cosine_similarity(x, y, dim=x.ndim - 1)
    near, far = target.eq(1).where(1 - cos, 0), target.eq(-1).where((cos - margin).maximum(0), 0)
    return reduced(near + far, reduction)


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """By how much the positive fails to be nearer to the anchor, by `margin`, than the negative.

    With `swap`, the distance from the negative to the positive is used if it is smaller. (Schroff,
    Kalenichenko and Philbin, "FaceNet", 2015.)

    >>> x = Tensor([[1.0, 0.0]])
    >>> triplet_margin_loss(x, x, x).item()
    1.0
    """
    check_above("triplet_margin_loss", "margin", margin)
    _check_axes_alike("triplet_margin_loss", anchor, positive, negative)
    near = pairwise_distance(anchor, positive, p, eps)
    far = pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = far.minimum(pairwise_distance(positive, negative, p, eps))
    return reduced((near - far + margin).maximum(0), reduction)


def margin_ranking_loss(
    x: Tensor, y: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """By how much x fails to be above y (target 1), or below it (target -1), by `margin`.

    >>> margin_ranking_loss(Tensor([1.0]), Tensor([3.0]), Tensor([1])).item()
    2.0
    """
    _check_axes_alike("margin_ranking_loss", x, y, target)
    return reduced((-target * (x - y) + margin).clamp(min_=0), reduction)


def hinge_embedding_loss(
    x: Tensor, target: Tensor, margin: float = 1.0, reduction: str = "mean"
) -> Tensor:
    """x where target is 1, what it lacks to `margin` where it is -1; x are distances. The sum of
    both for other targets, as in PyTorch.

    >>> hinge_embedding_loss(Tensor([0.25, 0.25]), Tensor([1, -1])).item()
    0.5
    """
    near, far = target.eq(-1).where(0, x), target.eq(1).where(0, (margin - x).clamp(min_=0))
    return reduced(near + far, reduction)


# ---- of sequences --------------------------------------------------------------------------------


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | list[int] | int,
    target_lengths: Tensor | list[int] | int,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Minus the log of the probability of all alignments of a labelling with a sequence.

    (Graves and others, "Connectionist Temporal Classification", 2006.)

    Args:
        log_probs: logs of probabilities, (length, N, classes), or all of one sample without N.
        targets: labels, (N, most labels), or those of all samples one after the other.
        input_lengths: how many turns of each sequence count, (N,).
        target_lengths: how many labels of each row count, (N,).
        blank: the class that stands for no label.
        reduction: "mean" divides each by its number of labels first.
        zero_infinity: a labelling that is longer than its sequence counts 0, not infinity, whose
            gradient is NaN.

    Raises:
        IndexCheckError: a length is negative, or more than there are turns or labels.

    >>> even = Tensor([[[0.5, 0.5]], [[0.5, 0.5]]]).log()
    >>> round(ctc_loss(even, Tensor([[1]]), [2], [1]).exp().item(), 4)
    1.3333
    """
    if log_probs.ndim == 2 and targets.ndim == 1:
        turns, names = (
            _whole_numbers(n, targets.device).reshape(1) for n in (input_lengths, target_lengths)
        )
        alone = log_probs.unsqueeze(1), targets.unsqueeze(0)
        return ctc_loss(*alone, turns, names, blank, reduction, zero_infinity).squeeze()
    if log_probs.ndim != 3:
        raise ShapeError(f"ctc_loss: {log_probs.shape}; legal is (length, N, classes)")
    length, batch, classes = log_probs.shape
    check_number_from("ctc_loss", "blank", blank, 0, classes - 1)
    lengths = _counts("input_lengths", _whole_numbers(input_lengths, log_probs.device), length)
    counts = _whole_numbers(target_lengths, log_probs.device)
    if lengths.shape != (batch,) or counts.shape != (batch,):
        raise ShapeError(
            f"ctc_loss: input_lengths {lengths.shape} and target_lengths {counts.shape} of a batch "
            f"of {batch}; legal is ({batch},)"
        )
    labels = _rows_of_labels(targets, counts)
    counts = _counts("target_lengths", counts, labels.shape[1])
    loss = _of_all_alignments(log_probs, labels, lengths, counts, blank, zero_infinity)
    if reduction == "mean":
        return (loss / counts.maximum(1)).mean()
    return reduced(loss, reduction)


@expression
def _of_all_alignments(
    log_probs: Tensor,
    labels: Tensor,
    lengths: Tensor,
    counts: Tensor,
    blank: int,
    zero_infinity: bool,
) -> Tensor:
    """The loss of each sample, (N,). Labels are (N, most), of which `counts` count."""
    length, batch, _ = log_probs.shape
    spread = _with_blanks(labels, blank)  # (N, width)
    place = Tensor.arange(spread.shape[1], device=log_probs.device)
    inside = place <= 2 * counts.unsqueeze(1)  # (N, width)
    index = spread.unsqueeze(0).expand(length, batch, spread.shape[1])
    seen = log_probs.gather(2, index).maximum(FLOOR)  # (length, N, width)
    last = _chances(seen, spread, blank, inside, lengths)
    at_end = place.eq(2 * counts.unsqueeze(1)) | place.eq(2 * counts.unsqueeze(1) - 1)
    ends = at_end.where(last, FLOOR)
    loss = -ends.logsumexp(1)
    fits = loss <= -FLOOR / 2
    loss = fits.where(loss, 0.0 if zero_infinity else float("inf"))
    return loss if zero_infinity else _without_a_direction(loss, log_probs, fits, lengths)


def _nan_where_infinite(
    grad_out: Tensor, loss: Tensor, log_probs: Tensor, fits: Tensor, lengths: Tensor
) -> tuple[Tensor | None, ...]:
    with recording.expression():  # of counts that others hold it takes no copy
        turns = Tensor.arange(log_probs.shape[0], device=log_probs.device).unsqueeze(1)
        lost = (~fits & (turns < lengths)).unsqueeze(2)  # (length, N, 1)
        return grad_out, lost.where(float("nan"), 0.0).expand(log_probs.shape), None, None


@function(gradient=_nan_where_infinite)
def _without_a_direction(loss: Tensor, log_probs: Tensor, fits: Tensor, lengths: Tensor) -> Tensor:
    """The loss. Where labels don't fit, no change of what is said makes it less: its gradient by
    the turns that count is NaN."""
    return loss


def _with_blanks(labels: Tensor, blank: int) -> Tensor:
    """The labels with blanks before, between and after them, (N, 2·labels + 1)."""
    end = Tensor.full((labels.shape[0], 1), blank, dtype=labels.dtype, device=labels.device)
    if not labels.shape[1]:
        return end
    return Tensor.stack(labels.full_like(blank), labels, dim=-1).flatten(1).cat(end, dim=1)


def _chances(seen: Tensor, spread: Tensor, blank: int, inside: Tensor, lengths: Tensor) -> Tensor:
    """The log of the probability of all alignments that end at each place, (N, width).

    Args:
        seen: the log of the probability of what is at each place, (length, N, width).
        spread: the labels with blanks, (N, width).
        blank: the class that stands for no label.
        inside: whether a place is one of a sample's labels, (N, width).
        lengths: how many turns of each sequence count, (N,).
    """
    length, _, width = seen.shape
    place = Tensor.arange(width, device=seen.device)
    two_back = spread.pad((2, 0))[:, :width]
    skips = spread.ne(blank) & spread.ne(two_back) & (place >= 2)
    begin = (place < 2).where(inside.where(seen[0], FLOOR), FLOOR)
    # before the first turn only nothing is said
    begin = (lengths > 0).unsqueeze(1).where(begin, place.eq(0).where(0.0, FLOOR))

    def turn(before: Tensor, now: Tensor, at: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        one = before.pad((1, 0), value=FLOOR)[:, :width]
        two = skips.where(before.pad((2, 0), value=FLOOR)[:, :width], FLOOR)
        top = before.maximum(one).maximum(two)
        total = (before - top).exp() + (one - top).exp() + (two - top).exp()
        after = inside.where((top + total.log() + now).maximum(FLOOR), FLOOR)
        return [(at < lengths).unsqueeze(1).where(after, before)], []

    if length <= 1:
        return begin
    turns = Tensor.arange(1, length, device=seen.device)
    return scan(turn, [begin], [seen[1:], turns.cast(lengths.dtype)])[0][0]


def _whole_numbers(given: Tensor | list[int] | int, device: str | tuple[str, ...]) -> Tensor:
    return given if isinstance(given, Tensor) else Tensor(given, device=device)


def _counts(name: str, given: Tensor, most: int) -> Tensor:
    """With a CHECK that there are as many to count."""
    return checked_range(given, most, f"ctc_loss: {name} of {{0}}; legal are 0 to ")


@expression
def _told(given: Tensor, fits: Tensor, message: str, kind: str = "value") -> Tensor:
    """With a CHECK of this kind, which says at the next read what doesn't fit."""
    return given._from(given._node.check(fits._node, kind, message))


def checked_range(given: Tensor, most: int, told: str) -> Tensor:
    """With a CHECK that all are from 0 to the most; `told` is said before that."""
    inside = (given >= 0) & (given <= most)
    return _told(given, inside, f"{told}{most}", "index")


def _rows_of_labels(targets: Tensor, counts: Tensor) -> Tensor:
    """Labels (N, most) also where those of all samples came one after the other."""
    if targets.ndim == 2:
        return targets
    most = max(counts.tolist(), default=0)
    starts = counts.cumsum() - counts
    place = starts.unsqueeze(1) + Tensor.arange(most, device=counts.device)
    inside = Tensor.arange(most, device=counts.device) < counts.unsqueeze(1)
    return inside.where(targets[inside.where(place, 0)], 0)


# ---- as objects ----------------------------------------------------------------------------------


# what a class holds are the options of its function
L1Loss = held("L1Loss", l1_loss, without="weight")
MSELoss = held("MSELoss", mse_loss, without="weight")
HuberLoss = held("HuberLoss", huber_loss, without="weight")
SmoothL1Loss = held("SmoothL1Loss", smooth_l1_loss)
BCELoss = held("BCELoss", binary_cross_entropy)
BCEWithLogitsLoss = held("BCEWithLogitsLoss", binary_cross_entropy_with_logits)
CrossEntropyLoss = held("CrossEntropyLoss", cross_entropy)
NLLLoss = held("NLLLoss", nll_loss)
KLDivLoss = held("KLDivLoss", kl_div)
CTCLoss = held("CTCLoss", ctc_loss)
CosineEmbeddingLoss = held("CosineEmbeddingLoss", cosine_embedding_loss)
TripletMarginLoss = held("TripletMarginLoss", triplet_margin_loss)
MarginRankingLoss = held("MarginRankingLoss", margin_ranking_loss)
GaussianNLLLoss = held("GaussianNLLLoss", gaussian_nll_loss)
PoissonNLLLoss = held("PoissonNLLLoss", poisson_nll_loss)
SoftMarginLoss = held("SoftMarginLoss", soft_margin_loss)
MultiLabelSoftMarginLoss = held("MultiLabelSoftMarginLoss", multilabel_soft_margin_loss)
HingeEmbeddingLoss = held("HingeEmbeddingLoss", hinge_embedding_loss)
