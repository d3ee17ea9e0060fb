import torch

g = torch.Generator().manual_seed(0)
X = torch.randn(20, 3, generator=g)
y = (X.sum(1) > 0).float() * 2 - 1
w = torch.zeros(3, requires_grad=True)
b = torch.zeros(1, requires_grad=True)
optimizer = torch.optim.SGD([w, b], lr=0.5)
for it in range(6):
    scale = 1.0 if it < 4 else 400.0
    margin = y * (X @ w + b) * scale - 0.5
    loss = torch.log(1 + torch.exp(-margin * scale)).mean()  # BIRTH
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(it, loss.item())

# truth:
# {"phase": ["forward", "loss"], "op": "aten.exp.default", "module": null, "step": 4, "kind": "inf", "cause": "overflow", "exit": 3}
