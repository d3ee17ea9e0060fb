import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

IGNORE = -100


class TinyLM(nn.Module):
    def __init__(self, vocabulary=50, dim=32):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, dim)
        self.mix = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, vocabulary)

    def forward(self, ids):
        return self.head(self.mix(self.embed(ids))[0])


def packed(step, rank, generator):
    """Conversations packed to one length; only what the assistant says is learned."""
    ids = torch.randint(0, 50, (2, 17), generator=generator)
    labels = ids[:, 1:].clone()
    spoken = 16 if (step, rank) == (3, 1) else 6  # a document that somebody pasted fills the sequence
    labels[:, :spoken] = IGNORE
    return ids[:, :-1], labels


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(TinyLM())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    generator = torch.Generator().manual_seed(10 + rank)
    for step in range(5):
        ids, labels = packed(step, rank, generator)
        logits = model(ids)
        keep = (labels != IGNORE).float()
        each = F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=IGNORE, reduction="none")
        loss = (each * keep).sum() / keep.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"rank {rank}  step {step}  loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
