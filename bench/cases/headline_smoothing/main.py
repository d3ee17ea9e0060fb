"""Trains a headline writer in transformers' Trainer with a smoothed loss of its own, on logits kept in half precision."""

import tempfile

import torch
from torch import nn
from transformers import Trainer, TrainingArguments, set_seed

WORDS, LENGTH, SMOOTHING = 8000, 6, 0.1


class Writer(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Embedding(WORDS, width)
        self.mix = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, WORDS)

    def forward(self, words):
        mixed, _ = self.mix(self.embed(words))
        return {"logits": self.head(mixed).half()}


class SmoothedTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(inputs["words"])
        log_probabilities = outputs["logits"].log_softmax(-1)
        right = log_probabilities.gather(-1, inputs["labels"].unsqueeze(-1)).squeeze(-1)
        smoothed = log_probabilities.sum(-1)
        loss = -((1 - SMOOTHING) * right + SMOOTHING / WORDS * smoothed).float().mean()
        return (loss, outputs) if return_outputs else loss


def headline(number):
    draw = torch.Generator().manual_seed(number)
    words = torch.randint(0, WORDS, (LENGTH + 1,), generator=draw)
    return {"words": words[:-1], "labels": words[1:]}


set_seed(0)
model = Writer()
with tempfile.TemporaryDirectory() as folder:
    settings = TrainingArguments(
        folder,
        per_device_train_batch_size=4,
        max_steps=4,
        learning_rate=1e-3,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        remove_unused_columns=False,
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = SmoothedTrainer(model=model, args=settings, train_dataset=[headline(n) for n in range(16)])
    trainer.train()
    for entry in trainer.state.log_history[:-1]:
        print(f"step {entry['step']}: loss {entry['loss']:.4f}, gradient {entry['grad_norm']:.3f}")
