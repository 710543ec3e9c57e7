"""Each model with a checkpoint of `transformers` gives its scores."""

import numpy as np
import pytest
import torch
from model_reference import (
    CHOOSING,
    DECODER,
    ENCODER,
    LLAMA3,
    QWEN2,
    QWEN3,
    SLIDING,
    SPEECH,
    floats,
    made,
    tokens,
    transformers,
)

from tinygrad import Tensor
from tinygrad.base.errors import ArgumentError
from tinygrad.models.bert import Bert
from tinygrad.models.clip import CLIP
from tinygrad.models.efficientnet import EfficientNet
from tinygrad.models.gpt2 import GPT2
from tinygrad.models.llama import Llama
from tinygrad.models.mamba import Mamba
from tinygrad.models.mistral import Mistral
from tinygrad.models.mixtral import Mixtral
from tinygrad.models.mobilenet import MobileNetV1, MobileNetV2
from tinygrad.models.qwen import Qwen2, Qwen2Moe, Qwen3, Qwen3Moe
from tinygrad.models.resnet import ResNet
from tinygrad.models.rwkv import RWKV
from tinygrad.models.t5 import T5
from tinygrad.models.vit import ViT
from tinygrad.models.whisper import Whisper, log_mel


def check(ours, kind, config, *inputs, part="logits", **names):
    """What our model gives for the inputs, and theirs for the inputs of these names."""
    model, folder = made(kind, config)
    given = {name: torch.tensor(x) for name, x in zip(names.values(), inputs, strict=True)}
    given = {name: x.long() if not x.is_floating_point() else x for name, x in given.items()}
    with torch.no_grad():
        wanted = model(**given)[part].numpy()
    found = ours.from_pretrained(folder)(*map(Tensor, inputs))
    found = (found[0] if isinstance(found, tuple) else found).numpy()
    assert np.abs(wanted).max() > 0.1
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


