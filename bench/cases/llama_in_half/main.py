import torch
from transformers import LlamaConfig, LlamaForCausalLM

CONFIG = LlamaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
)


def checkpoint():
    """Weights as they come out of a long training in bfloat16: one unit fires very strongly on token 9."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(CONFIG)
    with torch.no_grad():
        model.model.embed_tokens.weight.normal_()
        feature = torch.nn.functional.normalize(model.model.embed_tokens.weight[9], dim=0)
        model.model.layers[1].mlp.gate_proj.weight[17] = 70 * feature
        model.model.layers[1].mlp.up_proj.weight[17] = 70 * feature
        model.model.layers[1].mlp.down_proj.weight[:, 17] *= 0.01
    return model.bfloat16().state_dict()


def load(dtype):
    model = LlamaForCausalLM(CONFIG)
    model.load_state_dict(checkpoint())
    return model.to(dtype).eval()


model = load(torch.float16)
for number, prompt in enumerate([[1, 20, 33], [1, 41, 5, 12], [1, 30, 9, 22], [1, 7]]):
    torch.manual_seed(number)
    tokens = torch.tensor([prompt])
    answer = model.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=4, do_sample=True)
    print(prompt, "->", answer[0, len(prompt) :].tolist())
