"""What a published config.json may say is computed, refused, or known to change no answer."""

import ast
import inspect
import re

import pytest
from model_reference import DECODER, made, transformers

from tinygrad.base.errors import ArgumentError
from tinygrad.models.auto import OTHERS, TEXTS, load_model
from tinygrad.models.checkpoint import EVERYWHERE
from tinygrad.models.llama import Llama
from tinygrad.models.rotary import SCALINGS, Rotary

MODELS = {**TEXTS, **OTHERS}

# names that change no score of a trained model, by reason
INERT = {
    "training": r".*drop.*|initializer_.*|init_.*|mask_.*|apply_spec_augment|batch_norm_momentum|"
    r"time_step_(min|max|floor|scale|init_scheme)|rescale_prenorm_residual|router_.*_coef|"
    r"router_jitter_noise|encoder_stride|logit_scale_init_value|use_cache",
    "which tokens mean what": r".*_token_id|.*suppress_tokens",
    "what else is given out": r"output_.*|return_dict|out_features|out_indices|stage_names",
    "other tasks": r"summary_.*|problem_type|num_labels|label2id|pooler_.*|semantic_loss_.*|"
    r"use_weighted_layer_sum|classifier_proj_size|median_filter_width",
    "how, not what": r"chunk_size_feed_forward|pretraining_tp|use_mambapy|use_associative_scan|"
    r"residual_in_fp32|reorder_and_upcast_attn|_attn_implementation|dtype",
    "made of others": r"hidden_dim|dense_act_fn|is_gated_act|is_encoder_decoder|context_length|"
    r"architectures|transformers_version|_name_or_path|image_size|pooling",
    "other names of these": r"n_positions|max_position_embeddings|num_hidden_layers|hidden_size|"
    r"num_attention_heads|intermediate_size|layer_types|text_config|vision_config",
}


def named(model):
    """The strings in the files of a model and of those that it is made of."""
    files = {inspect.getmodule(each) for each in model.__mro__ if "tinygrad" in each.__module__}
    texts = (inspect.getsource(file) for file in {*files, inspect.getmodule(Llama)})
    nodes = (node for text in texts for node in ast.walk(ast.parse(text)))
    return {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}


@pytest.mark.parametrize("kind", MODELS)
def test_each_name_in_a_config_is_accounted_for(kind):
    config = transformers.AutoConfig.for_model(kind)
    module = inspect.getmodule(transformers.AutoModel._model_mapping[type(config)])
    asked = set(re.findall(r"\bconfig\.(\w+)", inspect.getsource(module)))
    parts = [config, *(getattr(config, n) for n in ("text_config", "vision_config") if n in asked)]
    said = asked.union(*(part.to_dict() for part in parts))
    known = {*EVERYWHERE, *MODELS[kind].ONLY, *named(MODELS[kind])}
    inert = re.compile("|".join(INERT.values()))
    assert [name for name in sorted(said - known) if not inert.fullmatch(name)] == []


def test_another_models_folder_is_refused():
    _, folder = made("MistralForCausalLM", transformers.MistralConfig(**DECODER, sliding_window=5))
    with pytest.raises(ArgumentError, match="model_type is 'mistral'; legal is 'llama'"):
        Llama.from_pretrained(folder)
    assert type(load_model(folder)).__name__ == "Mistral"


@pytest.mark.parametrize(
    "given, message",
    [
        ({"quantization_config": {"bits": 4}}, "quantization_config is .*; legal is None"),
        ({"rope_scaling": {"type": "mrope"}}, "'mrope'; legal are default, linear, dynamic"),
        ({"rope_scaling": {"type": "dynamic"}}, "'dynamic' without factor; it has"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5; legal is 1.0"),
    ],
)
def test_what_is_not_computed_is_refused(given, message):
    config = transformers.LlamaConfig(**DECODER).to_dict() | {"rope_parameters": None} | given
    with pytest.raises(ArgumentError, match=message):
        Llama.checked(config)


def test_each_scaling_is_named_by_its_needs():
    for kind, row in SCALINGS.items():
        said = {"rope_type": kind, **dict.fromkeys(row.needs, 2.0)}
        assert Rotary(8, scaling=said).kind == kind
        for name in row.needs:
            with pytest.raises(ArgumentError, match=f"{kind!r} without {name}"):
                Rotary(8, scaling={k: v for k, v in said.items() if k != name})
