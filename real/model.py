"""Make a tiny Llama with random weights, whose tokens are the words w0, w1, ...: model.py FOLDER HIDDEN LAYERS."""

import sys

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

WORDS = 1000

folder, hidden, layers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
vocabulary = {"<s>": 0, "</s>": 1, "<unk>": 2} | {f"w{i}": i + 3 for i in range(WORDS)}
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
