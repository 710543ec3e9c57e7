"""Checkpoints load by name, in every published layout, or say what is wrong."""

import json
import re
from collections import defaultdict
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from model_reference import CHOOSING, DECODER, LLAMA3, made, tokens, transformers
from safetensors.torch import load_file, save_file

from tinygrad import Tensor, dtypes
from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.models.auto import load_model
from tinygrad.models.generate import generate
from tinygrad.models.llama import GGUF, GGUF_EXPERTS, HUGGING_FACE, ORIGINAL, Llama
from tinygrad.models.mixtral import Mixtral
from tinygrad.models.qwen import Qwen2, Qwen2Moe, Qwen3, Qwen3Moe
from tinygrad.models.resnet import TORCHVISION, ResNet
from tinygrad.nn.state import get_parameters


@pytest.fixture
def llama():
    model, folder = made("LlamaForCausalLM", transformers.LlamaConfig(**DECODER))
    return model, Path(folder)


def check(model, folder, ours=Llama):
    """The loaded model gives the scores of `model`."""
    text = tokens(2, 5)
    with torch.no_grad():
        wanted = model(torch.tensor(text).long()).logits.numpy()
    found = getattr(ours, "from_pretrained", ours)(folder)(Tensor(text)).numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-4)


def test_several_files_with_an_index(llama):
    model, folder = llama
    state = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = list(state)
    for number, part in enumerate((names[::2], names[1::2])):
        save_file({name: state[name] for name in part}, folder / f"part{number}.safetensors")
    where = {name: f"part{i % 2}.safetensors" for i, name in enumerate(names)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    check(model, folder)


def interleaved(weight, size=8):
    """Rows as Meta's files have them: a pair's numbers beside each other."""
    halves = weight.reshape(-1, 2, size // 2, *weight.shape[1:])
    return halves.transpose(1, 2).reshape(weight.shape).contiguous()


@pytest.mark.parametrize("names", [ORIGINAL, GGUF], ids=["Meta", "GGUF"])
def test_other_layouts(llama, names):
    model, folder = llama
    numbered = {
        theirs.replace("{}", str(i)): ours.replace("{}", str(i))
        for theirs, ours in names.items()
        if ours is not None
        for i in range(2)
    }
    back = {ours: theirs for theirs, ours in numbered.items()}
    state = {
        back[name.removesuffix(".weight")] + ".weight": interleaved(value)
        if ".q_proj" in name or ".k_proj" in name
        else value
        for name, value in load_file(folder / "model.safetensors").items()
    }
    save_file(state, folder / "model.safetensors")
    check(model, folder)


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_a_gguf_file_says_its_sizes_and_its_weights_stay_quantised(kind, tmp_path):
    sizes = DECODER | dict(hidden_size=64, intermediate_size=96)
    model, folder = made("LlamaForCausalLM", transformers.LlamaConfig(**sizes))
    gguf_file(tmp_path / "model.gguf", model, folder, kind=kind)
    check(model, tmp_path / "model.gguf")


@pytest.mark.parametrize("family, ours", [("qwen2", Qwen2), ("qwen3", Qwen3)])
def test_gguf_files_of_relatives(family, ours, tmp_path):
    config = getattr(transformers, f"{ours.__name__}Config")(**DECODER, head_dim=8)
    model, folder = made(f"{ours.__name__}ForCausalLM", config)
    gguf_file(tmp_path / "x.gguf", model, folder, family=family)
    check(model, tmp_path / "x.gguf", ours)
    assert type(load_model(tmp_path / "x.gguf")) is ours
    with pytest.raises(ArgumentError, match=f"Llama: .* is of {family}; legal is llama"):
        Llama.from_pretrained(tmp_path / "x.gguf")


EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64)
PLAIN = dict(rope_parameters=dict(rope_type="default", rope_theta=1e4))
MIXTURES = {
    "llama": ("Mixtral", Llama, PLAIN | dict(num_local_experts=3, sliding_window=None)),
    "qwen2moe": ("Qwen2Moe", Qwen2Moe, EXPERTS | dict(shared_expert_intermediate_size=32)),
    "qwen3moe": ("Qwen3Moe", Qwen3Moe, EXPERTS | dict(head_dim=16, norm_topk_prob=True)),
}


@pytest.mark.parametrize("family", MIXTURES)
def test_mixtures_in_gguf_files(family, tmp_path):
    """Experts lie in one tensor, and stay quantised; tokens are those of `transformers`."""
    name, ours, facts = MIXTURES[family]
    sizes = DECODER | dict(hidden_size=64, intermediate_size=96)
    model, folder = made(
        f"{name}ForCausalLM", getattr(transformers, f"{name}Config")(**sizes, **facts)
    )
    gguf_file(tmp_path / "x.gguf", model, folder, kind="Q8_0", family=family)
    check(model, tmp_path / "x.gguf", ours)
    loaded = load_model(tmp_path / "x.gguf")
    assert type(loaded) is ours
    prompt = tokens(1, 5)
    wanted = model.generate(torch.tensor(prompt).long(), max_new_tokens=6, do_sample=False)
    assert generate(loaded, prompt.tolist(), most=6) == wanted[:, 5:].tolist()


def test_a_gguf_file_with_a_tensor_for_each_expert_is_refused(tmp_path):
    model, folder = made("LlamaForCausalLM", transformers.LlamaConfig(**DECODER))
    gguf_file(tmp_path / "x.gguf", model, folder, {"llama.expert_count": 2})
    with pytest.raises(ArgumentError, match="legal is one tensor for all experts"):
        Llama.from_pretrained(tmp_path / "x.gguf")


def test_a_gguf_file_says_how_wavelengths_are_divided(tmp_path):
    config = transformers.LlamaConfig(**DECODER, rope_parameters=LLAMA3)
    model, folder = made("LlamaForCausalLM", config)
    plain = np.float32([500.0 ** (-2 * i / 8) for i in range(4)])
    divided = plain / model.model.rotary_emb.inv_freq.numpy()
    gguf_file(tmp_path / "x.gguf", model, folder, {"llama.rope.freq_base": 500.0},
              extra={"rope_freqs.weight": divided})  # fmt: skip
    check(model, tmp_path / "x.gguf")
    gguf_file(tmp_path / "x.gguf", model, folder, {"llama.rope.scaling.type": "longrope"})
    with pytest.raises(ArgumentError, match="rope_scaling 'longrope' without short_factor"):
        Llama.from_pretrained(tmp_path / "x.gguf")


@pytest.mark.parametrize(
    "fact, value, legal",
    [("attention.sliding_window", 5, "None or 0"), ("rope.dimension_count", 4, "8")],
)
def test_what_a_gguf_file_says_and_is_not_computed_is_refused(fact, value, legal, tmp_path):
    model, folder = made("LlamaForCausalLM", transformers.LlamaConfig(**DECODER))
    gguf_file(tmp_path / "x.gguf", model, folder, {f"llama.{fact}": value})
    with pytest.raises(ArgumentError, match=f"config's {fact} is {value}; legal is {legal}"):
        Llama.from_pretrained(tmp_path / "x.gguf")


def test_a_gguf_file_of_long_texts(tmp_path):
    yarn = dict(rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=16)
    config = transformers.LlamaConfig(**DECODER, rope_parameters=yarn)
    model, folder = made("LlamaForCausalLM", config)
    gguf_file(tmp_path / "x.gguf", model, folder, {
        "llama.rope.scaling.type": "yarn",
        "llama.rope.scaling.factor": 4.0,
        "llama.rope.scaling.original_context_length": 16,
    })  # fmt: skip
    check(model, tmp_path / "x.gguf")


def gguf_file(path, model, folder, facts=(), kind="F32", family="llama", extra=()):
    """The checkpoint of a decoder of two layers as a GGUF file; `model` gets the weights as they
    are after quantisation."""
    config = model.config
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer = gguf.GGUFWriter(path, family)
    writer.add_key_length(size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if experts := getattr(config, "num_experts", getattr(config, "num_local_experts", 0)):
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
    for name, value in dict(facts).items():
        inner = gguf.GGUFValueType.get_type(value[0]) if isinstance(value, list) else None
        writer.add_key_value(name, value, gguf.GGUFValueType.get_type(value), inner)
    state, places = load_file(Path(folder) / "model.safetensors"), gguf_places()
    if kind != "F32":
        known = {name: rounded(name, value, kind) for name, value in state.items()}
        save_file(known, Path(folder) / "model.safetensors")
        model.load_state_dict(type(model).from_pretrained(folder).state_dict())
    for name, value in together(state).items():
        number = name.partition("layers.")[2].partition(".")[0]
        row, _, part = name.replace(f"layers.{number}.", "layers.{}.").rpartition(".")
        turned = family == "llama" and ("q_proj" in name or "k_proj" in name)
        values, place = (interleaved(value, size) if turned else value).numpy(), places[row]
        type_ = None
        if kind != "F32" and is_quantised(name, value):
            type_ = gguf.GGMLQuantizationType[kind]
            values = gguf.quants.quantize(values, type_)
        if "gate_inp_shexp" in place:
            values = values.reshape(-1)
        writer.add_tensor(f"{place.replace('{}', number)}.{part}", values, raw_dtype=type_)
    for name, values in dict(extra).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_places():
    """From rows of Hugging Face's names to those of a GGUF file."""
    mixed = {
        ours if isinstance(ours, str) else ours[0]: name for name, ours in GGUF_EXPERTS.items()
    }
    names = {**Mixtral.NAMES, **Qwen2Moe.NAMES}
    found = {theirs: mixed[ours] for theirs, ours in names.items() if ours in mixed}
    return found | {theirs: name for name, theirs in GGUF.items() if theirs}


def is_quantised(name, value):
    """Routers and gates of one output stay floats, as vectors do."""
    return value.ndim > 1 and not re.search(r"(mlp|moe|expert)[._]gate\.", name)


def rounded(name, value, kind):
    """What a block format keeps of a weight."""
    if not is_quantised(name, value):
        return value
    raw = gguf.GGMLQuantizationType[kind]
    return torch.tensor(gguf.quants.dequantize(gguf.quants.quantize(value.numpy(), raw), raw))


def together(state):
    """The weights of a layer's experts as one, by a name with `*` for the number."""
    found = defaultdict(list)
    for name in sorted(state):
        found[re.sub(r"experts\.\d+", "experts.*", name)].append(state[name])
    return {n: torch.stack(parts) if "*" in n else parts[0] for n, parts in found.items()}


def test_pytorch_files_load_too(llama):
    model, folder = llama
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    check(model, folder)


def test_tables_lead_to_one_another():
    assert {v for v in ORIGINAL.values() if v} == {k for k, v in HUGGING_FACE.items() if v}
    assert {v for v in GGUF.values() if v} == {k for k, v in Qwen3.NAMES.items() if v}


def test_the_layout_of_torchvision():
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=5
    )
    _, folder = made("ResNetForImageClassification", config)
    state = load_file(Path(folder) / "model.safetensors")
    rows = {
        theirs.replace("{}", "0"): ours.replace("{}", "0") for theirs, ours in TORCHVISION.items()
    }
    renamed = {}
    for name, value in state.items():
        theirs, ours = next((t, o) for t, o in rows.items() if name.startswith(o + "."))
        renamed[theirs + name.removeprefix(ours)] = Tensor(value.numpy())
    assert {"conv1.weight", "layer2.0.downsample.1.running_var", "fc.bias"} <= set(renamed)
    image = Tensor.ones(1, 3, 32, 32)
    model = ResNet.from_pretrained(folder)
    np.testing.assert_allclose(
        ResNet(model.config).load(renamed)(image).numpy(), model(image).numpy(), atol=1e-5
    )


def test_missing_and_unexpected_names_are_listed(llama):
    _, folder = llama
    state = load_file(folder / "model.safetensors")
    state["odd"] = state.pop("model.norm.weight")
    save_file(state, folder / "model.safetensors")
    with pytest.raises(
        ArgumentError, match=r"Llama: the checkpoint lacks norm\.weight; it has odd"
    ):
        Llama.from_pretrained(folder)
    Llama.from_pretrained(folder, strict=False)


def test_an_expert_that_is_lost_or_of_another_size_is_named():
    config = transformers.MixtralConfig(**DECODER, num_local_experts=3)
    _, folder = made("MixtralForCausalLM", config)
    folder = Path(folder)
    whole = load_file(folder / "model.safetensors")
    name = "model.layers.1.block_sparse_moe.experts.{}.w2.weight"
    last, *_ = sorted((n for n in range(99) if name.format(n) in whole), reverse=True)
    lost = {n: t for n, t in whole.items() if n != name.format(last)}
    save_file(lost, folder / "model.safetensors")
    with pytest.raises(ArgumentError, match=rf"lacks layers\.1\.feed\.down\.weight\[{last}\];"):
        Mixtral.from_pretrained(folder)
    Mixtral.from_pretrained(folder, strict=False)
    save_file(whole | {name.format(77): whole[name.format(0)] + 1}, folder / "model.safetensors")
    with pytest.raises(ArgumentError, match=r"it has layers\.1\.feed\.down\.weight\[77\]"):
        Mixtral.from_pretrained(folder)
    save_file(whole | {name.format(1): torch.zeros(3, 3)}, folder / "model.safetensors")
    with pytest.raises(ShapeError, match=r"down\.weight\[1\] has shape \(3, 3\)"):
        Mixtral.from_pretrained(folder)


def test_a_wrong_size_is_named(llama):
    _, folder = llama
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 98}))
    with pytest.raises(ShapeError, match=r"embed\.weight has shape \(98, 32\).*\(97, 32\)"):
        Llama.from_pretrained(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_missing_file_is_named(llama, name):
    _, folder = llama
    (folder / name).unlink()
    with pytest.raises(ArgumentError, match=f"no {name} in .*; there is"):
        Llama.from_pretrained(folder)


def changed(folder, **values):
    """Writes another config.json; without what is `Ellipsis`."""
    file = Path(folder) / "config.json"
    said = {**json.loads(file.read_text()), **values}
    file.write_text(json.dumps({name: v for name, v in said.items() if v is not Ellipsis}))


@pytest.mark.parametrize(
    "values, message",
    [
        ({"hidden_size": ...}, "Llama: the config has no 'hidden_size'"),
        ({"rms_norm_eps": ...}, "Llama: the config has no 'rms_norm_eps'"),
        ({"num_hidden_layers": "2"}, "Llama: the config has a value that doesn't fit: .*integer"),
        ({"vocab_size": -1}, "Llama: the config has a value that doesn't fit: .*size -1"),
        ({"rope_parameters": "linear"}, "Llama: the config has a value that doesn't fit"),
    ],
)
def test_a_broken_config_is_refused(llama, values, message):
    changed(llama[1], **values)
    with pytest.raises(ArgumentError, match=message):
        Llama.from_pretrained(llama[1])


@pytest.mark.parametrize("text", ["", "{", "[1]", "\xff", "[" * 100_000])
def test_a_config_that_is_no_json_object_is_refused(llama, text):
    (llama[1] / "config.json").write_text(text, encoding="latin1")
    with pytest.raises(ArgumentError, match=r"config.json (is no JSON|holds no JSON object)"):
        Llama.from_pretrained(llama[1])


KINDS = {  # with heads of their own
    "Llama": transformers.LlamaConfig(**DECODER),
    "Mamba": transformers.MambaConfig(
        vocab_size=97, hidden_size=16, num_hidden_layers=1, tie_word_embeddings=False
    ),
    "GPT2": transformers.GPT2Config(
        vocab_size=97, n_positions=32, n_embd=16, n_layer=1, n_head=2, tie_word_embeddings=False
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_that_differs_is_not_tied(kind):
    """As in transformers, whatever the config says; an equal one is."""
    model, folder = made(
        f"{kind}LMHeadModel" if kind == "GPT2" else f"{kind}ForCausalLM", KINDS[kind]
    )
    changed(folder, tie_word_embeddings=True)
    check(model, folder, load_model)
    assert load_model(folder).head is not None
    file = Path(folder) / "model.safetensors"
    state = load_file(file)
    (head,) = (name for name in state if name.endswith("head.weight"))
    save_file({**state, head: model.get_input_embeddings().weight.detach().clone()}, file)
    assert load_model(folder).head is None


def test_mixtral_has_wavelengths_of_its_own_where_nothing_is_said():
    model, folder = made(*CHOOSING)
    changed(folder, rope_parameters=...)
    check(model, folder, Mixtral)


def test_a_checkpoint_of_bfloat16_stays_one():
    """Twenty tokens: sums for each feature inside were kept as if there were one for each row."""
    model, folder = made("LlamaForCausalLM", transformers.LlamaConfig(**DECODER))
    model.to(torch.bfloat16).save_pretrained(folder)
    text = tokens(2, 20)
    with torch.no_grad():
        wanted = model(torch.tensor(text).long()).logits.float().numpy()
    found = Llama.from_pretrained(folder)(Tensor(text))
    assert found.dtype is dtypes.bfloat16
    np.testing.assert_allclose(found.float().numpy(), wanted, atol=0.2)


def test_weights_in_another_dtype(llama):
    _, folder = llama
    model = Llama.from_pretrained(folder, dtype=dtypes.bfloat16)
    assert model(Tensor([[1, 2]])).dtype is dtypes.bfloat16
    with pytest.raises(ArgumentError, match=r"weights of dtypes.char; legal are dtypes of floats"):
        Llama.from_pretrained(folder, dtype=dtypes.int8)


def test_weights_of_a_gguf_file_in_another_dtype(llama, tmp_path):
    gguf_file(tmp_path / "x.gguf", *llama)
    model = Llama.from_pretrained(tmp_path / "x.gguf", dtype=dtypes.float16)
    assert {weight.dtype for weight in get_parameters(model)} == {dtypes.float16}
