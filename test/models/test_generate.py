"""Text made token by token is what the model's scores say, whatever the prompts."""

import numpy as np
import pytest
import torch
from model_reference import (
    CHOOSING,
    DECODER,
    QWEN2,
    QWEN3,
    SLIDING,
    SPEECH,
    floats,
    made,
    tokens,
    transformers,
)

from tinygrad import GlobalCounters, Tensor
from tinygrad.base.errors import ArgumentError
from tinygrad.models.decoder import Decoder, DecoderConfig
from tinygrad.models.generate import CacheSteps, generate, stream
from tinygrad.models.gpt2 import GPT2
from tinygrad.models.llama import Llama
from tinygrad.models.mamba import Mamba
from tinygrad.models.mistral import Mistral
from tinygrad.models.mixtral import Mixtral
from tinygrad.models.qwen import Qwen2, Qwen3
from tinygrad.models.rwkv import RWKV
from tinygrad.models.sampling import Sampler
from tinygrad.models.t5 import T5
from tinygrad.models.whisper import Whisper
from tinygrad.nn.quantised import quantise
from tinygrad.nn.state import get_state_dict

MOST = 8


def greedy(model, prompts):
    """The best next token, again and again, from the scores of the whole text."""
    results = []
    for prompt in prompts:
        text = list(prompt)
        for _ in range(MOST):
            with torch.no_grad():
                text.append(int(model(torch.tensor([text])).logits[0, -1].argmax()))
        results.append(text[len(prompt) :])
    return results


MODELS = {
    "LLaMA": (Llama, "LlamaForCausalLM", transformers.LlamaConfig(**DECODER)),
    "Mistral": (Mistral, *SLIDING),
    "GPT-2": (
        GPT2,
        "GPT2LMHeadModel",
        transformers.GPT2Config(vocab_size=97, n_positions=128, n_embd=32, n_layer=1, n_head=4),
    ),
    "Mamba": (
        Mamba,
        "MambaForCausalLM",
        transformers.MambaConfig(
            vocab_size=97, hidden_size=32, num_hidden_layers=1, state_size=4, pad_token_id=None
        ),
    ),
}


SLOW = {
    "Mixtral": (Mixtral, *CHOOSING),
    "Qwen 2": (Qwen2, *QWEN2),
    "Qwen 3": (Qwen3, *QWEN3),
    "RWKV": (
        RWKV,
        "RwkvForCausalLM",
        transformers.RwkvConfig(
            vocab_size=97, hidden_size=32, num_hidden_layers=2, attention_hidden_size=32
        ),
    ),
}


