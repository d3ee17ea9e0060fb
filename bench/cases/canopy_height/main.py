import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Tiles(Dataset):
    """Satellite tiles with the height of the trees; where no laser pulse came back the raster has no data."""

    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        self.bands = rng.normal(size=(count, 4, 8, 8)).astype(np.float32)
        self.height = np.abs(self.bands.sum(axis=1, keepdims=True)) * 5
        self.height[13, 0, 2:4, 5] = np.nan

    def __len__(self):
        return len(self.bands)

    def __getitem__(self, i):
        return {"image": torch.from_numpy(self.bands[i]), "mask": torch.from_numpy(self.height[i])}


class PixelwiseRegression(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(nn.Conv2d(4, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 1, 1))

    def training_step(self, batch, index):
        loss = F.mse_loss(self.model(batch["image"]), batch["mask"])
        print(f"batch {index}  loss {loss.item():.3f}")
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


if __name__ == "__main__":
    L.seed_everything(0)
    trainer = L.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(PixelwiseRegression(), DataLoader(Tiles(20, seed=5), batch_size=4))
