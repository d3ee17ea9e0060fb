"""The Trainer of transformers: a builder of its `TrainingArguments`."""

TEMPLATE = """#: header
#: run
import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import nanwatch

#+ settings


def make_arguments(output_dir, **settings):
    wanted = {
        "output_dir": output_dir,
        "learning_rate": LEARNING_RATE,
        "max_grad_norm": CLIP_NORM,
        "max_steps": TOTAL_STEPS,
        #: trainer_schedule
        "lr_scheduler_type": "cosine",
        "warmup_steps": WARMUP_STEPS,
        #: trainer_adamw
        "optim": "adamw_torch",
        "weight_decay": WEIGHT_DECAY,
        #: epsilon
        "adam_epsilon": 1e-8,
        #: precision
        "fp16": False,
        "bf16": False,
        #: trainer_labels
        "label_smoothing_factor": LABEL_SMOOTHING,
        #: drop_last
        "dataloader_drop_last": True,
        "per_device_train_batch_size": BATCH_SIZE,
        #: trainer_filter
        "logging_nan_inf_filter": False,
        "logging_steps": 10,
    }
    return TrainingArguments(**{**wanted, **settings})


def train(model, dataset, output_dir, **settings):
    model = model.float()
    arguments = make_arguments(output_dir, **settings)
    trainer = Trainer(model=model, args=arguments, train_dataset=dataset)
    #: watch
    with nanwatch.watch(model, policy="raise"):
        trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


if __name__ == "__main__":
    #: demo
    torch.manual_seed(0)
    shape = {"vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = BertForSequenceClassification(
        BertConfig(**shape, intermediate_size=32, max_position_embeddings=16, num_labels=2)
    )
    tokens = torch.randint(2, 32, (64, 8))
    dataset = [{"input_ids": row, "labels": int(row[0] > 16)} for row in tokens]
    with tempfile.TemporaryDirectory() as folder:
        settings = {"max_steps": min(TOTAL_STEPS, 60), "save_strategy": "no", "report_to": "none"}
        losses = train(model, dataset, folder, **settings)
    if losses:
        print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
"""
