#!/usr/bin/env python3
"""A worker of one queue, with only the standard library: worker.py SERVER QUEUE [RUNS]. Ends after RUNS runs, if given."""
import json, os, socket, sys, threading, urllib.error, urllib.request

SERVER, QUEUE = sys.argv[1].rstrip("/"), sys.argv[2]
WORKER = f"{socket.gethostname()}-{os.getpid()}"

def post(path, body):
    request = urllib.request.Request(f"{SERVER}/api/v1/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=40) as answer:
        return json.load(answer)

def work(payload, log, cancelled):
    """Your work goes here: return its output, or raise. Check cancelled.is_set() if it takes long."""
    log(f"got {payload}\n")
    return f"done with {payload}"

def attempt(run):
    path, fence, ended, cancelled = f"runs/{run['id']}", run["fence"], threading.Event(), threading.Event()

    def beat():  # extends the claim; without a heartbeat for 30 s the server gives the run to another worker
        while not ended.wait(10):
            try:
                if post(f"{path}/heartbeat", {"fence": fence})["cancelled"]:
                    return cancelled.set()
            except urllib.error.HTTPError:
                return cancelled.set()  # 409: the claim was lost
            except OSError:
                pass  # the next heartbeat may succeed
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
