"""nanwatch stable-config: wrong options, and the comments in the files that it writes."""

SENTENCES: dict[str, tuple[str, str]] = {
    "cli.config.no_framework": (
        "nanwatch: stable-config needs a framework, one of: {choices}; for example: nanwatch stable-config "
        "--framework plain",
        "nanwatch：stable-config 需要指定框架，可选值：{choices}；例如：nanwatch stable-config "
        "--framework plain",
    ),
    "cli.config.unknown_option": (
        "nanwatch: stable-config does not know {option}; the list: nanwatch stable-config --help",
        "nanwatch：stable-config 没有 {option}；完整列表见：nanwatch stable-config --help",
    ),
    "cli.config.choice": (
        "nanwatch: option {option} was given {value}. Expected one of: {choices}",
        "nanwatch：选项 {option} 的取值为 {value}。可选值：{choices}",
    ),
    "cli.config.number": (
        "nanwatch: option {option} was given {value}; a finite number above 0 was expected, for example: "
        "{example}",
        "nanwatch：选项 {option} 的取值为 {value}；这里需要大于 0 的有限数，例如：{example}",
    ),
    "cli.config.whole": (
        "nanwatch: option {option} was given {value}; a whole number of at least {least} was expected, for "
        "example: {example}",
        "nanwatch：选项 {option} 的取值为 {value}；这里需要不小于 {least} 的整数，例如：{example}",
    ),
    "cli.config.long_warmup": (
        "nanwatch: --warmup-steps is {warmup} and --total-steps is {total}; the warm-up must be shorter than "
        "the whole training.",
        "nanwatch：--warmup-steps 为 {warmup}，--total-steps 为 {total}；预热步数必须小于总步数。",
    ),
    "cli.config.exists": (
        "nanwatch: {path} is there already, and nothing is overwritten. Give another name with --output, or "
        "move it away first.",
        "nanwatch：{path} 已存在，不会被覆盖。请用 --output 给出另一个文件名，或先将其移走。",
    ),
    "cli.config.unwritable": (
        "nanwatch: {path} cannot be written: {why}. Give a file in a folder that exists and may be written "
        "to.",
        "nanwatch：无法写入 {path}：{why}。请给出一个位于已存在且可写的目录中的文件。",
    ),
    "cli.config.written": (
        "nanwatch: written to {path}. To see it train: python {path}",
        "nanwatch：已写入 {path}。运行 python {path} 可以看到它训练。",
    ),
    "config.header": (
        "Settings of a training that stays finite, written by `nanwatch stable-config`. Each one is on the "
        "careful side; when all is well, change one at a time and watch what happens.",
        "一份让训练保持数值稳定的配置，由 `nanwatch stable-config` 生成。各项设置都偏保守；"
        "训练正常后，可以一次只改一项，并观察其影响。",
    ),
    "config.run": (
        "Run this file as it is to see it train a small model; import it to train yours.",
        "直接运行本文件，可以看到它训练一个小模型；import 本文件，即可训练你自己的模型。",
    ),
    "config.accelerate_run": (
        "Run it with `accelerate launch --mixed_precision no THIS_FILE`, or with python on one device; "
        "import it to train your model.",
        "运行方式：`accelerate launch --mixed_precision no 本文件`，单设备时也可直接用 python 运行；"
        "import 本文件，即可训练你自己的模型。",
    ),
    "config.learning_rate": (
        "The highest learning rate. Where 1e-4 went NaN, try 5e-5 first, and halve it again if it still "
        "does: a rate that is too high is the most common reason of a divergence.",
        "最高学习率。若 1e-4 时出现 NaN，先试 5e-5，仍不行再减半：学习率过高是训练发散最常见的原因。",
    ),
    "config.clip": (
        "Gradients with a larger norm than this are made as long as this, so that one bad batch cannot throw "
        "the weights far away. 1.0 is usual; 0.5 if the loss still spikes.",
        "范数超过该值的梯度会被缩短到该值，避免个别异常 batch 让权重大幅跳变。"
        "通常取 1.0；若损失仍有尖峰，可取 0.5。",
    ),
    "config.total_steps": (
        "Optimizer steps in the whole training. The rate is 0 after them.",
        "整个训练的优化器更新步数。之后学习率为 0。",
    ),
    "config.warmup_steps": (
        "Steps over which the rate rises to its highest value. Adam's averages know little in the first "
        "steps, and a full rate then is what many divergences begin with.",
        "学习率升到最高值所用的步数。Adam 的统计量在最初几步还不可靠，此时就用最高学习率是许多发散的起因。",
    ),
    "config.weight_decay": (
        "Pulls the weights towards 0 a little in every step, so that they do not grow without a bound.",
        "每一步都把权重略微拉向 0，避免权重无限增长。",
    ),
    "config.label_smoothing": (
        "The loss of a classifier is least at finite logits, which therefore stop growing. 0.0 turns it off.",
        "使分类损失在有限的 logits 处取最小值，logits 因此不会一直增大。设为 0.0 则关闭。",
    ),
    "config.batch_size": (
        "At least 2: BatchNorm cannot take the variance of a single sample.",
        "至少为 2：BatchNorm 无法计算单个样本的方差。",
    ),
    "config.accumulation": (
        "Batches per update. Gradients are clipped once, over all of them together.",
        "每次更新所累积的 batch 数。梯度在累积完成后统一裁剪一次。",
    ),
    "config.drop_last": (
        "Without drop_last the last batch of an epoch may hold a single sample, which BatchNorm cannot take.",
        "若不设 drop_last，一个 epoch 的最后一个 batch 可能只剩一个样本，BatchNorm 无法处理。",
    ),
    "config.empty": (
        "The data holds less than one whole batch: use a smaller batch_size.",
        "数据不足一个完整的 batch：请减小 batch_size。",
    ),
    "config.adamw": (
        "AdamW decays the weights apart from the gradient's statistics, as Adam with weight_decay does not. "
        "Biases and the scales of norms are not decayed.",
        "AdamW 的权重衰减与梯度统计量无关，而 Adam 的 weight_decay 并非如此。"
        "偏置和归一化层的缩放参数不做衰减。",
    ),
    "config.epsilon": (
        "Keeps the division by the root of the second moment finite. In float16 1e-8 is 0; in float32 it is "
        "right.",
        "保证除以二阶矩平方根时结果有限。1e-8 在 float16 中会变成 0，在 float32 中则没有问题。",
    ),
    "config.schedule": (
        "Warm-up, then down along a cosine; and the gradients are clipped before each step of the optimizer, "
        "with a GradScaler after they were unscaled. Keep its state_dict() in your checkpoints.",
        "先预热，再按余弦下降；并在优化器每次更新之前裁剪梯度（使用 GradScaler 时，在反缩放之后裁剪）。"
        "请把它的 state_dict() 一并存入检查点。",
    ),
    "config.schedule_only": (
        "Warm-up, then down along a cosine. Clipping is left to the framework, which knows how the model is "
        "spread over devices.",
        "先预热，再按余弦下降。裁剪交给框架完成，因为它知道模型如何分布在各个设备上。",
    ),
    "config.step_clips": (
        "Clips the gradients first (see make_scheduler).",
        "更新之前会先裁剪梯度（见 make_scheduler）。",
    ),
    "config.precision": (
        "Full precision. float16 ends at 65504 and is the first thing to switch off when NaNs come; when all "
        "is well, bfloat16 is the next to try, since it has the range of float32.",
        "使用全精度。float16 的上限只有 65504，出现 NaN 时应首先关闭；训练正常后可再试 bfloat16，"
        "它的范围与 float32 相同。",
    ),
    "config.watch": (
        "Detection: a step whose loss or gradients are not finite is stopped before it touches a weight, and "
        'its op, line and cause are shown. policy="skip" leaves that step out and goes on.',
        "检测：损失或梯度出现非有限值的那一步，会在改动权重之前被停下，并给出对应的 op、代码行和原因。"
        'policy="skip" 则跳过该步并继续训练。',
    ),
    "config.demo": (
        "A small model on made-up data, a few steps of the whole schedule.",
        "用人造数据训练一个小模型，只跑整个日程中的前几步。",
    ),
    "config.accelerate_precision": (
        'Full precision. "fp16" ends at 65504 and is the first thing to switch off when NaNs come; when '
        'all is well, "bf16" is the next to try, since it has the range of float32.',
        '使用全精度。"fp16" 的上限只有 65504，出现 NaN 时应首先关闭；训练正常后可再试 "bf16"，'
        "它的范围与 float32 相同。",
    ),
    "config.accelerate_clip": (
        "The accelerator unscales the gradients before it clips them, and takes the norm over all devices.",
        "accelerator 会先对梯度反缩放再裁剪，并在所有设备上计算范数。",
    ),
    "config.accelerate_scheduler": (
        "Not given to prepare(): that would step it once for each process.",
        "不要把它交给 prepare()：否则每个进程都会让它多走一步。",
    ),
    "config.trainer_schedule": (
        "Warm-up, then down along a cosine.",
        "先预热，再按余弦下降。",
    ),
    "config.trainer_adamw": (
        "AdamW decays the weights apart from the gradient's statistics, as Adam with weight_decay does not.",
        "AdamW 的权重衰减与梯度统计量无关，而 Adam 的 weight_decay 并非如此。",
    ),
    "config.trainer_labels": (
        "The Trainer computes the smoothed loss itself, from the logits and the labels of the batch.",
        "平滑后的损失由 Trainer 根据 batch 的 logits 和标签计算。",
    ),
    "config.trainer_filter": (
        "By default the Trainer leaves losses that are NaN out of its log, and the log looks fine when "
        "nothing is.",
        "默认情况下 Trainer 会从日志中去掉为 NaN 的损失，使日志看起来正常，而训练其实已经出错。",
    ),
    "config.lightning_interval": (
        "By default Lightning moves the schedule on once per epoch; it is meant to move with every step.",
        "Lightning 默认每个 epoch 才推进一次学习率日程；这里需要每一步都推进。",
    ),
    "config.lightning_clip": (
        "Lightning unscales the gradients before it clips them.",
        "Lightning 会先对梯度反缩放再裁剪。",
    ),
    "config.lightning_anomaly": (
        "nanwatch finds the op without detect_anomaly, which makes every step several times slower.",
        "不需要 detect_anomaly：它会让每一步慢好几倍，而 nanwatch 不依赖它就能找到出错的 op。",
    ),
}
