"""Make a tiny Llama with random weights for llama.cpp, whose tokens are the words w0, w1, ...: llama.py FOLDER HIDDEN LAYERS WORDS."""

import os
import sys

import numpy
from gguf import GGUFWriter, TokenType

folder = sys.argv[1]
hidden, layers, count = map(int, sys.argv[2:])
heads = 8

# The tokenizer of RWKV takes the longest known text. A word after a space is a token of its own.
words = ["<s>", "</s>", "<unk>"] + [space + f"w{i}" for space in ("", " ") for i in range(count)]
kinds = [TokenType.CONTROL, TokenType.CONTROL, TokenType.UNKNOWN] + [TokenType.NORMAL] * (2 * count)

os.makedirs(folder, exist_ok=True)
out = GGUFWriter(os.path.join(folder, "model.gguf"), "llama")
out.add_context_length(8192)
out.add_embedding_length(hidden)
out.add_block_count(layers)
out.add_feed_forward_length(2 * hidden)
out.add_head_count(heads)
out.add_head_count_kv(heads)
out.add_rope_dimension_count(hidden // heads)
out.add_layer_norm_rms_eps(1e-6)
out.add_vocab_size(len(words))
out.add_tokenizer_model("rwkv")
out.add_token_list(words)
out.add_token_types(kinds)
out.add_bos_token_id(0)
out.add_eos_token_id(1)
out.add_unk_token_id(2)
out.add_add_bos_token(False)

random = numpy.random.default_rng(1)


def weights(name, *shape):
    out.add_tensor(name, random.normal(0, 0.02, shape).astype(numpy.float32))


def ones(name):
    out.add_tensor(name, numpy.ones(hidden, numpy.float32))


weights("token_embd.weight", len(words), hidden)
ones("output_norm.weight")
for layer in range(layers):
    at = f"blk.{layer}."
    ones(at + "attn_norm.weight")
    ones(at + "ffn_norm.weight")
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        weights(at + name + ".weight", hidden, hidden)
    weights(at + "ffn_gate.weight", 2 * hidden, hidden)
    weights(at + "ffn_up.weight", 2 * hidden, hidden)
    weights(at + "ffn_down.weight", hidden, 2 * hidden)
out.write_header_to_file()
out.write_kv_data_to_file()
out.write_tensors_to_file()
out.close()
