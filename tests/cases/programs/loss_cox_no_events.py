import torch
from torch import nn

torch.manual_seed(0)
risk_model = nn.Sequential(nn.Linear(7, 12), nn.ReLU(), nn.Linear(12, 1))
optimizer = torch.optim.Adam(risk_model.parameters(), lr=1e-3)


def partial_likelihood(risk, time, event):
    order = torch.argsort(time, descending=True)
    risk, event = risk[order], event[order]
    log_cumulative = torch.logcumsumexp(risk, dim=0)
    return -torch.sum((risk - log_cumulative) * event) / torch.sum(event)  # BIRTH


for epoch in range(2):
    for batch in range(3):
        patients = torch.randn(10, 7)
        time = torch.rand(10) * 365
        event = (torch.rand(10) < 0.4).float()
        if (epoch, batch) == (1, 1):
            event = torch.zeros(10)  # nobody died in this batch
        risk = risk_model(patients).squeeze(1)
        loss = partial_likelihood(risk, time, event)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())

# truth:
# {"phase": "loss", "op": "aten.div.Tensor", "module": null, "step": 4, "kind": "nan", "cause": "empty-selection", "tempting": ["divide-by-zero"], "exit": 3}
