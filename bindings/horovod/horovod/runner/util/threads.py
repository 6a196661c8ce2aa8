"""Functions that run in threads."""

import concurrent.futures
import threading
import traceback


def in_thread(target, args=(), name=None, daemon=True, silent=False):
    """Calls target(*args) in a thread, which is returned. silent: an exception is not printed."""
    if not isinstance(args, tuple):
        raise ValueError(f"args={args!r}; expected a tuple, as in (value,)")

    def run():
        try:
            target(*args)
        except Exception:
            if not silent:
                traceback.print_exc()

    thread = threading.Thread(target=run, name=name, daemon=daemon)
    thread.start()
    return thread


def on_event(event, func, args=(), stop=None, check_stop_interval_s=1.0, daemon=True, silent=False):
    """Calls func(*args) in a thread once the event is set, unless `stop` is set before. Returns the thread."""

    def wait():
        while not event.wait(check_stop_interval_s):
            if stop is not None and stop.is_set():
                return
        if stop is None or not stop.is_set():
            func(*args)

    return in_thread(wait, daemon=daemon, silent=silent)


def execute_function_multithreaded(fn, args_list, block_until_all_done=True, max_concurrent_executions=1000):
    """Calls fn(*args) for each item of args_list, in threads. Returns {number of the item: result}, or None if it does
    not wait. Raises the first exception of a call."""
    workers = max(1, min(max_concurrent_executions, len(args_list)))
    pool = concurrent.futures.ThreadPoolExecutor(workers)
    calls = [pool.submit(fn, *args) for args in args_list]
    pool.shutdown(wait=block_until_all_done)
    return {number: call.result() for number, call in enumerate(calls)} if block_until_all_done else None