TEXTS = {
    "LLaMA 2": (Llama, "LlamaForCausalLM", transformers.LlamaConfig(**DECODER)),
    "LLaMA 3": (
        Llama,
        "LlamaForCausalLM",
        transformers.LlamaConfig(**DECODER, tie_word_embeddings=True, rope_parameters=LLAMA3),
    ),
    "Mistral": (Mistral, *SLIDING),
    "Mixtral": (Mixtral, *CHOOSING),
    "Qwen 2": (Qwen2, *QWEN2),
    "Qwen 3": (Qwen3, *QWEN3),
    "GPT-2": (
        GPT2,
        "GPT2LMHeadModel",
        transformers.GPT2Config(vocab_size=97, n_positions=64, n_embd=32, n_layer=2, n_head=4),
    ),
    "Mamba": (
        Mamba,
        "MambaForCausalLM",
        transformers.MambaConfig(
            vocab_size=97, hidden_size=32, num_hidden_layers=2, state_size=4, pad_token_id=None
        ),
    ),
    "RWKV": (
        RWKV,
        "RwkvForCausalLM",
        transformers.RwkvConfig(
            vocab_size=97, hidden_size=32, num_hidden_layers=2, attention_hidden_size=32
        ),
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_scores_of_the_next_token(name):
    ours, kind, config = TEXTS[name]
    check(ours, kind, config, tokens(2, 11), x="input_ids")


YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16)
NEAR = dict(use_sliding_window=True, sliding_window=5, max_window_layers=1)
GPT2_SIZES = dict(vocab_size=97, n_positions=64, n_embd=32, n_layer=2, n_head=4)
SHORT = DECODER | dict(max_position_embeddings=24)
DYNAMIC = dict(rope_type="dynamic", rope_theta=10000.0, factor=3.0)
LONG = dict(
    rope_type="longrope",
    rope_theta=10000.0,
    short_factor=[1.0, 1.1, 1.2, 1.3],
    long_factor=[1.5, 2.0, 3.0, 4.0],
    original_max_position_embeddings=16,
)
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)
VARIANTS = {
    "LLaMA, dynamic": (Llama, transformers.LlamaConfig(**SHORT, rope_parameters=DYNAMIC)),
    "LLaMA, longrope": (Llama, transformers.LlamaConfig(**SHORT, rope_parameters=LONG)),
    "Qwen 2, one expert shared": (
        Qwen2Moe,
        transformers.Qwen2MoeConfig(
            **DECODER, **EXPERTS, shared_expert_intermediate_size=24, mlp_only_layers=[0]
        ),
    ),
    "Qwen 3, experts": (
        Qwen3Moe,
        transformers.Qwen3MoeConfig(
            **DECODER, **EXPERTS, head_dim=16, norm_topk_prob=True, attention_bias=True
        ),
    ),
    "LLaMA, yarn": (Llama, transformers.LlamaConfig(**DECODER, rope_parameters=YARN)),
    "Qwen 2, yarn as given": (
        Qwen2,
        transformers.Qwen2Config(
            **DECODER,
            rope_parameters=YARN
            | dict(beta_fast=4, beta_slow=0.5, mscale=0.7, mscale_all_dim=1.2, truncate=False),
        ),
    ),
    "LLaMA, biases and gelu": (
        Llama,
        transformers.LlamaConfig(**DECODER, attention_bias=True, mlp_bias=True, hidden_act="gelu"),
    ),
    "Qwen 2, a window from a layer on": (Qwen2, transformers.Qwen2Config(**DECODER, **NEAR)),
    "Qwen 3, windows by layer": (
        Qwen3,
        transformers.Qwen3Config(
            **DECODER, **NEAR, layer_types=["sliding_attention", "full_attention"]
        ),
    ),
    "RWKV, halved": (
        RWKV,
        transformers.RwkvConfig(
            vocab_size=97,
            hidden_size=24,
            num_hidden_layers=3,
            attention_hidden_size=24,
            rescale_every=1,
            layer_norm_epsilon=1e-2,
        ),  # fmt: skip
    ),
    "GPT-2, a head, another width and activation": (
        GPT2,
        transformers.GPT2Config(
            **GPT2_SIZES, tie_word_embeddings=False, n_inner=40, activation_function="relu"
        ),
    ),
    "GPT-2, other scales": (
        GPT2,
        transformers.GPT2Config(
            **GPT2_SIZES, scale_attn_weights=False, scale_attn_by_inverse_layer_idx=True
        ),
    ),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_what_published_configs_also_say(name):
    ours, config = VARIANTS[name]
    name = {RWKV: "Rwkv"}.get(ours, ours.__name__)
    kind = f"{name}{'LMHeadModel' if ours is GPT2 else 'ForCausalLM'}"
    check(ours, kind, config, tokens(2, 40), x="input_ids")


def test_what_a_model_does_not_compute_is_refused():
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8], depths=[1], layer_type="basic", hidden_act="gelu"
    )
    _, folder = made("ResNetForImageClassification", config)
    with pytest.raises(ArgumentError, match="ResNet: the config's hidden_act is 'gelu'; legal is"):
        ResNet.from_pretrained(folder)
    config = transformers.LlamaConfig(**DECODER, hidden_act="leaky_relu")
    _, folder = made("LlamaForCausalLM", config)
    with pytest.raises(ArgumentError, match="activation 'leaky_relu'; legal are gelu, "):
        Llama.from_pretrained(folder)


IMAGES = {
    "ViT": (
        ViT,
        "ViTForImageClassification",
        transformers.ViTConfig(**ENCODER, image_size=32, patch_size=8, num_labels=5),
    ),
    "ResNet, three convolutions a block": (
        ResNet,
        "ResNetForImageClassification",
        transformers.ResNetConfig(
            embedding_size=8, hidden_sizes=[16, 32], depths=[2, 1], num_labels=5
        ),
    ),
    "ResNet, two": (
        ResNet,
        "ResNetForImageClassification",
        transformers.ResNetConfig(
            embedding_size=8,
            hidden_sizes=[8, 16],
            depths=[2, 1],
            layer_type="basic",
            num_labels=5,
        ),
    ),
    "EfficientNet": (
        EfficientNet,
        "EfficientNetForImageClassification",
        transformers.EfficientNetConfig(
            width_coefficient=0.25,
            depth_coefficient=0.3,
            in_channels=[32, 16, 24],
            out_channels=[16, 24, 40],
            kernel_sizes=[3, 3, 5],
            strides=[1, 2, 2],
            num_block_repeats=[1, 2, 5],
            expand_ratios=[1, 6, 6],
            hidden_dim=320,
            num_labels=5,
        ),
    ),
    "MobileNet 1": (
        MobileNetV1,
        "MobileNetV1ForImageClassification",
        transformers.MobileNetV1Config(num_labels=5, depth_multiplier=0.125),
    ),
    "MobileNet 2": (
        MobileNetV2,
        "MobileNetV2ForImageClassification",
        transformers.MobileNetV2Config(num_labels=5, depth_multiplier=0.35),
    ),
}


