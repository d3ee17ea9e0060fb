import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(3, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)


def train(n):
    for _ in range(n):
        loss = (model(torch.randn(4, 3)) - 1).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # BIRTH
    return loss.item()


print(train(3))
state = optimizer.state_dict()
for s in state["state"].values():  # moments swapped when the checkpoint was converted
    s["exp_avg"], s["exp_avg_sq"] = s["exp_avg_sq"].clone(), -s["exp_avg"].abs()
optimizer.load_state_dict(state)
print(train(2))

# truth:
# {"phase": "optimizer", "op": "aten._fused_adam_.default", "module": null, "step": 3, "kind": "nan", "cause": "optimizer-state", "exit": 3}