@pytest.mark.parametrize(
    "name", [*MODELS, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_greedy_text_of_prompts_of_all_lengths(name):
    ours, kind, config = {**MODELS, **SLOW}[name]
    theirs, folder = made(kind, config)
    model = ours.from_pretrained(folder)
    for lengths in ((1,), (70,), (3, 20, 9)):
        prompts = [tokens(length).tolist() for length in lengths]
        assert generate(model, prompts, most=MOST) == greedy(theirs, prompts)


@pytest.mark.parametrize("device", ["CPU:1", ("CPU:1", "CPU:2")])
@pytest.mark.parametrize(
    "name", [*MODELS, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_a_model_writes_where_it_lies(name, device):
    ours, kind, config = {**MODELS, **SLOW}[name]
    theirs, folder = made(kind, config)
    model = ours.from_pretrained(folder)
    for tensor in get_state_dict(model).values():
        tensor.to_(device)
    prompts = [tokens(length).tolist() for length in (3, 20)]
    assert generate(model, prompts, most=MOST) == greedy(theirs, prompts)


SCALINGS = {
    "dynamic": dict(factor=3.0),
    "longrope": dict(
        short_factor=[1.0, 1.1, 1.2, 1.3],
        long_factor=[1.5, 2.0, 3.0, 4.0],
        original_max_position_embeddings=32,
    ),
}


@pytest.mark.parametrize("name", SCALINGS)
def test_text_that_grows_longer_than_those_of_the_training(name):
    """Keys stay as they were turned, and a prompt in chunks is turned as one."""
    rope = SCALINGS[name] | dict(rope_type=name, rope_theta=10000.0)
    config = transformers.LlamaConfig(
        **DECODER | dict(max_position_embeddings=32), rope_parameters=rope, eos_token_id=None
    )
    theirs, folder = made("LlamaForCausalLM", config)
    model = Llama.from_pretrained(folder)
    for length in (70, 30):
        prompt = tokens(1, length)
        wanted = theirs.generate(torch.tensor(prompt).long(), max_new_tokens=6, do_sample=False)
        assert generate(model, prompt.tolist(), most=6) == wanted[:, length:].tolist()


def test_an_answer_to_texts_of_two_lengths():
    config = transformers.T5Config(
        vocab_size=97, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
        relative_attention_num_buckets=8, relative_attention_max_distance=12,
    )  # fmt: skip
    theirs, folder = made("T5ForConditionalGeneration", config)
    given, mask = tokens(2, 20), np.ones((2, 20), np.int32)
    mask[1, 6:] = 0
    model = T5.from_pretrained(folder)
    found = generate(model.read(Tensor(given), Tensor(mask)), [[0], [0]], most=20)
    for tensor in get_state_dict(model).values():
        tensor.to_("CPU:1")
    read = model.read(*(Tensor(x, device="CPU:1") for x in (given, mask)))
    assert found == generate(read, [[0], [0]], most=20)
    text = torch.tensor([[0], [0]])
    names = {"input_ids": torch.tensor(given).long(), "attention_mask": torch.tensor(mask)}
    with torch.no_grad():
        for _ in range(20):
            scores = theirs(**names, decoder_input_ids=text).logits
            text = torch.cat([text, scores[:, -1:].argmax(-1)], 1)
    assert found == text[:, 1:].tolist()


def test_text_of_a_sound():
    theirs, folder = made("WhisperForConditionalGeneration", transformers.WhisperConfig(**SPEECH))
    sound = floats(2, 8, 20)
    model = Whisper.from_pretrained(folder)
    found = generate(model.heard(Tensor(sound)), [[3], [3]], most=MOST)
    for tensor in get_state_dict(model).values():
        tensor.to_("CPU:1")
    assert found == generate(model.heard(Tensor(sound, device="CPU:1")), [[3], [3]], most=MOST)
    text = torch.tensor([[3], [3]])
    with torch.no_grad():
        for _ in range(MOST):
            scores = theirs(torch.tensor(sound), decoder_input_ids=text).logits
            text = torch.cat([text, scores[:, -1:].argmax(-1)], 1)
    assert found == text[:, 1:].tolist()


def small():
    _, folder = made("LlamaForCausalLM", transformers.LlamaConfig(**DECODER))
    return Llama.from_pretrained(folder)


def test_one_captured_step_serves_all_places():
    made_after = []
    for _ in stream(small(), [[5, 6, 7]], most=20):
        made_after.append((GlobalCounters.plans_made, GlobalCounters.kernels_lowered))
    assert len(set(made_after[3:])) == 1  # the prompt, the first token, and its capture


EVEN = DecoderConfig(vocab=100, dim=64, layers=1, heads=4, kv_heads=2, hidden=128)


@pytest.mark.parametrize("bits", [8, pytest.param(4, marks=pytest.mark.slow)])
def test_prompts_in_chunks_by_quantised_weights(bits):
    model, prompts = Decoder(EVEN), [[1, 15, 7], [*range(70)]]
    quantise(model, bits)
    found = CacheSteps(model, 2, 80).prompts(prompts)
    wanted = [model(Tensor([prompt]))[0, -1].numpy() for prompt in prompts]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_a_sequence_ends_before_its_stop_token():
    model, prompts = small(), [tokens(4).tolist(), tokens(7).tolist()]
    whole = generate(model, prompts, most=MOST)
    stop = whole[0][3]
    ended = [text[: text.index(stop)] if stop in text else text for text in whole]
    assert generate(model, prompts, most=MOST, stop={stop}) == ended


@pytest.mark.parametrize("prompts", [[], [[]], [[1], []]])
def test_a_prompt_has_a_token(prompts):
    with pytest.raises(ArgumentError, match="legal are one or more prompts of one token or more"):
        generate(small(), prompts)


@pytest.mark.parametrize(
    "given",
    [
        dict(prompts=[[1.5]]),
        dict(prompts=["abc"]),
        dict(prompts=[1, 2]),
        dict(prompts=[[1]], most=1.5),
        dict(prompts=[[1]], most=-1),
        dict(prompts=[[1]], stop=2),
    ],
)
def test_prompts_are_lists_of_whole_numbers(given):
    with pytest.raises(ArgumentError, match="generate: .*; legal are"):
        generate(small(), **given)


def test_prompts_may_be_arrays():
    assert generate(small(), np.array([[1, 2]]), most=3) == generate(small(), [[1, 2]], most=3)


def test_a_text_may_be_as_long_as_the_model_knows_places():
    config = transformers.GPT2Config(vocab_size=97, n_positions=30, n_embd=32, n_layer=1, n_head=4)
    theirs, folder = made("GPT2LMHeadModel", config)
    model, prompt = GPT2.from_pretrained(folder), tokens(30 - MOST).tolist()
    assert generate(model, [prompt], most=MOST) == greedy(theirs, [prompt])
    with pytest.raises(ArgumentError, match="31 tokens, prompt included; .* have at most 30"):
        generate(model, [prompt], most=MOST + 1)


# ---- sampling ------------------------------------------------------------------------------------

FILTERS = {
    "top_k": (dict(top_k=7), lambda: transformers.TopKLogitsWarper(7)),
    "top_p": (dict(top_p=0.6), lambda: transformers.TopPLogitsWarper(0.6)),
    "min_p": (dict(min_p=0.2), lambda: transformers.MinPLogitsWarper(0.2)),
}


@pytest.mark.parametrize("name", FILTERS)
def test_what_may_be_drawn(name):
    options, theirs = FILTERS[name]
    scores = floats(5, 97) * 3
    found = Sampler(**options).filtered(scores)
    wanted = theirs()(torch.zeros(5, 1, dtype=torch.long), torch.tensor(scores)).numpy()
    np.testing.assert_array_equal(np.isinf(found), np.isinf(wanted))


def test_of_equals_no_more_are_kept_than_are_needed():
    """Scores of narrow floats are often equal. Which of them stay is a matter of sorting."""
    scores = np.round(floats(20, 97))
    found = Sampler(top_p=0.6).filtered(scores)
    wanted = transformers.TopPLogitsWarper(0.6)(torch.zeros(20, 1), torch.tensor(scores)).numpy()
    np.testing.assert_array_equal(np.sort(found), np.sort(wanted))


def test_repetition_is_penalised():
    seen = tokens(3, 6)
    scores = floats(3, 97)
    theirs = transformers.RepetitionPenaltyLogitsProcessor(1.5)
    wanted = theirs(torch.tensor(seen).long(), torch.tensor(scores)).argmax(-1).tolist()
    assert Sampler(1.5, temperature=0)(scores, seen.tolist()) == wanted


def test_tokens_are_drawn_as_often_as_likely():
    scores = np.log(np.float32([[0.1, 0.2, 0.7]]))
    sampler = Sampler(seed=1)
    draws = np.bincount([sampler(scores, [[]])[0] for _ in range(20000)], minlength=3) / 20000
    np.testing.assert_allclose(draws, [0.1, 0.2, 0.7], atol=0.015)


def test_a_seed_repeats_a_text():
    model = small()
    texts = [generate(model, [[1, 2]], Sampler(seed=seed), MOST) for seed in (3, 3, 4)]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(
    "options",
    [
        dict(temperature=-1), dict(top_p=0), dict(top_k=-1), dict(top_k=1.5), dict(min_p=2),
        dict(seed=-1), dict(seed=1.5), dict(top_k=True), dict(temperature="1"), dict(top_p=None),
    ],
)  # fmt: skip
def test_sampling_refuses_what_has_no_meaning(options):
    with pytest.raises(ArgumentError, match=f"Sampler: {next(iter(options))} is .*; legal are"):
        Sampler(**options)


def test_numbers_of_numpy_are_numbers():
    sampler = Sampler(top_k=np.int64(1), temperature=np.float32(2))
    assert sampler(np.float32([[1, 3, 2]]), [[]]) == [1]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("best", [np.nan, np.inf, -np.inf])
def test_scores_that_say_nothing_are_refused(best, temperature):
    """A token beyond the vocabulary was drawn."""
    scores = np.float32([[1, 2, 3], [-np.inf, best, -np.inf]])
    with pytest.raises(ArgumentError, match=r"the best scores are \[3.0, .*; legal are finite"):
        Sampler(temperature=temperature)(scores, [[], []])


@pytest.mark.parametrize("temperature", [1e-40, 1e-30, 0])
def test_a_small_temperature_takes_the_best(temperature):
    assert Sampler(temperature=temperature)(np.float32([[-1, -0.5, -3]]), [[]]) == [1]
