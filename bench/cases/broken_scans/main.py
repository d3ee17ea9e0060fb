import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.dataloader import default_collate


class Scans(Dataset):
    """Scans of a detector, in counts; a broken file gives NaN or a scan without any count."""

    def __len__(self):
        return 40

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        counts = rng.poisson(4.0, size=24).astype(np.float32)
        if i in (6, 27):
            counts[:] = 0.0
        if i == 18:
            counts[5] = np.nan
        with np.errstate(invalid="ignore"):
            spectrum = counts / counts.sum()
        return spectrum, np.float32(spectrum[:12].sum())


def whole(samples):
    """A batch of the scans that can be used."""
    kept = [s for s in samples if np.isfinite(s[0]).all()]
    return default_collate(kept) if kept else None


if __name__ == "__main__":
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    best = float("inf")
    for epoch in range(2):
        for batch in DataLoader(Scans(), batch_size=5, num_workers=1, collate_fn=whole):
            if batch is None:
                continue
            spectrum, target = batch
            loss = nn.functional.mse_loss(model(spectrum).squeeze(1), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        best = min(best, loss.item())
        print(f"epoch {epoch}  loss {loss.item():.5f}  best {best:.5f}")
