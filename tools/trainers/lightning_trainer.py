"""A small model in Lightning's Trainer. Arguments: ddp or model_parallel (FSDP2), and the backend.

torchrun --nproc-per-node 2 lightning_trainer.py ddp horo
"""

import hashlib
import os
import sys
import warnings

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset

KIND, BACKEND = sys.argv[1:]
warnings.simplefilter("ignore")


class Regression(lightning.LightningModule):
    """Two layers that learn the sum of their inputs."""

    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))

    def configure_model(self):
        if KIND == "model_parallel":
            fully_shard(self.net, mesh=self.device_mesh["data_parallel"])

    def training_step(self, batch, _):
        inputs, targets = batch
        loss = torch.nn.functional.mse_loss(self.net(inputs), targets)
        self.log("loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


def strategy():
    if KIND == "ddp":
        return DDPStrategy(process_group_backend=BACKEND)
    size = int(os.environ["WORLD_SIZE"])
    return ModelParallelStrategy(data_parallel_size=size, tensor_parallel_size=1, process_group_backend=BACKEND)


def main():
    lightning.seed_everything(3, verbose=False)
    inputs = torch.randn(128, 8)
    loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=8)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    size = int(os.environ["WORLD_SIZE"])
    trainer = lightning.Trainer(
        accelerator="cpu", devices=size, strategy=strategy(), max_epochs=2, enable_model_summary=False, **quiet
    )
    model = Regression()
    trainer.fit(model, loader)
    digest = hashlib.sha256()
    for parameter in model.net.parameters():
        whole = parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter
        digest.update(whole.detach().numpy().tobytes())
    print(f"result {digest.hexdigest()} loss {trainer.callback_metrics['loss']:.4f}", flush=True)
    torch.distributed.destroy_process_group()


main()
