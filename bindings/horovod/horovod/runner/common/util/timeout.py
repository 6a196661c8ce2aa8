"""A limit of time for several activities."""

import time


class TimeoutException(Exception):
    def __init__(self, message):
        super().__init__(message)
        self.message = message


class Timeout:
    """Ends this number of seconds after it was made."""

    def __init__(self, timeout, message):
        """message: of the exception; {activity} stands for the activity that was too late."""
        self._timeout, self._message = timeout, message
        self._until = time.monotonic() + timeout

    def remaining(self):
        return max(0.0, self._until - time.monotonic())

    def timed_out(self):
        return time.monotonic() > self._until

    def check_time_out_for(self, activity):
        if self.timed_out():
            text = self._message.format(activity=activity).rstrip().rstrip(".")
            raise TimeoutException(f"{text}. Timeout after {self._timeout} seconds.")
