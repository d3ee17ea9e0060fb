import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
config = GPT2Config(
    vocab_size=40, n_positions=32, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=1
)
model = GPT2LMHeadModel(config).eval()
ids = torch.tensor([[1, 1, 5, 6], [2, 3, 4, 5]])
mask = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])  # left padding
out = model.generate(
    ids, attention_mask=mask, do_sample=True, top_k=8, top_p=0.9, max_new_tokens=6, pad_token_id=1
)
print(out.tolist())

# truth:
# {"healthy": true, "exit": 0}
