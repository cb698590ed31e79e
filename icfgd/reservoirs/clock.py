"""A stopwatch for CPU time that can be paused, so that evaluation does not count as training."""

import time
from contextlib import contextmanager

PROCESS_TIME = time.process_time


class Clock:
    """Seconds of CPU time of this process since `start`, without the stretches spent inside `paused()`.

    source: a function returning seconds; CPU time by default, because wall time on a shared machine measures
    the others.
    """

    def __init__(self, source=PROCESS_TIME, offset=0.0):
        self._source, self._offset, self._since = source, float(offset), None

    def start(self):
        """Start or go on. Returns self."""
        if self._since is None:
            self._since = self._source()
        return self

    def stop(self):
        """Stand still. Returns the seconds so far."""
        if self._since is not None:
            self._offset += self._source() - self._since
            self._since = None
        return self._offset

    @property
    def seconds(self):
        """Seconds counted so far."""
        return self._offset + (0.0 if self._since is None else self._source() - self._since)

    @contextmanager
    def paused(self):
        """A stretch that does not count: `with clock.paused(): evaluate()`."""
        running = self._since is not None
        self.stop()
        try:
            yield self
        finally:
            if running:
                self.start()
