"""Invented time."""


class FakeClock:
    """Seconds that pass when a test says so, and `per_reading_s` of them at each reading."""

    def __init__(self, now_s=0.0, per_reading_s=0.0):
        self.now_s, self.per_reading_s = now_s, per_reading_s

    def __call__(self):
        self.now_s += self.per_reading_s
        return self.now_s

    def advance(self, seconds):
        self.now_s += seconds

    def step(self, seconds):
        """A train step that takes so long."""

        def work(batch):
            self.now_s += seconds

        return work
