import torch
import torch.nn.functional as F

torch.manual_seed(0)
w1 = torch.nn.Parameter(torch.randn(8, 2) * 0.3)
w2 = torch.nn.Parameter(torch.randn(1, 8) * 0.3)
optimizer = torch.optim.SGD([w1, w2], lr=1e-3)


def network(x, a, b):
    return F.linear(torch.relu(F.linear(x, a)), b)


for step in range(5):
    x, y = torch.randn(6, 2), torch.randn(6, 1)
    if step == 3:
        x[:3] = 0.0
    gradients = torch.autograd.grad(F.mse_loss(network(x[:3], w1, w2), y[:3]), [w1, w2], create_graph=True)
    length = sum(g.pow(2).sum() for g in gradients).sqrt()  # BIRTH
    a, b = (w - 0.1 * g / (length + 1e-6) for w, g in zip([w1, w2], gradients, strict=True))
    loss = F.mse_loss(network(x[3:], a, b), y[3:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

# truth:
# {"phase": "backward", "op": "aten.div.Tensor", "module": null, "step": 3, "kind": ["inf", "nan"], "cause": "singular-gradient", "exit": 3}
