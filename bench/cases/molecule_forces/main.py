"""Learn energies and forces of small molecules of different size, padded to one length."""

import torch
from torch import nn


class PairPotential(nn.Module):
    """Sum of learned pair energies; padding atoms are masked out."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 24), nn.SiLU(), nn.Linear(24, 1))
        self.register_buffer("centres", torch.linspace(0.5, 4.0, 8))

    def forward(self, positions, mask):
        offset = positions[:, :, None] - positions[:, None, :]
        distance = offset.square().sum(dim=-1).sqrt()
        basis = torch.exp(-4 * (distance[..., None] - self.centres).square())
        pair_mask = mask[:, :, None] * mask[:, None, :] * (1 - torch.eye(mask.shape[1]))
        return (self.net(basis).squeeze(-1) * pair_mask).sum(dim=(1, 2))


def energy_and_forces(model, positions, mask):
    positions = positions.requires_grad_()
    energy = model(positions, mask)
    (gradient,) = torch.autograd.grad(energy.sum(), positions, create_graph=True)
    return energy, -gradient


def molecules(sizes):
    most = max(sizes)
    positions, mask = torch.zeros(len(sizes), most, 3), torch.zeros(len(sizes), most)
    for i, size in enumerate(sizes):
        chain = torch.arange(size)[:, None] * torch.tensor([0.9, 0.4, 0.1])
        positions[i, :size] = chain + 0.1 * torch.randn(size, 3)
        mask[i, :size] = 1
    return positions, mask, torch.randn(len(sizes)), 0.1 * torch.randn(len(sizes), most, 3)


torch.manual_seed(0)
model = PairPotential()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for sizes in [(4, 4, 4), (3, 5, 4), (5, 5, 5), (2, 6, 3)]:
    positions, mask, energy, forces = molecules(sizes)
    found, pull = energy_and_forces(model, positions, mask)
    loss = (found - energy).square().mean() + ((pull - forces) * mask[..., None]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(sizes, f"{loss.item():.4f}")
