import torch

torch.manual_seed(0)
x = torch.tensor([2.0, 3.0], requires_grad=True)
optimizer = torch.optim.LBFGS([x], lr=1.0, max_iter=10)


def objective(v):
    barrier = torch.log(v - 1.0)  # BIRTH
    return (v * 5).sum() - barrier.sum()


def closure():
    optimizer.zero_grad()
    loss = objective(x)
    loss.backward()
    return loss


for outer in range(2):
    loss = optimizer.step(closure)
    print(outer, x.tolist())

# truth:
# {"phase": ["forward", "loss"], "op": "aten.log.default", "module": null, "step": 0, "kind": "nan", "cause": "invalid-domain", "exit": 3}
