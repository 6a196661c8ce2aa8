"""A tiny BERT with random weights in Transformers' Trainer, on CPU.

HORO_REPLACE_GLOO=1 torchrun --nproc-per-node 2 transformers_trainer.py
"""

import hashlib
import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 50}


class Sentences(torch.utils.data.Dataset):
    """Random words; the label says whether the first one is in the upper half of the vocabulary."""

    def __init__(self):
        self._words = torch.randint(0, SMALL["vocab_size"], (64, 12), generator=torch.Generator().manual_seed(1))

    def __len__(self):
        return len(self._words)

    def __getitem__(self, number):
        words = self._words[number]
        label = int(words[0] >= SMALL["vocab_size"] // 2)
        return {"input_ids": words, "attention_mask": torch.ones_like(words), "labels": label}


def main():
    set_seed(2)
    model = BertForSequenceClassification(BertConfig(**SMALL, max_position_embeddings=16))
    with tempfile.TemporaryDirectory() as folder:
        options = TrainingArguments(
            output_dir=folder,
            use_cpu=True,
            per_device_train_batch_size=8,
            num_train_epochs=2,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        )
        trained = Trainer(model=model, args=options, train_dataset=Sentences()).train()
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    print(f"result {digest.hexdigest()} loss {trained.training_loss:.4f}", flush=True)
    torch.distributed.destroy_process_group()


main()
