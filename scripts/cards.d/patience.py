"""How long something is waited for whose processors are this machine's, which may have none to spare (proc_pid_schedstat(5))."""

import glob
import time


class Clock:
    """Seconds, but for those in which a thread of a process could have run and waited for a processor."""

    def __init__(self, pid):
        self.pid, self.seconds = pid, 0.0
        self.looked, self.waited = time.monotonic(), self.waits()

    def waits(self):
        """For how long each thread has waited; none where this kernel does not count that."""
        waited = {}
        for path in glob.glob(f"/proc/{self.pid}/task/*/schedstat"):
            try:
                with open(path, encoding="ascii") as file:
                    waited[path] = int(file.read().split()[1]) / 1e9
            except (OSError, IndexError):
                pass  # The thread has ended, or nothing is counted.
        return waited

    def now(self):
        now, waited = time.monotonic(), self.waits()
        passed = now - self.looked
        longest = max((seconds - self.waited.get(path, 0.0) for path, seconds in waited.items()), default=0.0)
        self.seconds += max(passed - longest, 0.0)
        self.looked, self.waited = now, waited
        return self.seconds
