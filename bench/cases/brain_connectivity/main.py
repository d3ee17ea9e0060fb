"""Tell patients from controls by the connectivity of their brain regions, with a small graph network."""

import torch
from torch import nn

REGIONS, SCANS = 12, 80


class GraphConvolution(nn.Module):
    def __init__(self, fan_in, fan_out):
        super().__init__()
        self.linear = nn.Linear(fan_in, fan_out, bias=False)

    def forward(self, x, source, target, weight):
        degree = torch.zeros(len(x)).scatter_add_(0, target, weight)
        scale = degree.pow(-0.5)
        scale[scale == float("inf")] = 0.0
        weight = scale[source] * weight * scale[target]
        x = self.linear(x)
        return torch.zeros_like(x).index_add_(0, target, weight[:, None] * x[source])


class SubjectNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = GraphConvolution(REGIONS, 16)
        self.second = GraphConvolution(16, 8)
        self.readout = nn.Linear(8, 2)

    def forward(self, x, source, target, weight):
        x = torch.relu(self.first(x, source, target, weight))
        x = torch.relu(self.second(x, source, target, weight))
        return self.readout(x.mean(dim=0))


def recording(generator, lagging=()):
    """Activity of every region: a common rhythm, some of the regions in antiphase, and noise."""
    rhythm = torch.sin(torch.linspace(0, 12, SCANS))
    activity = rhythm + 0.5 * torch.randn(REGIONS, SCANS, generator=generator)
    for region in lagging:
        activity[region] -= 2 * rhythm
    return activity


def connectivity_graph(activity):
    correlation = torch.corrcoef(activity)
    source, target = (correlation.abs() > 0.2).nonzero(as_tuple=True)
    return correlation, source, target, correlation[source, target]


torch.manual_seed(0)
generator = torch.Generator().manual_seed(1)
subjects = [recording(generator, lagging=(7,) if i == 4 else ()) for i in range(10)]
labels = torch.tensor([0, 1] * 5)

net = SubjectNet()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for step, (activity, label) in enumerate(zip(subjects, labels, strict=True)):
    logits = net(*connectivity_graph(activity))
    loss = nn.functional.cross_entropy(logits, label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"subject {step}: loss {loss.item():.4f}")
