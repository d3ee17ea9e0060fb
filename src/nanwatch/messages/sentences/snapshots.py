"""The last good state: why one was not taken, kept or put back."""

SENTENCES: dict[str, tuple[str, str]] = {
    "snapshot.not_an_object": (
        "nanwatch.LastGood was given a {found}; a model, an optimizer, or another object with state_dict "
        "and load_state_dict was expected, for example: nanwatch.LastGood(model, optimizer, scheduler)",
        "nanwatch.LastGood 收到了 {found}；这里需要模型、优化器，或其他带有 state_dict 和 load_state_dict 的"
        "对象，例如：nanwatch.LastGood(model, optimizer, scheduler)",
    ),
    "snapshot.folder": (
        "nanwatch.LastGood cannot write to {path} ({why}). Give another folder with dir=, or dir=None to "
        "keep snapshots in memory.",
        "nanwatch.LastGood 无法写入 {path}（{why}）。请用 dir= 指定其他目录，或用 dir=None 把快照保存在内存"
        "中。",
    ),
    "snapshot.folder_in_use": (
        "nanwatch.LastGood: {path} is in use by another LastGood. Give each training a folder of its own.",
        "nanwatch.LastGood：{path} 正被另一个 LastGood 使用。请为每个训练指定单独的目录。",
    ),
    "snapshot.not_taken": (
        "nanwatch: no snapshot at step {step} ({error}). Training goes on; the snapshots before it are "
        "untouched.",
        "nanwatch：第 {step} 步未能生成快照（{error}）。训练继续，之前的快照不受影响。",
    ),
    "snapshot.not_kept": (
        "nanwatch: the snapshot of step {step} could not be kept ({error}). Training goes on; the snapshots "
        "before it are untouched, and the next one is tried when it is due.",
        "nanwatch：第 {step} 步的快照无法保存（{error}）。训练继续，之前的快照不受影响，下一次到期时会再次尝"
        "试。",
    ),
    "snapshot.not_written": (
        "nanwatch: the snapshot of step {step} could not be written to disk ({error}). It is kept in memory, "
        "and the disk is tried again when the next one is due.",
        "nanwatch：第 {step} 步的快照无法写入磁盘（{error}）。它保存在内存中，下一次到期时会再次尝试写入磁"
        "盘。",
    ),
    "snapshot.last_not_written": (
        "nanwatch: the newest snapshot could not be written to disk ({error}). A new process would go back "
        "to an older one.",
        "nanwatch：最新的快照无法写入磁盘（{error}）。新的进程只能回退到更早的快照。",
    ),
    "snapshot.not_finite": (
        "nanwatch: no snapshot at step {step}: {name} holds NaN or Inf. The last good snapshots are kept.",
        "nanwatch：第 {step} 步不生成快照：{name} 含有 NaN 或 Inf。之前的正常快照继续保留。",
    ),
    "snapshot.left_out": (
        "nanwatch: snapshots cannot hold {keys}: only tensors, numbers, text, lists and dicts. Going back "
        "leaves that as it is then; everything else is put back.",
        "nanwatch：快照无法保存 {keys}：只能保存张量、数字、文本、列表和字典。回退时这些内容保持当时的样子，"
        "其余全部恢复。",
    ),
    "snapshot.none": (
        "nanwatch: there is no snapshot to go back to: none has been kept yet. Call step() on the LastGood "
        "after each optimizer step, from the first on.",
        "nanwatch：没有可以回退的快照：尚未保存过任何快照。请从第一步起，在每次优化器更新之后调用 LastGood "
        "的 step()。",
    ),
    "snapshot.none_usable": (
        "nanwatch: there is no snapshot to go back to: every one on this or another rank was passed over "
        "(the lines before say why). Nothing was changed.",
        "nanwatch：没有可以回退的快照：本进程或其他进程的快照全部被跳过（原因见前面各行）。没有做任何改动。",
    ),
    "snapshot.passed_over": (
        "nanwatch: the snapshot {snapshot} is passed over: {why}",
        "nanwatch：跳过快照 {snapshot}：{why}",
    ),
    "snapshot.holds_non_finite": ("{name} holds NaN or Inf.", "{name} 含有 NaN 或 Inf。"),
    "snapshot.other_objects": (
        "it was taken of {found} objects, and there are {expected} now.",
        "它保存了 {found} 个对象，而现在有 {expected} 个。",
    ),
    "snapshot.other_class": (
        "it holds the state of a {found}, where there is a {expected} now.",
        "它保存的是 {found} 的状态，而现在对应的对象是 {expected}。",
    ),
    "snapshot.only_in_snapshot": (
        "it is of another model: {thing} has no {name}.",
        "它属于另一个模型：{thing} 中没有 {name}。",
    ),
    "snapshot.not_in_snapshot": (
        "it is of another model: it has no {name} of {thing}.",
        "它属于另一个模型：其中没有 {thing} 的 {name}。",
    ),
    "snapshot.other_shape": (
        "it is of another model: {name} is {there} in it and {here} now.",
        "它属于另一个模型：{name} 在快照中是 {there}，现在是 {here}。",
    ),
    "snapshot.other_groups": (
        "the parameter groups of {thing} are others now.",
        "{thing} 的参数组与现在不同。",
    ),
    "snapshot.refused": (
        "{thing} does not take its state ({error}).",
        "{thing} 不接受其中的状态（{error}）。",
    ),
    "snapshot.other_ranks": (
        "it was taken on {found} ranks, and there are {expected} now.",
        "它由 {found} 个进程生成，而现在有 {expected} 个。",
    ),
    "snapshot.other_schema": (
        "it was written by another version of nanwatch (schema {found}, expected {expected}).",
        "它由另一版本的 nanwatch 写出（schema {found}，需要 {expected}）。",
    ),
    "snapshot.file_missing": ("{file} is missing.", "缺少 {file}。"),
    "snapshot.file_size": (
        "{file} has {found} bytes, {expected} were written.",
        "{file} 有 {found} 字节，写入时是 {expected} 字节。",
    ),
    "snapshot.file_changed": (
        "{file} is not as it was written (its checksum differs).",
        "{file} 与写入时不同（校验和不符）。",
    ),
    "snapshot.ranks_missing": (
        "nanwatch: rank {ranks} did not call rollback() within {seconds} seconds. Every rank must call it; "
        "nothing was changed on this one.",
        "nanwatch：进程 {ranks} 在 {seconds} 秒内没有调用 rollback()。每个进程都必须调用它；本进程没有做任何"
        "改动。",
    ),
}
