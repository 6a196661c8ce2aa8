"""What the ranks of learn_worker.py train and learn_oracle.py repeats in one process: a model, an optimizer, all that
belongs to them, and the part of a step that follows the reduction of the gradients."""

import collections
import hashlib
import json

import torch
from torch import nn

SAMPLES, BATCH, FEATURES = 101, 3, 6
MOST_MEMBERS = 64  # numbers of processes in a job
MOST_ROUNDS = 4000
SEED = 3  # of the sampler
IS_TOO_LARGE = 41  # in each round of a number that this divides the loss overflows, and the scaler skips the step

# distributed: options of DistributedOptimizer, with the names of a codec and an operation. passes: batches of a round.
# has_equal_buffers: all ranks end with equal buffers. is_sync: BatchNorm has the statistics of all ranks. divided:
# options of horo.zero.DistributedOptimizer, which the ranks have then, and the oracle has not.
Way = collections.namedtuple(
    "Way",
    "distributed buffers is_sync passes dropout on_device width divided",
    defaults=({}, None, False, 1, 0.1, False, 16, None),
)
WAYS = {
    "plain": Way({"priority": "forward"}),
    "mean": Way({}, "mean"),
    "sync": Way({}, None, True, 1, 0.0),
    "fp16": Way({"compression": "fp16"}),
    "passes": Way({"backward_passes_per_step": 2}, passes=2),
    "views": Way({"gradient_as_bucket_view": True, "gradient_predivide_factor": 4.0}),
    "groups": Way({"num_groups": 2, "op": "Sum"}),
    "device": Way({}, "mean", on_device=True),
    "blocks": Way(width=320, divided={"partition": "blocks"}),
    "tensors": Way(width=320, divided={"partition": "tensors"}),
}


class Model(nn.Module):
    """norm: the class of its normalization. The gradient of `members` shows which ranks have contributed."""

    def __init__(self, norm, way):
        super().__init__()
        self.first, self.norm = nn.Linear(FEATURES, way.width), norm(4)
        self.drop, self.last = nn.Dropout(way.dropout), nn.Linear(way.width, 1)
        self.members = nn.Parameter(torch.zeros(MOST_MEMBERS))

    def forward(self, x, member, factor):
        """The loss of a batch of this member."""
        values = torch.relu(self.norm(self.first(x).view(len(x), 4, -1)))
        return self.last(self.drop(values.flatten(1))).square().mean() * factor + self.members[member]


def samples():
    return torch.randn(SAMPLES, FEATURES, generator=torch.Generator().manual_seed(7))


def factor_of(number):
    """Of the loss in the round of this number."""
    return 1e38 if number % IS_TOO_LARGE == IS_TOO_LARGE - 1 else 1.0


class Training:
    """All that is trained. optimizer: the user's, or the DistributedOptimizer that the caller puts in its place."""

    def __init__(self, way, norm=nn.BatchNorm1d):
        torch.manual_seed(1)
        self.model = Model(norm, way)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 0.05, total_steps=MOST_ROUNDS)
        self.averaged = torch.optim.swa_utils.AveragedModel(
            self.model,
            multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9),
            use_buffers=way.buffers == "mean",
        )
        self.scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=10)

    def update(self):
        """The rest of a round: the gradients are reduced, and still scaled."""
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.schedule.step()
        self.averaged.update_parameters(self.model)

    def digests(self):
        """{what: hash}"""
        state = self.optimizer.state_dict()
        options = [{k: v for k, v in group.items() if k != "params"} for group in state["param_groups"]]
        texts = {
            "options": options,
            "schedule": {name: value for name, value in self.schedule.state_dict().items() if name != "_anneal_func"},
            "scaler": self.scaler.state_dict(),
        }
        tensors = {
            "parameters": self.model.parameters(),
            "optimizer": [value for _, entry in sorted(state["state"].items()) for _, value in sorted(entry.items())],
            "average": [*self.averaged.parameters(), self.averaged.n_averaged],
            "buffers": [*self.model.buffers(), *self.averaged.module.buffers()],
        }
        found = {name: json.dumps(text, sort_keys=True, default=str).encode() for name, text in texts.items()}
        found |= {name: b"".join(map(bytes_of, values)) for name, values in tensors.items()}
        return {name: hashlib.sha256(content).hexdigest()[:16] for name, content in sorted(found.items())}


def bytes_of(tensor):
    return tensor.detach().contiguous().numpy().tobytes()
