"""Whole transformers: stacks of layers. Weights have PyTorch's names and shapes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from tinygrad.base.errors import ArgumentError
from tinygrad.nn.attention import TransformerDecoderLayer, TransformerEncoderLayer
from tinygrad.nn.init import xavier_uniform_
from tinygrad.nn.norms import LayerNorm
from tinygrad.nn.state import get_parameters
from tinygrad.tensor import Tensor
from tinygrad.tensor.arguments import check_number_from, check_types


class TransformerEncoder:
    """Copies of a layer, applied one after the other; all begin with the weights of that layer.

    Args:
        encoder_layer: what is copied, a `TransformerEncoderLayer` or another layer that is called
            as it is.
        num_layers: how many copies.
        norm: what comes after the last, if anything.

    >>> encoder = TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 3)
    >>> encoder(Tensor.ones(7, 2, 8)).shape, len(encoder.layers)
    ((7, 2, 8), 3)
    """

    def __init__(
        self,
        encoder_layer: Callable[..., Tensor],
        num_layers: int,
        norm: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.layers = _copies(encoder_layer, num_layers)
        self.norm = norm

    def __call__(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """(length, batch, features) → the same shape. Masks as in `MultiheadAttention`."""
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, is_causal)
        return src if self.norm is None else self.norm(src)


class TransformerDecoder:
    """Copies of a layer, applied one after the other to a sequence and the same memory; all begin
    with the weights of that layer.

    Args:
        decoder_layer: what is copied, a `TransformerDecoderLayer` or another layer that is called
            as it is.
        num_layers: how many copies.
        norm: what comes after the last, if anything.

    >>> decoder = TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16), 2)
    >>> decoder(Tensor.ones(3, 2, 8), Tensor.ones(7, 2, 8)).shape
    (3, 2, 8)
    """

    def __init__(
        self,
        decoder_layer: Callable[..., Tensor],
        num_layers: int,
        norm: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.layers = _copies(decoder_layer, num_layers)
        self.norm = norm

    def __call__(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """A sequence and a memory (length, batch, features) → the shape of the sequence."""
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        for layer in self.layers:
            tgt = layer(tgt, memory, *masks, tgt_is_causal, memory_is_causal)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer:
    """An encoder, and a decoder that sees what it makes. (Vaswani and others, "Attention Is All You
    Need", 2017.)

    Args:
        d_model: features of both sequences.
        nhead: how many heads attend.
        num_encoder_layers: layers of the encoder.
        num_decoder_layers: layers of the decoder.
        dim_feedforward: features between the two linear layers of each.
        dropout: of each part's result, while training.
        activation: "relu", "gelu", or a function of a tensor.
        layer_norm_eps: added to the variance.
        batch_first: sequences are (batch, length, d_model), not (length, batch, d_model).
        norm_first: normalize before each part instead of after it.
        bias: whether the linear layers add one.

    >>> model = Transformer(8, 2, 1, 1, 16)
    >>> model(Tensor.ones(7, 2, 8), Tensor.ones(3, 2, 8)).shape
    (3, 2, 8)
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
    ) -> None:
        sizes = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps)
        order = (batch_first, norm_first, bias)
        norms = [LayerNorm(d_model, layer_norm_eps, bias=bias) for _ in range(2)]
        encoder_layer = TransformerEncoderLayer(*sizes, *order)
        decoder_layer = TransformerDecoderLayer(*sizes, *order)
        self.encoder = TransformerEncoder(encoder_layer, num_encoder_layers, norms[0])
        self.decoder = TransformerDecoder(decoder_layer, num_decoder_layers, norms[1])
        for weight in get_parameters(self):
            if weight.ndim > 1:
                xavier_uniform_(weight)

    def __call__(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool = False,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Two sequences (length, batch, d_model) → the shape of the second. Masks as in
        `MultiheadAttention`."""
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        return self.decoder(tgt, memory, *masks, tgt_is_causal, memory_is_causal)

    @staticmethod
    def generate_square_subsequent_mask(sz: int) -> Tensor:
        """A causal mask: -inf above the diagonal, else 0.

        >>> Transformer.generate_square_subsequent_mask(2).tolist()
        [[0.0, -inf], [0.0, 0.0]]
        """
        return Tensor.full((sz, sz), -float("inf")).triu(1)


def _copies(layer: Any, number: int) -> list[Any]:
    if not callable(layer):
        raise ArgumentError(f"a layer of type {type(layer).__name__}; legal is one to be called")
    check_types("Transformer", [number], int, "whole numbers of layers", ArgumentError)
    check_number_from("Transformer", "num_layers", number, 0)
    return [copy.deepcopy(layer) for _ in range(number)]
