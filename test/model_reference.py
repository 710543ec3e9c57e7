"""Small random models of `transformers` and `diffusers`, and their checkpoints: the oracles."""

import tempfile
import warnings

import numpy as np
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

RANDOM = np.random.default_rng(7)


def randomised(model):
    """The model with weights of all sizes, so that nothing is hidden by a 0 or a 1."""
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(0, (1.5 / max(weight[0].numel(), 1)) ** 0.5)
            else:
                weight.add_(torch.randn_like(weight) * 0.1)
        for name, value in model.named_buffers():
            if name.endswith("running_mean"):
                value.normal_(0, 0.1)
            elif name.endswith("running_var"):
                value.uniform_(0.5, 1.5)
    return model.eval()


def saved(model):
    """The folder of its checkpoint."""
    folder = tempfile.mkdtemp()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save_pretrained(folder)
    return folder


def made(kind, config):
    """A random model of this class of `transformers`, and the folder of its checkpoint."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = randomised(getattr(transformers, kind)(config))
    return model, saved(model)


def tokens(*shape, vocab=97):
    return RANDOM.integers(1, vocab, shape).astype(np.int32)


def floats(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


DECODER = dict(
    vocab_size=97,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
    pad_token_id=None,
)
CHOOSING = (
    "MixtralForCausalLM",
    transformers.MixtralConfig(**DECODER, num_local_experts=3, sliding_window=None),
)
QWEN2 = ("Qwen2ForCausalLM", transformers.Qwen2Config(**DECODER))
QWEN3 = ("Qwen3ForCausalLM", transformers.Qwen3Config(**DECODER, head_dim=16))
SLIDING = ("MistralForCausalLM", transformers.MistralConfig(**DECODER, sliding_window=5))
LLAMA3 = dict(
    rope_type="llama3",
    rope_theta=500.0,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=16,
)
ENCODER = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)
SPEECH = dict(
    vocab_size=97,
    d_model=16,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=2,
    decoder_attention_heads=2,
    encoder_ffn_dim=24,
    decoder_ffn_dim=24,
    max_source_positions=10,
    max_target_positions=32,
    num_mel_bins=8,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    decoder_start_token_id=3,
)
