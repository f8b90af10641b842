#!/usr/bin/env python3
"""A worker of one queue, with the standard library alone: worker.py SERVER QUEUE [RUNS]. Ends after RUNS runs, if given."""
import json, os, socket, sys, threading, urllib.error, urllib.request

SERVER, QUEUE = sys.argv[1].rstrip("/"), sys.argv[2]
WORKER = f"{socket.gethostname()}-{os.getpid()}"

def post(path, body):
    request = urllib.request.Request(f"{SERVER}/api/v1/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=40) as answer:
        return json.load(answer)

def work(payload, log, cancelled):
    """Your work goes here: give what it printed, or raise. Look at cancelled.is_set() when it takes long."""
    log(f"got {payload}\n")
    return f"done with {payload}"

def attempt(run):
    path, fence, ended, cancelled = f"runs/{run['id']}", run["fence"], threading.Event(), threading.Event()

    def beat():  # keeps the run ours; the server gives it to another when it hears nothing for 30 s
        while not ended.wait(10):
            try:
                if post(f"{path}/heartbeat", {"fence": fence})["cancelled"]:
                    return cancelled.set()
            except urllib.error.HTTPError:
                return cancelled.set()  # 409: it is not ours any more
            except OSError:
                pass  # the next beat may get through
    threading.Thread(target=beat, daemon=True).start()
    try:
        output = work(run["payload"], lambda text: post(f"{path}/log", {"fence": fence, "text": text}), cancelled)
        settle = {"fence": fence, "outcome": "succeeded", "output": output}
    except Exception as error:
        settle = {"fence": fence, "outcome": "failed", "error": str(error)}
    ended.set()
    if not cancelled.is_set():
        post(f"{path}/settle", settle)

left = int(sys.argv[3]) if len(sys.argv) > 3 else float("inf")
while left > 0:
    for run in post(f"queues/{QUEUE}/claim", {"worker": WORKER, "limit": 1, "wait": "20s"})["runs"]:
        attempt(run)
        left -= 1
