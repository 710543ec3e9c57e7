"""Stable Diffusion's parts and its whole way from noise to picture are diffusers'."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from model_reference import ENCODER, floats, made, randomised, saved, tokens, transformers

from tinygrad import Tensor
from tinygrad.base.errors import ArgumentError
from tinygrad.models.diffusion import Schedule, StableDiffusion
from tinygrad.models.unet import UNet
from tinygrad.models.vae import VAE

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from diffusers import AutoencoderKL, DDIMScheduler, UNet2DConditionModel

UNET = dict(
    sample_size=8,
    block_out_channels=(32, 64),
    layers_per_block=1,
    down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
    up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    cross_attention_dim=32,
    attention_head_dim=4,
    norm_num_groups=8,
)
BLOCKS = dict(
    down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2
)


def built(kind, **config):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return randomised(kind(**config))


UNETS = {
    "Stable Diffusion 1": {},
    "Stable Diffusion 2": dict(use_linear_projection=True),
    "inpainting, a block more below": dict(
        in_channels=9, layers_per_block=(1, 2), attention_head_dim=(2, 4)
    ),
}


@pytest.mark.parametrize("name", UNETS)
def test_unet(name):
    theirs = built(UNet2DConditionModel, **UNET | UNETS[name])
    x, text, steps = (
        floats(2, theirs.config.in_channels, 8, 8),
        floats(2, 7, 32),
        np.array([3, 700], np.int32),
    )
    with torch.no_grad():
        wanted = theirs(torch.tensor(x), torch.tensor(steps), torch.tensor(text)).sample.numpy()
    found = UNet.from_pretrained(saved(theirs))(Tensor(x), Tensor(steps), Tensor(text)).numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-4)


def autoencoder():
    return built(
        AutoencoderKL, block_out_channels=(16, 32), layers_per_block=1, norm_num_groups=8, **BLOCKS
    )


def test_vae():
    theirs = autoencoder()
    ours = VAE.from_pretrained(saved(theirs))
    image, latents = floats(1, 3, 16, 16), floats(1, 4, 8, 8)
    with torch.no_grad():
        code = theirs.encode(torch.tensor(image)).latent_dist
        back = theirs.decode(torch.tensor(latents)).sample.numpy()
    mean, variance = ours.moments(Tensor(image))
    np.testing.assert_allclose(mean.numpy(), code.mean.numpy(), atol=1e-4)
    np.testing.assert_allclose(variance.numpy(), code.logvar.numpy(), atol=1e-4)
    decoded = ours.decode(Tensor(latents) * ours.config.scale)
    np.testing.assert_allclose(decoded.numpy(), back, atol=1e-4)


@pytest.mark.parametrize(
    "said", [{"clip_sample": True}, {"timestep_spacing": "trailing"}, {"beta_schedule": "linear"}]
)
def test_another_schedule_is_refused(said):
    ((name, value),) = said.items()
    with pytest.raises(ArgumentError, match=f"diffusion: the config's {name} is {value!r}; legal"):
        Schedule.from_config({"beta_schedule": "scaled_linear", **said})


@pytest.mark.parametrize("kind", [pytest.param("epsilon", marks=pytest.mark.slow), "v_prediction"])
def test_from_noise_to_latents(kind, tmp_path):
    config = transformers.CLIPTextConfig(
        **ENCODER | dict(num_hidden_layers=1), vocab_size=97, max_position_embeddings=12
    )
    text, folder = made("CLIPTextModel", config)
    unet = built(UNet2DConditionModel, **UNET)
    scheduler = DDIMScheduler(
        beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", clip_sample=False,
        set_alpha_to_one=False, steps_offset=1, prediction_type=kind,
    )  # fmt: skip
    Path(folder).rename(tmp_path / "text_encoder")
    Path(saved(unet)).rename(tmp_path / "unet")
    Path(saved(autoencoder())).rename(tmp_path / "vae")
    (tmp_path / "scheduler").mkdir()
    (tmp_path / "scheduler" / "scheduler_config.json").write_text(
        json.dumps(dict(scheduler.config))
    )
    words, noise = tokens(1, 12), floats(1, 4, 8, 8)
    pipe = StableDiffusion.from_pretrained(tmp_path)
    *_, found = pipe.stream(Tensor(words), steps=3, height=64, width=64, start=Tensor(noise))

    scheduler.set_timesteps(3)
    x = torch.tensor(noise)
    with torch.no_grad():
        states = text(torch.tensor(np.concatenate([0 * words, words])).long()).last_hidden_state
        for step in scheduler.timesteps:
            without, fitting = unet(torch.cat([x, x]), step, states).sample.chunk(2)
            x = scheduler.step(without + 7.5 * (fitting - without), step, x).prev_sample
    np.testing.assert_allclose(found.numpy(), x.numpy(), rtol=1e-3, atol=1e-3)
    picture = pipe(Tensor(words), steps=1, height=64, width=64, seed=1)
    assert picture.shape == (1, 3, 16, 16)  # two levels halve once, not three times
    with pytest.raises(ArgumentError, match="65 x 64; legal are multiples of 64"):
        pipe(Tensor(words), height=65, width=64)
