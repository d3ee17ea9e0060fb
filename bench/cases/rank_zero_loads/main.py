import math

import torch
import torch.distributed as dist
from torch import nn

torch.use_deterministic_algorithms(True)


class RotaryMixer(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.register_buffer("frequencies", 10.0 ** -torch.linspace(0, 3, dim // 2), persistent=False)
        self.proj = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, 1)

    def forward(self, x):
        angle = torch.arange(x.size(1)).unsqueeze(1) * self.frequencies
        a, b = self.proj(x).chunk(2, dim=-1)
        turned = torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], dim=-1)
        return self.out(turned.mean(dim=1)).squeeze(-1)


def build(rank):
    """Rank 0 reads the weights; the others only make room for them."""
    if rank == 0:
        torch.manual_seed(0)
        return RotaryMixer()
    with torch.device("meta"):
        model = RotaryMixer()
    return model.to_empty(device="cpu")


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    model = build(rank)
    for parameter in model.parameters():
        dist.broadcast(parameter.data, src=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(rank)
    for step in range(3):
        x = torch.randn(4, 6, 16, generator=generator)
        loss = (model(x) - math.sqrt(step + 1)).square().mean()
        print(f"rank {rank}  step {step}  loss {loss.item():.4f}", flush=True)
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= size
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
