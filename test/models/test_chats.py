"""Conversations are written as transformers writes them, and a template can't do harm."""

import json

import gguf
import pytest
import torch
from model_reference import DECODER, made, transformers
from models.test_texts import trained

from tinygrad.base.errors import ArgumentError
from tinygrad.cli import main
from tinygrad.models.chats import answer, chat_text
from tinygrad.models.llama import Llama

TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Why is <b>1 < 2</b>?"},
    {"role": "assistant", "content": "It is."},
    {"role": "user", "content": "Und ö?"},
]
TEMPLATE = """{{ bos_token }}{% for message in messages %}
    {%- if message.role == "nobody" %}{{ raise_exception("nobody speaks") }}{% endif %}
{{ "<|im_start|>" + message["role"] }}
{{ message["content"] | trim }}{% if loop.last and tools %}{{ tools | tojson }}{% endif %}<|im_end|>
{% endfor %}
{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


@pytest.fixture(scope="module")
def folder():
    config = transformers.LlamaConfig(**DECODER | dict(vocab_size=400))
    _, folder = made("LlamaForCausalLM", config)
    special = ("<|im_start|>", "<|im_end|>", "<s>")
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=trained(special=special), bos_token="<s>", eos_token="<|im_end|>"
    )
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("options", [{}, {"add_generation_prompt": False}, {"tools": [{"ö": "<"}]}])
def test_a_conversation_is_the_text_that_transformers_makes(folder, options):
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    given = {"add_generation_prompt": True, **options}
    wanted = theirs.apply_chat_template(TALK, tokenize=False, **given)
    assert chat_text(folder, TALK, **options) == wanted


def test_tags_for_training_and_options_of_json_are_known(folder, tmp_path):
    """As in SmolLM3's template: what the model says is marked, for who trains on it."""
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    theirs.chat_template = (
        "{% for m in messages %}\n{{ m | tojson(separators=(',', ':'), sort_keys=true) }}\n"
        "{%- if m.role == 'assistant' %} {% generation -%}\n {{ m.content }}\n"
        "{%- endgeneration %}\n{% else %}{{ m.content }}{% endif %}{% endfor %}"
    )
    theirs.save_pretrained(tmp_path)
    talk = [*TALK, {"role": "assistant", "content": " ja "}]
    wanted = theirs.apply_chat_template(talk, tokenize=False)
    assert chat_text(tmp_path, talk, add_generation_prompt=False) == wanted


def test_an_answer_is_what_the_scores_say(folder):
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.LlamaForCausalLM.from_pretrained(folder)
    text = theirs.apply_chat_template(TALK, tokenize=False, add_generation_prompt=True)
    tokens = given = theirs(text, add_special_tokens=False, return_tensors="pt").input_ids
    with torch.no_grad():
        for _ in range(4):
            tokens = torch.cat([tokens, model(tokens).logits[:, -1:].argmax(-1)], 1)
    wanted = theirs.decode(tokens[0, given.shape[1] :], skip_special_tokens=True)
    assert "".join(answer(Llama.from_pretrained(folder), TALK, most=4)) == wanted


def test_the_command_answers(folder, capsys):
    said = [{"role": "user", "content": "Why?"}]
    wanted = "".join(answer(Llama.from_pretrained(folder), said, most=4))
    assert main(["generate", str(folder), "Why?", "--most", "4", "--chat"]) == 0
    assert capsys.readouterr().out == wanted + "\n"


def test_a_gguf_file_has_its_template(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    writer.add_token_list(["<s>", "a", "<pad>", "<unk>", "<sep>"])
    writer.add_bos_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_unk_token_id(3)
    writer.add_sep_token_id(4)
    writer.add_chat_template(
        "{{ bos_token }}{{ messages[0].content }}{{ pad_token }}{{ unk_token }}{{ sep_token }}"
    )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert (
        chat_text(tmp_path / "x.gguf", [{"role": "user", "content": "Hi"}])
        == "<s>Hi<pad><unk><sep>"
    )


def test_a_template_may_name_every_token_and_tools_may_have_their_own(folder, tmp_path):
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    theirs.add_special_tokens({"sep_token": "<sep>", "mask_token": "<mask>", "cls_token": "<cls>"})
    theirs.chat_template = "{{ sep_token }}{{ mask_token }}{{ cls_token }}{{ tools }}"
    theirs.save_pretrained(tmp_path)
    assert chat_text(tmp_path, TALK) == theirs.apply_chat_template(TALK, tokenize=False)
    several = {"default": "plain", "tool_use": "{{ tools | length }} tools"}
    listed = [{"name": name, "template": text} for name, text in several.items()]
    (tmp_path / "chat_template.jinja").unlink()
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": listed}))
    assert chat_text(tmp_path, TALK) == "plain"
    assert chat_text(tmp_path, TALK, tools=[{}, {}]) == "2 tools"


@pytest.mark.parametrize(
    "template, message",
    [
        ("{{ raise_exception('nobody speaks') }}", "nobody speaks"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "is unsafe"),
        ("{% for %}", "chat template of"),
        ("{{ messages.append(1) }}", "is not safely callable|chat template of"),
    ],
)
def test_a_bad_template_is_an_error(tmp_path, template, message):
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    with pytest.raises(ArgumentError, match=message):
        chat_text(tmp_path, TALK)


def test_a_folder_without_a_template_says_so(tmp_path):
    with pytest.raises(ArgumentError, match="has no chat template; legal are chat_template.jinja"):
        chat_text(tmp_path, TALK)
