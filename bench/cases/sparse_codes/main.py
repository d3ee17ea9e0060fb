"""Learn a dictionary for short sound snippets with a penalty that wants few active atoms."""

import torch

torch.manual_seed(0)
SNIPPETS, LENGTH, ATOMS = 24, 32, 20


def snippets():
    """Each is the sum of two decaying tones."""
    time = torch.arange(LENGTH) / LENGTH
    tones = torch.randint(2, 9, (SNIPPETS, 2, 1))
    return (torch.sin(2 * torch.pi * tones * time) * torch.exp(-3 * time)).sum(dim=1)


def half_norm(codes):
    """The p = 1/2 quasi-norm per snippet: sparser than the sum of magnitudes."""
    return codes.abs().sqrt().sum(dim=1).square()


def unit_atoms(dictionary):
    return dictionary / dictionary.norm(dim=1, keepdim=True)


sounds = snippets()
dictionary = torch.randn(ATOMS, LENGTH, requires_grad=True)
codes = torch.randn(SNIPPETS, ATOMS).mul_(0.5).requires_grad_()
optimizer = torch.optim.Adam([{"params": [dictionary], "lr": 1e-2}, {"params": [codes], "lr": 3e-2}])

for step in range(24):
    restored = codes @ unit_atoms(dictionary)
    error = (restored - sounds).square().sum(dim=1).mean()
    loss = error + 1e-3 * half_norm(codes).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 8 == 7:
        with torch.no_grad():
            codes[codes.abs() < 0.02] = 0.0
    print(step, f"{loss.item():.4f}", f"active {(codes != 0).float().mean().item():.3f}")
