#!/usr/bin/env python3
"""Writes the schedules that PyTorch's own classes list: tests/golden/pytorch_schedules/.

usage: pytorch_schedules.py DIRECTORY        (any PyTorch >= 2.6; neither devices nor processes are needed)

* CLASS_pP_vV_mM.csv: the rows of a few small cases, as PyTorch writes them, idle cells included; beside them
  CLASS_pP_vV_mM.lowered.csv: what PyTorch's runtime makes of them, with the arguments that it has by itself
* digests.csv: a row a case: class, ranks p, stages a rank v, microbatches m, and digests (FNV-1a, 64 bits, of cells joined by
  ',' and '\\n'): of the compute order; of the same with its idle cells; with sends, receives and reductions; of the lowered form
* unshard.csv: the lowered form where a rank may hold fewer stages at a time than it has, or more: class, p, v, m, the most
  stages that are active, a digest

"Lowered" is UNSHARD and RESHARD, REDUCE_GRAD, sends and receives, and (from 2.12 on) all the waits. Lines end in '\\n'
here; the files that PyTorch itself writes end them in '\\r\\n', as Python's csv module does.

Schedule1F1B's listing of its last rank counts its forwards from 1 (it begins with F1, and ends with an F of a microbatch
that does not exist); what it runs begins with F0 (its step method counts by itself). Here the last rank counts from 0.
"""
import os
import sys

import torch
from torch.distributed.pipelining import schedules
from torch.distributed.pipelining.stage import _PipelineStageBase

COMPUTE = {"F", "I", "W", "B", "OVERLAP_F_B"}


class Stage(_PipelineStageBase):
    """As much of a stage as a schedule's constructor looks at."""

    def __init__(self, index, count, rank, size):
        self.submod = torch.nn.Identity()
        self.stage_index, self.num_stages = index, count
        self.group_rank, self.group_size = rank, size
        self.has_backward = True


Stage.__abstractmethods__ = frozenset()


def build(name, p, v, m):
    """The order: {rank: [action or None]}."""
    if name in ("ScheduleGPipe", "Schedule1F1B"):
        cls = getattr(schedules, name)
        schedule = cls.__new__(cls)
        schedule._num_stages, schedule._n_microbatches = p, m
        order = schedule._get_pipeline_order()
        order = {rank: compute(row) for rank, row in order.items()}
        if name == "Schedule1F1B":
            forwards = [action.microbatch_index for action in order[p - 1] if str(action.computation_type.value) == "F"]
            assert forwards in (list(range(m)), list(range(1, m + 1)))
            order[p - 1] = [action._replace(microbatch_index=action.microbatch_index - forwards[0])
                            if str(action.computation_type.value) == "F" else action for action in order[p - 1]]
        return order
    count = p * v
    in_v = "ZBV" in name or "DualPipeV" in name
    stages = [Stage((count - 1 if c else 0) if in_v else c * p, count, 0, p) for c in range(v)]
    return getattr(schedules, name)(stages, m).pipeline_order


def compute(row):
    return [action for action in row if action is not None and str(action.computation_type.value) in COMPUTE]


def placement(order):
    """Rank of each stage."""
    return {part.stage_index: rank for rank, row in order.items() for action in compute(row)
            for part in (action.sub_actions or (action,))}


def with_comms(order, m):
    """Sends, receives and reductions, without the waits that some versions add."""
    rank_of = placement(order)
    rows = {rank: [action for action in schedules._add_reduce_grad(compute(row), m) if "WAIT" not in str(action)]
            for rank, row in order.items()}
    listed = schedules._add_send_recv(rows, lambda stage: rank_of[stage], len(rank_of))
    return listed


def lowered(order, m, active=3):
    """The passes of _PipelineScheduleRuntime._prepare_schedule_with_comms, in its order."""
    rank_of = placement(order)
    rows = {rank: schedules._add_reduce_grad(schedules._add_unshard_reshard(compute(row), active), m)
            for rank, row in order.items()}
    return schedules._add_wait_send(schedules._add_send_recv(rows, lambda stage: rank_of[stage], len(rank_of)))


def text(order, idle):
    return "".join(",".join(str(action) if action is not None else "" for action in order[rank]
                            if idle or action is not None) + "\n" for rank in sorted(order))


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data.encode():
        value = ((value ^ byte) * 0x100000001B3) % 2**64
    return f"{value:016x}"


CLASSES = {
    # name: stages a rank, microbatches for p ranks
    "ScheduleGPipe": ((1,), lambda p: (1, p, 2 * p)),
    "Schedule1F1B": ((1,), lambda p: (p, 2 * p, 4 * p)),
    "ScheduleLoopedBFS": ((2, 3), lambda p: (p, 2 * p)),
    # p + 1: one round of p + 1 microbatches
    "ScheduleInterleaved1F1B": ((2, 3), lambda p: (p, 2 * p, 4 * p, p + 1)),
    "ScheduleInterleavedZeroBubble": ((2, 3), lambda p: (p, 2 * p, p + 1)),
    "ScheduleZBVZeroBubble": ((2,), lambda p: (2 * p, 3 * p)),
    "ScheduleDualPipeV": ((2,), lambda p: (2 * p, 3 * p)),
}
PLAIN = {(2, 4), (4, 8)}  # (p, m) of which the rows are kept, for v <= 2


def main():
    directory = sys.argv[1]
    os.makedirs(directory, exist_ok=True)
    about = f"# PyTorch {torch.__version__.split('+')[0]}, tests/golden/pytorch_schedules.py"
    digests = [about, "class,p,v,m,compute,spaced,communication,lowered"]
    unshard = [about, "class,p,v,m,active,lowered"]
    for name, (chunks, microbatches) in CLASSES.items():
        for p in range(2, 17):
            for v in chunks:
                for m in microbatches(p):
                    order = build(name, p, v, m)
                    fields = (text(order, False), text(order, True), text(with_comms(order, m), False),
                              text(lowered(order, m), False))
                    digests.append(f"{name},{p},{v},{m}," + ",".join(map(fnv, fields)))
                    if (p, m) in PLAIN and v <= 2:
                        with open(f"{directory}/{name}_p{p}_v{v}_m{m}.csv", "w") as file:
                            file.write(fields[1])
                        with open(f"{directory}/{name}_p{p}_v{v}_m{m}.lowered.csv", "w") as file:
                            file.write(fields[3])
            if p > 4 and p != 8:
                continue
            for v in chunks + ((5,) if len(chunks) > 1 else ()):
                m = microbatches(p)[1]
                for active in range(2 if "DualPipe" in name else 1, 7):
                    unshard.append(f"{name},{p},{v},{m},{active},{fnv(text(lowered(build(name, p, v, m), m, active), False))}")
    for name, rows in ("digests", digests), ("unshard", unshard):
        with open(f"{directory}/{name}.csv", "w") as file:
            file.write("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
