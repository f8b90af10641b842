#!/usr/bin/env python3
"""A worker of one queue, with only the standard library: worker.py SERVER QUEUE [RUNS]. Ends after RUNS runs, if given.

It survives a restart of the server: a request without an answer is repeated. After SIGTERM or Ctrl-C it claims no more runs
and completes its claimed run. If the server needs a token, it is read from the variable EVERYTICK_TOKEN:
EVERYTICK_TOKEN=$(everytick token create NAME --role worker --queue QUEUE)
"""
import http.client, json, os, re, signal, socket, sys, threading, time, urllib.error, urllib.parse, urllib.request

def arguments(given):
    """Returns the server, the queue and the number of runs. Ends with exit code 2 if an argument is wrong."""
    def usage(why):
        print(f"{why}\nusage: worker.py SERVER QUEUE [RUNS], such as worker.py http://127.0.0.1:8640 emails 1", file=sys.stderr)
        sys.exit(2)

    if not 2 <= len(given) <= 3:
        usage("worker.py needs a server and a queue, and accepts a number of runs")
    server, queue, runs = given[0].rstrip("/"), given[1], given[2] if len(given) == 3 else None
    try:
        url = urllib.parse.urlsplit(server)
        is_url = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:  # the port is not a number, or is above 65535
        is_url = False
    if not is_url:
        usage(f"SERVER: {given[0]!r} is not the URL of a server; write it like http://127.0.0.1:8640")
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", queue):
        usage(f"QUEUE: {queue!r} is not a name; write letters, digits and - _ .")
    if runs is not None and not (runs.isascii() and runs.isdigit() and int(runs) > 0):
        usage(f"RUNS: {runs!r} is not a number from 1")
    return server, queue, int(runs) if runs else float("inf")

SERVER, QUEUE, RUNS = arguments(sys.argv[1:])
WORKER = f"{socket.gethostname()}-{os.getpid()}"
HEADERS = {"Content-Type": "application/json"}
TOKEN = os.environ.pop("EVERYTICK_TOKEN", "").strip()  # removed, so that no command of the worker inherits it
if TOKEN:
    HEADERS["Authorization"] = f"Bearer {TOKEN}"
stop = threading.Event()

def note(text):
    print(text, file=sys.stderr, flush=True)

def why_unanswered(error):
    """The sentence for a request that got no usable answer."""
    reason = getattr(error, "reason", error)
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answered {error.code} {error.reason}"
    if isinstance(reason, socket.gaierror):
        return "the name of the host has no address"
    if isinstance(reason, ConnectionRefusedError):
        return "the server does not answer"
    if isinstance(reason, TimeoutError):
        return "the server did not answer in time"
    return f"the connection was lost: {getattr(reason, 'strerror', None) or reason}"

def post(path, body):
    request = urllib.request.Request(f"{SERVER}/api/v1/{path}", json.dumps(body).encode(), HEADERS)
    with urllib.request.urlopen(request, timeout=40) as answer:
        return json.load(answer)

def detail(error):
    """The sentence in the answer of the server."""
    try:
        return json.load(error)["detail"]
    except (ValueError, KeyError, TypeError, OSError):
        return error.reason

def refused(error):
    """Ends the worker: the server refuses its requests, and would refuse their repeats."""
    why = detail(error)
    remedy = f"everytick token create NAME --role worker --queue {QUEUE}"
    if error.code == 401:
        used = "the token in EVERYTICK_TOKEN is not valid" if TOKEN else "the variable EVERYTICK_TOKEN is not set"
        why = f"it needs a token, and {used}; create one with `{remedy}`"
    elif error.code == 403:
        why = f"{why}; create a token for this queue with `{remedy}`"
    note(f"{SERVER} refused the request ({error.code}): {why}")
    os._exit(1)  # also from the thread of the heartbeats

def post_until_answered(path, body, give_up=lambda: False):
    """Repeats a request while no server answers or the server is busy. Returns None if it gave up, or on 404 and 409."""
    pause = 0.2
    while True:
        try:
            return post(path, body)
        except urllib.error.HTTPError as error:
            if error.code in (404, 409):  # the claim was lost, or the run has ended
                return note(f"{path}: {error.code}: {detail(error)}")
            if error.code < 500 and error.code not in (408, 429):
                refused(error)
            why = why_unanswered(error)
        except (OSError, http.client.HTTPException) as error:  # no connection, or it broke before the answer
            why = why_unanswered(error)
        if give_up():
            return None
        note(f"waiting for {SERVER}: {why}")
        time.sleep(pause)
        pause = min(2 * pause, 5)

def work(payload, log, cancelled):
    """Your work goes here: return its output, or raise. Check cancelled.is_set() if it takes long."""
    log(f"got {payload}\n")
    return f"done with {payload}"

def attempt(run):
    path, fence, ended, cancelled = f"runs/{run['id']}", run["fence"], threading.Event(), threading.Event()

    def beat():  # extends the claim; after 30 s without a heartbeat, another worker may claim the run
        while not ended.wait(10):
            answer = post_until_answered(f"{path}/heartbeat", {"fence": fence}, ended.is_set)
            if not ended.is_set() and (answer is None or answer["cancelled"]):
                return cancelled.set()

    def log(text):
        post_until_answered(f"{path}/log", {"fence": fence, "text": text}, cancelled.is_set)

    threading.Thread(target=beat, daemon=True).start()
    try:
        output = work(run["payload"], log, cancelled)[-65536:]  # the server stores at most 64 KiB
        settle = {"fence": fence, "outcome": "succeeded", "output": output}
    except Exception as error:
        settle = {"fence": fence, "outcome": "failed", "error": str(error) or repr(error)}
    ended.set()
    if cancelled.is_set():
        return note(f"run {run['id']}: cancelled, or the claim was lost")
    settled = post_until_answered(f"{path}/settle", settle)  # the same settlement gets the same answer
    if settled:
        note(f"run {run['id']}: {settled['state']}")

def leave(*_):
    """Signal handler: ends the wait of the claim request. The requests run in a thread, because a handler must return quickly. A
    second signal ends the process."""
    stop.set()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)

    def send_leave():
        for _ in range(40):  # the first request may arrive before the claim that it ends
            try:
                post(f"queues/{QUEUE}/leave", {"worker": WORKER})
            except OSError:
                pass
            time.sleep(0.5)
    threading.Thread(target=send_leave, daemon=True).start()

signal.signal(signal.SIGTERM, leave)
signal.signal(signal.SIGINT, leave)
note(f"worker {WORKER} started: queue {QUEUE} at {SERVER}")
left = RUNS
while left > 0 and not stop.is_set():
    answer = post_until_answered(f"queues/{QUEUE}/claim", {"worker": WORKER, "limit": 1, "wait": "20s"}, stop.is_set)
    if answer is None and not stop.is_set():  # 404: also a token for other queues gets it
        note(f"the worker may not claim from queue {QUEUE}; check the name, and the queues of its token")
        sys.exit(1)
    for run in answer["runs"] if answer else []:
        if stop.is_set():  # the server answered the claim after the worker was stopped
            post_until_answered(f"runs/{run['id']}/release", {"fence": run["fence"]})
        else:
            attempt(run)
            left -= 1
note("stopped")
