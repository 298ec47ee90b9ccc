"""Sentences of uneven length, padded to the longest of their batch: dicts for batches, a loss from the model.

    bottleneck diagnose examples/text_padding.py:build

The collate function does the work of interest here. The model is called with the batch's entries as keywords
and returns its loss, so the pipeline needs neither a loss function nor a train step.
"""

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from bottleneck import Pipeline

PADDING = 0


class Sentences(Dataset):
    """Token sequences whose lengths spread as those of real text do: many short ones, a few long ones."""

    def __init__(self, sentences: int, vocabulary: int, longest: int) -> None:
        self.sentences, self.vocabulary, self.longest = sentences, vocabulary, longest

    def __len__(self) -> int:
        return self.sentences

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        length = int(torch.empty(1).log_normal_(3.5, 0.6, generator=generator).clamp(4, self.longest))
        tokens = torch.randint(1, self.vocabulary, (length,), generator=generator)
        return tokens, index % 2


def collate(samples):
    """Pads the sentences of a batch to the longest of them."""
    tokens = [tokens for tokens, _ in samples]
    labels = [label for _, label in samples]
    padded = pad_sequence(tokens, batch_first=True, padding_value=PADDING)
    return {"tokens": padded, "mask": padded != PADDING, "labels": torch.tensor(labels)}


class Classifier(nn.Module):
    """Embeds, encodes, averages over all but padding, and returns its loss."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=PADDING)
        self.encoder = nn.TransformerEncoderLayer(width, nhead=4, dim_feedforward=2 * width, batch_first=True)
        self.head = nn.Linear(width, 2)

    def forward(self, tokens, mask, labels):
        """The loss of a batch, whose entries arrive as keywords."""
        encoded = self.encoder(self.embedding(tokens), src_key_padding_mask=~mask)
        weights = mask.unsqueeze(-1).to(encoded.dtype)
        mean = (encoded * weights).sum(1) / weights.sum(1)
        return nn.functional.cross_entropy(self.head(mean), labels)


def build(sentences: int = 20_000, longest: int = 256, width: int = 64, batch_size: int = 32) -> Pipeline:
    """The job: a small transformer that classifies sentences."""
    vocabulary = 8_000
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Classifier(vocabulary, width).to(device)
    return Pipeline(
        dataset=Sentences(sentences, vocabulary, longest),
        collate_fn=collate,
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=3e-4),
        batch_size=batch_size,
        shuffle=True,
        num_workers=2,
    )
