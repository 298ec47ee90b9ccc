"""Objects around a DataLoader in the manner of timm's PrefetchLoader."""

import time


class Prefetcher:
    """Works on each batch of its loader, one batch ahead of the loop."""

    def __init__(self, loader, work_s=0.0):
        self.loader, self.work_s, self.kept = loader, work_s, []

    def __iter__(self):
        ahead = []
        for batch in self.loader:
            ahead.append(self.prepare(batch))
            if len(ahead) > 1:
                yield ahead.pop(0)
        yield from ahead

    def prepare(self, batch):
        time.sleep(self.work_s)
        return {"prepared": batch}

    def __len__(self):
        return len(self.loader)

    @property
    def sampler(self):
        return self.loader.sampler

    @property
    def dataset(self):
        return self.loader.dataset


class Pairs(Prefetcher):
    """Makes one batch of two."""

    def __iter__(self):
        batches = iter(self.loader)
        for batch in batches:
            yield [batch, next(batches, None)]


class Keeping(Prefetcher):
    """Keeps what it has made for the next epoch."""

    def __iter__(self):
        if self.kept:
            yield from self.kept
            return
        for batch in self.loader:
            self.kept.append(batch)
            yield batch
