"""A llama of 0.6 MB with random weights, which says nothing: `python -m lab.engine.model FILE`."""

from __future__ import annotations

import sys
from pathlib import Path

import gguf
import numpy as np

WORDS, WIDTH, HEADS, LAYERS, INNER, CONTEXT = 512, 64, 4, 2, 128, 2048

TEMPLATE = "{% for m in messages %}{{ m['content'] }} {% endfor %}"


def write(path: Path) -> None:
    """Write it, the same each time."""
    random = np.random.default_rng(7)
    model = gguf.GGUFWriter(str(path), "llama")
    model.add_name("tiny")
    model.add_context_length(CONTEXT)
    model.add_embedding_length(WIDTH)
    model.add_block_count(LAYERS)
    model.add_feed_forward_length(INNER)
    model.add_head_count(HEADS)
    model.add_head_count_kv(HEADS)
    model.add_layer_norm_rms_eps(1e-5)
    model.add_rope_dimension_count(WIDTH // HEADS)
    model.add_vocab_size(WORDS)
    model.add_file_type(0)
    _add_words(model)

    def add(name: str, *shape: int) -> None:
        model.add_tensor(name, (random.standard_normal(shape) * 0.5).astype(np.float32))

    add("token_embd.weight", WORDS, WIDTH)
    model.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    add("output.weight", WORDS, WIDTH)
    for layer in (f"blk.{number}." for number in range(LAYERS)):
        for name in ("attn_norm", "ffn_norm"):
            model.add_tensor(f"{layer}{name}.weight", np.ones(WIDTH, np.float32))
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"{layer}{name}.weight", WIDTH, WIDTH)
        add(f"{layer}ffn_gate.weight", INNER, WIDTH)
        add(f"{layer}ffn_up.weight", INNER, WIDTH)
        add(f"{layer}ffn_down.weight", WIDTH, INNER)
    model.write_header_to_file()
    model.write_kv_data_to_file()
    model.write_tensors_to_file()
    model.close()


def _add_words(model: gguf.GGUFWriter) -> None:
    """Three of control, every byte, and pairs of letters."""
    kinds = gguf.TokenType
    pairs = [f"\u2581{a}{b}" for a in "abcdefghijklmnopqrstuvwxyz" for b in "aeioulrstn"]
    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pairs][:WORDS]
    types = [kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL, *[kinds.BYTE] * 256]
    model.add_tokenizer_model("llama")
    model.add_token_list([word.encode() for word in words])
    model.add_token_scores([-float(number) for number in range(WORDS)])
    model.add_token_types([*types, *[kinds.NORMAL] * (WORDS - len(types))])
    model.add_bos_token_id(1)
    model.add_eos_token_id(2)
    model.add_unk_token_id(0)
    model.add_chat_template(TEMPLATE)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
