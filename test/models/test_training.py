"""The gradients of one step are PyTorch's."""

import numpy as np
import pytest
import torch
from model_reference import ENCODER, floats, made, saved, tokens, transformers
from torch.nn import functional

from tinygrad import Tensor
from tinygrad.models.gpt2 import GPT2
from tinygrad.models.resnet import ResNet
from tinygrad.models.vit import ViT
from tinygrad.nn.state import get_state_dict

ROWS = {
    "GPT-2": (
        GPT2,
        "GPT2LMHeadModel",
        transformers.GPT2Config(
            vocab_size=97,
            n_positions=16,
            n_embd=32,
            n_layer=1,
            n_head=4,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
        ),  # fmt: skip
        tokens(2, 9),
    ),
    "ResNet": (
        ResNet,
        "ResNetForImageClassification",
        transformers.ResNetConfig(
            embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=5
        ),
        floats(4, 3, 32, 32),
    ),
    "ViT": (
        ViT,
        "ViTForImageClassification",
        transformers.ViTConfig(
            **ENCODER | dict(num_hidden_layers=1),
            image_size=16,
            patch_size=4,
            num_labels=5,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        ),  # fmt: skip
        floats(2, 3, 16, 16),
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_gradients_of_a_step(name):
    ours, kind, config, given = ROWS[name]
    theirs, folder = made(kind, config)
    model = ours.from_pretrained(folder)
    classes = given if given.ndim == 2 else np.arange(given.shape[0], dtype=np.int32)
    there = torch.tensor(given)
    theirs.train()
    scores = theirs(there if there.is_floating_point() else there.long()).logits
    loss = functional.cross_entropy(scores.flatten(0, -2), torch.tensor(classes).long().flatten())
    loss.backward()
    with torch.no_grad():  # a checkpoint of gradients
        for weight in theirs.parameters():
            weight.copy_(torch.zeros_like(weight) if weight.grad is None else weight.grad)
    wanted = get_state_dict(ours.from_pretrained(saved(theirs)))
    places = {n: t for n, t in get_state_dict(model).items() if t.requires_grad is not False}
    with Tensor.train():
        scores = model(Tensor(given))
        flat = scores.reshape(-1, scores.shape[-1])
        mine = flat.sparse_categorical_crossentropy(Tensor(classes.reshape(-1)))
        found = mine.gradient(*places.values())
        mine.realize(*found)
    np.testing.assert_allclose(mine.item(), loss.item(), rtol=1e-4)
    for weight, gradient in zip(places, found, strict=True):
        np.testing.assert_allclose(
            gradient.numpy(), wanted[weight].numpy(), rtol=1e-3, atol=1e-4, err_msg=weight
        )
