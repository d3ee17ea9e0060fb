"""Fine-tunes a small chat model; long questions are cut on the left, so that every answer stays."""

import random
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

PAD, LONGEST = 0, 16


def encode(question, answer):
    ids = (question + answer)[-LONGEST:]
    labels = ([-100] * len(question) + answer)[-LONGEST:]
    missing = LONGEST - len(ids)
    return {
        "input_ids": torch.tensor(ids + [PAD] * missing),
        "attention_mask": torch.tensor([1] * len(ids) + [0] * missing),
        "labels": torch.tensor(labels + [-100] * missing),
    }


def conversations():
    draw = random.Random(3)
    lengths = [5, 7, 6, 9, 8, 10, 21, 18, 6, 7, 11, 5]  # two people pasted whole articles
    for length in lengths:
        question = [draw.randint(1, 39) for _ in range(length)]
        yield encode(question, [draw.randint(1, 39) for _ in range(4)])


set_seed(0)
config = GPT2Config(vocab_size=40, n_positions=32, n_embd=32, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=1)
model = GPT2LMHeadModel(config)
with tempfile.TemporaryDirectory() as folder:
    settings = TrainingArguments(
        folder,
        per_device_train_batch_size=2,
        num_train_epochs=1,
        train_sampling_strategy="sequential",
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = Trainer(model=model, args=settings, train_dataset=list(conversations()))
    trainer.train()
    for entry in trainer.state.log_history[:-1]:
        print(f"step {entry['step']}: loss {entry['loss']:.4f}, gradient {entry['grad_norm']:.3f}")
