import torch

torch.manual_seed(0)
point = torch.tensor([-1.5, 2.0], requires_grad=True)
optimizer = torch.optim.LBFGS([point], lr=1.0, max_iter=20, line_search_fn="strong_wolfe")
best = float("inf")


def closure():
    optimizer.zero_grad()
    x, y = point
    value = (1 - x) ** 2 + 100 * (y - x**2) ** 2
    value.backward()
    return value


for outer in range(4):
    value = optimizer.step(closure)
    best = min(best, value.item())
print([round(v, 3) for v in point.tolist()])

# truth:
# {"healthy": true, "exit": 0}
