import torch
from torch import nn


class Cable(nn.Module):
    """The shape of a hanging cable: how much it sags and how steep it is at its ends."""

    def __init__(self):
        super().__init__()
        self.stiffness = nn.Linear(3, 1)

    def forward(self, spans, load):
        stretch = nn.functional.softplus(self.stiffness(load)) + 0.5
        x = spans / stretch
        slope = torch.sinh(x)
        return stretch.squeeze(-1), slope.squeeze(-1)


@torch.no_grad()
def survey(cable, batches):
    for name, spans, load in batches:
        stretch, slope = cable(spans, load)
        steepest = torch.log10(slope.abs().max())
        print(f"{name:8} stretch {stretch.mean().item():.3f}  log10 of the steepest {steepest.item():.3f}")


torch.manual_seed(0)
cable = Cable().eval()
with torch.no_grad():
    cable.stiffness.weight.zero_()
    cable.stiffness.bias.fill_(0.5413)  # a stretch of 1.5 throughout
load = torch.randn(4, 3)
batches = [
    ("foot", torch.tensor([[1.0], [4.0], [9.0], [2.0]]), load),
    ("valley", torch.tensor([[30.0], [55.0], [61.0], [12.0]]), load),
    ("fjord", torch.tensor([[88.0], [133.4], [120.0], [70.0]]), load),
]
survey(torch.compile(cable), batches)
