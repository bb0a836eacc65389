"""A program that is interrupted while it waits for an answer. Usage: interrupted.py TRANSPORT STAGE"""

import os
import signal
import sys
import time
from threading import Thread

from prompty import invoke
from tests.loopback import Hold, Server
from tests.transports.subject import Subject
from tests.transports.test_cancellation import held

name, stage = sys.argv[1:]
hold = Hold()
interrupted: list[float] = []


def interrupt() -> None:
    """Do what Ctrl+C does, when the call waits."""
    hold.reached.wait()
    time.sleep(0.1)
    interrupted.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)


signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background has it ignored
with Server() as server:
    server.answer(held({"headers": "before headers", "body": "in the body"}[stage], hold))
    agent = Subject(name).agent(server.url)
    Thread(target=interrupt).start()
    try:
        invoke(agent, timeout=20, max_retries=0)
    except KeyboardInterrupt:
        print("interrupted", "in time" if time.monotonic() - interrupted[0] < 2 else "late")  # noqa: T201  for the test
