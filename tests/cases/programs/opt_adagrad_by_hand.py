import torch

torch.manual_seed(0)
w1 = (torch.randn(5, 8) * 0.4).requires_grad_()
w2 = (torch.randn(8, 1) * 0.4).requires_grad_()
with torch.no_grad():
    w1[:, 3] = -torch.rand(5)
params = [w1, w2]
seen = [torch.zeros_like(p) for p in params]


def update(rate=0.1):
    with torch.no_grad():
        for p, total in zip(params, seen):
            total += p.grad**2
            p -= rate * p.grad / total.sqrt()  # BIRTH
            p.grad = None


for step in range(4):
    x = torch.rand(10, 5)  # never negative: the fourth unit never fires
    loss = ((torch.relu(x @ w1) @ w2).squeeze(1) - x.sum(1)).pow(2).mean()
    loss.backward()
    update()
    print(step, loss.item())

# truth:
# {"phase": ["optimizer", "weights"], "op": "aten.div.Tensor", "module": null, "step": [0, 1], "kind": "nan", "cause": "divide-by-zero", "also": ["bad-hyperparameter"], "tempting": ["uninitialised-memory"], "exit": 3}
