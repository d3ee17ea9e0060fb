"""Learns to write down spoken digits with CTC, in transformers' Trainer."""

import tempfile

import torch
from torch import nn
from torch.nn import functional as F
from transformers import Trainer, TrainingArguments, set_seed

DIGITS, FRAMES, FEATURES = 11, 24, 8


class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.listen = nn.Conv1d(FEATURES, 32, 3, stride=4, padding=1)
        self.write = nn.Linear(32, DIGITS)

    def forward(self, sound, sound_length, labels, label_length):
        heard = F.relu(self.listen(sound.transpose(1, 2))).transpose(1, 2)
        log_probabilities = self.write(heard).log_softmax(-1).transpose(0, 1)
        heard_length = (sound_length + 3) // 4
        loss = F.ctc_loss(log_probabilities, labels, heard_length, label_length)
        return {"loss": loss, "logits": log_probabilities}


def recording(number):
    draw = torch.Generator().manual_seed(number)
    frames = FRAMES if number != 13 else 12  # somebody spoke fast
    digits = torch.randint(1, DIGITS, (5,), generator=draw)
    sound = torch.randn(FRAMES, FEATURES, generator=draw)
    sound[frames:] = 0
    return {
        "sound": sound,
        "sound_length": torch.tensor(frames),
        "labels": digits,
        "label_length": torch.tensor(5),
    }


set_seed(0)
model = Recogniser()
with tempfile.TemporaryDirectory() as folder:
    settings = TrainingArguments(
        folder,
        per_device_train_batch_size=4,
        num_train_epochs=1,
        learning_rate=1e-3,
        train_sampling_strategy="sequential",
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = Trainer(model=model, args=settings, train_dataset=[recording(n) for n in range(24)])
    trainer.train()
    for entry in trainer.state.log_history[:-1]:
        print(f"step {entry['step']}: loss {entry['loss']:.4f}, gradient {entry['grad_norm']:.3f}")