SMALL_EFFICIENTNET = dict(
    width_coefficient=0.25,
    depth_coefficient=0.3,
    in_channels=[32, 16],
    out_channels=[16, 24],
    kernel_sizes=[3, 5],
    strides=[1, 2],
    num_block_repeats=[1, 2],
    expand_ratios=[1, 6],
    hidden_dim=320,
)
IMAGES_TOO = {
    "EfficientNet, a size it was not trained for": (
        EfficientNet,
        "EfficientNetForImageClassification",
        transformers.EfficientNetConfig(**SMALL_EFFICIENTNET, depthwise_padding=[]),
    ),
    "EfficientNet, a block that pads evenly": (
        EfficientNet,
        "EfficientNetForImageClassification",
        transformers.EfficientNetConfig(**SMALL_EFFICIENTNET, depthwise_padding=[1]),
    ),
    "ViT, no bias, another activation": (
        ViT,
        "ViTForImageClassification",
        transformers.ViTConfig(
            **ENCODER, image_size=32, patch_size=8, qkv_bias=False, hidden_act="gelu_new"
        ),
    ),
    "ResNet, halved early": (
        ResNet,
        "ResNetForImageClassification",
        transformers.ResNetConfig(
            embedding_size=8,
            hidden_sizes=[16, 32],
            depths=[2, 1],
            downsample_in_first_stage=True,
            downsample_in_bottleneck=True,
        ),
    ),
}


@pytest.mark.parametrize("name", IMAGES_TOO)
def test_what_published_configs_of_images_also_say(name):
    ours, kind, config = IMAGES_TOO[name]
    size = 31 if "size" in name else 32
    check(ours, kind, config, floats(2, 3, size, size), x="pixel_values")


@pytest.mark.parametrize("name", IMAGES)
def test_scores_of_an_images_classes(name):
    ours, kind, config = IMAGES[name]
    check(ours, kind, config, floats(2, 3, 32, 32), x="pixel_values")


def test_bert_with_padding():
    config = transformers.BertConfig(vocab_size=97, max_position_embeddings=32, **ENCODER)
    mask = np.ones((2, 11), np.int32)
    mask[1, 6:] = 0
    kinds = (tokens(2, 11) > 50).astype(np.int32)
    for part in ("last_hidden_state", "pooler_output"):
        ours = Bert if part == "last_hidden_state" else Pooled
        check(
            ours, "BertModel", config, tokens(2, 11), mask, kinds, part=part,
            x="input_ids", mask="attention_mask", kinds="token_type_ids",
        )  # fmt: skip


class Pooled(Bert):
    def __call__(self, *args):
        return super().__call__(*args)[1]


@pytest.mark.parametrize("feed", ["relu", "gated-gelu", "gated-silu", "gelu"])
def test_t5_with_padding(feed):
    config = transformers.T5Config(
        vocab_size=97, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
        feed_forward_proj=feed, tie_word_embeddings=feed == "relu",
    )  # fmt: skip
    mask = np.ones((2, 40), np.int32)
    mask[1, 6:] = 0
    check(
        T5, "T5ForConditionalGeneration", config, tokens(2, 40), tokens(2, 7), mask,
        x="input_ids", written="decoder_input_ids", mask="attention_mask",
    )  # fmt: skip


@pytest.mark.parametrize("end", [2, 96])
def test_clip(end):
    """Older configurations say that token 2 ends a text and mean the largest number in it."""
    text = dict(vocab_size=97, max_position_embeddings=16, bos_token_id=0, eos_token_id=end)
    config = transformers.CLIPConfig(
        text_config=ENCODER | text,
        vision_config=ENCODER | dict(image_size=16, patch_size=4),
        projection_dim=24,
    )
    texts = tokens(3, 9, vocab=90)
    texts[:, 5] = 96
    texts[:, 6:] = 0
    check(
        CLIP, "CLIPModel", config, floats(2, 3, 16, 16), texts, part="logits_per_image",
        x="pixel_values", tokens="input_ids",
    )  # fmt: skip


def test_whisper():
    check(
        Whisper, "WhisperForConditionalGeneration", transformers.WhisperConfig(**SPEECH),
        floats(2, 8, 20), tokens(2, 7), x="input_features", tokens="decoder_input_ids",
    )  # fmt: skip


def test_sound_as_whisper_wants_it():
    sound = floats(3 * 16000) * 0.1
    wanted = transformers.WhisperFeatureExtractor()(sound, sampling_rate=16000)
    np.testing.assert_allclose(log_mel(sound), wanted["input_features"][0], atol=1e-4)
