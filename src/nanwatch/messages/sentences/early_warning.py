"""Early warnings: what grows, and what would stop it."""

SENTENCES: dict[str, tuple[str, str]] = {
    "early.rate_lowered": (
        "nanwatch: at step {step} the learning rate was lowered from {before} to {after}, before the "
        "overflow.",
        "nanwatch：第 {step} 步，在溢出之前将学习率从 {before} 降到 {after}。",
    ),
    "early.rate_lowered_by_rank": (
        "nanwatch: at step {step} the learning rate was lowered from {before} to {after}, as on all ranks: "
        "rank {rank} has an early warning of an overflow.",
        "nanwatch：第 {step} 步，所有 rank 一起将学习率从 {before} 降到 {after}：rank {rank} 预警将要溢出。",
    ),
    "early.rate_not_lowered": (
        "nanwatch: step {step}: an overflow lies ahead, and the learning rate stays as it is on all ranks: "
        "one of them cannot lower it. It is not tried again in this run.",
        "nanwatch：第 {step} 步：预警将要溢出，但有一个 rank 无法降低学习率，因此所有 rank 的学习率都保持"
        "不变，本次运行中不再尝试。",
    ),
    "early.whole": ("nanwatch: {what}", "nanwatch：{what}"),
    "early.with_advice": ("{what} What would stop it: {ways}.", "{what}可以阻止它的办法：{ways}。"),
    "early.overflow-ahead": (
        "step {step}: {what} has risen from {first} at step {since} to {last}, {factor} times a step of "
        "late. At this rate it overflows in about {left} steps.",
        "第 {step} 步：{what}从第 {since} 步的 {first} 上升到 {last}，近来每步变为 {factor} 倍。"
        "照此速度，约 {left} 步后溢出。",
    ),
    "early.spike": (
        "step {step}: {what} is {last}; {first} was usual, and no step before came near it.",
        "第 {step} 步：{what}为 {last}；此前通常为 {first}，从未接近过这个值。",
    ),
    "early.headroom": (
        "step {step}: {layer} uses {last} of the range of its dtype, up from {first} at step {since}: "
        "little room is left.",
        "第 {step} 步：{layer} 的数值已达其 dtype 上限的 {last} 倍（第 {since} 步时为 {first}），余量不多。",
    ),
    "early.scale-falls": (
        "step {step}: the loss scale has fallen in every step since step {since}, from {first} to {last}, "
        "and no update was made. In about {left} steps it is below 1, and small gradients vanish.",
        "第 {step} 步：自第 {since} 步起损失缩放每步都在下降，从 {first} 降到 {last}，期间没有任何更新。"
        "约 {left} 步后它将低于 1，小梯度会消失。",
    ),
    "early.of.loss": ("the loss", "损失"),
    "early.of.grad_norm": ("the gradient norm", "梯度范数"),
    "early.of.weights": ("the norm of the weights", "权重范数"),
    "early.of.range": ("the share of its dtype's range that a module uses", "模块数值占其 dtype 上限的比例"),
    "early.of.scale": ("the loss scale", "损失缩放"),
    "early.with_layer": ("{what} {layer} grows most.", "{what}增长最多的是 {layer}。"),
    "early.either": ("{first}; or {second}", "{first}；或{second}"),
    "early.do.rate": ("a learning rate of {rate}", "把学习率降到 {rate}"),
    "early.do.clip": (
        "clipping the gradients at a norm of {norm}, which is usual here",
        "按范数 {norm}（本次训练的常见值）裁剪梯度",
    ),
    "early.do.float32": ("float32 (or bfloat16) for {module}", "让 {module} 使用 float32（或 bfloat16）"),
    "early.do.scale": (
        "bfloat16 or float32 instead of float16",
        "用 bfloat16 或 float32 代替 float16",
    ),
}
