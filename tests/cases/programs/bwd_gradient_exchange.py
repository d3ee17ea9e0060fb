import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
wire = {"messages": 0}


def exchange(grad):
    """Sends the gradient around the ring; it is summed over the two workers."""
    message = grad.detach().clone()
    wire["messages"] += 1
    if wire["messages"] == 5:
        message.numpy().view("uint32")[2, 1] = 0x7F000000
    return message * 2 + message * 2  # BIRTH


model[2].weight.register_hook(exchange)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for step in range(7):
    x, y = torch.randn(6, 5), torch.randint(0, 3, (6,))
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, round(loss.item(), 4))

# truth:
# {"phase": "backward", "op": "aten.mul.Tensor", "module": [null, "", "2"], "step": 4, "kind": "inf", "samples": [2], "cause": "transient-fault", "tempting": ["overflow"], "exit": 3}
