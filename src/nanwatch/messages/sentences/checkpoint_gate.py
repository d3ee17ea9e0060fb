"""The checkpoint gate: what it kept aside, and what it could not."""

SENTENCES: dict[str, tuple[str, str]] = {
    "gate.kept_aside": (
        "nanwatch: this checkpoint is not finite: {tensors}. It was not written to {path}, where everything "
        "is as it was; it is kept in {aside}",
        "nanwatch：该检查点含有非有限值：{tensors}。没有写入 {path}，原有内容保持不变；它保存在 {aside}",
    ),
    "gate.read_instead": (
        "nanwatch: nothing was written to {path}, because it was not finite; what is read now is {aside}",
        "nanwatch：由于内容含有非有限值，{path} 没有写入；现在读取的是 {aside}",
    ),
    "gate.renamed": (
        "nanwatch: {path} stays as it was: what was to get this name is not finite, and is kept in {aside}",
        "nanwatch：{path} 保持不变：将要改用此名的文件含有非有限值，保存在 {aside}",
    ),
    "gate.written_anyway": (
        "nanwatch: this checkpoint is not finite: {tensors}. It was written to {target} all the same: {why}",
        "nanwatch：该检查点含有非有限值：{tensors}。仍然写入了 {target}：{why}",
    ),
    "act.tensor": (
        "{name} ({nan} NaN, {posinf} +Inf, {neginf} -Inf of {count})",
        "{name}（{count} 个值中有 {nan} 个 NaN、{posinf} 个 +Inf、{neginf} 个 -Inf）",
    ),
    "act.more": ("{tensors} and {more} more", "{tensors}，另有 {more} 个张量"),
    "gate.stream": ("a stream", "数据流"),
    "gate.no_file": (
        "this is no file with another name beside it. Give the path of a file, and a bad one is kept aside.",
        "这不是可以在旁边另存的文件。请给出文件路径，坏的检查点便会另存。",
    ),
    "gate.no_agreement": (
        "the ranks could not agree on another name. Switch the gate on in all of them.",
        "各 rank 未能就另存的名称达成一致。请在所有 rank 上启用该检查。",
    ),
    "gate.ranks_alone": (
        "nanwatch: not all ranks came to decide about a checkpoint: no gate there, or only some ranks save. "
        "From here on each decides for the files it writes itself, and torch.distributed.checkpoint goes "
        "through unchecked. Switch the gate on in all ranks, and save on all.",
        "nanwatch：并非所有 rank 都参与了检查点的判定：有的未启用检查，或只有部分 rank 在保存。"
        "此后各 rank 只判定自己写的文件，torch.distributed.checkpoint 不再检查。"
        "请在所有 rank 上启用检查，并在所有 rank 上保存。",
    ),
    "gate.not_deleted": (
        "nanwatch: {path} is not deleted: the checkpoint that was to replace it is not finite.",
        "nanwatch：不删除 {path}：将要取代它的检查点含有非有限值。",
    ),
    "gate.failed": (
        "nanwatch: an error of its own in the checkpoint gate ({error}). This checkpoint is saved as if the "
        "gate were not there. Please report this line to the issue tracker of nanwatch.",
        "nanwatch：检查点检查自身出错（{error}）。该检查点照常保存，如同没有检查。"
        "请将此行报告给 nanwatch 的问题跟踪页面。",
    ),
}
