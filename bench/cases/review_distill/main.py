"""Distil a large review model into a small one; padding and prompts carry no label."""

import lightning
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

WORDS, LENGTH = 40, 12


def make_examples(count):
    """Prompt, then an answer; the tokenizer keeps the first LENGTH tokens."""
    generator = torch.Generator().manual_seed(0)
    examples = []
    for i in range(count):
        prompt = LENGTH + 2 if i in (20, 21, 22, 23) else int(torch.randint(6, 10, (), generator=generator))
        tokens = torch.randint(1, WORDS, (prompt + 6,), generator=generator)[:LENGTH]
        labels = tokens.clone()
        labels[:prompt] = -100
        examples.append((tokens, labels))
    return examples


class Distiller(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.teacher = nn.Sequential(nn.Embedding(WORDS, 32), nn.Linear(32, WORDS)).requires_grad_(False)
        self.student = nn.Sequential(nn.Embedding(WORDS, 8), nn.Linear(8, WORDS))

    def training_step(self, batch, index):
        tokens, labels = batch
        teacher = F.softmax(self.teacher(tokens), dim=-1)
        student = F.log_softmax(self.student(tokens), dim=-1)
        agreement = (teacher * student).sum(dim=-1)
        mask = (labels != -100).float()
        loss = -(agreement * mask).sum() / mask.sum()
        print(f"batch {index}: {loss.item():.4f}")
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


lightning.seed_everything(0, verbose=False)
trainer = lightning.Trainer(
    max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False,
)  # fmt: skip
trainer.fit(Distiller(), DataLoader(make_examples(32), batch_size=4))
