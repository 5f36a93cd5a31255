"""Make a tiny Llama with random weights, whose tokens are the words w0, w1, ...: model.py FOLDER HIDDEN LAYERS WORDS ADAPTERS."""

import json
import os
import sys

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

RANK = 8

folder = sys.argv[1]
hidden, layers, count, adapters = map(int, sys.argv[2:])
vocabulary = {"<s>": 0, "</s>": 1, "<unk>": 2} | {f"w{i}": i + 3 for i in range(count)}
words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<s>", eos_token="</s>", pad_token="</s>", unk_token="<unk>")
tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
tokenizer.save_pretrained(folder)
LlamaForCausalLM(
    LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=8,
        num_key_value_heads=8,
        max_position_embeddings=8192,
        bos_token_id=0,
        eos_token_id=1,
        tie_word_embeddings=True,
    )
).save_pretrained(folder)
for adapter in range(adapters):
    path = os.path.join(folder, "adapters", str(adapter))
    os.makedirs(path)
    weights = {}
    for layer in range(layers):
        for name in ("q_proj", "v_proj"):
            at = f"base_model.model.model.layers.{layer}.self_attn.{name}.lora_"
            weights |= {at + "A.weight": torch.randn(RANK, hidden) / 100, at + "B.weight": torch.randn(hidden, RANK) / 100}
    save_file(weights, os.path.join(path, "adapter_model.safetensors"))
    with open(os.path.join(path, "adapter_config.json"), "w") as file:
        json.dump({"peft_type": "LORA", "r": RANK, "lora_alpha": RANK, "target_modules": ["q_proj", "v_proj"], "bias": "none"}, file)
os.makedirs(os.path.join(folder, "adapters"), exist_ok=True)
