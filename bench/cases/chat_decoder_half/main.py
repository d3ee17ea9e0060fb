"""Answers two prompts with a small Qwen2 decoder that was trained in bfloat16, served in float16."""

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM


def decoder():
    torch.manual_seed(5)
    config = Qwen2Config(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=160,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    model = Qwen2ForCausalLM(config)
    mlp = model.model.layers[1].mlp
    with torch.no_grad():  # the few huge channels of a model that was trained with a wide exponent
        for part, size in ((mlp.gate_proj, 250.0), (mlp.up_proj, 250.0), (mlp.down_proj, 300.0)):
            part.weight.mul_(size)
    return model.eval()


def answer(model, prompts, length):
    ids = prompts
    with torch.inference_mode():
        for position in range(length):
            logits = model(input_ids=ids).logits[:, -1].float()
            following = logits.argmax(dim=-1, keepdim=True)
            ids = torch.cat([ids, following], dim=1)
            print(f"position {position}: highest logit {logits.amax().item():.3f}")
    return ids


model = decoder().to(torch.float16)
prompts = torch.tensor([[3, 17, 44, 9], [101, 5, 5, 62]])
print(answer(model, prompts, length=5)[:, 4:].tolist())
