"""LLaMA 2 and 3. (Touvron and others, 2023; Grattafiori and others, "The Llama 3 Herd", 2024.)"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from tinygrad.base.dtype import DType
from tinygrad.base.errors import ArgumentError
from tinygrad.models.checkpoint import (
    Names,
    Only,
    Pretrained,
    floats_as,
    reading,
    refuse_others,
    translated,
)
from tinygrad.models.decoder import Decoder, DecoderConfig
from tinygrad.nn.state import gguf_load
from tinygrad.tensor import Tensor

HUGGING_FACE: Names = {
    "model.embed_tokens": "embed",
    "model.layers.{}.input_layernorm": "layers.{}.attention_norm",
    "model.layers.{}.self_attn.q_proj": "layers.{}.attention.query",
    "model.layers.{}.self_attn.k_proj": "layers.{}.attention.key",
    "model.layers.{}.self_attn.v_proj": "layers.{}.attention.value",
    "model.layers.{}.self_attn.o_proj": "layers.{}.attention.out",
    "model.layers.{}.self_attn.rotary_emb.inv_freq": None,
    "model.layers.{}.post_attention_layernorm": "layers.{}.feed_norm",
    "model.layers.{}.mlp.gate_proj": "layers.{}.feed.gate",
    "model.layers.{}.mlp.up_proj": "layers.{}.feed.up",
    "model.layers.{}.mlp.down_proj": "layers.{}.feed.down",
    "model.norm": "norm",
    "lm_head": "head",
}

# Meta's own files: `consolidated.00.pth`
ORIGINAL: Names = {
    "tok_embeddings": "model.embed_tokens",
    "layers.{}.attention_norm": "model.layers.{}.input_layernorm",
    "layers.{}.attention.wq": "model.layers.{}.self_attn.q_proj",
    "layers.{}.attention.wk": "model.layers.{}.self_attn.k_proj",
    "layers.{}.attention.wv": "model.layers.{}.self_attn.v_proj",
    "layers.{}.attention.wo": "model.layers.{}.self_attn.o_proj",
    "layers.{}.ffn_norm": "model.layers.{}.post_attention_layernorm",
    "layers.{}.feed_forward.w1": "model.layers.{}.mlp.gate_proj",
    "layers.{}.feed_forward.w2": "model.layers.{}.mlp.down_proj",
    "layers.{}.feed_forward.w3": "model.layers.{}.mlp.up_proj",
    "norm": "model.norm",
    "output": "lm_head",
    "rope.freqs": None,
}


def as_row(weight: Tensor) -> Tensor:
    """A weight of one output, (1, in), which a GGUF file has as (in,)."""
    return weight.reshape(1, -1)


# llama.cpp's GGUF files
GGUF: Names = {
    "token_embd": "model.embed_tokens",
    "blk.{}.attn_norm": "model.layers.{}.input_layernorm",
    "blk.{}.attn_q": "model.layers.{}.self_attn.q_proj",
    "blk.{}.attn_q_norm": "model.layers.{}.self_attn.q_norm",
    "blk.{}.attn_k": "model.layers.{}.self_attn.k_proj",
    "blk.{}.attn_k_norm": "model.layers.{}.self_attn.k_norm",
    "blk.{}.attn_v": "model.layers.{}.self_attn.v_proj",
    "blk.{}.attn_output": "model.layers.{}.self_attn.o_proj",
    "blk.{}.ffn_norm": "model.layers.{}.post_attention_layernorm",
    "blk.{}.ffn_gate": "model.layers.{}.mlp.gate_proj",
    "blk.{}.ffn_down": "model.layers.{}.mlp.down_proj",
    "blk.{}.ffn_up": "model.layers.{}.mlp.up_proj",
    "output_norm": "model.norm",
    "output": "lm_head",
    "rope_freqs": None,
}

# of mixtures, whose experts lie in one tensor there as they do here
GGUF_EXPERTS: Names = {
    "blk.{}.ffn_gate_inp": "layers.{}.feed.router",
    "blk.{}.ffn_gate_exps": "layers.{}.feed.gate",
    "blk.{}.ffn_up_exps": "layers.{}.feed.up",
    "blk.{}.ffn_down_exps": "layers.{}.feed.down",
    "blk.{}.ffn_gate_inp_shexp": ("layers.{}.feed.shared_gate", as_row),
    "blk.{}.ffn_gate_shexp": "layers.{}.feed.shared.gate",
    "blk.{}.ffn_up_shexp": "layers.{}.feed.shared.up",
    "blk.{}.ffn_down_shexp": "layers.{}.feed.shared.down",
}

TURNED = re.compile(r"\.[qk]_proj\.")  # weights whose results are turned in pairs


class Llama(Decoder, Pretrained):
    """LLaMA, from Hugging Face's layout, Meta's, or a GGUF file's, whose weights stay quantised.

    >>> from tinygrad.models.decoder import DecoderConfig
    >>> Llama(DecoderConfig(vocab=16, dim=8, layers=1, heads=2, hidden=16))(Tensor([[1]])).shape
    (1, 1, 16)
    """

    ONLY: ClassVar[Only] = {"model_type": ("llama",)}
    NAMES: ClassVar[Names] = HUGGING_FACE
    FAMILY: ClassVar[str] = "llama"  # what a GGUF file calls it
    PAIRED: ClassVar[bool] = True  # whether such a file has a pair's numbers beside each other

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The model that config.json describes."""
        return cls(DecoderConfig(**shared_config(config)))

    @classmethod
    def from_pretrained(
        cls, folder: str | Path, strict: bool = True, dtype: DType | None = None
    ) -> Self:
        """The model in a folder, see `Pretrained.from_pretrained`, or in a GGUF file: with a
        `dtype` its weights don't stay quantised."""
        if not str(folder).endswith(".gguf"):
            return super().from_pretrained(folder, strict, dtype)
        facts, state = gguf_load(folder)
        if facts.get("general.architecture") != cls.FAMILY:
            raise ArgumentError(
                f"{cls.__name__}: {folder} is of {facts.get('general.architecture')}; legal is "
                f"{cls.FAMILY}"
            )
        with reading(cls.__name__):
            made = cls(gguf_config(facts, state))
        made.load(floats_as(state, dtype), strict)
        made.origin = Path(folder)
        return made

    def load(self, state: Mapping[str, Tensor], strict: bool = True) -> Self:
        """Takes the weights of a checkpoint, in any of the three layouts."""
        for mark, names, paired in (
            ("tok_embeddings", ORIGINAL, True),
            ("token_embd", {**GGUF, **GGUF_EXPERTS}, self.PAIRED),
        ):
            if f"{mark}.weight" in state:
                state = translated(state, names)
                if paired:
                    turned = {n: self._halves(t) for n, t in state.items() if TURNED.search(n)}
                    state = {**state, **turned}
        return super().load(state, strict)

    def _halves(self, weight: Tensor) -> Tensor:
        """Rows by halves, where the checkpoint turns neighbours: pair i is (2i, 2i + 1) there."""
        size = self.config.head_size
        pairs = weight.reshape(-1, size // 2, 2, *weight.shape[1:])
        return pairs.transpose(1, 2).reshape(weight.shape)


# of a GGUF file's facts, by what follows the family's name, what is computed here
GGUF_ONLY: Only = {
    "attention.causal": (True,),
    "attention.scale": (None,),
    "attention.sliding_window": (None, 0),
    "expert_gating_func": (None, 0, 1),  # a softmax
    "expert_group_count": (None, 0, 1),
    "expert_weights_scale": (None, 0.0, 1.0),
    "logit_scale": (None,),
    "rope.scaling.attn_factor": (None, 1.0),
}


def gguf_config(facts: Mapping[str, Any], state: Mapping[str, Tensor]) -> DecoderConfig:
    """What a GGUF file says of a decoder of this family."""
    family = facts["general.architecture"]

    def fact(name: str, default: Any = None) -> Any:
        found = facts.get(f"{family}.{name}", default)
        if found is None:
            raise ArgumentError(f"GGUF: no {family}.{name}; there are {', '.join(sorted(facts))}")
        return found

    dim, heads = fact("embedding_length"), fact("attention.head_count")
    size = fact("attention.key_length", dim // heads)
    said = {name.removeprefix(f"{family}."): value for name, value in facts.items()}
    sizes = dict.fromkeys(("rope.dimension_count", "attention.value_length"), (size,))
    refuse_others(f"GGUF of {family}", said, {**GGUF_ONLY, **sizes})
    return DecoderConfig(
        vocab=state["token_embd.weight"].shape[0],
        dim=dim,
        layers=fact("block_count"),
        heads=heads,
        hidden=fact("feed_forward_length"),
        kv_heads=fact("attention.head_count_kv", heads),
        head_dim=size,
        eps=fact("attention.layer_norm_rms_epsilon"),
        theta=fact("rope.freq_base", 10000.0),
        length=fact("context_length"),
        scaling=_gguf_scaling(facts, family, state),
        tied="output.weight" not in state,
        qkv_bias="blk.0.attn_q.bias" in state,
        qk_norm="blk.0.attn_q_norm.weight" in state,
        **(_gguf_mixture(fact, family, state) if fact("expert_count", 0) else {}),
    )


def _gguf_mixture(
    fact: Callable[..., Any], family: str, state: Mapping[str, Tensor]
) -> dict[str, Any]:
    """Of the experts; their sizes are those of their weights."""
    sizes = {name: tensor.shape for name, tensor in state.items() if "exp" in name}
    inside = {name.split(".")[2]: shape[-2] for name, shape in sizes.items() if len(shape) > 1}
    if "ffn_gate_exps" not in inside:
        raise ArgumentError("GGUF: no blk.*.ffn_gate_exps; legal is one tensor for all experts")
    return {
        "experts": fact("expert_count"),
        "experts_used": fact("expert_used_count"),
        "expert_hidden": inside["ffn_gate_exps"],
        "shared_hidden": inside.get("ffn_gate_shexp", 0),
        "normalised": fact("expert_weights_norm", family != "qwen2moe"),
        "mixed": tuple(
            f"blk.{i}.ffn_gate_exps.weight" in sizes for i in range(fact("block_count"))
        ),
    }


def _gguf_scaling(
    facts: Mapping[str, Any], family: str, state: Mapping[str, Tensor]
) -> dict[str, Any]:
    """Of the rotary wavelengths: a number for each, or one for all."""
    if "rope_freqs.weight" in state:
        return {"rope_type": "divided", "factors": state["rope_freqs.weight"].tolist()}
    kind = facts.get(f"{family}.rope.scaling.type", "none")
    if kind == "none":
        return {}
    said = f"{family}.rope.scaling."
    return {
        "rope_type": kind,
        "factor": facts.get(f"{said}factor", 1.0),
        "original_max_position_embeddings": facts.get(f"{said}original_context_length"),
        "beta_fast": facts.get(f"{said}yarn_beta_fast"),
        "beta_slow": facts.get(f"{said}yarn_beta_slow"),
    }


def shared_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """What the config.json of this family's members says alike, as arguments of DecoderConfig."""
    rope = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    for name in ("original_max_position_embeddings", "partial_rotary_factor"):  # beside it, too
        if name in config:
            rope.setdefault(name, config[name])
    return {
        "vocab": config["vocab_size"],
        "dim": config["hidden_size"],
        "layers": config["num_hidden_layers"],
        "heads": config["num_attention_heads"],
        "hidden": config["intermediate_size"],
        "kv_heads": config.get("num_key_value_heads"),
        "head_dim": config.get("head_dim"),
        "eps": config["rms_norm_eps"],
        "theta": rope.get("rope_theta") or config.get("rope_theta") or 10000.0,
        "scaling": rope,
        "length": config.get("max_position_embeddings", 2048),
        "tied": config.get("tie_word_embeddings", False),
        "qkv_bias": config.get("attention_bias", False),
        "out_bias": config.get("attention_bias", False),
        "feed_bias": config.get("mlp_bias", False),
        "activation": config.get("hidden_act", "silu"),
    }
