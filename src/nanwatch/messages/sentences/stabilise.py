"""nanwatch.stabilise, and clipping."""

SENTENCES: dict[str, tuple[str, str]] = {
    "stabilise.not_an_optimizer": (
        "nanwatch.stabilise was given a {found}; a torch.optim.Optimizer was expected, for example: "
        "nanwatch.stabilise(optimizer, total_steps=10000)",
        "nanwatch.stabilise 收到了 {found}；这里需要 torch.optim.Optimizer，例如："
        "nanwatch.stabilise(optimizer, total_steps=10000)",
    ),
    "stabilise.long_warmup": (
        "nanwatch.stabilise: warmup_steps is {warmup}, total_steps is {total}; the warm-up must be shorter "
        "than the whole training.",
        "nanwatch.stabilise：warmup_steps 为 {warmup}，total_steps 为 {total}；预热步数必须小于总步数。",
    ),
    "stabilise.other_state": (
        "nanwatch.stabilise: the state is of an optimizer with {found} parameter groups, this one has "
        "{expected}. Load the state of the same training.",
        "nanwatch.stabilise：该状态来自有 {found} 个参数组的优化器，而当前优化器有 {expected} 个。"
        "请加载同一训练的状态。",
    ),
    "stabilise.clipping_failed": (
        "nanwatch.stabilise: the gradients could not be clipped ({error}). Training goes on without clipping "
        "from here; pass clip_norm=None and clip where your framework does it.",
        "nanwatch.stabilise：无法裁剪梯度（{error}）。训练继续，但此后不再裁剪；"
        "请传入 clip_norm=None，并用所用框架自带的方式裁剪。",
    ),
    "clip.nothing_done": (
        "nanwatch: gradients are not finite: {tensors}. Nothing was clipped, all gradients are as they were. "
        "Leave this step out: if norm.finite: optimizer.step()",
        "nanwatch：梯度含有非有限值：{tensors}。未做裁剪，所有梯度保持原样。请跳过这一步："
        "if norm.finite: optimizer.step()",
    ),
    "clip.left_to_the_watch": (
        "nanwatch: gradients are not finite: {tensors}. Nothing was clipped, all gradients are as they were. "
        "What becomes of this step is said at its update.",
        "nanwatch：梯度含有非有限值：{tensors}。未做裁剪，所有梯度保持原样。这一步如何处理，将在更新时说明。",
    ),
    "clip.refused": (
        "gradients are not finite: {tensors}. Nothing was clipped, all gradients are as they were. To get "
        "the norm instead of this error, set error_if_nonfinite=False",
        "梯度含有非有限值：{tensors}。未做裁剪，所有梯度保持原样。若要返回范数而不是报错，请设置 "
        "error_if_nonfinite=False",
    ),
    "clip.replaced": (
        "nanwatch: FOR DEBUGGING ONLY: replace_nonfinite_by_zero has put 0 in the place of gradients that "
        "are not finite: {tensors}. This hides the fault and bends the training; never leave it on.",
        "nanwatch：仅供调试：replace_nonfinite_by_zero 已将非有限的梯度替换为 0：{tensors}。"
        "这会掩盖故障并扭曲训练，切勿长期开启。",
    ),
    "clip.elsewhere": (
        "none of this rank, so another rank's, or their norm is beyond float64",
        "不在本 rank，而在其他 rank，或其范数超出 float64 的范围",
    ),
    "clip.which_optimizer": (
        "nanwatch.clip_grad_norm_ was given a scaler that has not unscaled its gradients yet, and no "
        "optimizer. Say whose they are: clip_grad_norm_(..., scaler=scaler, optimizer=optimizer)",
        "nanwatch.clip_grad_norm_ 收到的 scaler 尚未对梯度反缩放，且没有给出 optimizer。请指明其所属："
        "clip_grad_norm_(..., scaler=scaler, optimizer=optimizer)",
    ),
}
