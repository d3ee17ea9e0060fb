"""While the program runs: what was seen and done, and what could not be."""

SENTENCES: dict[str, tuple[str, str]] = {
    "watch.unknown_mode": (
        "nanwatch: unknown mode {mode}. Expected one of: {choices}; auto is right for almost everybody.",
        "nanwatch：未知模式 {mode}。可选值：{choices}；一般用 auto 即可。",
    ),
    "watch.not_watchable": (
        "nanwatch.watch was given a {found}; a torch.nn.Module, a torch.optim.Optimizer or another object "
        "with a state_dict was expected, for example: nanwatch.watch(model, optimizer)",
        "nanwatch.watch 收到了 {found}；这里需要 torch.nn.Module、torch.optim.Optimizer 或其他带有 "
        "state_dict 的对象，例如：nanwatch.watch(model, optimizer)",
    ),
    "watch.update_made_again": (
        "The gradients of that update are gone; it was made again on copies, with stand-in gradients of the "
        "recorded size.",
        "那次更新的梯度已不存在；这里用记录到的梯度大小构造替代梯度，在副本上重做了这次更新。",
    ),
    "watch.may_be_an_earlier_update": (
        "This weight had no gradient in the updates on record, which have left it as it was: an earlier one "
        "has made it so, and which one is not known.",
        "在有记录的各次更新中，这个权重没有梯度，因而保持不变：出错的是更早的某次更新，具体是哪一次不得而知。",
    ),
    "watch.seen_at_the_end": (
        "These weights were looked at when the program ended. No step has shown that they are bad, so an "
        "earlier update than the last one may have made them so.",
        "这些权重是在程序结束时检查的。此前没有任何一步显示它们异常，因此可能是更早的更新造成的，而不一定是最后一次。",
    ),
    "hidden.wrong_zero": (
        "the overflow was turned into 0; the true value is another number, so the result is silently wrong",
        "溢出被变成了 0，而真实值并不是 0，因此结果悄悄出错",
    ),
    "trace.all_finite": (
        "nanwatch: every op in the traced block gave finite values, or infinities that were asked for.",
        "nanwatch：被 trace 的代码块中，所有 op 的结果都是有限值，或是有意写入的无穷值。",
    ),
    "watch.stepped_aside": (
        "nanwatch: an error of its own ({error}). It steps aside: your training goes on, unwatched from "
        "here. Please report this line to the issue tracker of nanwatch.",
        "nanwatch：自身出错（{error}），已退出监视：训练照常继续，但此后不再受监视。"
        "请将此行反馈到 nanwatch 的 issue 页面。",
    ),
    "watch.folder_fallback": (
        "nanwatch: the run folder {path} cannot be written ({why}). Records go to {fallback} "
        "instead; training goes on.",
        "nanwatch：运行目录 {path} 无法写入（{why}）。记录改写到 {fallback}；训练照常继续。",
    ),
    "watch.folder_lost": (
        "nanwatch: no run folder can be written, neither {path} nor {fallback} ({why}). "
        "Watching goes on, and incidents are shown here only; training goes on.",
        "nanwatch：{path} 和 {fallback} 都无法写入（{why}）。监视仍在进行，事故只显示在终端；训练照常继续。",
    ),
    "watch.incident_not_written": (
        "nanwatch: the incident could not be written to {path} ({why}). What is on this screen "
        "is all there is; free some space and run again to keep it.",
        "nanwatch：事故记录无法写入 {path}（{why}）。目前只有屏幕上的这些内容；"
        "请腾出磁盘空间后重新运行以保留记录。",
    ),
    "watch.steps_not_written": (
        "nanwatch: the step records of rank {rank} cannot be written to {path} ({why}). "
        "Watching goes on without a timeline; training goes on.",
        "nanwatch：rank {rank} 的逐步记录无法写入 {path}（{why}）。监视继续，但不再记录时间线；"
        "训练照常继续。",
    ),
    "watch.tensors_not_kept": (
        "The operands of {op} were not saved ({why}), so there is no repro.py.",
        "{op} 的操作数未能保存（{why}），因此没有 repro.py。",
    ),
    "watch.too_large": ("too large, or no longer there", "过大，或已不存在"),
    "watch.batch_changed": (
        "The batch was changed in place after the step read it, so the replay may differ from the "
        "step that failed.",
        "batch 在本步读取之后被原地修改，因此重放结果可能与出错的那一步不同。",
    ),
    "watch.oldest_parts_left_out": (
        "This step has more micro-batches than are held for a replay: the oldest ones are not run again.",
        "本步的 micro-batch 多于为重放所保留的数量：最早的那些不会重新运行。",
    ),
    "watch.not_collected": (
        "The statistics that the model collects were put back to what they were before this call.",
        "模型所收集的统计量已恢复为这次调用之前的值。",
    ),
    "watch.wrote_its_own_weights": (
        "The model itself wrote this into {name} while it ran: it is not finite any more, put it right "
        "before you go on.",
        "模型在运行时自己把该值写进了 {name}：其中已有非有限值，继续之前请先修复。",
    ),
    "watch.operand_changed": (
        "{what} was changed in place after the step read it, so the replay may differ from the "
        "step that failed.",
        "{what} 在本步读取之后被原地修改，因此重放结果可能与出错的那一步不同。",
    ),
    "watch.model_gone": (
        "the program has let go of the model that was called",
        "程序已释放当时调用的模型",
    ),
    "watch.replay_failed": (
        "The step could not be run again ({error}), so the op where the value was born is not known.",
        "无法重放这一步（{error}），因此不能确定该值由哪个 op 产生。",
    ),
    "watch.used_up": (
        "the model was given a {what}, which can be read only once",
        "模型得到的是一个只能读取一次的 {what}",
    ),
    "watch.replay_differs": (
        "On replay the model gave other values than in the step that failed: it depends on something that "
        "was not recorded (its own Python state, a random generator of its own, an argument it used up).",
        "重放时模型给出的值与出错的那一步不同：它依赖于未被记录的内容（模型自己的 Python 状态、"
        "自带的随机数生成器、已被消耗的参数等）。",
    ),
    "watch.not_explained": (
        "The cause was not looked for: nanwatch failed at it ({error}).",
        "未能分析原因：nanwatch 自身出错（{error}）。",
    ),
    "watch.kept_from_before": (
        "The bad values are in a tensor that the program has kept since before the steps on record, and that "
        "no loader or file has brought in: what made it is not known.",
        "坏值在一个程序早已保存的张量里，它产生于有记录的各步之前，也不是由加载器或文件带入的：不知道它是怎么产生的。",
    ),
    "watch.handed_out": (
        "The values were finite when torch made them, as a replay shows, and are not now. The program has "
        "given their memory to NumPy or another library on this line: what is written there is not on "
        "record.",
        "重放表明，torch 算出这些值时它们是有限的，现在却不是。程序在这一行把它们的内存交给了 NumPy 或其他"
        "库：在那里写入的内容没有记录。",
    ),
    "watch.seen_after_the_update": (
        "The update of this step, and maybe of one or two more, was made before this was seen: the replay "
        "has the weights after it.",
        "看到问题时，这一步（可能还有后面一两步）的更新已经完成：重放使用的是更新之后的权重。",
    ),
    "watch.statistics_looked_at": (
        "In device mode statistics are not looked at after every step: these were last seen to be finite "
        "after step {step}.",
        "在 device 模式下并非每一步之后都检查统计量：上一次看到它们有限是在第 {step} 步之后。",
    ),
    "watch.not_again": (
        "The step did not fail again on replay: {what} was finite this time. "
        "The fault depends on something that was not replayed (a race, uninitialised memory, a "
        "stateful loader).",
        "重放时该步没有再次出错：这次 {what} 是有限值。"
        "故障取决于未被重放的因素（竞态、未初始化内存、有状态的数据加载等）。",
    ),
    "watch.skipped_in_all": (
        "nanwatch: {count} steps were skipped in this run; see {path}",
        "nanwatch：本次运行共跳过 {count} 步；详见 {path}",
    ),
    "watch.let_be_in_all": (
        "nanwatch: {count} bad steps in this run were left to the program; the first {written} are in "
        "{path}, the others were only counted",
        "nanwatch：本次运行共有 {count} 个坏的步交由程序自行处理；前 {written} 个记录在 {path}，其余只计数",
    ),
    "watch.policy_ended": (
        "The policy leaves nothing but to stop here: it has skipped {skipped} and rolled back {rolled_back} "
        "times before.",
        "按照策略，此处只能停止：此前已跳过 {skipped} 次、回滚 {rolled_back} 次。",
    ),
    "watch.stopped": (
        "{kind} at step {step}: {op} at {file}:{line}. See {path}",
        "第 {step} 步出现 {kind}：{file}:{line} 的 {op}。详见 {path}",
    ),
    "watch.stopped_unknown": (
        "{kind} at step {step}, phase {phase}; the place of birth is not known. See {path}",
        "第 {step} 步（阶段 {phase}）出现 {kind}，产生位置未知。详见 {path}",
    ),
    "watch.device_assert": (
        "nanwatch: a kernel on the GPU was stopped by an assert: most often an index outside its table. The "
        "GPU cannot be read any more, and what was still on the host does not show which op it was. Run once "
        "more with CUDA_LAUNCH_BLOCKING=1: then the error comes at the op that caused it.",
        "nanwatch：GPU 上的内核因断言而停止，最常见的原因是索引超出了表的范围。该 GPU 已无法读取，"
        "仅凭主机上留下的数据找不到是哪个算子。请设置 CUDA_LAUNCH_BLOCKING=1 再运行一次："
        "这样错误就会出现在引发它的算子处。",
    ),
    "watch.device_assert_found": (
        "The GPU stopped with an assert, reported it at a later call, and cannot be read any more. The index "
        "was found by running the last steps on the CPU, with zeros in the place of what lay on the GPU.",
        "GPU 因断言而停止，到之后的调用才报告，且已无法读取。这个索引是在 CPU 上重新运行最后几步找到的，"
        "GPU 上的数据以零代替。",
    ),
    "watch.other_thread": (
        "nanwatch: a model is trained in another thread than the one that was watched first; only that "
        "one is watched. Start nanwatch.watch(...) in the thread that trains.",
        "nanwatch：有模型在另一个线程中训练，而被监视的只有最初的线程。"
        "请在训练所在的线程中调用 nanwatch.watch(...)。",
    ),
    "watch.rolled_back": (
        "nanwatch: went back to the state after step {step}. {rate}",
        "nanwatch：已回到第 {step} 步之后的状态。{rate}",
    ),
    "watch.rate_is_lower": (
        "The learning rate is now {factor} times the program's.",
        "学习率现为程序设定值的 {factor} 倍。",
    ),
    "watch.rate_as_before": (
        "The learning rate stays the program's.",
        "学习率仍为程序的设定值。",
    ),
    "watch.no_precautions": (
        "nanwatch: no snapshots, early warnings or checks of checkpoints in this run ({why}).",
        "nanwatch：本次运行没有快照、预警和检查点检查（{why}）。",
    ),
    "watch.not_rolled_back": (
        "nanwatch: could not go back ({why}). The step is stopped instead.",
        "nanwatch：无法回滚（{why}）。改为在此停止。",
    ),
    "watch.bit_turned": (
        "{name} holds {value} at {place}; after step {step} it held {before} there. Bit {bit} was turned "
        "over. Nothing of the program has written it since, and no other weight or moment has changed: a "
        "fault of the memory.",
        "{name} 在 {place} 处现为 {value}，第 {step} 步之后为 {before}：第 {bit} 位被翻转。"
        "此后程序没有写过它，其余权重和动量也都没有变：这是内存故障。",
    ),
    "watch.stopped_by_memory": (
        "A bit of {name} was turned over in memory before the update of step {step}. See {path}",
        "第 {step} 步更新之前，{name} 在内存中有一位被翻转。详见 {path}",
    ),
    "watch.skipping_helps_nothing": (
        "Skipping this step would not help: what is bad outlives it. Policies that go back (rollback, "
        "survive) put the last good state back.",
        "跳过这一步没有用：坏掉的内容在这一步之后依然存在。能回滚的策略（rollback、survive）会恢复最近一份正常状态。",
    ),
    "watch.good_parts_kept_by_ranks": (
        "Left out on this rank: micro-batch {bad} of {count}, counted from 0. All ranks make the update with "
        "the gradients of the others.",
        "本 rank 跳过的微批：第 {bad} 个（共 {count} 个，从 0 计）。所有 rank 用其余微批的梯度完成更新。",
    ),
    "watch.parts_of_others_left_out": (
        "No micro-batch of this rank was bad: all ranks make the update without the bad ones of another.",
        "本 rank 没有坏的微批：所有 rank 不计其他 rank 的坏微批，完成更新。",
    ),
    "watch.group_left_out": (
        "All micro-batches of this step are left out: none is good, or the good ones cannot be made again by "
        "themselves.",
        "这一步的所有微批都被跳过：没有一个是好的，或者好的那些无法单独重新计算。",
    ),
    "watch.good_parts_kept": (
        "Left out: micro-batch {bad} of {count}, counted from 0. The update is made with the gradients of "
        "the others.",
        "跳过的微批：第 {bad} 个（共 {count} 个，从 0 计）。用其余微批的梯度完成更新。",
    ),
    "watch.other_rank": (
        "nanwatch: step {step} went bad on another rank, so this rank takes the same decision. "
        "The incident is in {path}",
        "nanwatch：第 {step} 步在另一个 rank 上出错，本 rank 采取同样的处理。事故记录见 {path}",
    ),
    "watch.other_rank_left": (
        "nanwatch: an error of its own on another rank made it step aside there, so it steps aside here too: "
        "your training goes on, unwatched from here.",
        "nanwatch：它在另一个 rank 上因自身出错而退出监视，因此在本 rank 上也一并退出：训练照常继续，"
        "但此后不再受监视。",
    ),
    "watch.ranks_alone": (
        "nanwatch: some of the ranks that train this model are not watched, so each rank judges for itself. "
        "Start nanwatch on all of them to have one decision.",
        "nanwatch：训练该模型的部分 rank 没有被监视，因此各 rank 自行判断。"
        "请在所有 rank 上启动 nanwatch，以便统一处理。",
    ),
    "watch.needs_other_ranks": (
        "The step was not run again: it talks to other ranks ({what}), and they are not there to answer. "
        "Only a step that the audit traces can be located here.",
        "没有重放这一步：它需要与其他 rank 通信（{what}），而其他 rank 不会再次参与。"
        "这种情况下只能定位被抽查（audit）到的步。",
    ),
    "watch.from_another_rank": (
        "This rank's own loss and gradients are finite on replay: the bad value came from another rank, "
        "through the averaged gradients. See the incident of that rank.",
        "重放时本 rank 自己的 loss 和梯度都是有限值：异常值来自另一个 rank，经梯度平均传入。"
        "请看那个 rank 的事故记录。",
    ),
}
