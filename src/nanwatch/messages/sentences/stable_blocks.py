"""nanwatch.stable: arguments that a block cannot work with."""

SENTENCES: dict[str, tuple[str, str]] = {
    "stable.not_floating": (
        "nanwatch.stable.{where}: {name} is {found}; a tensor of floating dtype was expected. "
        "Convert it first: {name}.float()",
        "nanwatch.stable.{where}：{name} 是 {found}；这里需要浮点类型的 tensor。请先转换：{name}.float()",
    ),
    "stable.mask_dtype": (
        "nanwatch.stable.{where}: the mask is {found}; a bool tensor was expected, True where a value takes "
        "part. Write mask.bool() for a mask of ones and zeros, ~mask for one that marks the padding.",
        "nanwatch.stable.{where}：mask 是 {found}；这里需要 bool tensor，True 表示该值参与计算。"
        "由 0 和 1 组成的 mask 请写 mask.bool()；标记 padding 的 mask 请写 ~mask。",
    ),
    "stable.attention_mask_dtype": (
        "nanwatch.stable.attention: the mask is {found}; expected a bool tensor (True where a key may be "
        "seen) or a float tensor to add to the scores. Write mask.bool() for a mask of ones and zeros.",
        "nanwatch.stable.attention：mask 是 {found}；这里需要 bool tensor（True 表示可以看到该 key），"
        "或加到 score 上的浮点 tensor。由 0 和 1 组成的 mask 请写 mask.bool()。",
    ),
    "stable.normalized_shape": (
        "nanwatch.stable.{where}: x has shape {found}, which does not end in normalized_shape={expected}. "
        "Give the last dimensions of x, for example normalized_shape=x.shape[-1:]",
        "nanwatch.stable.{where}：x 的形状为 {found}，末尾与 normalized_shape={expected} 不符。"
        "请给出 x 的最后几维，例如 normalized_shape=x.shape[-1:]",
    ),
    "stable.shape": (
        "nanwatch.stable.{where}: {name} has shape {found}, which does not broadcast to {expected}. "
        "Put the missing dimensions in, for example {name}.unsqueeze(1)",
        "nanwatch.stable.{where}：{name} 的形状为 {found}，无法广播到 {expected}。"
        "请补上缺少的维度，例如 {name}.unsqueeze(1)",
    ),
    "stable.attention_shapes": (
        "nanwatch.stable.attention: query {query}, key {key}, value {value} do not belong together; expected "
        "(..., L, E), (..., S, E) and (..., S, F) with the same E and S. Check the transposes before it.",
        "nanwatch.stable.attention：query {query}、key {key}、value {value} 的形状不匹配；"
        "应为 (..., L, E)、(..., S, E) 和 (..., S, F)，且 E、S 分别相同。请检查调用之前的 transpose。",
    ),
    "stable.number": (
        "nanwatch.stable.{where}: {name} is {found}; expected {expected}, for example {name}={example}",
        "nanwatch.stable.{where}：{name} 的值为 {found}；应满足 {expected}，例如 {name}={example}",
    ),
    "stable.choice": (
        "nanwatch.stable.{where}: {name} is {found!r}; expected one of: {choices}",
        "nanwatch.stable.{where}：{name} 的值为 {found!r}；可选值：{choices}",
    ),
    "stable.one_of_two": (
        "nanwatch.stable.sample: {found} of probabilities and logits were given; exactly one was expected, "
        "for example sample(logits=logits)",
        "nanwatch.stable.sample：probabilities 和 logits 中给出了 {found} 个；应恰好给出一个，"
        "例如 sample(logits=logits)",
    ),
    "stable.no_categories": (
        "nanwatch.stable.sample: {name} has shape {found}; expected (..., categories) with at least one "
        "category. Check what was selected before the call.",
        "nanwatch.stable.sample：{name} 的形状为 {found}；应为 (..., 类别数)，且至少有一个类别。"
        "请检查调用之前的选取操作。",
    ),
    "stable.unsound_rows": (
        "nanwatch.stable.sample: {bad} of {rows} rows of {name} cannot be drawn from; the first is row "
        "{row}: {counts}. What computed {name} is at fault: look there with nanwatch.trace(), or pass "
        "repair=True to draw all the same.",
        "nanwatch.stable.sample：{name} 共 {rows} 行，其中 {bad} 行无法采样；第一处是第 {row} 行：{counts}。"
        "问题出在计算 {name} 的代码：请用 nanwatch.trace() 查看，或传入 repair=True 仍然采样。",
    ),
    "stable.repaired_rows": (
        "nanwatch.stable.sample: {bad} of {rows} rows of {name} could not be drawn from; the first is row "
        "{row}: {counts}. Each such row got its largest usable category, or any where none was usable. What "
        "computed {name} is at fault: look there with nanwatch.trace().",
        "nanwatch.stable.sample：{name} 共 {rows} 行，其中 {bad} 行无法采样；第一处是第 {row} 行：{counts}。"
        "这些行改取其中最大的可用类别，没有可用类别时随机取一个。"
        "问题出在计算 {name} 的代码：请用 nanwatch.trace() 查看。",
    ),
    "stable.counts": (
        "{nan} NaN, {inf} Inf, {negative} negative, {usable} usable of {size}",
        "NaN {nan} 个，Inf {inf} 个，负数 {negative} 个，可用 {usable} 个，共 {size} 个",
    ),
}
