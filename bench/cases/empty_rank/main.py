import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def boxes(step, rank):
    """Pictures of this rank with their boxes; some have none."""
    generator = torch.Generator().manual_seed(13 * step + rank)
    counts = [0, 0] if (step, rank) == (2, 1) else [3, step % 2]
    features = torch.randn(2, 6, generator=generator)
    return features, [torch.rand(n, 4, generator=generator) for n in counts]


def loss_of(model, features, targets):
    """Sum over all boxes of all ranks, divided by their number; a rank without boxes adds 0."""
    predicted = model(features)
    found = torch.tensor(float(sum(len(t) for t in targets)))
    dist.all_reduce(found)
    total = sum((predicted[i] - t).abs().sum() for i, t in enumerate(targets)) + 0.0 * predicted.sum()
    return total * dist.get_world_size() / found.clamp(min=1)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 4), nn.Sigmoid())
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(5):
        features, targets = boxes(step, dist.get_rank())
        loss = loss_of(model, features, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean_area = torch.cat(targets).prod(dim=1).mean()
        print(f"rank {dist.get_rank()}  step {step}  loss {loss.item():.4f}  area {mean_area}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
