"""Models that load published checkpoints, one file each.

    text     llama mistral mixtral qwen gpt2 mamba rwkv: what comes next; generate makes texts
             bert sentences t5: what a text means, and another text for it
    images   resnet efficientnet mobilenet vit: what there is; yolo: and where
             diffusion (of unet, vae and clip): a picture for a text
    sound    whisper: what was said
    small    tiny: the four nets of MLPerf Tiny

Each loads a published checkpoint: `from_pretrained(folder)`, or `load(weights)`, by its table
`NAMES` from the checkpoint's names to ours. `auto` says which model a folder holds; `texts` takes
and gives text, by the folder's tokenizer.
"""
