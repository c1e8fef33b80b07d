"""Many sessions with a run each, over a few clients. Usage: crowd.py SESSIONS CLIENTS. Prints figures as JSON."""

import sys
import threading
import time

from ctx_client import *

SESSIONS, CLIENTS = int(sys.argv[1]), int(sys.argv[2])
ids, lock, failures = [], threading.Lock(), []


def client(number):
    try:
        api = Api()
        for n in range(number, SESSIONS, CLIENTS):
            session = api.session(name=f"crowd-{n}")
            posted = api.post(session, f"hello {n}")
            assert posted["state"] == "running", posted
            with lock:
                ids.append((session, posted["run_id"], n))
    except BaseException as error:
        failures.append(error)
        raise


def resident():
    with open(f"/proc/{os.environ['CTX_DAEMON_PID']}/status") as status:
        return int(next(line for line in status if line.startswith("VmHWM")).split()[1]) // 1024


begun = time.monotonic()
threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failures, failures
took = time.monotonic() - begun
api = Api()
assert len(ids) == SESSIONS
for session, run, n in ids:
    deadline = time.monotonic() + 60
    while True:
        found = api.ok("GET", f"/sessions/{session}/runs/{run}")
        if found["state"] == "done":
            break
        assert found["state"] == "running" and time.monotonic() < deadline, found
        time.sleep(0.01)
    assert found["operator_message"]["content"] == f"hello {n}"
    assert found["primary_response"]["content"] == f"hello {n}", found
print(json.dumps({"sessions": len(ids), "seconds": round(took, 1), "memory_mb": resident()}))
