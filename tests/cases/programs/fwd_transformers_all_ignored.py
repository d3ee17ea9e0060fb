import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
config = GPT2Config(vocab_size=32, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=1)
model = GPT2LMHeadModel(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(3):
    ids = torch.randint(0, 32, (2, 8))
    labels = ids.clone()
    labels[:, : 8 if step == 2 else 3] = -100
    out = model(input_ids=ids, labels=labels)  # BIRTH
    out.loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, out.loss.item())

# truth:
# {"phase": "forward", "op": "aten.nll_loss_forward.default", "module": "", "step": 2, "kind": "nan", "cause": "empty-selection", "exit": 3}
